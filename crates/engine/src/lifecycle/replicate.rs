//! Gives a replication client a server of its own. The server is opened with the parameters of the
//! client's startup packet, and closed when the client leaves. It takes a place in its pool and a
//! seat like any other server. If the pool is full, it replaces an idle server or the next free
//! one.

use crate::admission::pool::Pool;
use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{ClientId, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::server::ServerPurpose;
use crate::shell::{Exchange, Io};
use crate::vars::{TrackedNames, Welcome};

/// Returns the parameters that the startup packet has beyond those of the pool. Physical
/// replication knows no SET, so settings cannot be made later.
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
    /// Requests a server for a logged-in replication client, which may have to wait.
    pub(crate) fn link_own(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let reserved = self.pools.exchange.pool(pool, Pool::reserve_own);
        if reserved && self.take_seat(pool, io) {
            let waiter = Waiter::served(id, pool, io.now());
            self.clients[id].phase.prepare(waiter);
            self.connect_server(pool, Some(ServerPurpose::Replication { client: id }), io);
        } else {
            // The server that the client gets later is replaced.
            let _ = self.link(id, io);
        }
    }

    /// Replaces the server that the client got in its turn by one of its own.
    pub(crate) fn replace_by_own(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let served = Waiter::served(id, self.servers[on].pool, io.now());
        self.clients[id].phase.prepare(served);
        let purpose = ServerPurpose::Replication { client: id };
        self.replace_server(on, CloseReason::Evicted, purpose, io);
    }

    /// Completes the login of the server. The client's welcome has this server's own parameters:
    /// without a database a server has other settings.
    pub(crate) fn replication_opened(
        &mut self,
        on: ServerId,
        id: ClientId,
        welcome: &Welcome,
        rest: &[u8],
        io: &mut impl Io<X>,
    ) {
        let now = io.now();
        let (pool, epoch) = (self.servers[on].pool, self.servers[on].epoch);
        self.pools.exchange.pool(pool, |pool| pool.opened(epoch));
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        let since = client.phase.prepared_since().unwrap_or(now);
        server.replication = client.replication.as_ref().map(|asked| asked.kind);
        server.vars = welcome.vars.clone();
        server.phase.link();
        client.vars = welcome.vars.clone();
        client.phase.link();
        self.pools.view(pool).assigned(now.saturating_sub(since));
        self.welcome(id, Some(on), welcome, io);
        self.go_on(id, io);
        if !rest.is_empty() && self.servers.get(on).is_some() {
            self.reply_bytes(on, rest, io);
        }
        self.go_on_opening(pool, io);
    }
}
