//! The connections that listen for the clients of a pool (`pool_mode = auto`), of those pools
//! whose listener is this worker's: opened when the first client listens, closed when nobody has
//! for `server_idle_timeout`, or another pool lacks its seat. Which clients listen to what is in
//! `listener.rs`.
//!
//! It has a seat like any server, and no place in its pool: see `Pool::reserve_listener`.

use crate::lifecycle::close_reason::CloseReason;
use std::fmt::Write as _;
use std::sync::Arc;

use wire::messages::NotificationResponse;

use crate::admission::limits::Claim;
use crate::admission::pool::{Gate, Pool};
use crate::engine::{Drain, Engine};
use crate::ids::{ClientId, Micros, PoolId, ServerId, WorkerId, over};
use crate::notify::listener::{Listener, Stage, Subscriber, Subscription};
use crate::server::{Server, ServerPhase, ServerPurpose};
use crate::shell::{Exchange, Io, Mail};
use crate::vars::Welcome;

/// When it has refused to listen it is tried again.
const RETRY: Micros = 1_000_000;

impl<X: Exchange> Engine<X> {
    /// A client asks.
    pub(crate) fn subscribe(
        &mut self,
        pool: PoolId,
        subscription: Subscription,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let listener = self.listeners.entry(pool).or_default();
        listener.subscribe(subscription);
        let ready = listener.take_ready();
        self.confirm(pool, ready);
        self.tend_listener(pool, now, io);
    }

    pub(crate) fn unsubscribe(
        &mut self,
        pool: PoolId,
        who: Subscriber,
        channels: Option<&[Box<[u8]>]>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        if let Some(listener) = self.listeners.get_mut(&pool) {
            listener.unsubscribe(who, channels);
            self.tend_listener(pool, now, io);
        }
    }

    /// What time does.
    pub(crate) fn tend_listeners(&mut self, now: Micros, io: &mut impl Io<X>) {
        for pool in self.listeners.keys().copied().collect::<Vec<_>>() {
            let limit = self.view(pool).settings.server_idle_timeout;
            let Some(listener) = self.listeners.get_mut(&pool) else { continue };
            if listener.is_needed() {
                listener.unused_since = now;
            }
            let Stage::Open { server, .. } = listener.stage else {
                self.tend_listener(pool, now, io);
                continue;
            };
            let (needed, since) = (listener.is_needed(), listener.unused_since);
            if over(limit, since, now) {
                self.lose_server(server, CloseReason::NobodyListens, now, io);
            } else if !needed && (self.is_starved_for(pool) || self.is_lacked_elsewhere(pool)) {
                self.lose_server(server, CloseReason::Evicted, now, io);
            } else {
                self.tend_listener(pool, now, io);
            }
        }
    }

    /// Is there no room for another pool's listener while this pool has one?
    fn is_lacked_elsewhere(&mut self, pool: PoolId) -> bool {
        let identity = self.view(pool).identity.clone();
        self.exchange.limits(|limits| limits.listener_is_lacked(pool, &identity))
    }

    /// Operators have ordered something: a listener that leads to the wrong place, or whose pool
    /// is paused or closed, ends. Its clients ask anew.
    pub(crate) fn review_listeners(&mut self, now: Micros, io: &mut impl Io<X>) {
        for pool in self.listeners.keys().copied().collect::<Vec<_>>() {
            let Some(Listener { stage: Stage::Open { server, .. }, .. }) =
                self.listeners.get(&pool)
            else {
                continue;
            };
            let server = *server;
            let Server { epoch, doomed, .. } = *self.server(server);
            let unfit = self.exchange.pool(pool, |pool| unfit(pool, epoch));
            if let Some(why) = doomed.or(unfit) {
                self.lose_server(server, why, now, io);
            }
        }
    }

    fn tend_listener(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        let ends = self.drain == Some(Drain::WaitForServers);
        let Some(listener) = self.listeners.get_mut(&pool) else { return };
        match &listener.stage {
            Stage::Closed => {
                let (needed, due) = (listener.is_needed(), now >= listener.retry_at);
                if needed && due && !ends {
                    self.open_listener(pool, now, io);
                } else if !needed && std::mem::take(&mut listener.lacks_seat) {
                    self.exchange.limits(|limits| limits.needs_no_listener(pool));
                }
                self.warn_deaf(pool);
            }
            Stage::Open { server, .. } => {
                let server = *server;
                // It is in the middle of telling something: afterwards.
                if !self.servers[server.0 as usize].is_clean() {
                    return;
                }
                if let Some(sql) = listener.next_order() {
                    self.send_own_query(server, &sql, now, io);
                }
            }
            Stage::Opening => {}
        }
    }

    /// Clients that wait for a listener in place of one that was lost are told so, unless it is being
    /// opened.
    fn warn_deaf(&mut self, pool: PoolId) {
        let Some(listener) = self.listeners.get_mut(&pool) else { return };
        if !matches!(listener.stage, Stage::Closed) {
            return;
        }
        for (worker, to) in by_worker(listener.take_deaf().into_iter()) {
            self.exchange.post(worker, Mail::Deaf { to });
        }
    }

