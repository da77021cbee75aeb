//! A client whose server is lost keeps its connection, in pools that want it
//! ([`PoolSettings::keeps_clients`]). Its settings, statements and channels go on at the next server.
//! `loss.rs` decides what it is told, `failed.rs` continues with a client whose transaction was lost.
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

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::cut_transaction;
use crate::lifecycle::loss::{Failed, Loss, Skips};
use crate::lifecycle::pair;
use crate::notify::listen::passes_channels;
use crate::operator::remarks::remark;
use crate::relay::batch_end::BatchEnd;
use crate::relay::ledger::{Rest, Unanswered};
use crate::relay::resend::{abandon, answer_due};
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::pins::Pins;
use crate::session::verdict::report_changes;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io, Weight};
use crate::vars::TrackedNames;

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
        let is_idle = self.status == b'I' && self.ledger.unanswered().is_nothing();
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
fn is_loss(reason: CloseReason<'_>) -> bool {
    matches!(
        reason,
        CloseReason::Lost
            | CloseReason::PrimaryLost
            | CloseReason::PrimaryChanged
            | CloseReason::NotReadable
            | CloseReason::NodeSilent
    )
}

impl<X: Exchange> Engine<X> {
    /// A server with a client is lost. The client's request goes to another server, or the client is
    /// told.
    pub(crate) fn lose_linked(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        // If a limit ended the request, another server must not run it again.
        let is_limited = matches!(*self.servers[on].phase, ServerPhase::Linked) && !is_loss(reason);
        if !is_limited
            && let Some(id) = self.servers[on].client
            && let Some(request) = self.pair(id, on).take_kept()
        {
            return self.move_request(id, on, &request, reason, io);
        }
        let server = &*self.servers[on];
        if let Some(id) = server.client {
            let settings = self.pools.settings(server.pool);
            if is_loss(reason) && outlives(&self.clients[id], server, settings) {
                return self.keep_client(id, on, reason, io);
            }
            self.disconnect_from(id, on, reason, io);
        }
        self.close_server(on, reason, io);
    }

    /// Takes the lost server from its client, and tells the client what it has lost.
    pub(crate) fn keep_client(
        &mut self,
        id: ClientId,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        answer_due(id, &mut self.servers[on], io);
        let loss = self.loss(on, reason);
        let in_copy = self.servers[on].ledger.in_copy();
        let (status, unanswered) = (loss.status_after(), loss.unanswered);
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        roll_back_values(id, client, server, &self.context.names, io);
        let (serial, view) = (client.serial, client.pool.and_then(|own| self.pools.views.get(own)));
        if loss.is_unknown()
            && let Some(view) = view
        {
            self.sessions.suppose_write((id, serial), &view.settings, io.clock());
        }
        if self.pools.is_reader(self.servers[on].pool) {
            // It may have shown a part of its data.
            self.sessions.of(id, serial).has_lost_reader(io.clock());
        }
        let error = loss.error();
        if let Some(error) = &error {
            let text = format!("{} ({})", error.message(), reason.text());
            remark(id, &self.clients[id], Weight::Warning, &text, io);
        }
        let mut out = Vec::new();
        if let Some(error) = error.as_ref().filter(|_| unanswered.is_awaited()) {
            for _ in 0..unanswered.requests {
                backend::error(&mut out, error);
                backend::ready_for_query(&mut out, status);
            }
            if unanswered.rest == Rest::Open {
                backend::error(&mut out, error);
            }
        }
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        cut_transaction(client, server, &mut self.transactions, io.now());
        self.part(id, on);
        self.close_server(on, reason, io);
        if !out.is_empty() {
            io.send_client(id, &out);
        }
        let failed = Failed {
            error: error.filter(|_| !unanswered.is_awaited()),
            skips: match unanswered.rest {
                Rest::Open | Rest::Failed => Skips::ToSync,
                Rest::None | Rest::Answered if in_copy => Skips::Copy,
                Rest::None | Rest::Answered => Skips::Nothing,
            },
            status,
        };
        self.clients[id].fail(failed);
        self.go_on_without(id, io);
    }

    /// Unlinks a client and its lost server. Its unanswered messages count as messages without an
    /// effect.
    fn part(&mut self, id: ClientId, on: ServerId) {
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        abandon(client, server);
        pair::part(client, server);
        client.resent = false;
        client.await_nothing();
        client.end_request();
        // The rest of a half-sent message.
        client.stream.dropping |= client.stream.remaining > 0;
        self.channels(id).recover();
    }

    fn loss<'a>(&self, on: ServerId, reason: CloseReason<'a>) -> Loss<'a> {
        let server = &*self.servers[on];
        let refused = server.kept.as_deref().and_then(|kept| kept.refused.as_ref());
        let unanswered = server.ledger.unanswered();
        // The refusal was held until its cause is known, and the whole batch has had no effect.
        let unanswered = refused.map_or(unanswered, |refused| match refused.end {
            BatchEnd::Synced => Unanswered { requests: 1, rest: Rest::None },
            BatchEnd::Open => Unanswered { requests: 0, rest: Rest::Open },
        });
        // A transaction is over, and Weir has not found out yet what it has left.
        let is_over = server.status == b'I' && unanswered.is_nothing();
        let traces = server.session.traces;
        let is_unjudged = traces.earlier || is_over && traces.are_due();
        let pins = server.pins().without(Pins::DRAWN).without(Pins::LISTEN);
        let pins = if is_unjudged { pins.with(Pins::UNVERIFIED) } else { pins };
        Loss {
            status: server.status,
            unanswered,
            ending: server.ledger.endings.unanswered,
            is_harmless: refused.is_some() || server.has_harmless_request(),
            session: pins.words().collect::<Vec<_>>().join(", "),
            reason: reason.text(),
        }
    }

    /// Continues with a client that has lost its server.
    pub(crate) fn go_on_without(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let is_over = !matches!(*self.clients[id].phase, ClientPhase::Failed(_));
        self.read_again(id, io);
        if is_over && !self.pools.changed_user.is_empty() {
            self.follow_rename(id);
        }
        self.tell_untold(id, io);
    }
}

/// The client's values are again those from before the lost transaction.
fn roll_back_values<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    server: &mut Server,
    names: &TrackedNames,
    io: &mut impl Io<X>,
) {
    let changes = server.changes.take();
    let Some(before) = changes.and_then(|changes| changes.values_before) else { return };
    let told = std::mem::replace(&mut client.vars, before.clone());
    report_changes(id, &told, &before, names, io);
}
