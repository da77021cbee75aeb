//! A client whose server is lost keeps its connection, in pools that want it
//! ([`PoolSettings::keeps_clients`]). Its settings, statements and channels go on at the next server.
//! `loss.rs` decides what it is told, `failed.rs` continues with a client whose transaction was lost.
//! `engine/losses.rs` carries this out.
//!
//! ```text
//!  a server is lost ─┬─ its request can be sent again ──────────────► another server
//!                    ├─ the client waits for a reply ─► the error ─┬─► Idle
//!                    │                                             └─► Failed
//!                    ├─ an open transaction, or lost state ─► Failed: told with its next request
//!                    └─ neither ──────────────────────────────────► Idle
//! ```

use config::PoolMode;
use sql::Signs;
use wire::backend;
use wire::error_fields::ErrorFields;
use wire::sqlstate::{
    ADMIN_SHUTDOWN, CANNOT_CONNECT_NOW, CRASH_SHUTDOWN, DATABASE_DROPPED, SERIALIZATION_FAILURE,
};

use crate::client::Client;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::loss::{Failed, Loss, Skips};
use crate::lifecycle::pair::{self, Pair};
use crate::notify::listen::{Channels, passes_channels};
use crate::relay::batch_end::BatchEnd;
use crate::relay::ledger::{Rest, Unanswered};
use crate::relay::resend::abandon;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::pins::Pins;
use crate::session::verdict::report_changes;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};

/// Can the client go on without this server, which is being lost? Not in the middle of a reply or of
/// a repeated request, and not if all of its session is on this server.
pub(crate) fn outlives(client: &Client, server: &Server, settings: &PoolSettings) -> bool {
    settings.keeps_clients
        && client.is_welcomed()
        && client.replication.is_none()
        && server.mode_in(settings.mode) != PoolMode::Session
        && !server.pins().contains(Pins::SESSION)
        && !server.stream.is_mid_message()
        && !server.ledger.copies_in_doubt()
        && !server.may_lose_channels()
        && !keeps_channels_there(client, server)
        && match *server.phase {
            ServerPhase::Linked => true,
            ServerPhase::Preparing(ref step) => !matches!(
                step,
                Preparation::Unwind
                    | Preparation::Renew
                    | Preparation::Restore
                    | Preparation::Ask(_)
                    | Preparation::TellPrincipal(_)
                    | Preparation::Signal(_)
            ),
            ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Parked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => false,
        }
}

impl Server {
    /// May its client have begun to listen without Weir's knowledge? It may wait for notifications
    /// and send nothing more, and no reply could tell it that it does not listen any more.
    fn may_lose_channels(&self) -> bool {
        const MAY_LISTEN: Signs = Signs::LISTEN.with(Signs::OPAQUE);
        let is_idle = self.status.is_idle() && self.ledger.unanswered().is_nothing();
        is_idle && self.session.traces.signs.intersects(MAY_LISTEN)
    }
}

/// Does the server have channels for which the pool's listener cannot listen? Then no warning could
/// ever tell the client that it does not hear them any more.
fn keeps_channels_there(client: &Client, server: &Server) -> bool {
    server.pins().contains(Pins::LISTEN) && !passes_channels(client)
}

/// Does PostgreSQL say with this error that it ends, or that it ends this session for a reason that
/// is not the client's? The limits of idle sessions and of transactions are reasons of the client.
pub(crate) fn says_farewell(error: &ErrorFields) -> bool {
    // A standby sends the last two if the session conflicts with the replay of the log.
    let codes = [
        ADMIN_SHUTDOWN,
        CRASH_SHUTDOWN,
        CANNOT_CONNECT_NOW,
        SERIALIZATION_FAILURE,
        DATABASE_DROPPED,
    ];
    let is_of_node = codes.map(str::as_bytes).contains(&error.sqlstate());
    error.ends_session() && (is_of_node || error.is_panic())
}

/// Is the server lost for a reason that is not the client's?
pub(crate) fn is_loss(reason: CloseReason<'_>) -> bool {
    matches!(
        reason,
        CloseReason::Lost
            | CloseReason::PrimaryLost
            | CloseReason::PrimaryChanged
            | CloseReason::NotReadable
            | CloseReason::NodeSilent
    )
}

/// The state in which a server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losing {
    /// It was not logged in.
    NotOpened,
    /// It was being prepared for a client, which has sent it nothing.
    Prepared,
    AskedAboutRole,
    AskedAboutUser,
    /// It has ended during settings that were sent with a request. The request has not run.
    Ahead,
    /// It belongs to a client.
    Linked,
    /// It has no client, or its client has left.
    Unlinked,
}

