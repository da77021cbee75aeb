//! The connections that listen for all clients of a pool (`pool_mode = auto`), for the pools whose
//! listener belongs to this worker. A listener is opened for the first client that listens. It is
//! closed when it was unused for `server_idle_timeout`, or when another pool needs its seat.
//! `listener.rs` has the clients' channels.
//!
//! A listener has a seat like any server, but no place in its pool: see `Pool::reserve_listener`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use wire::messages::NotificationResponse;

use crate::admission::one_pool::OnePool;
use crate::admission::pool::{Gate, Pool};
use crate::context::Context;
use crate::ids::{ClientId, Micros, PoolId, ServerId, WorkerId, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::notify::interruption::Interruption;
use crate::notify::listener::{Listener, Stage, Subscriber, Subscription};
use crate::server::Server;
use crate::shell::{Drain, Exchange, Io, Mail};
use crate::vars::Welcome;

/// The pause after PostgreSQL has refused a LISTEN.
const RETRY: Micros = 1_000_000;

/// The listeners of the pools whose listener belongs to this worker.
#[derive(Debug, Default)]
pub(crate) struct Listeners(BTreeMap<PoolId, Listener>);

/// The next step for a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tend {
    Nothing,
    /// It is to be opened. After the attempt, [`Listeners::warn_deaf`] must be called.
    Open,
}

/// The state of the pool when its listener is logged in.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The place of another server is reserved, which is to be opened.
    pub(crate) opens_another: bool,
    /// The reason for which the listener must be closed.
    pub(crate) unfit: Option<CloseReason<'static>>,
}

/// The result of LISTEN and UNLISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The listener goes on.
    Obeyed,
    /// PostgreSQL has refused them: the listener is closed, and [`Listeners::pause`] must be called.
    Refused,
    /// The listener has read everything that it was to read, and is closed.
    ReadAll,
}

impl Listeners {
    pub(crate) fn pools(&self) -> Vec<PoolId> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn contains(&self, pool: PoolId) -> bool {
        self.0.contains_key(&pool)
    }

    /// Returns the server that listens for the pool, if it is logged in.
    pub(crate) fn server(&self, pool: PoolId) -> Option<ServerId> {
        match self.0.get(&pool)?.stage {
            Stage::Open { server, .. } => Some(server),
            Stage::Closed | Stage::Opening => None,
        }
    }

    pub(crate) fn forget_pool(&mut self, pool: PoolId) {
        self.0.remove(&pool);
    }

    /// Takes a client's request for channels.
    pub(crate) fn subscribe<X: Exchange>(
        &mut self,
        subscription: Subscription,
        pool: &mut OnePool<'_, X>,
    ) {
        let listener = self.0.entry(pool.id).or_default();
        listener.subscribe(subscription);
        let ready = listener.take_ready();
        confirm(listener, ready, pool);
    }

    pub(crate) fn unsubscribe<X: Exchange>(
        &mut self,
        who: Subscriber,
        channels: &[Box<[u8]>],
        pool: &mut OnePool<'_, X>,
    ) {
        let Some(listener) = self.0.get_mut(&pool.id) else { return };
        listener.unsubscribe(who, channels);
        if matches!(listener.stage, Stage::Closed) && !listener.is_wanted() {
            pool.lock(|pool| pool.need_listener(false));
        }
    }

    /// Returns the pool's listener if it is unused or another pool needs its seat, and the reason
    /// for closing it.
    pub(crate) fn surplus<X: Exchange>(
        &mut self,
        pool: &mut OnePool<'_, X>,
        now: Micros,
    ) -> Option<(ServerId, CloseReason<'static>)> {
        let listener = self.0.get_mut(&pool.id)?;
        let needed = listener.is_needed();
        if needed {
            listener.unused_since = now;
        }
        let Stage::Open { server, .. } = listener.stage else { return None };
        if over(pool.view.settings.server_idle_timeout, listener.unused_since, now) {
            return Some((server, CloseReason::NobodyListens));
        }
        let yields = !needed && (pool.is_starved_for(now) || pool.is_lacked_elsewhere());
        yields.then_some((server, CloseReason::Evicted))
    }

