//! The connections that listen for all clients of a pool (`pool_mode = auto`), for the pools whose
//! listener belongs to this worker. A listener is opened for the first client that listens. It is
//! closed when it was unused for `server_idle_timeout`, or when another pool needs its seat.
//! `listener.rs` has the clients' channels.
//!
//! A listener has a seat like any server, but no place in its pool: see `Pool::reserve_listener`.

use crate::lifecycle::close_reason::CloseReason;
use std::fmt::Write as _;
use std::sync::Arc;

use wire::messages::NotificationResponse;

use crate::admission::limits::Claim;
use crate::admission::pool::{Gate, Pool};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, WorkerId, over};
use crate::notify::interruption::Interruption;
use crate::notify::listener::{Listener, Stage, Subscriber, Subscription};
use crate::server::{Server, ServerPurpose};
use crate::shell::{Drain, Exchange, Io, Mail};
use crate::vars::Welcome;

/// The pause after PostgreSQL has refused a LISTEN.
const RETRY: Micros = 1_000_000;

impl<X: Exchange> Engine<X> {
    /// Takes a client's request for channels.
    pub(crate) fn subscribe(
        &mut self,
        pool: PoolId,
        subscription: Subscription,
        io: &mut impl Io<X>,
    ) {
        let listener = self.listeners.entry(pool).or_default();
        listener.subscribe(subscription);
        let ready = listener.take_ready();
        self.confirm(pool, ready);
        self.tend_listener(pool, io);
    }

    pub(crate) fn unsubscribe(
        &mut self,
        pool: PoolId,
        who: Subscriber,
        channels: &[Box<[u8]>],
        io: &mut impl Io<X>,
    ) {
        if let Some(listener) = self.listeners.get_mut(&pool) {
            listener.unsubscribe(who, channels);
            if matches!(listener.stage, Stage::Closed) && !listener.is_wanted() {
                self.pools.exchange.pool(pool, |pool| pool.need_listener(false));
            }
            self.tend_listener(pool, io);
        }
    }

    /// Opens, closes and continues listeners; called at each tick.
    pub(crate) fn tend_listeners(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        for pool in self.listeners.keys().copied().collect::<Vec<_>>() {
            let limit = self.pools.view(pool).settings.server_idle_timeout;
            let Some(listener) = self.listeners.get_mut(&pool) else { continue };
            if listener.is_needed() {
                listener.unused_since = now;
            }
            let Stage::Open { server, .. } = listener.stage else {
                self.tend_listener(pool, io);
                continue;
            };
            let (needed, since) = (listener.is_needed(), listener.unused_since);
            if over(limit, since, now) {
                self.lose_server(server, CloseReason::NobodyListens, io);
            } else if !needed
                && (self.pools.one(pool).is_starved_for(now)
                    || self.pools.one(pool).is_lacked_elsewhere())
            {
                self.lose_server(server, CloseReason::Evicted, io);
            } else {
                self.tend_listener(pool, io);
            }
        }
    }

    /// Closes listeners after an operator's order: those with an outdated address, and those whose
    /// pool is paused or closed. Their clients ask again.
    pub(crate) fn review_listeners(&mut self, io: &mut impl Io<X>) {
        for pool in self.listeners.keys().copied().collect::<Vec<_>>() {
            if self.pools.exchange.pool(pool, |pool| pool.keeps_listener()) {
                self.tend_listener(pool, io);
            }
            let Some(Listener { stage: Stage::Open { server, .. }, .. }) =
                self.listeners.get(&pool)
            else {
                continue;
            };
            let server = *server;
            let Server { epoch, doomed, .. } = *self.servers[server];
            let unfit = self.pools.exchange.pool(pool, |pool| unfit_to_listen(pool, epoch));
            if let Some(why) = doomed.or(unfit) {
                self.lose_server(server, why, io);
            }
        }
    }

    fn tend_listener(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let ends = self.context.drain == Some(Drain::WaitForServers);
        let Some(listener) = self.listeners.get_mut(&pool) else { return };
        match &listener.stage {
            Stage::Closed => {
                let is_resuming = self.pools.exchange.pool(pool, |pool| pool.is_resuming());
                let due = is_resuming || io.now() >= listener.retry_at;
                let needed = listener.is_needed();
                if needed && due && !ends {
                    self.open_listener(pool, io);
                } else if !needed && std::mem::take(&mut listener.lacks_seat) {
                    self.pools.exchange.limits(|limits| limits.needs_no_listener(pool));
                }
                self.warn_deaf(pool);
            }
            Stage::Open { server, .. } => {
                let server = *server;
                // It is sending a message: continue afterwards.
                if !self.servers[server].is_clean() {
                    return;
                }
                let ends = self.pools.exchange.pool(pool, |pool| pool.ends_listener());
                let order = if ends { listener.last_order() } else { listener.next_order() };
                if let Some(sql) = order {
                    self.send_own_query(server, &sql, io);
                }
            }
            Stage::Opening => {}
        }
    }