impl Server {
    pub(crate) fn losing(&self) -> Losing {
        match *self.phase {
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => Losing::NotOpened,
            ServerPhase::Preparing(
                Preparation::Hear
                | Preparation::Check
                | Preparation::Apply
                | Preparation::Reapply
                | Preparation::Statements
                | Preparation::Recount(_)
                | Preparation::Confirm,
            ) if self.status.is_idle() && !self.has_traces() => Losing::Prepared,
            ServerPhase::Preparing(Preparation::TellPrincipal(_)) => Losing::AskedAboutRole,
            ServerPhase::Preparing(Preparation::Fail | Preparation::Begin) => Losing::Prepared,
            ServerPhase::Preparing(Preparation::Restore | Preparation::Ask(_)) => {
                Losing::AskedAboutUser
            }
            ServerPhase::Preparing(Preparation::Ahead(_))
                if self.own_error.is_some() && self.client.is_some() =>
            {
                Losing::Ahead
            }
            ServerPhase::Linked | ServerPhase::Preparing(_) => Losing::Linked,
            ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. }
            | ServerPhase::Parked => Losing::Unlinked,
        }
    }
}

impl Client {
    /// Its server is lost before the client has used it. If its statement may have caused the loss, no
    /// server is asked about that again.
    pub(crate) fn lose_unused(&mut self, server: &mut Server) {
        if matches!(*server.phase, ServerPhase::Preparing(Preparation::Confirm)) {
            self.resent.note();
            self.extended_mut().repeats.ask_no_more();
        }
        pair::part(self, server);
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// Returns what the client has lost.
    pub(crate) fn loss<'a>(&self, reason: CloseReason<'a>) -> Loss<'a> {
        let server = &*self.server;
        let refused = server.kept.refused_end();
        let unanswered = server.ledger.unanswered();
        // The refusal was held until its cause is known, and the whole batch has had no effect.
        let unanswered = refused.map_or(unanswered, |end| match end {
            BatchEnd::Synced => Unanswered { requests: 1, rest: Rest::None },
            BatchEnd::Open => Unanswered { requests: 0, rest: Rest::Open },
        });
        // A transaction is over, and Weir has not found out yet what it has left.
        let is_over = server.status.is_idle() && unanswered.is_nothing();
        let traces = server.session.traces;
        let is_unjudged = traces.earlier || is_over && traces.are_due();
        let pins = server.pins().without(Pins::DRAWN).without(Pins::LISTEN);
        let pins = if is_unjudged { pins.with(Pins::UNVERIFIED) } else { pins };
        Loss {
            status: server.status.byte(),
            unanswered,
            ending: server.ledger.endings.unanswered(),
            is_harmless: refused.is_some() || server.has_harmless_request(),
            session: pins.words().collect::<Vec<_>>().join(", "),
            reason: reason.text(),
        }
    }

    /// Unlinks a client and its lost server. Its unanswered messages count as messages without an
    /// effect.
    pub(crate) fn part_lost(&mut self) {
        let client = &mut *self.client;
        abandon(client, self.server);
        pair::part(client, self.server);
        client.resent.end();
        client.await_nothing();
        client.end_request();
        // The rest of a half-sent message.
        client.stream.drop_rest();
        let (id, context, exchange) = (self.id, &mut *self.context, &mut *self.pool.exchange);
        Channels { id, client, server: None, context, exchange }.recover();
    }

    /// The client's values are again those from before the lost transaction.
    pub(crate) fn roll_back_values(&mut self, io: &mut impl Io<X>) {
        let Some(before) = self.server.changes.undo() else { return };
        let told = std::mem::replace(&mut *self.client.vars, before.clone());
        report_changes(self.id, &told, &before, &self.context.names, io);
    }
}

impl Loss<'_> {
    /// Returns the replies to the client's requests. `error`: the one that it is told.
    pub(crate) fn replies(&self, error: Option<&ErrorFields>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(error) = error.filter(|_| self.unanswered.is_awaited()) {
            for _ in 0..self.unanswered.requests {
                backend::error(&mut out, error);
                backend::ready_for_query(&mut out, self.status_after());
            }
            if self.unanswered.rest == Rest::Open {
                backend::error(&mut out, error);
            }
        }
        out
    }

    /// Returns what is left for the client's next messages, after these replies.
    pub(crate) fn failed(&self, error: Option<ErrorFields>, in_copy: bool) -> Failed {
        Failed {
            error: error.filter(|_| !self.unanswered.is_awaited()),
            skips: match self.unanswered.rest {
                Rest::Open | Rest::Failed => Skips::ToSync,
                Rest::None | Rest::Answered if in_copy => Skips::Copy,
                Rest::None | Rest::Answered => Skips::Nothing,
            },
            status: self.status_after(),
        }
    }
}
