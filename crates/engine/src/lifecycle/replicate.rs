//! A client that replicates gets a server that is nobody else's: opened for it, with what it has
//! asked for at its login, and closed when it leaves. It takes a place in its pool and a seat like
//! any other; if the pool is full, an idle server makes room, or the next one that becomes free.

use crate::admission::pool::Pool;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::server::{ServerPhase, ServerPurpose};
use crate::shell::{Exchange, Io};
use crate::vars::{TrackedNames, Welcome};

/// What goes into the server's startup packet beyond what the pool has for it. Settings cannot be
/// made later: a physical replication connection knows no SET.
pub(crate) fn replication_parameters<'a>(
    client: &'a Client,
    names: &'a TrackedNames,
) -> Vec<(&'a str, &'a [u8])> {
    let Some(asked) = &client.replication else { return Vec::new() };
    let own = (0..names.len()).filter_map(|slot| Some((names.name(slot), client.vars.get(slot)?)));
    let mut all = vec![("replication", asked.kind.parameter().as_bytes())];
    all.extend(own);
    all.extend(asked.options.as_deref().map(|options| ("options", options)));
    all
}

impl<X: Exchange> Engine<X> {
    /// The client is logged in and needs its server, for which it may have to wait.
    pub(crate) fn link_own(
        &mut self,
        id: ClientId,
        pool: PoolId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let reserved = self.exchange.pool(pool, Pool::reserve_own);
        if reserved && self.take_seat(pool, now, io) {
            let waiter = Waiter { client: id, ticket: 0, since: now };
            self.client_mut(id).phase = ClientPhase::Preparing(waiter);
            self.connect_server(pool, Some(ServerPurpose::Replication { client: id }), now, io);
        } else {
            // What it gets in the end is replaced.
            let _ = self.link(id, now, io);
        }
    }

    /// Its turn has come: the server it is given makes room for one of its own.
    pub(crate) fn replace_by_own(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let waiter = match self.client(id).phase {
            ClientPhase::Waiting(waiter) => waiter,
            _ => Waiter { client: id, ticket: 0, since: now },
        };
        self.client_mut(id).phase = ClientPhase::Preparing(waiter);
        let purpose = ServerPurpose::Replication { client: id };
        self.replace_server(on, CloseReason::Evicted, purpose, now, io);
    }

    /// The server is logged in. What it has told of itself is this client's welcome, and no
    /// other's: without a database a server has other settings.
    pub(crate) fn replication_opened(
        &mut self,
        on: ServerId,
        id: ClientId,
        welcome: &Welcome,
        rest: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let (pool, epoch) = (self.server(on).pool, self.server(on).epoch);
        self.exchange.pool(pool, |pool| pool.opened(epoch));
        let client = &mut self.clients[id.0 as usize];
        let server = &mut *self.servers[on.0 as usize];
        let since = match client.phase {
            ClientPhase::Preparing(waiter) => waiter.since,
            _ => now,
        };
        server.replication = client.replication.as_ref().map(|asked| asked.kind);
        server.vars = welcome.vars.clone();
        server.phase = ServerPhase::Linked;
        client.vars = welcome.vars.clone();
        client.phase = ClientPhase::Linked;
        let stats = self.stats(pool);
        stats.assignments += 1;
        stats.wait_time += now.saturating_sub(since);
        self.welcome(id, Some(on), welcome, io);
        self.go_on(id, io);
        if !rest.is_empty() && self.servers.get(on.0 as usize).is_some() {
            self.reply_bytes(on, rest, now, io);
        }
        self.go_on_opening(pool, now, io);
    }
}
