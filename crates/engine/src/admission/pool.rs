//! One pool: its idle servers, its queue of waiting clients, its size. Pure bookkeeping: the
//! shell wraps it in a lock (the *exchange*), the simulator in nothing.
//!
//! A server that is nobody's at the moment is *parked* here, by value: whoever takes it out owns
//! it, so no server can be linked twice. Parked servers stay with the worker that last used them
//! (their *home*: its epoll watches the socket); another worker may steal one.
//!
//! Invariant: while a server is parked for use nobody waits.
//! All hand-over decisions are made under the one lock, hence no wake-up can be lost.

use crate::lifecycle::close_reason::CloseReason;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::ids::{ClientId, Micros, PoolId, Waiter, WorkerId, over};
use crate::login::server_secret::ServerSecret;
use crate::settings::{PoolKey, PoolSettings};
use crate::values::Digest;
use crate::vars::Welcome;
use config::LoadBalanceHosts;
use wire::error_fields::ErrorFields;
use wire::scram::ScramVerifier;

pub use self::control::Gate;
use self::idle::Idle;
pub use self::parked::Parked;

mod control;
mod idle;
mod listener;
mod parked;

/// How much older another worker's first waiter must be before a released server crosses threads
/// to it. A wake-up across cores costs as much as a whole transaction, so strict first-come order
/// over all workers is given up within this window.
pub const CROSS_WORKER_PATIENCE: Micros = 2_000;

/// Connections of one pool being opened at the same time, at most: a stampede of forks slows the
/// very server it waits for.
pub const OPENING_MAX: u32 = 4;

/// While one server is being opened another is only for clients who have waited for so long. Forks
/// hold up the servers that are there, and where transactions are short one of those becomes free
/// sooner; where a login takes long, nobody waits for twenty of them one after another.
pub const OPENING_PATIENCE: Micros = 10_000;

/// The connection that listens for the clients (`pool_mode = auto`) counts among the servers, but
/// takes no place from them: with one place it would have the only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ListenerPlace {
    #[default]
    None,
    Opening,
    /// Of that epoch.
    Open(u64),
}

/// What came of asking for a server.
#[derive(Debug)]
pub enum Grant<T> {
    /// Yours. It may come from another worker.
    Server(Parked<T>),
    /// You are in the queue. If `open` is set, open one more server now: its place is reserved.
    Queued { ticket: u64, open: bool },
    /// No server is there and logging in to one has just failed.
    Refused(Arc<ErrorFields>),
    /// Nothing is linked any more, for this reason.
    Closed(CloseReason<'static>),
}

/// Where a free server goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To the head of this worker's own queue.
    Local(Waiter),
    /// To a client of another worker, which has waited longer.
    Remote(WorkerId, Waiter),
    /// Nobody waits: park it.
    Park,
    /// Nobody waits here, but another pool may starve for want of its seat (see [`Pool::wanted`]).
    Yield(u64),
    /// Somebody waits, but another pool may have a better right to its seat.
    Contest(u64),
    /// The pool is too large now, or closed: end the connection, saying why.
    Close(CloseReason<'static>),
}

/// Why the last attempt to open a server failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What those are told who come while no further attempt is made.
    pub error: Arc<ErrorFields>,
    /// PostgreSQL did not let the user in, and may have named it: no stranger's business.
    pub names_user: bool,
    /// Not before this moment is another attempt made.
    pub retry_at: Micros,
}

