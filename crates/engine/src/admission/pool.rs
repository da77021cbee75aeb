//! One pool: its idle servers, its queue of waiting clients, its size. Plain bookkeeping: the shell
//! puts it behind a lock (the *exchange*), and the simulator uses it without one.
//!
//! A server without a client is *parked* here by value. The worker that takes it out owns it, so no
//! server can be linked twice. A parked server stays with the worker that last used it (its *home*:
//! its epoll watches the socket). Another worker may steal it.
//!
//! Invariant: while a server is parked for use, no client waits. All decisions about giving out
//! servers are made under the one lock, so no wake-up can be lost.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::error_fields::ErrorFields;
use wire::scram::ScramVerifier;

pub use self::control::Gate;
use self::demand::Demand;
use self::idle::Idle;
pub use self::outage::{Outage, OutageKind};
pub use self::parked::Parked;
pub use self::passwords::Passwords;
use self::principals::Principals;
pub use self::principals::{Answer, role_changes};
use self::trial::{Attendance, Lobby};
pub use self::trial::{Entrance, Idlest};
use crate::ids::{ClientId, Micros, PoolId, Waiter, WorkerId, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::own_query::OwnQuery;
use crate::login::server_secret::ServerSecret;
use crate::routing::rules::Routing;
use crate::settings::{PoolKey, PoolSettings, Primary};
use crate::values::{Digest, Values};
use crate::vars::Welcome;

mod control;
mod demand;
mod idle;
mod listener;
mod lobby;
mod opening;
mod outage;
mod parked;
mod passwords;
mod principal;
mod principals;
mod relief;
mod seats;
mod spares;
mod trial;

/// The lead in waiting time by which another worker's first client gets a server of this worker. A
/// wake-up across cores costs as much as a whole transaction, so clients of different workers are
/// served in order only beyond this time.
pub const CROSS_WORKER_PATIENCE: Micros = 2_000;

/// Maximal number of servers that one pool opens at the same time. PostgreSQL forks for each of
/// them, and more forks at once delay all of them.
pub const OPENING_MAX: u32 = 4;

/// While one server is being opened, another one is opened only if a client has waited this long.
/// Forks slow down the open servers, and with short transactions one of those becomes free sooner.
/// With slow logins, clients need not wait for one login after another.
pub const OPENING_PATIENCE: Micros = 10_000;

/// The first pause after a connection to PostgreSQL has failed.
pub const CONNECT_PAUSE_MIN: Micros = 100_000;

/// The listener (`pool_mode = auto`). It counts as a server, but takes no place in the pool: in a
/// pool of size 1 it would take the only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ListenerPlace {
    #[default]
    None,
    Opening,
    /// Logged in; of this epoch.
    Open(u64),
}

/// The answer to a client's request for a server.
#[derive(Debug)]
pub enum Grant<T> {
    /// The server, which may come from another worker.
    Server(Parked<T>),
    /// The client is in the queue. If `open` is set, the caller opens one more server, whose place
    /// is reserved.
    Queued { ticket: u64, open: bool },
    /// The pool has no server, and a login to PostgreSQL has just failed.
    Refused(Arc<ErrorFields>),
    /// The pool gives out no servers any more.
    Closed(CloseReason<'static>),
}

/// The destination of a free server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To the first client in this worker's queue.
    Local(Waiter),
    /// To a client of another worker, which has waited longer.
    Remote(WorkerId, Waiter),
    /// To the pool's idle servers: no client waits.
    Park,
    /// To the lobby, from which a client has brought it.
    Enlist,
    /// No client of this pool waits, but another pool may starve for the seat (see
    /// [`Pool::wanted`]).
    Yield(u64),
    /// A client waits, but another pool may have a better right to the seat.
    Contest(u64),
    /// It is asked first (`principal.rs`).
    Ask,
    /// The pool is too large or closed: close the server for this reason.
    Close(CloseReason<'static>),
}

/// Why the last attempt to open a server failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The error for clients that come before the next attempt.
    pub error: Arc<ErrorFields>,
    /// PostgreSQL refused the user, and may have named it: other people must not learn the name.
    pub names_user: bool,
    /// The time of the next attempt.
    pub retry_at: Micros,
    /// The pause after a failed connection; the next one is longer.
    pub pause: Micros,
    /// PostgreSQL's own error, if it has refused the login. So the server runs.
    pub refusal: Option<Arc<ErrorFields>>,
}

