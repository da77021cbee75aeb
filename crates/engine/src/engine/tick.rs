//! Timeouts, lifetimes, repeated attempts. Called a few times a second, so limits have that
//! precision, as in PgBouncer.

use crate::admission::pool::Gate;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, micros, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::greeting::notice;
use crate::notify::listen::Passing;
use crate::operator::remarks::remark;
use crate::operator::waits::Details;
use crate::own_error::{Cause, OwnError, QUERY_WAIT_TIMEOUT};
use crate::server::{LoginStage, Preparation, Server, ServerPhase};
use crate::shell::{Exchange, Io, Weight};

const QUEUED: &str = "No server connection available in postgres backend, client being queued";

impl<X: Exchange> Engine<X> {
    pub fn tick(&mut self, io: &mut impl Io<X>) {
        self.transactions.tick(io.now());
        self.expire_clients(io);
        self.expire_without_primary(io);
        for due in self.cancels.take_due(io.now()) {
            let passed_on = self.cancellation().retry(&due, io);
            self.follow_request(passed_on, io);
        }
        self.free_places(io);
        self.judge_held(io);
        self.finish(io);
        self.end_long_holds(io);
        self.finish(io);
        self.credentials.derive_ahead(&self.context.config, &self.context.seed);
        self.notify_waiting(io);
        let now = io.now();
        for id in self.clients.ids_where(|client| client.may_look_ahead(now)) {
            let found = self.cancellation().look_ahead(id, io);
            self.follow_request(found, io);
        }
        self.leave_full_readers(io);
        self.route_held_reads(io);
        self.expire_servers(io);
        self.give_up_silent(io);
        self.close_obsolete(io);
        self.finish(io);
        for pool in self.listeners.pools() {
            let step = self.pool_listeners().review(pool, io);
            self.follow_listener(step, io);
        }
        for pool in self.listeners.pools() {
            let step = self.pool_listeners().close_or_tend(pool, io);
            self.follow_listener(step, io);
        }
        for (id, on) in self.servers.kept_to_listen() {
            match self.channels(id).pass_late(io) {
                Passing::Begun | Passing::Waits => {}
                Passing::Paused => self.keep_client(id, on, CloseReason::Paused, io),
            }
        }
        self.finish(io);
        self.tend_attending(io);
        self.finish(io);
        self.make_warm_pools();
        for pool in self.pools.views.ids() {
            self.tend_pool(pool, io);
            self.finish(io);
        }
    }