/// `T` is a server's transport, see [`Parked`].
#[derive(Debug)]
pub struct Pool<T> {
    pub id: PoolId,
    pub key: PoolKey,
    pub settings: Arc<PoolSettings>,
    /// What a client is told at login, learnt from the first server.
    pub welcome: Option<Arc<Welcome>>,
    /// What takes a password's place for further logins to the server.
    pub server_secret: Option<ServerSecret>,
    /// The password that the server accepted from a client, salted (see `AccessPolicy`).
    pub proven: Option<ScramVerifier>,
    pub failure: Option<Failure>,
    /// Servers are asked to speak protocol 3.`minor_version`.
    pub minor_version: u16,
    /// Servers may be asked to report the states of their sessions (`state_report.rs`).
    pub may_ask_report: bool,
    /// A server has done so.
    pub is_told: bool,
    /// Nobody new may come in (DISABLE).
    pub disabled: bool,
    gate: Gate,
    /// It was held until now, and who waits has not been given what was parked meanwhile.
    has_backlog: bool,
    /// Counts the orders to replace all servers.
    epoch: u64,
    /// Servers of earlier epochs that have not gone yet.
    obsolete: u32,
    /// Servers of the present epoch that are logged in, the listener included.
    current: u32,
    /// Places reserved for servers that have no epoch yet.
    unbegun: u32,
    /// How often another host's turn came.
    target: usize,
    /// Clients that are logged in.
    pub clients: u32,
    /// Was there ever one? Else it may be the invention of a stranger about whom PostgreSQL was asked.
    pub was_entered: bool,
    /// Serial number of the latest pool known to starve for what this one has; 0 = none. While it
    /// stands, nothing is parked without asking.
    wanted: u64,
    /// When a server was last closed for its age.
    aged_out_at: Micros,
    /// By home.
    idle: Vec<Idle<T>>,
    /// Parked servers that nobody may have any more.
    condemned: Vec<Vec<(Parked<T>, CloseReason<'static>)>>,
    waiting: Vec<VecDeque<Waiter>>,
    next_ticket: u64,
    servers: u32,
    /// Servers that clients of the process before this one use, after an online restart.
    elsewhere: u32,
    opening: u32,
    listener: ListenerPlace,
}

impl<T> Pool<T> {
    pub fn new(id: PoolId, key: PoolKey, settings: Arc<PoolSettings>, workers: u16) -> Self {
        Self {
            id,
            key,
            settings,
            welcome: None,
            server_secret: None,
            proven: None,
            was_entered: false,
            failure: None,
            minor_version: wire::startup::MINOR_VERSION,
            may_ask_report: true,
            is_told: false,
            disabled: false,
            gate: Gate::Open,
            has_backlog: false,
            epoch: 0,
            obsolete: 0,
            current: 0,
            unbegun: 0,
            target: 0,
            clients: 0,
            wanted: 0,
            aged_out_at: 0,
            idle: (0..workers).map(|_| Idle::default()).collect(),
            condemned: (0..workers).map(|_| Vec::new()).collect(),
            waiting: (0..workers).map(|_| VecDeque::new()).collect(),
            next_ticket: 1,
            servers: 0,
            elsewhere: 0,
            opening: 0,
            listener: ListenerPlace::None,
        }
    }

    /// A client of `worker` needs a server, best one that has these values.
    pub fn request(
        &mut self,
        worker: WorkerId,
        client: ClientId,
        values: Option<Digest>,
        now: Micros,
    ) -> Grant<T> {
        if let Gate::Closed(reason) = self.gate {
            return Grant::Closed(reason);
        }
        if let Some(server) = self.take_open(worker, values) {
            return Grant::Server(server);
        }
        if let Some(failure) = &self.failure
            && self.has_none_open()
            && now < failure.retry_at
        {
            return Grant::Refused(failure.error.clone());
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue(worker).push_back(Waiter { client, ticket, since: now });
        let open = self.reserve_opening(now);
        self.check_invariants();
        Grant::Queued { ticket, open }
    }

    /// A client whose server died before anything was sent to it takes its old place again, or a
    /// server that has been parked meanwhile.
    pub fn requeue(
        &mut self,
        worker: WorkerId,
        waiter: Waiter,
        values: Option<Digest>,
        now: Micros,
    ) -> Grant<T> {
        if let Gate::Closed(reason) = self.gate {
            return Grant::Closed(reason);
        }
        if let Some(server) = self.take_open(worker, values) {
            return Grant::Server(server);
        }
        let queue = self.queue(worker);
        let at = queue.partition_point(|other| other.ticket < waiter.ticket);
        queue.insert(at, waiter);
        let open = self.reserve_opening(now);
        self.check_invariants();
        Grant::Queued { ticket: waiter.ticket, open }
    }

    /// The client left the queue by itself.
    pub fn forget(&mut self, worker: WorkerId, ticket: u64) {
        let queue = self.queue(worker);
        if let Ok(at) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) {
            queue.remove(at);
        }
    }

