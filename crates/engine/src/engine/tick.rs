//! What time does: timeouts, lifetimes, further attempts. Called a few times a second; each limit
//! is kept to that grain, as PgBouncer keeps its own.

use std::time::Duration;

use super::Engine;
use crate::client::{Client, ClientPhase};
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::server::ServerPhase;
use crate::shell::{Exchange, Io};

/// 0 switches a limit off.
fn over(limit: Micros, since: Micros, now: Micros) -> bool {
    limit > 0 && now.saturating_sub(since) > limit
}

fn micros(limit: Duration) -> Micros {
    limit.as_micros() as Micros
}

impl<X: Exchange> Engine<X> {
    pub fn tick(&mut self, now: Micros, io: &mut impl Io) {
        self.expire_clients(now, io);
        self.expire_servers(now, io);
        for pool in self.pools.iter().map(|(id, _)| id).collect::<Vec<_>>() {
            self.tend_pool(pool, now, io);
        }
    }

    fn expire_clients(&mut self, now: Micros, io: &mut impl Io) {
        let global = &self.config.global;
        let login = micros(global.client_login_timeout);
        let idle = micros(global.client_idle_timeout);
        let wait = micros(global.query_wait_timeout);
        let cancel = micros(global.cancel_wait_timeout);
        let mut expired: Vec<(ClientId, &str)> = Vec::new();
        for (slot, client) in &self.clients {
            let why = match &client.phase {
                ClientPhase::Login(_) if over(login, client.connected_at, now) => {
                    "client_login_timeout"
                }
                ClientPhase::Waiting(waiter) if over(wait, waiter.since, now) => {
                    "query_wait_timeout"
                }
                ClientPhase::Waiting(waiter)
                    if over(self.query_limit(client), waiter.since, now) =>
                {
                    "query_timeout"
                }
                ClientPhase::Waiting(_)
                    if !client.welcomed && over(login, client.connected_at, now) =>
                {
                    "client_login_timeout (server down)"
                }
                ClientPhase::Idle if over(idle, client.request_at, now) => "client_idle_timeout",
                ClientPhase::Canceling { .. } if over(cancel, client.connected_at, now) => {
                    "cancel_wait_timeout"
                }
                _ => continue,
            };
            expired.push((ClientId(slot as u32), why));
        }
        for (id, why) in expired {
            self.disconnect(id, why, now, io);
        }
    }

    /// `query_timeout` of the client's pool: for a client, waiting for a server is part of its
    /// query.
    fn query_limit(&self, client: &Client) -> Micros {
        client.pool.map_or(0, |pool| self.settings(pool).query_timeout)
    }

    fn expire_servers(&mut self, now: Micros, io: &mut impl Io) {
        let mut expired: Vec<(ServerId, &str)> = Vec::new();
        for (slot, server) in &self.servers {
            let settings = self.settings(server.pool);
            let client = server.client.and_then(|id| self.clients.get(id.0 as usize));
            let why = match (&server.phase, client) {
                (ServerPhase::Connecting(_) | ServerPhase::Login(_), _)
                    if over(settings.server_connect_timeout, server.connected_at, now) =>
                {
                    "connect timeout"
                }
                (ServerPhase::Linked, Some(client)) => {
                    let busy = !server.ledger.owes_nothing();
                    let in_transaction = client.transaction_at != 0;
                    if busy && over(settings.query_timeout, client.request_at, now) {
                        "query timeout"
                    } else if !busy
                        && in_transaction
                        && over(settings.idle_transaction_timeout, server.replied_at, now)
                    {
                        "idle transaction timeout"
                    } else if in_transaction
                        && over(settings.transaction_timeout, client.transaction_at, now)
                    {
                        "transaction timeout"
                    } else {
                        continue;
                    }
                }
                // An answer to a question of ours that never comes.
                (ServerPhase::Preparing(_) | ServerPhase::Finishing | ServerPhase::Settling, _)
                    if !server.ledger.owes_nothing()
                        && over(settings.server_connect_timeout, server.asked_at, now) =>
                {
                    "test query failed"
                }
                _ => continue,
            };
            expired.push((ServerId(slot as u32), why));
        }
        for (id, why) in expired {
            self.server_closed(id, why, now, io);
        }
    }

    /// Parked servers that are too old, and waiting clients for whom nothing is being done.
    fn tend_pool(&mut self, id: PoolId, now: Micros, io: &mut impl Io) {
        let settings = self.settings(id).clone();
        let worker = self.worker;
        let mut old: Vec<(ServerId, &str)> = Vec::new();
        let (taken, open) = self.exchange.pool(id, |pool| {
            let closed = pool.closed;
            let taken = pool.take_expired(worker, |server| {
                closed
                    || now.saturating_sub(server.connected_at) > settings.server_lifetime
                    || over(settings.server_idle_timeout, server.released_at, now)
            });
            (taken, pool.oldest_waiter(worker).is_some() && pool.reserve_opening(now))
        });
        for server in taken {
            let lifetime = now.saturating_sub(server.connected_at) > settings.server_lifetime;
            let why = if lifetime { "server lifetime over" } else { "server idle timeout" };
            let server = self.attach(server, io);
            self.server_mut(server).phase = ServerPhase::Settling;
            old.push((server, why));
        }
        for (server, why) in old {
            self.close_server(server, why, now, io);
        }
        if open {
            self.open_server(id, None, now, io);
        }
    }
}
