//! What time does: timeouts, lifetimes, further attempts. Called a few times a second; each limit
//! is kept to that grain, as PgBouncer keeps its own.

use crate::lifecycle::close_reason::CloseReason;
use crate::server::Settling;
use std::time::Duration;

use config::UserSettings;

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, over};
use crate::lifecycle::link::notice;
use crate::server::{LoginStage, Preparation, Server, ServerPhase};
use crate::session::pins::Pins;
use crate::shell::{Exchange, Io};

const QUEUED: &str = "No server connection available in postgres backend, client being queued";

fn micros(limit: Duration) -> Micros {
    limit.as_micros() as Micros
}

impl<X: Exchange> Engine<X> {
    pub fn tick(&mut self, now: Micros, io: &mut impl Io<X>) {
        self.expire_clients(now, io);
        self.retry_cancels(now, io);
        self.free_places(now, io);
        self.judge_held(now, io);
        self.finish(now, io);
        self.end_long_holds(now, io);
        self.finish(now, io);
        self.derive_ahead();
        self.notify_waiting(now, io);
        self.look_ahead(now, io);
        self.expire_servers(now, io);
        self.close_obsolete(now, io);
        self.finish(now, io);
        self.review_listeners(now, io);
        self.tend_listeners(now, io);
        self.pass_channels_on(now, io);
        self.finish(now, io);
        self.make_warm_pools();
        for pool in self.known_pools() {
            self.tend_pool(pool, now, io);
            self.finish(now, io);
        }
    }