    /// A server of `worker`, opened in that epoch, is free: who gets it? The waiter named has left
    /// the queue. `is_ours`: no other pool has a better right to its seat.
    pub fn release(&mut self, worker: WorkerId, epoch: u64, is_ours: bool, now: Micros) -> Next {
        if epoch != self.epoch {
            return Next::Close(CloseReason::CloseNeeded);
        }
        if self.gate == Gate::Held {
            return Next::Park;
        }
        if self.gate != Gate::Open {
            return Next::Close(self.gate.server_reason());
        }
        if self.surplus() > 0 {
            return Next::Close(CloseReason::TooMany);
        }
        let Some(chosen) = self.choose_queue(worker, now) else {
            return if self.wanted == 0 { Next::Park } else { Next::Yield(self.wanted) };
        };
        if self.wanted != 0 && !is_ours {
            return Next::Contest(self.wanted);
        }
        let queue = &mut self.waiting[chosen];
        let Some(waiter) = queue.pop_front() else { return Next::Park };
        if chosen == usize::from(worker.0) {
            Next::Local(waiter)
        } else {
            Next::Remote(WorkerId(chosen as u16), waiter)
        }
    }

    /// Which worker's queue is served: our own, unless another's head is older by more than
    /// [`CROSS_WORKER_PATIENCE`].
    fn choose_queue(&self, worker: WorkerId, now: Micros) -> Option<usize> {
        let oldest = self
            .waiting
            .iter()
            .enumerate()
            .filter_map(|(at, queue)| queue.front().map(|head| (head.ticket, head.since, at)))
            .min()?;
        let own = usize::from(worker.0);
        match self.waiting[own].front() {
            Some(head) if head.since.min(now) <= oldest.1 + CROSS_WORKER_PATIENCE => Some(own),
            _ => Some(oldest.2),
        }
    }

    /// Nobody waits for this server: keep it at `worker` until somebody does.
    pub fn park(&mut self, worker: WorkerId, parked: Parked<T>) {
        let is_settled = parked.server.ledger.is_settled();
        debug_assert!(is_settled, "a server that owes replies was parked");
        self.idle[usize::from(worker.0)].push(parked);
        self.check_invariants();
    }

    /// That server, parked at `worker`, if nobody took it meanwhile.
    pub fn take_parked(
        &mut self,
        worker: WorkerId,
        is_it: impl Fn(&Parked<T>) -> bool,
    ) -> Option<Parked<T>> {
        let idle = self.idle[usize::from(worker.0)].take(&is_it);
        idle.or_else(|| self.take_condemned_one(worker, is_it))
    }

    /// Everything that is parked, at whatever worker.
    pub fn take_all_parked(&mut self) -> Vec<Parked<T>> {
        let condemned = self.condemned.iter_mut().flat_map(|all| all.drain(..));
        let condemned = condemned.map(|(server, _)| server);
        self.idle.iter_mut().flat_map(Idle::take_all).chain(condemned).collect()
    }