/// Logins that PostgreSQL has refused one after the other.
#[derive(Debug)]
pub struct Refusals {
    /// The reason of the last one.
    message: String,
    pub count: u64,
    pub since: Micros,
}

/// `T` is a server's transport, see [`Parked`].
#[derive(Debug)]
pub struct Pool<T> {
    pub id: PoolId,
    pub key: PoolKey,
    pub settings: Arc<PoolSettings>,
    /// The parameters for the welcome of clients, learnt from the first server.
    pub welcome: Option<Arc<Welcome>>,
    /// The values of its latest welcomes: a client without a value of its own may have been told any
    /// of them.
    pub defaults: VecDeque<Values>,
    /// A secret that replaces the password in further logins to PostgreSQL.
    pub server_secret: Option<ServerSecret>,
    /// Did the last login to PostgreSQL need the keys of the forced user's own proof? Then other
    /// users get no server ([`PoolSettings::own_verifier`]).
    pub own_keys: bool,
    /// A verifier of the password that PostgreSQL accepted from a client (see `AccessPolicy`).
    pub proven: Option<ScramVerifier>,
    pub failure: Option<Failure>,
    /// The refused logins since the last one that succeeded.
    pub refusals: Option<Refusals>,
    /// The last error of each of Weir's own queries since the last reload.
    failed_queries: Vec<(OwnQuery, String)>,
    /// New servers are asked to speak protocol 3.`minor_version`.
    pub minor_version: u16,
    /// New servers may be asked to report the state of their sessions (`state_report.rs`).
    pub may_ask_report: bool,
    /// A server has reported its state.
    pub is_told: bool,
    pub passwords: Passwords,
    /// No new client may log in (DISABLE).
    pub disabled: bool,
    /// Why the pool's cluster has no primary.
    pub outage: Option<Arc<Outage>>,
    /// The routing of its clients' requests. [`PoolSettings::routing`] has it, too.
    pub(crate) routing: Option<Arc<Routing>>,
    gate: Gate,
    /// The pool was held until now, and waiting clients have not been given the servers parked
    /// meanwhile.
    has_backlog: bool,
    /// Counts the orders to replace all servers.
    epoch: u64,
    /// The cluster of the pool, and the primary that it has now.
    follows: Option<(String, Primary)>,
    /// Busy servers of earlier epochs are closed at once.
    cut_before: u64,
    /// Servers of earlier epochs that are not closed yet.
    obsolete: u32,
    /// Servers of the present epoch that are logged in, including the listener.
    current: u32,
    /// Places reserved for servers that have no epoch yet.
    unbegun: u32,
    /// Counts the changes from one host to the next.
    target: usize,
    /// Clients that are logged in.
    pub clients: u32,
    /// Has a client ever logged in? Otherwise the user may not exist, and PostgreSQL was only asked
    /// about it.
    pub was_entered: bool,
    /// Serial number of the latest claim of a pool that starves for these servers; 0 = none. While
    /// it is set, no server is parked without checking.
    wanted: u64,
    /// When a server was last closed for its age.
    aged_out_at: Micros,
    demand: Demand,
    /// Parked servers by their home.
    idle: Vec<Idle<T>>,
    /// Parked servers that may not be used any more.
    condemned: Vec<Vec<(Parked<T>, CloseReason<'static>)>>,
    waiting: Vec<VecDeque<Waiter>>,
    next_ticket: u64,
    servers: u32,
    /// Servers that clients of the predecessor use, after an online restart.
    elsewhere: u32,
    opening: u32,
    listener: ListenerPlace,
    relief: relief::Relief,
    /// Clients need a listener, and none listens for them.
    lacks_listener: bool,
    lobby: Lobby,
    attendance: Attendance,
    principals: Principals,
}

impl<T> Pool<T> {
    pub fn new(id: PoolId, key: PoolKey, settings: Arc<PoolSettings>, workers: u16) -> Self {
        Self {
            id,
            key,
            settings,
            welcome: None,
            defaults: VecDeque::new(),
            server_secret: None,
            own_keys: false,
            proven: None,
            was_entered: false,
            failure: None,
            refusals: None,
            failed_queries: Vec::new(),
            minor_version: wire::startup::MINOR_VERSION,
            may_ask_report: true,
            is_told: false,
            disabled: false,
            outage: None,
            routing: None,
            follows: None,
            cut_before: 0,
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
            demand: Demand::default(),
            idle: (0..workers).map(|_| Idle::default()).collect(),
            condemned: (0..workers).map(|_| Vec::new()).collect(),
            waiting: (0..workers).map(|_| VecDeque::new()).collect(),
            next_ticket: 1,
            servers: 0,
            elsewhere: 0,
            opening: 0,
            listener: ListenerPlace::None,
            relief: relief::Relief::default(),
            lacks_listener: false,
            lobby: Lobby::Untried,
            attendance: Attendance::default(),
            principals: Principals::default(),
            passwords: Passwords::default(),
        }
    }

