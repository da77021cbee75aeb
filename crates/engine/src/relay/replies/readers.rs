//! Replies in pools with reads on standbys.

use super::Replies;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::engine::views::PoolViews;
use crate::ids::{ClientId, Micros, ServerId};
use crate::routing::Sessions;
use crate::routing::rules::Routing;
use crate::server::ServerPhase;
use crate::session::on_server::SchemaChanges;
use crate::shell::{Exchange, Io};

/// A client has read on a reader. `left_recovery`: the reader's node was promoted, so a text with a
/// hint may have written there. This counts for the pool of the client, not for that of the reader.
pub(super) fn note_read(
    sessions: &mut Sessions,
    pools: &PoolViews,
    reader: Option<(ClientId, &Client)>,
    left_recovery: bool,
    now: Micros,
) {
    let Some((id, client)) = reader else { return };
    sessions.of(id, client.serial).has_read(now);
    if !left_recovery {
        return;
    }
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
        let is_reader = self.pools.is_reader(self.servers[on].pool);
        let server = &mut *self.servers[on];
        if server.status == b'I' {
            // The client may begin its next transaction before that message ends.
            server.leave_unjudged();
        }
        if let (ServerPhase::Linked, Some(id)) = (&*server.phase, server.client) {
            self.clients[id].end_request();
        }
        let (status, last_end) = (server.status, server.ledger.last_end());
        match server.client {
            Some(id) if is_reader && status == b'I' && last_end != 0 => {
                self.clients[id].extended.get_or_insert_default().awaits = last_end;
            }
            Some(_) | None => self.go_on_answered(on, io),
        }
    }

    /// A client that keeps its reader sends it the requests that have already arrived.
    #[cold]
    pub(super) fn go_on_kept(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let client = self.clients.get(id);
        if client.is_some_and(|client| matches!(*client.phase, ClientPhase::Linked)) {
            self.go_on(id, io);
        }
    }
}

impl Replies<'_, '_> {
    /// Notes the end of a transaction in a pool with routing. It may have written.
    #[cold]
    #[inline(never)]
    pub(super) fn note_routed_end(
        &mut self,
        id: ClientId,
        sessions: &mut Sessions,
        routing: &Routing,
        now: Micros,
    ) {
        let Some(client) = &self.client else { return };
        let (last, is_over) = (self.server.ledger.last_end(), self.server.ledger.is_at_rest());
        let mut is_doubtful = false;
        if let Some(session) = self.server.session.get_mut() {
            is_doubtful = session.schema == SchemaChanges::MayBeUnseen;
            // Otherwise the next transaction has begun, which may be the one that does.
            if is_over {
                session.schema = SchemaChanges::Seen;
            }
        }
        sessions.ended((id, client.serial), (last, is_doubtful), routing, now);
    }
}
