//! The client that reads a server's replies, and the replies of readers.

use super::Replies;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::engine::views::PoolViews;
use crate::ids::{ClientId, Micros, ServerId};
use crate::routing::Sessions;
use crate::routing::rules::Routing;
use crate::server::{Preparation, Server, ServerPhase};
use crate::shell::{Exchange, Io};

/// News that concern more than the server's client.
#[derive(Clone, Copy, Default)]
pub(super) struct News {
    /// The schema has changed, so texts may have another meaning from now on.
    pub(super) schema_changed: bool,
    /// The server's node is no standby any more.
    pub(super) left_recovery: bool,
}

/// Returns the client that reads the server's replies, or the client that is held back. A client
/// that is held back gets notifications only: PostgreSQL may send these at any time.
#[inline(always)]
pub(super) fn reader_and_hearer<'a>(
    server: &Server,
    client: Option<&'a mut Client>,
) -> (Option<&'a mut Client>, Option<&'a mut Client>) {
    match server.phase {
        ServerPhase::Linked
        | ServerPhase::Preparing(
            Preparation::AwaitCancel
            | Preparation::Probe(_)
            | Preparation::HandOver
            | Preparation::Signal(_),
        ) => (client, None),
        ServerPhase::Preparing(Preparation::Unwind | Preparation::Renew | Preparation::Confirm) => {
            (None, client)
        }
        ServerPhase::Preparing(_) if server.is_pinned() => (None, client),
        ServerPhase::Connecting(_)
        | ServerPhase::Login(_)
        | ServerPhase::Parked
        | ServerPhase::Preparing(_)
        | ServerPhase::Finishing
        | ServerPhase::Settling(_)
        | ServerPhase::Listening
        | ServerPhase::Attending { .. } => (None, None),
    }
}

/// A reader's node was promoted, so a text with a hint may have written there. This counts for the pool
/// of the client, not for that of the reader.
#[cold]
pub(super) fn note_write_on_reader(
    sessions: &mut Sessions,
    pools: &PoolViews,
    (id, client): (ClientId, &Client),
    now: Micros,
) {
    let view = client.pool.and_then(|pool| pools.get(pool));
    if let Some(routing) = view.and_then(|view| view.settings.routing.as_ref()) {
        sessions.of(id, client.serial).wrote.note(now);
        routing.note_write(now);
    }
}

impl<X: Exchange> Engine<X> {
    /// Every request is answered, but the server is in the middle of an unrequested message. A
    /// reader's client is not read until that message ends: its next request may need another
    /// server.
    #[cold]
    pub(super) fn await_boundary(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let is_reader = self.is_reader(on);
        let server = self.server(on);
        let (status, last_end) = (server.status, server.ledger.last_end());
        match server.client {
            Some(id) if is_reader && status == b'I' && last_end != 0 => {
                self.client_mut(id).extended.get_or_insert_default().awaits = last_end;
            }
            Some(_) | None => self.go_on_answered(on, io),
        }
    }

    /// A client that keeps its reader sends it the requests that have already arrived.
    #[cold]
    pub(super) fn go_on_kept(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let client = self.clients.get(id.0 as usize);
        if client.is_some_and(|client| matches!(client.phase, ClientPhase::Linked)) {
            self.go_on(id, io);
        }
    }
}

impl Replies<'_, '_> {
    /// Notes the end of a transaction in a pool with routing, which may have written. Later reads must
    /// see the writes, so this is done before the client is told.
    #[inline(always)]
    pub(super) fn note_end(
        &self,
        id: Option<ClientId>,
        sessions: &mut Sessions,
        clock: impl FnOnce() -> Micros,
    ) {
        if self.transaction_ended
            && let Some(routing) = &self.settings.routing
            && let Some(id) = id
        {
            self.note_routed_end(id, sessions, routing, clock());
        }
    }

    #[cold]
    #[inline(never)]
    fn note_routed_end(
        &self,
        id: ClientId,
        sessions: &mut Sessions,
        routing: &Routing,
        now: Micros,
    ) {
        if let Some(client) = &self.client {
            let last = self.server.ledger.last_end();
            sessions.ended((id, client.serial), last, routing, now);
        }
    }
}