    fn expire_clients(&mut self, now: Micros, io: &mut impl Io<X>) {
        let global = &self.config.global;
        let login = micros(global.client_login_timeout);
        let idle = micros(global.client_idle_timeout);
        let cancel = micros(global.cancel_wait_timeout);
        let mut expired: Vec<(ClientId, &str)> = Vec::new();
        for (slot, client) in &self.clients {
            let why = match &client.phase {
                ClientPhase::Login(_) if over(login, client.connected_at, now) => {
                    "client_login_timeout"
                }
                ClientPhase::Waiting(waiter)
                    if over(self.query_limit(client), waiter.since, now) =>
                {
                    "query_timeout"
                }
                ClientPhase::Waiting(waiter)
                    if over(self.wait_limit(client), waiter.since, now) =>
                {
                    "query_wait_timeout"
                }
                ClientPhase::Waiting(_)
                    if !client.is_welcomed() && over(login, client.connected_at, now) =>
                {
                    "client_login_timeout (server down)"
                }
                ClientPhase::Idle
                    if over(self.idle_limit(client, idle), client.request_at, now) =>
                {
                    "client_idle_timeout"
                }
                ClientPhase::Linked if self.keeps_for_long(client, now) => "pin_timeout",
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

    /// Does it keep a server that it has not used for `pin_timeout`?
    fn keeps_for_long(&self, client: &Client, now: Micros) -> bool {
        let server = client.server.and_then(|on| self.servers.get(on.0 as usize));
        server.is_some_and(|server| {
            let limit = self.settings(server.pool).pin_timeout;
            let is_idle = client.transaction_at == 0 && server.is_clean();
            let is_pinned =
                server.session.pinned.as_ref().is_some_and(|one| one.pins != Pins::DRAWN);
            is_pinned && is_idle && over(limit, client.request_at, now)
        })
    }

    /// `query_timeout` of the client's pool: for a client, waiting for a server is part of its
    /// query.
    fn query_limit(&self, client: &Client) -> Micros {
        client.pool.map_or(0, |pool| self.settings(pool).query_timeout)
    }

    /// `query_wait_timeout`: of the client's user, else of its database, else the global one.
    fn wait_limit(&self, client: &Client) -> Micros {
        let own = self.personal(client).and_then(|user| user.query_wait_timeout);
        let pools = || client.pool.map_or(0, |pool| self.settings(pool).query_wait_timeout);
        own.map_or_else(pools, micros)
    }

    /// `client_idle_timeout`: of the client's user, else the global one.
    fn idle_limit(&self, client: &Client, global: Micros) -> Micros {
        let own = self.personal(client).and_then(|user| user.client_idle_timeout);
        own.map_or(global, micros)
    }

    /// What the configuration says of the user the client logged in as, which need not be its
    /// pool's. Nobody is looked up by name where no user has such limits.
    fn personal(&self, client: &Client) -> Option<&UserSettings> {
        let config = &self.config;
        self.limits_users.then(|| config.users.get(&client.identity.user)).flatten()
    }

    /// Tells those who wait for long that they do (`query_wait_notify`). Time counts in whole
    /// seconds, as it does for PgBouncer.
    fn notify_waiting(&mut self, now: Micros, io: &mut impl Io<X>) {
        let patience = Micros::from(self.config.global.query_wait_notify);
        if patience == 0 {
            return;
        }
        for (slot, client) in &mut self.clients {
            if let ClientPhase::Waiting(waiter) = client.phase
                && client.is_welcomed()
                && !client.while_waiting.notified
                && now.saturating_sub(waiter.since) / 1_000_000 > patience
            {
                client.while_waiting.notified = true;
                let mut out = Vec::new();
                wire::backend::notice(&mut out, &notice(QUEUED));
                io.send_client(ClientId(slot as u32), &out);
            }
        }
    }

    /// A pool with a user of its own is filled up to `min_pool_size` before its first client comes.
    fn make_warm_pools(&mut self) {
        if !std::mem::take(&mut self.warms_pools) {
            return;
        }
        let config = self.config.clone();
        for database in config.databases.values() {
            if let (Some(user), 1..) = (&database.user, config.min_pool_size(database)) {
                self.find_pool(&database.name, user);
            }
        }
    }

    fn expire_servers(&mut self, now: Micros, io: &mut impl Io<X>) {
        let mut expired: Vec<(ServerId, CloseReason<'static>)> = Vec::new();
        for (slot, server) in &self.servers {
            let settings = self.settings(server.pool);
            let client = server.client.and_then(|id| self.clients.get(id.0 as usize));
            let why = match (&server.phase, client) {
                // PgBouncer's words: one is said of a network that does not answer, one of a server.
                (ServerPhase::Connecting(login), _)
                    if matches!(login.stage, LoginStage::Connecting)
                        && over(
                            settings.server_connect_timeout,
                            server.times.connected_at,
                            now,
                        ) =>
                {
                    CloseReason::ConnectFailed
                }
                (ServerPhase::Connecting(_) | ServerPhase::Login(_), _)
                    if over(settings.server_connect_timeout, server.times.connected_at, now) =>
                {
                    CloseReason::ConnectTimeout
                }
                (ServerPhase::Linked, Some(client)) => {
                    let busy = !server.ledger.owes_nothing();
                    let in_transaction = client.transaction_at != 0;
                    // A stream of changes has no end that could be late.
                    let limited = server.replication.is_none();
                    // Who copies something in, or always has another query under way, is not late.
                    let asked_at = client.request_at.max(server.times.heard_at);
                    if limited && busy && over(settings.query_timeout, asked_at, now) {
                        CloseReason::QueryTimeout
                    } else if !busy
                        && in_transaction
                        && over(settings.idle_transaction_timeout, server.times.replied_at, now)
                    {
                        CloseReason::IdleTransactionTimeout
                    } else if limited
                        && in_transaction
                        && over(settings.transaction_timeout, client.transaction_at, now)
                    {
                        CloseReason::TransactionTimeout
                    } else {
                        continue;
                    }
                }
                // It may wait for a lock, as the client's own request would; and what the client has
                // there is on no other server.
                (ServerPhase::Preparing(Preparation::Confirm), Some(_))
                    if server.status != b'I' || server.has_traces() =>
                {
                    if !over(settings.query_timeout, server.times.asked_at, now) {
                        continue;
                    }
                    CloseReason::QueryTimeout
                }
                // An answer to a question of ours that never comes.
                (
                    ServerPhase::Preparing(_)
                    | ServerPhase::Finishing
                    | ServerPhase::Settling(_)
                    | ServerPhase::Listening,
                    _,
                ) if !server.ledger.owes_nothing()
                    && over(settings.server_connect_timeout, server.times.asked_at, now) =>
                {
                    CloseReason::CheckFailed
                }
                _ => continue,
            };
            expired.push((ServerId(slot as u32), why));
        }
        for (id, why) in expired {
            self.lose_server(id, why, now, io);
        }
    }

    /// Servers in use that the operator wants replaced and that need not be waited for: with
    /// `server_fast_close` those at rest within a session, and those that replicate in any case.
    fn close_obsolete(&mut self, now: Micros, io: &mut impl Io<X>) {
        let fast = self.config.global.server_fast_close;
        let may_go = |server: &Server| {
            let at_rest = fast && server.is_clean();
            matches!(server.phase, ServerPhase::Linked) && (at_rest || server.replication.is_some())
        };
        let candidates: Vec<_> = self
            .servers
            .iter()
            .filter(|(_, server)| may_go(server))
            .map(|(slot, server)| (ServerId(slot as u32), server.pool, server.epoch))
            .collect();
        for (id, pool, epoch) in candidates {
            if self.exchange.pool(pool, |pool| pool.epoch()) != epoch {
                self.lose_server(id, CloseReason::ConfigurationChanged, now, io);
            }
        }
    }

    /// Parked servers that are too old or too many, waiting clients for whom nothing is being done, and
    /// servers that are to be there before anybody waits.
    fn tend_pool(&mut self, id: PoolId, now: Micros, io: &mut impl Io<X>) {
        let settings = self.settings(id).clone();
        let worker = self.worker;
        let (taken, waits) = self.exchange.pool(id, |pool| {
            (pool.take_expired(worker, now), pool.oldest_waiter(worker).is_some())
        });
        let attach = |(server, why)| {
            let server = self.attach(server, io);
            self.server_mut(server).phase = ServerPhase::Settling(Settling::Fresh);
            (server, why)
        };
        let taken: Vec<(ServerId, CloseReason<'static>)> = taken.into_iter().map(attach).collect();
        for (server, why) in taken {
            self.close_server(server, why, now, io);
        }
        if waits {
            self.go_on_opening(id, now, io);
        }
        // A spare one does without a seat if there is none, and would be in the way of those who wait.
        let fills = self.drain.is_none() && settings.min_size > 0;
        if fills && self.exchange.pool(id, |pool| pool.reserve_spare(now)) {
            self.open_spare(id, now, io);
        }
    }
}