    /// Idle servers of `worker` whose time is over or that are too many, and why.
    pub fn take_expired(
        &mut self,
        worker: WorkerId,
        now: Micros,
    ) -> Vec<(Parked<T>, CloseReason<'static>)> {
        let home = usize::from(worker.0);
        let (mut surplus, mut left) = (self.surplus(), self.places() - self.places_opening());
        let mut taken = Vec::new();
        let mut at = 0;
        while let Some(Parked { server, .. }) = self.idle[home].get(at) {
            let idle_since = server.times.released_at;
            let old = now.saturating_sub(server.times.connected_at) > self.settings.server_lifetime;
            let idle = over(self.settings.server_idle_timeout, idle_since, now)
                && (self.settings.min_size == 0 || left > self.settings.min_size);
            let why = if idle {
                CloseReason::IdleTimeout
            } else if old && self.age_out(now) {
                CloseReason::LifetimeOver
            } else if surplus > 0 {
                CloseReason::TooMany
            } else {
                at += 1;
                continue;
            };
            surplus = surplus.saturating_sub(1);
            left -= 1;
            taken.extend(self.idle[home].remove(at).map(|server| (server, why)));
        }
        taken
    }

    /// Which of the hosts the next server is opened to, counted on and on: in turn, or the same one
    /// until that fails.
    pub fn choose_target(&mut self) -> usize {
        match self.settings.load_balance_hosts {
            LoadBalanceHosts::RoundRobin => {
                self.target = self.target.wrapping_add(1);
                self.target.wrapping_sub(1)
            }
            LoadBalanceHosts::Disable => {
                self.target = self.target.wrapping_add(usize::from(self.failure.is_some()));
                self.target
            }
        }
    }

    /// Is another server to be opened now? Its place is taken if so.
    pub fn reserve_opening(&mut self, now: Micros) -> bool {
        let wanted = if self.has_room() { self.waiting_total() } else { self.reserve_wanted(now) };
        let under_way = self.places_opening();
        under_way < wanted
            && (under_way == 0 || under_way <= self.waiting_for(OPENING_PATIENCE, now))
            && self.take_place(now)
    }

    /// Is another server to be opened for nobody in particular (`min_pool_size`)? One at a time, and
    /// only while the pool is in use, or its user is known without a client. Its place is taken.
    pub fn reserve_spare(&mut self, now: Micros) -> bool {
        // Clients that replicate have servers of their own, and their database may be none.
        let has_ordinary = self.clients > 0 && self.welcome.is_some();
        let in_use = has_ordinary || self.settings.forced_user;
        let wanted = in_use && self.opening == 0 && self.places() < self.settings.min_size;
        wanted && self.has_room() && self.take_place(now)
    }

    /// Clients of the process before this one use so many servers: they count against the size.
    pub fn set_elsewhere(&mut self, servers: u32) {
        self.elsewhere = servers;
    }

    /// Servers that clients of this process use, and those that clients of the one before it do.
    pub fn in_use(&self) -> u32 {
        let idle: usize = self.idle.iter().map(Idle::len).sum();
        (self.places() - self.places_opening()).saturating_sub(idle as u32) + self.elsewhere
    }

    fn has_room(&self) -> bool {
        self.settings.size == 0 || self.places() + self.elsewhere < self.settings.size
    }

    /// How many clients have waited long enough for the reserve, if there is anything left of it.
    fn reserve_wanted(&self, now: Micros) -> u32 {
        let PoolSettings { size, reserve, reserve_timeout: patience, .. } = *self.settings;
        if patience == 0 || self.places() + self.elsewhere >= size + reserve {
            return 0;
        }
        self.waiting_for(patience, now)
    }

    /// How many clients have waited for so long.
    fn waiting_for(&self, patience: Micros, now: Micros) -> u32 {
        let has_waited = |waiter: &Waiter| now.saturating_sub(waiter.since) >= patience;
        self.waiting.iter().map(|queue| queue.partition_point(has_waited) as u32).sum()
    }

    /// Is the pool beyond its size?
    pub fn is_in_reserve(&self) -> bool {
        self.settings.size > 0 && self.places() > self.settings.size
    }

    /// Servers beyond size and reserve.
    pub fn surplus(&self) -> u32 {
        match self.settings.size {
            0 => 0,
            size => self.places().saturating_sub(size + self.settings.reserve),
        }
    }