    /// Warns clients that have lost their listener, unless a new one is being opened.
    fn warn_deaf(&mut self, pool: PoolId) {
        let Some(listener) = self.listeners.get_mut(&pool) else { return };
        let is_awaited = self.pools.exchange.pool(pool, |pool| pool.awaits_listener());
        if !matches!(listener.stage, Stage::Closed) || is_awaited {
            return;
        }
        for (worker, to) in by_worker(listener.take_deaf().into_iter()) {
            self.pools.exchange.post(worker, Mail::Deaf { to });
        }
    }

    fn open_listener(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let claim = self.pools.view(pool).claim(pool);
        if !self.pools.exchange.pool(pool, Pool::reserve_listener) {
            // There is no room now; the next tick tries again, as for a seat.
            return;
        }
        let has_seat = self.take_listener_seat(&claim, io);
        let listener = self.listeners.entry(pool).or_default();
        listener.lacks_seat = !has_seat;
        if has_seat {
            listener.stage = Stage::Opening;
            return self.connect_server(pool, Some(ServerPurpose::Listen), io);
        }
        self.pools.exchange.pool(pool, |pool| {
            pool.listener_gone();
            pool.withdraw_opening();
        });
    }

    /// Takes a seat for a listener: a free one, or that of an idle server.
    fn take_listener_seat(&mut self, claim: &Claim, io: &mut impl Io<X>) -> bool {
        let now = io.now();
        loop {
            match self.pools.exchange.limits(|limits| limits.listener_seat(claim, now)) {
                Ok(()) => return true,
                Err(Some(lack)) if self.evict(&lack, io) => {}
                Err(_) => return false,
            }
        }
    }

    /// Completes the listener's login. `rest` followed it.
    pub(crate) fn listener_opened(
        &mut self,
        id: ServerId,
        welcome: Welcome,
        rest: &[u8],
        io: &mut impl Io<X>,
    ) {
        let mut random = [0; 16];
        io.random(&mut random);
        let mut mark = "_weir_".to_owned();
        for byte in random {
            let _ = write!(mark, "{byte:02x}");
        }
        let server = &mut self.servers[id];
        server.phase.listen();
        server.vars = welcome.vars.clone();
        server.welcome = Arc::new(welcome);
        let (pool, epoch) = (server.pool, server.epoch);
        self.listeners.entry(pool).or_default().open(id, mark.as_bytes().into());
        let (why, opens) = self.pools.exchange.pool(pool, |pool| {
            pool.listener_opened(epoch);
            (unfit_to_listen(pool, epoch), pool.reserve_opening(io.now()))
        });
        if opens {
            self.open_server(pool, io);
        }
        if let Some(why) = why {
            return self.lose_server(id, why, io);
        }
        self.tend_listener(pool, io);
        if !rest.is_empty() {
            self.reply_bytes(id, rest, io);
        }
    }

    /// Continues after the listener's replies to LISTEN and UNLISTEN.
    pub(crate) fn listener_answered(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut self.servers[on];
        let pool = server.pool;
        if server.own_error.take().is_some() {
            self.lose_server(on, CloseReason::ListenRefused, io);
            if let Some(listener) = self.listeners.get_mut(&pool) {
                listener.retry_at = io.now() + RETRY;
            }
            return;
        }
        if let Some(listener) = self.listeners.get_mut(&pool) {
            let ends = self.pools.exchange.pool(pool, |pool| pool.ends_listener());
            if listener.reads_no_more(ends) {
                return self.lose_server(on, CloseReason::PrimaryLost, io);
            }
            let ready = listener.obeyed();
            let has_all = !listener.is_awaited();
            self.confirm(pool, ready);
            if has_all {
                self.pools.exchange.pool(pool, Pool::listener_resumed);
            }
            self.tend_listener(pool, io);
        }
    }