    fn expire_clients(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let global = &self.context.config.global;
        let login = micros(global.client_login_timeout);
        let cancel = micros(global.cancel_wait_timeout);
        let settings = |client: &Client| client.pool.map(|pool| &**self.pools.settings(pool));
        // Waiting for a server is part of the client's query.
        let query_limit = |client: &_| settings(client).map_or(0, |pool| pool.query_timeout);
        let wait_limit =
            |client: &Client| self.context.wait_limit(&client.identity, settings(client));
        let keeps_for_long = |client: &Client| {
            let server = client.server.and_then(|on| self.servers.get(on));
            server.is_some_and(|server| {
                server.is_kept_for_long(client, self.pools.settings(server.pool).pin_timeout, now)
            })
        };
        let mut expired: Vec<(ClientId, OwnError<'_>)> = Vec::new();
        for (id, client) in self.clients.iter() {
            let why = match &*client.phase {
                ClientPhase::Login(_) if over(login, client.connected_at, now) => {
                    "client_login_timeout".into()
                }
                ClientPhase::Waiting(waiter) if over(query_limit(client), waiter.since, now) => {
                    OwnError::new(Cause::QueryTimeout, "query_timeout")
                }
                ClientPhase::Waiting(waiter) if over(wait_limit(client), waiter.since, now) => {
                    OwnError::new(Cause::QueryWaitTimeout, QUERY_WAIT_TIMEOUT)
                }
                ClientPhase::Waiting(_)
                    if !client.is_welcomed() && over(login, client.connected_at, now) =>
                {
                    OwnError::new(Cause::ServerUnreachable, "client_login_timeout (server down)")
                }
                ClientPhase::Idle | ClientPhase::Failed(_)
                    if over(self.context.idle_limit(&client.identity), client.request_at, now)
                        && !self.sessions.holds(id, client.serial) =>
                {
                    OwnError::new(Cause::IdleTimeout, "client_idle_timeout")
                }
                ClientPhase::Linked if keeps_for_long(client) => {
                    OwnError::new(Cause::IdleTimeout, "pin_timeout")
                }
                ClientPhase::Canceling { .. } if over(cancel, client.connected_at, now) => {
                    "cancel_wait_timeout".into()
                }
                ClientPhase::Login(_)
                | ClientPhase::Idle
                | ClientPhase::Waiting(_)
                | ClientPhase::Preparing(_)
                | ClientPhase::Linked
                | ClientPhase::Failed(_)
                | ClientPhase::Canceling { .. } => continue,
            };
            expired.push((id, why));
        }
        let mut details = Details::new();
        for (id, why) in expired {
            let detail = if why.cause == Cause::QueryWaitTimeout {
                self.wait_detail(id, &mut details, io)
            } else {
                None
            };
            match detail {
                Some((detail, is_first)) => {
                    if is_first {
                        let text = format!("{QUERY_WAIT_TIMEOUT}: {}", detail.text);
                        remark(id, &self.clients[id], Weight::Warning, &text, io);
                    }
                    self.disconnect_with(id, &why, Some(&detail), io);
                }
                None => self.disconnect(id, why, io),
            }
        }
    }

    /// Disconnects clients that have waited for a primary of their cluster for `failover_wait`.
    fn expire_without_primary(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        for pool in self.pools.views.ids() {
            let settings = self.pools.settings(pool);
            let Some(cluster) = settings.cluster.clone() else { continue };
            let limit = settings.failover_wait;
            let Some(outage) = self.pools.exchange.pool(pool, |pool| {
                let is_shut = pool.gate() == Gate::NoPrimary;
                pool.outage.clone().filter(|outage| is_shut && !outage.is_ordered())
            }) else {
                continue;
            };
            let is_over = |client: &Client| {
                let waiter = client.wait().filter(|waiter| waiter.pool == pool);
                waiter.is_some_and(|waiter| over(limit, waiter.since.max(outage.since), now))
            };
            let text = format!("cluster {cluster} has no primary: {}", outage.why);
            for client in self.clients.ids_where(is_over) {
                self.disconnect(client, OwnError::new(Cause::NoPrimary, text.as_str()), io);
            }
        }
    }

    /// Tells clients that have waited for `query_wait_notify` that they wait. Time counts in whole
    /// seconds, as in PgBouncer.
    fn notify_waiting(&mut self, io: &mut impl Io<X>) {
        let patience = Micros::from(self.context.config.global.query_wait_notify);
        if patience == 0 {
            return;
        }
        for (id, client) in self.clients.iter_mut() {
            if let ClientPhase::Waiting(waiter) = *client.phase
                && client.is_welcomed()
                && !client.while_waiting.notified
                && io.now().saturating_sub(waiter.since) / 1_000_000 > patience
            {
                client.while_waiting.notified = true;
                let mut out = Vec::new();
                wire::backend::notice(&mut out, &notice(QUEUED));
                io.send_client(id, &out);
            }
        }
    }

    /// Creates the pools of databases with `user=`, which are filled up to `min_pool_size` before
    /// their first client comes.
    fn make_warm_pools(&mut self) {
        if !std::mem::take(&mut self.warms_pools) {
            return;
        }
        let config = self.context.config.clone();
        for database in config.databases.values() {
            if let (Some(user), 1..) = (&database.user, config.min_pool_size(database)) {
                self.pools.find(&self.context, &database.name, user);
            }
        }
    }

    fn expire_servers(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let mut expired: Vec<(ServerId, CloseReason<'static>)> = Vec::new();
        for (id, server) in self.servers.iter() {
            let settings = self.pools.settings(server.pool);
            let client = server.client.and_then(|id| self.clients.get(id));
            let why = match (&*server.phase, client) {
                // PgBouncer's texts: one for a network that does not answer, one for a server.
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
                    // A replication stream has no end that could be late.
                    let limited = server.replication.is_none();
                    let asked_at = client.request_at.max(server.times.query_at);
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
                // The query may wait for a lock, as the client's own request would, and the
                // client's state is on this server only.
                (ServerPhase::Preparing(Preparation::Confirm), Some(_))
                    if server.status != b'I' || server.has_traces() =>
                {
                    if !over(settings.query_timeout, server.times.asked_at, now) {
                        continue;
                    }
                    CloseReason::QueryTimeout
                }
                // A reply to Weir's own query is overdue.
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
            expired.push((id, why));
        }
        for (id, why) in expired {
            self.lose_server(id, why, io);
        }
    }

    /// Closes servers in use that are to be replaced and need not be waited for. These are
    /// replication servers, and with `server_fast_close` servers at rest within a session.
    fn close_obsolete(&mut self, io: &mut impl Io<X>) {
        let fast = self.context.config.global.server_fast_close;
        let may_go = |server: &Server| {
            let at_rest = fast && server.is_clean();
            matches!(*server.phase, ServerPhase::Linked)
                && (at_rest || server.replication.is_some())
        };
        let candidates: Vec<_> = self
            .servers
            .iter()
            .filter(|(_, server)| may_go(server))
            .map(|(id, server)| (id, server.pool, server.epoch))
            .collect();
        for (id, pool, epoch) in candidates {
            if self.pools.exchange.pool(pool, |pool| pool.epoch()) != epoch {
                self.lose_server(id, CloseReason::ConfigurationChanged, io);
            }
        }
    }

    /// Closes parked servers that are too old or too many, and opens servers for waiting clients
    /// and for `min_pool_size`.
    fn tend_pool(&mut self, id: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let settings = self.pools.settings(id).clone();
        let worker = self.context.worker;
        let (taken, waits) = self.pools.exchange.pool(id, |pool| {
            (pool.take_expired(worker, now), pool.oldest_waiter(worker).is_some())
        });
        let attach = |(server, why)| {
            let server = self.attach(server, io);
            self.servers[server].phase.unpark();
            (server, why)
        };
        let taken: Vec<(ServerId, CloseReason<'static>)> = taken.into_iter().map(attach).collect();
        for (server, why) in taken {
            self.close_server(server, why, io);
        }
        if waits {
            self.go_on_opening(id, io);
        }
        if let Some(parked) = self.pools.exchange.pool(id, |pool| pool.take_to_ask(worker, now)) {
            let on = self.attach(parked, io);
            self.ask_principal(on, None, io);
        }
        // A spare server is not opened without a free seat, and must not delay servers for waiting
        // clients.
        let fills = self.context.drain.is_none() && settings.min_size > 0;
        if fills
            && self.pools.exchange.pool(id, |pool| pool.reserve_spare(now))
            && self.pools.one(id).spare_seat(now)
        {
            self.connect_server(id, None, io);
        }
    }
}