    /// Sends the next command if the listener is open (`server`), and decides whether a closed one
    /// is to be opened.
    pub(crate) fn tend<X: Exchange>(
        &mut self,
        pool: &mut OnePool<'_, X>,
        server: Option<&mut Server>,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) -> Tend {
        let id = pool.id;
        let Some(listener) = self.0.get_mut(&id) else { return Tend::Nothing };
        if let (Stage::Open { server: on, .. }, Some(server)) = (&listener.stage, server) {
            let on = *on;
            // It is sending a message: continue afterwards.
            if !server.is_clean() {
                return Tend::Nothing;
            }
            let ends = pool.lock(|pool| pool.ends_listener());
            let order = if ends { listener.last_order() } else { listener.next_order() };
            if let Some(sql) = order {
                server.send_own_queries(on, [&*sql].into_iter(), context, io);
            }
        }
        if !matches!(listener.stage, Stage::Closed) {
            return Tend::Nothing;
        }
        let due = pool.lock(|pool| pool.is_resuming()) || io.now() >= listener.retry_at;
        let needed = listener.is_needed();
        if needed && due && context.drain != Some(Drain::WaitForServers) {
            return Tend::Open;
        }
        if !needed && std::mem::take(&mut listener.lacks_seat) {
            pool.exchange.limits(|limits| limits.needs_no_listener(id));
        }
        self.warn_deaf(pool);
        Tend::Nothing
    }

    /// Warns clients that have lost their listener, unless a new one is being opened.
    pub(crate) fn warn_deaf<X: Exchange>(&mut self, pool: &mut OnePool<'_, X>) {
        let Some(listener) = self.0.get_mut(&pool.id) else { return };
        let is_awaited = pool.lock(|pool| pool.awaits_listener());
        if !matches!(listener.stage, Stage::Closed) || is_awaited {
            return;
        }
        for (worker, to) in by_worker(listener.take_deaf().into_iter()) {
            pool.exchange.post(worker, Mail::Deaf { to });
        }
    }

    /// Notes whether there is a seat for a listener whose place in the pool is reserved. If so, it
    /// is being opened from now on; otherwise the place is free again.
    pub(crate) fn open<X: Exchange>(&mut self, has_seat: bool, pool: &mut OnePool<'_, X>) {
        let listener = self.0.entry(pool.id).or_default();
        listener.lacks_seat = !has_seat;
        if has_seat {
            listener.stage = Stage::Opening;
            return;
        }
        pool.lock(|pool| {
            pool.listener_gone();
            pool.withdraw_opening();
        });
    }

    /// Completes the listener's login.
    pub(crate) fn opened<X: Exchange>(
        &mut self,
        on: ServerId,
        server: &mut Server,
        welcome: Welcome,
        pool: &mut OnePool<'_, X>,
        io: &mut impl Io<X>,
    ) -> Opened {
        let mut random = [0; 16];
        io.random(&mut random);
        let mut mark = "_weir_".to_owned();
        for byte in random {
            let _ = write!(mark, "{byte:02x}");
        }
        server.phase.listen();
        server.vars = welcome.vars.clone();
        server.welcome = Arc::new(welcome);
        self.0.entry(pool.id).or_default().open(on, mark.as_bytes().into());
        let (now, epoch) = (io.now(), server.epoch);
        pool.lock(|pool| {
            pool.listener_opened(epoch);
            let unfit = unfit_to_listen(pool, epoch);
            Opened { unfit, opens_another: pool.reserve_opening(now) }
        })
    }