    fn confirm(&mut self, pool: PoolId, ready: Vec<Subscription>) {
        let Some(Listener { stage: Stage::Open { mark, .. }, .. }) = self.listeners.get(&pool)
        else {
            return;
        };
        let mark = mark.clone();
        let has_missed = !self.pools.exchange.pool(pool, |pool| pool.is_silent_since());
        for Subscription { who, request, at_once, .. } in ready {
            let (client, serial, again) = (who.client, who.serial, !at_once.is_empty());
            let mark = mark.clone();
            let again = again.then_some(Interruption { has_missed });
            let mail = Mail::Listening { client, serial, request, mark, again };
            self.pools.exchange.post(who.worker, mail);
        }
    }

    /// Sends notifications from the listener to each worker, once for all its clients.
    pub(crate) fn spread(&mut self, on: ServerId, bodies: &[Arc<[u8]>]) {
        let pool = self.servers[on].pool;
        for body in bodies {
            let Ok(said) = NotificationResponse::decode(body) else { continue };
            let Some(listener) = self.listeners.get_mut(&pool) else { return };
            if let Stage::Open { mark, .. } = &listener.stage
                && **mark == *said.channel
            {
                listener.marked(said.payload);
                continue;
            }
            for (worker, to) in by_worker(listener.told_of(said.channel)) {
                self.pools.exchange.post(worker, Mail::Notified { to, body: body.clone() });
            }
        }
    }

    /// Deals with a listener that could not be opened. `refused`: PostgreSQL has refused its login.
    pub(crate) fn listener_failed(&mut self, pool: PoolId, refused: bool, now: Micros) {
        let last = self.listeners.get(&pool).map_or(0, |listener| listener.pause);
        let next = self.pools.exchange.pool(pool, |pool| pool.attempt_after(last, refused, now));
        self.forget_listener(pool, next);
    }

    /// Forgets a listener that was closed or could not be opened. Its clients ask again. The next
    /// attempt is made at `retry_at`; if it fails, the pause after it grows from `pause`.
    pub(crate) fn forget_listener(&mut self, pool: PoolId, (retry_at, pause): (Micros, Micros)) {
        let identity = self.pools.view(pool).identity.clone();
        self.pools.exchange.limits(|limits| limits.listener_gone(&identity));
        let Some(old) = self.listeners.insert(pool, Listener::retried_at(retry_at, pause)) else {
            return;
        };
        self.pools.exchange.pool(pool, |pool| pool.need_listener(old.is_needed()));
        let has_missed = matches!(old.stage, Stage::Open { .. }) && !old.has_read_all;
        if matches!(old.stage, Stage::Open { .. }) {
            let is_complete = old.is_needed() && !has_missed;
            self.pools.exchange.pool(pool, |pool| pool.listener_ended(is_complete));
        }
        if old.is_needed() {
            let how = Interruption { has_missed };
            for worker in 0..self.pools.exchange.worker_count() {
                self.pools.exchange.post(WorkerId(worker), Mail::Unheard { pool, how });
            }
        }
    }
}

/// Groups the clients by worker.
fn by_worker(all: impl Iterator<Item = Subscriber>) -> Vec<(WorkerId, Vec<(ClientId, u64)>)> {
    let mut found: Vec<(WorkerId, Vec<(ClientId, u64)>)> = Vec::new();
    for Subscriber { worker, client, serial } in all {
        match found.iter_mut().find(|(known, _)| *known == worker) {
            Some((_, to)) => to.push((client, serial)),
            None => found.push((worker, vec![(client, serial)])),
        }
    }
    found
}

/// Returns why a listener of this epoch must be closed.
pub(crate) fn unfit_to_listen<T>(pool: &Pool<T>, epoch: u64) -> Option<CloseReason<'static>> {
    let is_kept = pool.keeps_listener() && pool.epoch() == epoch;
    if is_kept { None } else { unfit(pool, epoch) }
}

/// Returns why a connection of this epoch that belongs to the pool and to no client must be closed.
pub(crate) fn unfit<T>(pool: &Pool<T>, epoch: u64) -> Option<CloseReason<'static>> {
    match pool.gate() {
        Gate::Paused => Some(CloseReason::Paused),
        Gate::NoPrimary => Some(CloseReason::PrimaryLost),
        Gate::Closed(reason) => Some(reason),
        Gate::Open | Gate::Held => {
            (pool.epoch() != epoch).then_some(CloseReason::ConnectStringChanged)
        }
    }
}