    fn take_place(&mut self, now: Micros) -> bool {
        let pace = match &self.failure {
            Some(failure) => self.opening == 0 && now >= failure.retry_at,
            None => self.opening < OPENING_MAX,
        };
        let open = pace && self.gate == Gate::Open;
        if open {
            self.reserve_unasked();
        }
        open
    }

    /// Is there a place for a server that is one client's own (replication, or a login that proves its
    /// password), without taking one from anybody? It is taken if so. That others have failed lately
    /// says nothing about this one.
    pub fn reserve_own(&mut self) -> bool {
        let open = self.has_room() && self.opening < OPENING_MAX && self.gate == Gate::Open;
        if open {
            self.reserve_unasked();
        }
        open
    }

    /// The place of a server that has just gone.
    pub fn reserve_unasked(&mut self) {
        self.unbegun += 1;
        self.opening += 1;
        self.servers += 1;
    }

    /// The login to a new server, of that epoch, succeeded.
    pub fn opened(&mut self, epoch: u64) {
        self.opening -= 1;
        self.current += u32::from(epoch == self.epoch);
        self.failure = None;
    }

    /// Nothing was opened after all: the place is free again, which says nothing about the pool.
    pub fn withdraw_opening(&mut self) {
        self.unbegun = self.unbegun.saturating_sub(1);
        self.opening -= 1;
        self.servers -= 1;
    }

    /// A connection of that epoch ends before it is logged in, which says nothing about the pool.
    pub fn opening_ended(&mut self, epoch: u64) {
        self.opening -= 1;
        self.forget_server(epoch);
    }

    /// Opening a server of that epoch failed. If `refused` (the server itself said no) and there is no
    /// server that they could get, all waiting clients are turned away with that error and returned here.
    pub fn open_failed(
        &mut self,
        epoch: u64,
        failure: Failure,
        refused: bool,
    ) -> Vec<(WorkerId, Waiter)> {
        self.opening_ended(epoch);
        self.failure = Some(failure);
        if refused && self.has_none_open() { self.take_waiters() } else { Vec::new() }
    }

    /// An opened server is gone.
    pub fn server_gone(&mut self, epoch: u64) {
        debug_assert!(self.servers > self.opening, "a server was counted out twice");
        self.current -= u32::from(epoch == self.epoch);
        self.forget_server(epoch);
    }

    /// May this server, which is past its lifetime, be closed now? Closings are spaced so that a pool
    /// that was filled at once is not emptied at once.
    pub fn age_out(&mut self, now: Micros) -> bool {
        let spacing = match (self.settings.server_lifetime, self.settings.size) {
            (0, _) | (_, 0) => 0,
            (lifetime, size) => lifetime / Micros::from(size),
        };
        let due = self.aged_out_at == 0 || now.saturating_sub(self.aged_out_at) >= spacing;
        if due {
            self.aged_out_at = now;
        }
        due
    }

    /// Another pool starves, and any server of this one would help it. The serial number of the one
    /// that has been idle longest, and since when.
    pub fn want(&mut self, serial: u64) -> Option<(Micros, u64)> {
        self.wanted = self.wanted.max(serial);
        let idle = self.idle.iter().flat_map(Idle::all).map(|parked| &parked.server);
        idle.map(|server| (server.times.released_at, server.serial)).min_by_key(|idle| idle.0)
    }

    /// Nobody starves any more, unless it began after `serial`.
    pub fn unwant(&mut self, serial: u64) {
        if self.wanted == serial {
            self.wanted = 0;
        }
    }

    /// The parked server with this serial number, at whatever worker, if nobody took it meanwhile. It
    /// is counted out in the same step: a client that asks before the server is closed finds its place
    /// free, so the worker that closes it need not think of that client.
    pub fn evict(&mut self, serial: u64) -> Option<Parked<T>> {
        let is_it = |parked: &Parked<T>| parked.server.serial == serial;
        let parked = self.idle.iter_mut().find_map(|idle| idle.take(is_it))?;
        self.server_gone(parked.server.epoch);
        Some(parked)
    }