    /// Takes the listener's replies to LISTEN and UNLISTEN.
    pub(crate) fn answered<X: Exchange>(
        &mut self,
        server: &mut Server,
        pool: &mut OnePool<'_, X>,
    ) -> Answered {
        if server.own_error.take().is_some() {
            return Answered::Refused;
        }
        let Some(listener) = self.0.get_mut(&pool.id) else { return Answered::Obeyed };
        let ends = pool.lock(|pool| pool.ends_listener());
        if listener.reads_no_more(ends) {
            return Answered::ReadAll;
        }
        let ready = listener.obeyed();
        let has_all = !listener.is_awaited();
        confirm(listener, ready, pool);
        if has_all {
            pool.lock(Pool::listener_resumed);
        }
        Answered::Obeyed
    }

    /// PostgreSQL has refused a LISTEN: the next attempt is made after a pause.
    pub(crate) fn pause(&mut self, pool: PoolId, now: Micros) {
        if let Some(listener) = self.0.get_mut(&pool) {
            listener.retry_at = now + RETRY;
        }
    }

    /// Sends notifications from the listener to each worker, once for all its clients.
    pub(crate) fn spread<X: Exchange>(
        &mut self,
        server: &Server,
        bodies: &[Arc<[u8]>],
        exchange: &mut X,
    ) {
        let Some(listener) = self.0.get_mut(&server.pool) else { return };
        for body in bodies {
            let Ok(said) = NotificationResponse::decode(body) else { continue };
            if let Stage::Open { mark, .. } = &listener.stage
                && **mark == *said.channel
            {
                listener.marked(said.payload);
                continue;
            }
            for (worker, to) in by_worker(listener.told_of(said.channel)) {
                exchange.post(worker, Mail::Notified { to, body: body.clone() });
            }
        }
    }

    /// Deals with a listener that could not be opened. `refused`: PostgreSQL has refused its login.
    pub(crate) fn failed<X: Exchange>(
        &mut self,
        refused: bool,
        now: Micros,
        pool: &mut OnePool<'_, X>,
    ) {
        let last = self.0.get(&pool.id).map_or(0, |listener| listener.pause);
        let next = pool.lock(|pool| pool.attempt_after(last, refused, now));
        self.forget(next, pool);
    }

    /// Forgets a listener that was closed or could not be opened. Its clients ask again. The next
    /// attempt is made at `retry_at`; if it fails, the pause after it grows from `pause`.
    pub(crate) fn forget<X: Exchange>(
        &mut self,
        (retry_at, pause): (Micros, Micros),
        pool: &mut OnePool<'_, X>,
    ) {
        let id = pool.id;
        let identity = pool.view.identity.clone();
        pool.exchange.limits(|limits| limits.listener_gone(&identity));
        let Some(old) = self.0.insert(id, Listener::retried_at(retry_at, pause)) else { return };
        pool.lock(|pool| pool.need_listener(old.is_needed()));
        let has_missed = matches!(old.stage, Stage::Open { .. }) && !old.has_read_all;
        if matches!(old.stage, Stage::Open { .. }) {
            let is_complete = old.is_needed() && !has_missed;
            pool.lock(|pool| pool.listener_ended(is_complete));
        }
        if old.is_needed() {
            let how = Interruption { has_missed };
            for worker in 0..pool.exchange.worker_count() {
                pool.exchange.post(WorkerId(worker), Mail::Unheard { pool: id, how });
            }
        }
    }
}

/// Tells the clients of these requests that the listener listens for them.
fn confirm<X: Exchange>(listener: &Listener, ready: Vec<Subscription>, pool: &mut OnePool<'_, X>) {
    let Stage::Open { mark, .. } = &listener.stage else { return };
    let has_missed = !pool.lock(|pool| pool.is_silent_since());
    for Subscription { who, request, at_once, .. } in ready {
        let (client, serial, again) = (who.client, who.serial, !at_once.is_empty());
        let mark = mark.clone();
        let again = again.then_some(Interruption { has_missed });
        let mail = Mail::Listening { client, serial, request, mark, again };
        pool.exchange.post(who.worker, mail);
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