    fn open_listener(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        let claim = self.view(pool).claim(pool);
        if !self.exchange.pool(pool, Pool::reserve_listener) {
            // There was no place: it is looked for again with the next tick, as a seat is.
            return;
        }
        let has_seat = self.take_listener_seat(&claim, now, io);
        let listener = self.listeners.entry(pool).or_default();
        listener.lacks_seat = !has_seat;
        if has_seat {
            listener.stage = Stage::Opening;
            return self.connect_server(pool, Some(ServerPurpose::Listen), now, io);
        }
        self.exchange.pool(pool, |pool| {
            pool.listener_gone();
            pool.withdraw_opening();
        });
    }

    /// A seat for a listener: a free one, or that of a server that is idle.
    fn take_listener_seat(&mut self, claim: &Claim, now: Micros, io: &mut impl Io<X>) -> bool {
        loop {
            match self.exchange.limits(|limits| limits.listener_seat(claim, now)) {
                Ok(()) => return true,
                Err(Some(lack)) if self.evict(&lack, now, io) => {}
                Err(_) => return false,
            }
        }
    }

    /// The listener is logged in. `rest` came behind that.
    pub(crate) fn listener_opened(
        &mut self,
        id: ServerId,
        welcome: Welcome,
        rest: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let mut random = [0; 16];
        io.random(&mut random);
        let mut mark = "_weir_".to_owned();
        for byte in random {
            let _ = write!(mark, "{byte:02x}");
        }
        let server = self.server_mut(id);
        server.phase = ServerPhase::Listening;
        server.vars = welcome.vars.clone();
        server.welcome = Arc::new(welcome);
        let (pool, epoch) = (server.pool, server.epoch);
        self.listeners.entry(pool).or_default().open(id, mark.as_bytes().into());
        let (why, opens) = self.exchange.pool(pool, |pool| {
            pool.listener_opened(epoch);
            (unfit(pool, epoch), pool.reserve_opening(now))
        });
        if opens {
            self.open_server(pool, now, io);
        }
        if let Some(why) = why {
            return self.lose_server(id, why, now, io);
        }
        self.tend_listener(pool, now, io);
        if !rest.is_empty() {
            self.reply_bytes(id, rest, now, io);
        }
    }

    /// The listener is at rest.
    pub(crate) fn listener_answered(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        let pool = server.pool;
        if server.own_error.take().is_some() {
            self.lose_server(on, CloseReason::ListenRefused, now, io);
            if let Some(listener) = self.listeners.get_mut(&pool) {
                listener.retry_at = now + RETRY;
            }
            return;
        }
        if let Some(listener) = self.listeners.get_mut(&pool) {
            let ready = listener.obeyed();
            self.confirm(pool, ready);
            self.tend_listener(pool, now, io);
        }
    }

    fn confirm(&mut self, pool: PoolId, ready: Vec<Subscription>) {
        let Some(Listener { stage: Stage::Open { mark, .. }, .. }) = self.listeners.get(&pool)
        else {
            return;
        };
        for Subscription { who, request, at_once, .. } in ready {
            let (client, serial, again) = (who.client, who.serial, !at_once.is_empty());
            let mark = mark.clone();
            let mail = Mail::Listening { client, serial, request, mark, again };
            self.exchange.post(who.worker, mail);
        }
    }

    /// It was told something: each worker hears of it for all its clients at once.
    pub(crate) fn spread(&mut self, on: ServerId, bodies: &[Arc<[u8]>]) {
        let pool = self.server(on).pool;
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
                self.exchange.post(worker, Mail::Notified { to, body: body.clone() });
            }
        }
    }

    /// The connection has gone, or could not be made: whoever listened asks anew, and no attempt is
    /// made before `retry_at`.
    pub(crate) fn forget_listener(&mut self, pool: PoolId, retry_at: Micros) {
        let identity = self.view(pool).identity.clone();
        self.exchange.limits(|limits| limits.listener_gone(&identity));
        let Some(old) = self.listeners.insert(pool, Listener::retried_at(retry_at)) else {
            return;
        };
        if old.is_needed() {
            for worker in 0..self.exchange.worker_count() {
                self.exchange.post(WorkerId(worker), Mail::Unheard { pool });
            }
        }
    }
}

/// The clients of each worker.
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

/// Why a listener of that epoch must not go on.
fn unfit<T>(pool: &Pool<T>, epoch: u64) -> Option<CloseReason<'static>> {
    match pool.gate() {
        Gate::Paused => Some(CloseReason::Paused),
        Gate::Closed(reason) => Some(reason),
        Gate::Open | Gate::Held => {
            (pool.epoch() != epoch).then_some(CloseReason::ConnectStringChanged)
        }
    }
}