    /// Requests a server for a client of `worker`, preferably one that has these values.
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
            self.note_demand();
            return Grant::Server(server);
        }
        if let Some(failure) = &self.failure
            && self.has_none_open()
            && now < failure.retry_at
            && self.refuses_after(failure)
        {
            return Grant::Refused(failure.error.clone());
        }
        let (pool, ticket) = (self.id, self.next_ticket);
        self.next_ticket += 1;
        self.queue(worker).push_back(Waiter { client, pool, ticket, since: now });
        let open = self.reserve_opening(now);
        self.check_invariants();
        Grant::Queued { ticket, open }
    }

    /// Requests a server for a client whose server died before anything was sent to it. The client
    /// gets its old place in the queue, or a server that has been parked meanwhile.
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
            self.note_demand();
            return Grant::Server(server);
        }
        let queue = self.queue(worker);
        let at = queue.partition_point(|other| other.ticket < waiter.ticket);
        queue.insert(at, waiter);
        let open = self.reserve_opening(now);
        self.check_invariants();
        Grant::Queued { ticket: waiter.ticket, open }
    }

    /// Removes a client from the queue.
    pub fn forget(&mut self, worker: WorkerId, ticket: u64) {
        let queue = self.queue(worker);
        if let Ok(at) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) {
            queue.remove(at);
        }
    }

    /// Decides where a free server of `worker` and this epoch goes. A returned waiter has been
    /// removed from the queue. `is_ours`: no other pool has a better right to the seat.
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

    /// Chooses the queue to serve: this worker's own, unless another worker's first client has
    /// waited longer by more than [`CROSS_WORKER_PATIENCE`].
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

    /// Parks a server at `worker`; no client waits for it.
    pub fn park(&mut self, worker: WorkerId, parked: Parked<T>) {
        let is_settled = parked.server.ledger.is_at_rest();
        debug_assert!(is_settled, "a server that owes replies was parked");
        self.idle[usize::from(worker.0)].push(parked);
        self.check_invariants();
    }

    /// Takes the server that `is_it` selects, if it is still parked at `worker`.
    pub fn take_parked(
        &mut self,
        worker: WorkerId,
        is_it: impl Fn(&Parked<T>) -> bool,
    ) -> Option<Parked<T>> {
        let idle = self.idle[usize::from(worker.0)].take(&is_it);
        idle.or_else(|| self.take_condemned_one(worker, is_it))
    }

    /// Takes a server that is parked at `worker`, or else at another worker.
    pub fn take_one_parked(&mut self, worker: WorkerId) -> Option<Parked<T>> {
        let own = self.take_parked(worker, |_| true);
        own.or_else(|| self.idle.iter_mut().find_map(|idle| idle.take(|_| true)))
    }

    /// Takes all parked servers of all workers.
    pub fn take_all_parked(&mut self) -> Vec<Parked<T>> {
        let condemned = self.condemned.iter_mut().flat_map(|all| all.drain(..));
        let condemned = condemned.map(|(server, _)| server);
        self.idle.iter_mut().flat_map(Idle::take_all).chain(condemned).collect()
    }

    /// Takes idle servers of `worker` that are too old or too many, or whose password has ended, with
    /// the reasons.
    pub fn take_expired(
        &mut self,
        worker: WorkerId,
        now: Micros,
    ) -> Vec<(Parked<T>, CloseReason<'static>)> {
        let home = usize::from(worker.0);
        let (mut surplus, mut left) = (self.surplus(), self.places() - self.places_opening());
        let (mut spare, least) = (self.spare_to_close(now), self.least_size(now));
        let mut taken = Vec::new();
        let mut at = 0;
        while let Some(Parked { server, .. }) = self.idle[home].get(at) {
            let idle_since = server.times.released_at();
            let old = server.times.age(now) > self.settings.server_lifetime;
            let idle = over(self.settings.server_idle_timeout, idle_since, now) && left > least;
            let number = server.password_number;
            let why = if number.is_some() && self.replaces_password(number) {
                CloseReason::Obsolete
            } else if idle {
                CloseReason::IdleTimeout
            } else if old && self.age_out(now) {
                CloseReason::LifetimeOver
            } else if surplus > 0 {
                CloseReason::TooMany
            } else if spare > 0 && at == 0 && self.has_coldest(home) {
                CloseReason::TooManySpare
            } else {
                at += 1;
                continue;
            };
            (surplus, spare) = (surplus.saturating_sub(1), spare.saturating_sub(1));
            left -= 1;
            taken.extend(self.idle[home].remove(at).map(|server| (server, why)));
        }
        taken
    }

    /// Counts the servers that clients of the predecessor use against the pool's size.
    pub fn set_elsewhere(&mut self, servers: u32) {
        self.elsewhere = servers;
    }

    /// Returns how many servers are in use, by clients of this process and of the predecessor.
    pub fn in_use(&self) -> u32 {
        let idle: usize = self.idle.iter().map(Idle::len).sum();
        (self.places() - self.places_opening()).saturating_sub(idle as u32) + self.elsewhere
    }

    /// Are clients refused until the next attempt? Those of a cluster wait for its primary, unless
    /// that refuses the pool's user.
    fn refuses_after(&self, failure: &Failure) -> bool {
        failure.refusal.is_some() || self.settings.cluster.is_none()
    }

    fn has_room(&self) -> bool {
        self.settings.size == 0 || self.places() + self.elsewhere < self.settings.size
    }

    /// Is a free server with this password to be replaced? Its password has ended, and a later one is
    /// right, or is to be tried now and there is no room for that. The last server does not give way.
    #[cold]
    pub fn replaces_password(&mut self, number: Option<u64>) -> bool {
        self.passwords.replaces(number)
            || !self.has_room()
                && self.current > 1
                && self.failure.is_none()
                && self.gate == Gate::Open
                && self.is_in_use()
                && self.passwords.gives_way(number)
    }

    /// Does the pool use its reserve?
    pub fn is_in_reserve(&self) -> bool {
        self.settings.size > 0 && self.places() > self.settings.size
    }

    /// Returns how many servers the pool has beyond size and reserve.
    pub fn surplus(&self) -> u32 {
        match self.settings.size {
            0 => 0,
            size => self.places().saturating_sub(size + self.settings.reserve),
        }
    }

    /// Counts a logged-in server as closed.
    pub fn server_gone(&mut self, epoch: u64) {
        debug_assert!(self.servers > self.opening, "a server was counted out twice");
        self.current -= u32::from(epoch == self.epoch);
        self.forget_server(epoch);
    }

    /// May this server, which is past its lifetime, be closed now? Closings are spaced out, so that
    /// servers that were opened together do not end together.
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

    /// Notes that another pool starves, which any server of this one would help. Returns since when
    /// the server idle for longest has been idle, and its serial number.
    pub fn want(&mut self, serial: u64) -> Option<(Micros, u64)> {
        self.wanted = self.wanted.max(serial);
        let idle = self.idle.iter().flat_map(Idle::all).map(|parked| &parked.server);
        idle.map(|server| (server.times.used_at(), server.serial)).min_by_key(|idle| idle.0)
    }

    /// Notes that no pool starves any more, unless it began after `serial`.
    pub fn unwant(&mut self, serial: u64) {
        if self.wanted == serial {
            self.wanted = 0;
        }
    }

    /// Takes the parked server with this serial number, at any worker, if it is still there. It is
    /// counted as closed in the same step. So a client that requests a server meanwhile finds the
    /// place free.
    pub fn evict(&mut self, serial: u64) -> Option<Parked<T>> {
        let is_it = |parked: &Parked<T>| parked.server.serial == serial;
        let parked = self.idle.iter_mut().find_map(|idle| idle.take(is_it))?;
        self.server_gone(parked.server.epoch);
        Some(parked)
    }

    /// Does this pool or another one need a server of this epoch, which its client keeps for a
    /// while?
    pub fn misses_server(&self, epoch: u64) -> bool {
        let is_wanted = self.waiting_total() > 0 || self.wanted != 0;
        is_wanted || self.gate != Gate::Open || epoch != self.epoch || self.surplus() > 0
    }

    /// Removes all waiting clients from the queues, oldest first.
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

    /// Returns all waiting clients, by worker, each worker's in order.
    pub fn waiters(&self) -> impl Iterator<Item = (WorkerId, Waiter)> {
        let queues = self.waiting.iter().enumerate();
        queues.flat_map(|(at, queue)| queue.iter().map(move |w| (WorkerId(at as u16), *w)))
    }

    /// Returns the client that has waited longest, and its worker.
    pub fn first_waiter(&self) -> Option<(WorkerId, Waiter)> {
        let heads = self.waiting.iter().enumerate();
        let heads = heads.filter_map(|(at, queue)| Some((WorkerId(at as u16), *queue.front()?)));
        heads.min_by_key(|(_, waiter)| waiter.ticket)
    }

    pub fn oldest_waiter(&self, worker: WorkerId) -> Option<Waiter> {
        self.waiting[usize::from(worker.0)].front().copied()
    }

    /// Counts a client that has logged in.
    pub fn enter(&mut self) {
        self.clients += 1;
        self.was_entered = true;
    }

    /// Has the pool neither clients nor servers?
    pub fn is_unused(&self) -> bool {
        self.clients == 0 && self.servers == 0 && self.waiting_total() == 0
    }

    pub fn waiting_total(&self) -> u32 {
        self.waiting.iter().map(|queue| queue.len() as u32).sum()
    }

    /// Returns the parked servers of all workers.
    pub fn parked(&self) -> impl Iterator<Item = &Parked<T>> {
        let condemned = self.condemned.iter().flatten().map(|(parked, _)| parked);
        self.idle.iter().flat_map(Idle::all).chain(condemned)
    }

    /// Returns the number of connections in any state, and how many of them are not logged in yet.
    pub fn counts(&self) -> (u32, u32) {
        (self.servers, self.opening)
    }

    /// Must a client wait for a server that another client has?
    pub fn is_used_up(&self) -> bool {
        !self.has_room() && self.idle.iter().all(|idle| idle.is_empty())
    }

    /// Is it so, and has a client waited for longer than this?
    pub fn is_full(&self, patience: Micros, now: Micros) -> bool {
        self.is_used_up() && self.waiting_for(patience, now) > 0
    }

    /// Returns how busy the pool is: its servers in use, and the clients that wait.
    pub fn load(&self) -> u32 {
        self.busy_servers() + self.waiting_total()
    }

    fn queue(&mut self, worker: WorkerId) -> &mut VecDeque<Waiter> {
        &mut self.waiting[usize::from(worker.0)]
    }

    /// Checks the invariants; called after every change.
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
