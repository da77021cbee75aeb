//! The replies of an input are passed on. Decides what their server does next, and ends the
//! transaction if it is over.

use config::PoolMode;

use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::ServerId;
use crate::lifecycle::close_reason::CloseReason;
use crate::relay::ledger::CopyStep;
use crate::routing::Place;
use crate::server::ServerPhase;
use crate::session::holding::review_hold;
use crate::session::verdict::doubt_changed_values;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// All received bytes are handled. Decides what the server does next.
    pub(super) fn after_replies(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        if matches!(*server.phase, ServerPhase::Finishing) && server.ledger.awaits_message() {
            // The server waits for a message that no client will send. Until then it ignores cancel
            // requests.
            return self.close_server(on, CloseReason::NotReady, io);
        }
        if !server.ledger.is_at_rest() {
            return self.go_on_answered(on, io);
        }
        if !server.stream.at_boundary() {
            return self.await_boundary(on, io);
        }
        match *server.phase {
            ServerPhase::Preparing(_) => self.prepared(on, io),
            // `free` waits until a pending cancel request is over.
            ServerPhase::Finishing => self.free(on, io),
            ServerPhase::Settling(_) => {
                if server.is_clean() {
                    self.settled(on, io);
                } else {
                    self.reset_failed(on, CloseReason::GotDirty, io);
                }
            }
            ServerPhase::Linked => self.query_done(on, io),
            ServerPhase::Listening => self.listener_answered(on, io),
            ServerPhase::Parked
            | ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Attending { .. } => {}
        }
    }

    /// The client's next message may have waited for an answer that has now arrived.
    #[cold]
    pub(super) fn go_on_answered(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &*self.servers[on];
        let Some(id) = server.client else { return };
        if server.phase.is_signaling()
            && server.ledger.last().is_none()
            && server.stream.at_boundary()
        {
            return self.may_signal(id, on, io);
        }
        if matches!(*server.phase, ServerPhase::Linked)
            && server.ledger.copy_step() == Some(CopyStep::Count)
        {
            self.go_on(id, io);
            return self.work.push_back(Work::Requests(id));
        }
        let awaits = self.clients[id].extended.as_ref().map_or(0, |own| own.awaits);
        let waits = matches!(*server.phase, ServerPhase::Linked) && awaits != 0;
        // During a copy, the server waits for the client.
        if waits && (server.ledger.has_answered(awaits) || server.ledger.in_copy()) {
            self.go_on(id, io);
        }
    }

    /// The server owes its client nothing more. If the transaction is over as well, ends it. The
    /// server may have sent something that answers no query, such as a NOTICE.
    pub(crate) fn query_done(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let now = io.now();
        let server = &mut *self.servers[on];
        let Some(id) = server.client else { return };
        let Some(view) = self.pools.views.get_mut(server.pool) else { return };
        let client = &mut self.clients[id];
        if let Some(taken) = server.stages.answer(now) {
            view.query_done(taken);
            if let Some(watch) = &mut self.watch {
                watch.done(on, server.pool, client.serial, taken, server.status == b'I');
            }
            client.request_at = now;
        }
        let (mut awaits_answer, mut ends_turn) = (false, false);
        if let Some(own) = &mut client.extended {
            own.renewed = false;
            own.statements.forget_closes();
            awaits_answer = own.awaits != 0;
            ends_turn = server.status == b'I' && own.pace.end_turn();
        }
        if server.status != b'I' {
            return self.go_on_answered(on, io);
        }
        if client.transaction_at != 0 {
            view.transaction_done(now.saturating_sub(client.transaction_at));
            if let Some(slow) = server.stages.finish(client, server.pool, true, now) {
                self.transactions.add(slow);
            }
            client.transaction_at = 0;
        }
        if awaits_answer {
            if view.place == Place::Writer && !ends_turn && client.stream.holds_message() {
                return self.go_on_answered(on, io);
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
            if awaits_answer {
                self.go_on_kept(id, io);
            }
            return;
        }
        doubt_changed_values(client, server, &self.context.names);
        if server.has_traces() {
            server.session.own().traces.put_off = false;
            review_hold(server, view, now);
            if server.has_traces() {
                self.judge(id, on, io);
                if awaits_answer {
                    self.go_on_kept(id, io);
                }
                return;
            }
        }
        self.unlink(id, on, io);
    }
}
