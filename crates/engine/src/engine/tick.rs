//! Timeouts, lifetimes, repeated attempts. Called a few times a second, so limits have that
//! precision, as in PgBouncer.

use super::Engine;
use super::pools::Pools;
use super::tables::{Clients, Servers};
use crate::client::ClientPhase;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Ending;
use crate::lifecycle::principal;
use crate::login::greeting::notice;
use crate::login::patience::OUTWAITED;
use crate::notify::listen::Passing;
use crate::operator::remarks::remark;
use crate::operator::waits::Details;
use crate::own_error::{Cause, OwnError, QUERY_WAIT_TIMEOUT};
use crate::shell::{Exchange, Io, Weight};

const QUEUED: &str = "No server connection available in postgres backend, client being queued";

impl<X: Exchange> Engine<X> {
    pub fn tick(&mut self, io: &mut impl Io<X>) {
        self.transactions.tick(io.now());
        self.tend_clients(io);
        self.finish(io);
        for (id, on) in self.overdue(io.now()).holds() {
            let server = &mut *self.servers[on];
            if self.pools.known(server.pool).end_long_hold(server, &self.context) {
                self.unlink(id, on, io);
            }
        }
        self.finish(io);
        self.credentials.derive_ahead(&self.context.config, &self.context.seed);
        self.clients.notify_waiting(self.context.config.global.query_wait_notify, io);
        let now = io.now();
        for id in self.clients.ids_where(|client| client.may_look_ahead(now)) {
            let found = self.cancellation().look_ahead(id, io);
            self.follow_request(found, io);
        }
        self.paths().leave_full_readers(io.now());
        self.finish(io);
        self.route_held_reads(io);
        self.expire_servers(io);
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
        self.seats().tend_attending(io);
        self.finish(io);
        if std::mem::take(&mut self.warms_pools) {
            self.pools.make_warm(&self.context);
        }
        for pool in self.pools.views.ids() {
            self.tend_pool(pool, io);
            self.finish(io);
        }
    }

    /// Disconnects the clients that have exceeded a limit, and goes on with those that have waited for
    /// a moment.
    fn tend_clients(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let mut details = Details::new();
        for (id, why) in self.overdue(now).clients() {
            let detail = match why.cause == Cause::QueryWaitTimeout {
                true => self.overdue(now).wait_detail(id, &mut details, io),
                false => None,
            };
            match detail {
                Some((detail, is_first)) => {
                    if is_first {
                        let text = format!("{QUERY_WAIT_TIMEOUT}: {}", detail.text);
                        remark(id, &self.clients[id], Weight::Warning, &text, io);
                    }
                    self.disconnect(id, Ending::Refused(why, Some(&detail)), io);
                }
                None => self.disconnect(id, why, io),
            }
        }
        for (id, why) in self.overdue(now).without_primary() {
            self.disconnect(id, why, io);
        }
        for due in self.cancels.take_due(now) {
            let passed_on = self.cancellation().retry(&due, io);
            self.follow_request(passed_on, io);
        }
        if std::mem::take(&mut self.context.places_wanted) {
            for id in self.overdue(now).slow_logins(|client| client.pool.is_counted()) {
                self.disconnect(id, OwnError::new(Cause::TooManyClients, OUTWAITED), io);
            }
        }
        for (serial, id) in self.overdue(now).held_proofs() {
            self.clients[id].login_mut().held = false;
            let step = self.door(id).go_on(io);
            self.after_login(id, step, io);
            let client = self.clients.get(id).filter(|client| client.serial == serial);
            if client.is_some_and(|client| !client.has_held_proof()) {
                // Messages that it has sent meanwhile are still unread.
                io.resume_client(id);
            }
        }
    }

    /// Gives up the servers that have exceeded a limit, those at silent nodes, and those that are to
    /// be replaced. Their clients are told, or get other servers.
    fn expire_servers(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        for (id, why) in self.overdue(now).servers() {
            self.lose_server(id, why, io);
        }
        for pool in self.pools.views.ids() {
            for id in self.overdue(now).silent(pool) {
                self.lose_server(id, CloseReason::NodeSilent, io);
            }
        }
        for id in self.overdue(now).obsolete() {
            self.lose_server(id, CloseReason::ConfigurationChanged, io);
        }
        replace_when_free(&mut self.servers, &mut self.pools);
    }

    /// Closes parked servers that are too old or too many, and opens servers for waiting clients,
    /// for `min_pool_size` and for `min_spare_servers`.
    fn tend_pool(&mut self, id: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let settings = self.pools.settings(id).clone();
        let worker = self.context.worker;
        let (taken, waits) = self.pools.exchange.pool(id, |pool| {
            (pool.take_expired(worker, now), pool.oldest_waiter(worker).is_some())
        });
        let attach = |(server, why)| (self.seats().take_in(server, io), why);
        let taken: Vec<(ServerId, CloseReason<'static>)> = taken.into_iter().map(attach).collect();
        for (server, why) in taken {
            self.seats().close(server, why, io);
        }
        if waits {
            self.go_on_opening(id, io);
        }
        if let Some(parked) = self.pools.exchange.pool(id, |pool| pool.take_to_ask(worker, now)) {
            let on = self.servers.attach(parked, &mut self.pools, io);
            let (server, settings) = (&mut *self.servers[on], self.pools.settings(id));
            principal::ask(on, server, None, settings, &mut self.context, io);
        }
        if self.context.config.global.mark_pooled_servers {
            self.seats().mark_idle(id, io);
        }
        let may_fill = settings.min_size > 0 || settings.spares.min > 0;
        let may_fill = may_fill || settings.password_command.is_some();
        let fills = self.context.drain.is_none() && may_fill;
        // A spare server is not opened without a free seat, and must not delay servers for waiting
        // clients.
        while fills
            && self.pools.exchange.pool(id, |pool| pool.reserve_spare(now))
            && self.pools.one(id).spare_seat(now)
        {
            self.connect_server(id, None, None, io);
        }
    }
}

impl Clients {
    /// Tells clients that have waited for `query_wait_notify` that they wait. Time counts in whole
    /// seconds, as in PgBouncer.
    fn notify_waiting<X: Exchange>(&mut self, patience: u32, io: &mut impl Io<X>) {
        let patience = Micros::from(patience);
        if patience == 0 {
            return;
        }
        for (id, client) in self.iter_mut() {
            if let ClientPhase::Waiting(waiter) = *client.phase
                && client.is_welcomed()
                && !client.while_waiting.is_notified()
                && io.now().saturating_sub(waiter.since) / 1_000_000 > patience
            {
                client.while_waiting.notify();
                let mut out = Vec::new();
                wire::backend::notice(&mut out, &notice(QUEUED));
                io.send_client(id, &out);
            }
        }
    }
}

/// Has the servers closed as soon as they are free whose passwords have ended.
fn replace_when_free<X: Exchange>(servers: &mut Servers, pools: &mut Pools<X>) {
    for (_, server) in servers.iter_mut() {
        let number = server.password_number;
        if number.is_some()
            && pools.exchange.pool(server.pool, |pool| pool.passwords.replaces(number))
        {
            server.doomed.retire(CloseReason::CloseNeeded);
        }
    }
}