    /// Has it, or another pool, a use for a server of that epoch, which somebody keeps for a while?
    pub fn misses_server(&self, epoch: u64) -> bool {
        let is_wanted = self.waiting_total() > 0 || self.wanted != 0;
        is_wanted || self.gate != Gate::Open || epoch != self.epoch || self.surplus() > 0
    }

    /// Everybody who waits, oldest first.
    pub fn take_waiters(&mut self) -> Vec<(WorkerId, Waiter)> {
        let mut all: Vec<_> = self
            .waiting
            .iter_mut()
            .enumerate()
            .flat_map(|(at, queue)| queue.drain(..).map(move |w| (WorkerId(at as u16), w)))
            .collect();
        all.sort_by_key(|(_, waiter)| waiter.ticket);
        all
    }

    /// Everybody who waits, each worker's clients in their order.
    pub fn waiters(&self) -> impl Iterator<Item = (WorkerId, Waiter)> {
        let queues = self.waiting.iter().enumerate();
        queues.flat_map(|(at, queue)| queue.iter().map(move |w| (WorkerId(at as u16), *w)))
    }

    /// The first in `worker`'s queue: the one whose time runs out first.
    pub fn first_waiter(&self) -> Option<(WorkerId, Waiter)> {
        let heads = self.waiting.iter().enumerate();
        let heads = heads.filter_map(|(at, queue)| Some((WorkerId(at as u16), *queue.front()?)));
        heads.min_by_key(|(_, waiter)| waiter.ticket)
    }

    pub fn oldest_waiter(&self, worker: WorkerId) -> Option<Waiter> {
        self.waiting[usize::from(worker.0)].front().copied()
    }

    /// Somebody has logged in.
    pub fn enter(&mut self) {
        self.clients += 1;
        self.was_entered = true;
    }

    /// Has it neither clients nor servers?
    pub fn is_unused(&self) -> bool {
        self.clients == 0 && self.servers == 0 && self.waiting_total() == 0
    }

    pub fn waiting_total(&self) -> u32 {
        self.waiting.iter().map(|queue| queue.len() as u32).sum()
    }

    /// Since when the longest waiting client waits.
    pub fn oldest_wait(&self) -> Option<Micros> {
        self.waiting.iter().filter_map(|queue| queue.front()).map(|head| head.since).min()
    }

    /// Parked servers of all workers.
    pub fn parked(&self) -> impl Iterator<Item = &Parked<T>> {
        let condemned = self.condemned.iter().flatten().map(|(parked, _)| parked);
        self.idle.iter().flat_map(Idle::all).chain(condemned)
    }

    /// Connections in any state, and those of them that are not logged in yet.
    pub fn counts(&self) -> (u32, u32) {
        (self.servers, self.opening)
    }

    fn queue(&mut self, worker: WorkerId) -> &mut VecDeque<Waiter> {
        &mut self.waiting[usize::from(worker.0)]
    }

    /// What must always hold between two calls.
    pub fn check_invariants(&self) {
        debug_assert!(self.opening <= self.servers);
        debug_assert!(self.obsolete + self.current <= self.servers);
        let idle = self.idle.iter().map(Idle::len).sum::<usize>();
        let condemned = self.condemned.iter().map(Vec::len).sum::<usize>();
        let parked = (idle + condemned) as u32;
        debug_assert!(parked <= self.servers - self.opening, "more parked than exist");
        debug_assert!(
            idle == 0 || self.waiting_total() == 0 || self.gate == Gate::Held || self.has_backlog,
            "a client waits while a server is idle"
        );
        let is_shut = !matches!(self.gate, Gate::Open | Gate::Held);
        debug_assert!(idle == 0 || !is_shut, "a closed pool has idle servers");
    }
}

#[cfg(test)]
mod tests;
