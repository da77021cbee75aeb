//! The replies of an input are passed on. Decides what their server does next, and ends the
//! transaction if it is over.

use config::PoolMode;

use crate::admission::view::PoolView;
use crate::client::Client;
use crate::ids::{Micros, ServerId};
use crate::operator::transactions::Transactions;
use crate::relay::ledger::CopyStep;
use crate::routing::Place;
use crate::server::{Server, ServerPhase};
use crate::session::holding::review_hold;
use crate::session::verdict::doubt_changed_values;
use crate::vars::TrackedNames;
use crate::watch::Watch;

/// The state of a client whose next message may have waited for an answer.
pub(crate) enum Awaited {
    /// It waits for another answer, or for none.
    Nothing,
    /// PostgreSQL has told whether the client may signal another one.
    Permission,
    /// It is time to count what the server has read of a copy.
    Count,
    /// The answer has arrived.
    Arrived,
}

impl Awaited {
    #[inline]
    pub(crate) fn of(client: &Client, server: &Server) -> Self {
        if server.phase.is_signaling()
            && server.ledger.last().is_none()
            && server.stream.at_boundary()
        {
            return Self::Permission;
        }
        let is_linked = matches!(*server.phase, ServerPhase::Linked);
        if is_linked && server.ledger.copy_step() == Some(CopyStep::Count) {
            return Self::Count;
        }
        let awaited = client.extended.as_ref().and_then(|own| own.awaited.serial());
        // During a copy, the server waits for the client.
        let may_go_on = |serial| server.ledger.has_answered(serial) || server.ledger.in_copy();
        match is_linked && awaited.is_some_and(may_go_on) {
            true => Self::Arrived,
            false => Self::Nothing,
        }
    }
}

/// Every request is answered, but the server is in the middle of an unrequested message. A reader's
/// client is not read until that message ends: its next request may need another server. Returns
/// whether the client may go on.
#[cold]
pub(crate) fn await_boundary(
    client: Option<&mut Client>,
    server: &mut Server,
    is_reader: bool,
) -> bool {
    if server.status.is_idle() {
        // The client may begin its next transaction before that message ends.
        server.leave_unjudged();
    }
    let Some(client) = client else { return true };
    if matches!(*server.phase, ServerPhase::Linked) {
        client.end_request();
    }
    let last_end = server.ledger.last_end();
    let waits = is_reader && server.status.is_idle() && last_end != 0;
    if waits {
        client.extended.get_or_insert_default().awaited.begin(last_end);
    }
    !waits
}

/// A server that owes its client nothing more. It may have sent something that answers no query, such
/// as a NOTICE.
pub(crate) struct Answered<'a> {
    pub(crate) on: ServerId,
    pub(crate) client: &'a mut Client,
    pub(crate) server: &'a mut Server,
    pub(crate) view: &'a mut PoolView,
    pub(crate) watch: &'a mut Option<Box<Watch>>,
    pub(crate) transactions: &'a mut Transactions,
    pub(crate) names: &'a TrackedNames,
}

/// The further use of a server that owes its client nothing more. `was_awaited`: the client's next
/// message has waited for the answer.
pub(crate) enum Done {
    /// The client goes on with this server.
    GoesOn,
    /// The transaction is over. The client keeps its server.
    Kept { was_awaited: bool },
    /// The transaction is over. The server has traces that must be judged.
    Judged { was_awaited: bool },
    /// The transaction is over. Other clients may have the server.
    Free,
}

impl Answered<'_> {
    /// Ends the query, and the transaction if it is over as well.
    #[inline(always)]
    pub(crate) fn end(self, now: Micros) -> Done {
        let Self { on, client, server, view, watch, transactions, names } = self;
        if let Some(taken) = server.stages.answer(now) {
            view.query_done(taken);
            if let Some(watch) = watch {
                watch.done(on, server.pool, client.serial, taken, server.status.is_idle());
            }
            client.times.answered(now);
        }
        let (mut was_awaited, mut ends_turn) = (false, false);
        if let Some(own) = &mut client.extended {
            own.repeats.request_ends();
            own.statements.forget_closes();
            was_awaited = own.awaited.is_some();
            ends_turn = server.status.is_idle() && own.pace.end_turn();
        }
        if !server.status.is_idle() {
            return Done::GoesOn;
        }
        if client.times.in_transaction() {
            view.transaction_done(now.saturating_sub(client.times.transaction_at()));
            if let Some(described) = server.stages.finish(client, server.pool, true, now) {
                transactions.over(described);
            }
            client.times.transaction_ends();
        }
        if was_awaited {
            if view.place == Place::Writer && !ends_turn && client.stream.holds_message() {
                return Done::GoesOn;
            }
            // The next request is routed again, unless the client keeps the server. Or there is none:
            // Weir had a question of its own, or the rest of the request has not arrived.
            client.await_nothing();
        }
        // The rest of a half-sent message belongs to this server.
        let keeps =
            server.mode_in(view.settings.mode) == PoolMode::Session || server.replication.is_some();
        if keeps || client.stream.is_mid_message() {
            server.leave_unjudged();
            return Done::Kept { was_awaited };
        }
        doubt_changed_values(client, server, names);
        if server.has_traces() {
            server.session.own().traces.put_off = false;
            review_hold(server, view, now);
            if server.has_traces() {
                return Done::Judged { was_awaited };
            }
        }
        Done::Free
    }
}
