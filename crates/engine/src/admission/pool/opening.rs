//! Decides how many servers a pool opens, when, and to which host. The place of a server is
//! reserved before it is opened, so that two workers do not open a server for the same place.

use std::sync::Arc;

use config::LoadBalanceHosts;

use super::{CONNECT_PAUSE_MIN, Failure, Gate, OPENING_MAX, OPENING_PATIENCE, Pool, Refusals};
use crate::ids::{Micros, Waiter, WorkerId};
use crate::lifecycle::own_query::OwnQuery;
use crate::settings::PoolSettings;
use crate::vars::Welcome;

/// The number of times that servers have told other defaults, of which the pool remembers the values.
const DEFAULTS_MAX: usize = 8;

impl<T> Pool<T> {
    /// Returns the number of the host for the next server. It counts up with each server, or with
    /// each failure.
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

    /// Should another server be opened now? If so, its place is reserved.
    pub fn reserve_opening(&mut self, now: Micros) -> bool {
        let wanted = if self.has_room() { self.waiting_total() } else { self.reserve_wanted(now) };
        let under_way = self.places_opening() + self.asked();
        under_way < wanted
            && (under_way == 0 || under_way <= self.waiting_for(OPENING_PATIENCE, now))
            && self.take_place(now)
    }

    /// Should a server be opened that no client waits for? It is for `min_pool_size`, tries a password,
    /// or is a spare one. If so, its place is reserved.
    pub fn reserve_spare(&mut self, now: Micros) -> bool {
        let is_short = self.places() < self.settings.min_size || self.passwords.wants_login();
        let at_once = self.spares_at_once(now).max(u32::from(is_short && self.is_in_use()));
        self.opening < at_once && self.has_room() && self.take_place(now)
    }

    /// Is the pool in use, or its user configured?
    pub(super) fn is_in_use(&self) -> bool {
        // Replication clients have servers of their own, and may have no database.
        let has_ordinary = self.clients > 0 && self.welcome.is_some();
        has_ordinary || self.settings.forced_user
    }

    /// Returns how many clients have waited long enough for the reserve; 0 if it is used up.
    fn reserve_wanted(&self, now: Micros) -> u32 {
        let PoolSettings { size, reserve, reserve_timeout: patience, .. } = *self.settings;
        if patience == 0 || self.places() + self.elsewhere >= size + reserve {
            return 0;
        }
        self.waiting_for(patience, now)
    }

    /// Returns since when the longest waiting client waits.
    pub fn oldest_wait(&self) -> Option<Micros> {
        self.waiting.iter().filter_map(|queue| queue.front()).map(|head| head.since).min()
    }

    /// Returns how many clients have waited at least this long.
    pub(super) fn waiting_for(&self, patience: Micros, now: Micros) -> u32 {
        let has_waited = |waiter: &Waiter| now.saturating_sub(waiter.since) >= patience;
        self.waiting.iter().map(|queue| queue.partition_point(has_waited) as u32).sum()
    }

    /// Has this client of `worker` waited in the queue for longer than this?
    pub fn has_waited(&self, worker: WorkerId, ticket: u64, patience: Micros, now: Micros) -> bool {
        let queue = &self.waiting[usize::from(worker.0)];
        let at = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket);
        at.is_ok_and(|at| now.saturating_sub(queue[at].since) > patience)
    }

    pub(super) fn take_place(&mut self, now: Micros) -> bool {
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

    /// Is there a free place for one client's own server (replication, or a login that proves its
    /// password)? If so, it is reserved. Recent failures of other logins do not matter.
    pub fn reserve_own(&mut self) -> bool {
        let open = self.has_room() && self.opening < OPENING_MAX && self.gate == Gate::Open;
        if open {
            self.reserve_unasked();
        }
        open
    }

    /// Reserves a place without checks, such as that of a server just closed.
    pub fn reserve_unasked(&mut self) {
        self.unbegun += 1;
        self.opening += 1;
        self.servers += 1;
    }

    /// Counts a server of this epoch as logged in.
    pub fn opened(&mut self, epoch: u64) {
        self.opening -= 1;
        self.current += u32::from(epoch == self.epoch);
        self.failure = None;
        self.passwords.refused = None;
    }

    /// Returns the parameters for the welcome of a client, unless a server can tell newer ones soon.
    pub fn current_welcome(&self) -> Option<Arc<Welcome>> {
        let asks = self.has_none_open() && self.failure.is_none() && self.gate == Gate::Open;
        self.welcome.clone().filter(|_| !asks)
    }

    /// Keeps what a server of this epoch has told, for the welcome of clients. Equal values are shared,
    /// so that linking compares pointers: returns the shared ones.
    pub fn learn_welcome(&mut self, epoch: u64, told: Arc<Welcome>) -> Arc<Welcome> {
        match &self.welcome {
            Some(known) if known.is(&told) => return known.clone(),
            // The server may have been opened at an earlier address of the pool.
            _ if epoch != self.epoch => {}
            _ => {
                if self.defaults.len() == DEFAULTS_MAX {
                    self.defaults.pop_front();
                }
                self.defaults.push_back(told.vars.clone());
                self.welcome = Some(told.clone());
            }
        }
        told
    }

    /// Counts a refused login. Returns whether the one before was refused for the same reason.
    pub fn login_refused(&mut self, message: &str, now: Micros) -> bool {
        let new = || Refusals { message: String::new(), count: 0, since: now };
        let refusals = self.refusals.get_or_insert_with(new);
        refusals.count += 1;
        let repeats = refusals.message == message;
        if !repeats {
            message.clone_into(&mut refusals.message);
        }
        repeats
    }

    /// Notes that a server has refused a query of Weir's own. Returns whether one before has refused
    /// it for the same reason.
    pub fn query_failed(&mut self, query: OwnQuery, message: &str) -> bool {
        let repeats = self.failed_queries.iter().any(|(of, said)| *of == query && said == message);
        if !repeats {
            self.failed_queries.retain(|(of, _)| *of != query);
            self.failed_queries.push((query, message.to_owned()));
        }
        repeats
    }

    /// Releases a reserved place that was not used.
    pub fn withdraw_opening(&mut self) {
        self.unbegun = self.unbegun.saturating_sub(1);
        self.opening -= 1;
        self.servers -= 1;
    }

    /// Counts out a server of this epoch that ended before its login did. Not a failure of the
    /// pool.
    pub fn opening_ended(&mut self, epoch: u64) {
        self.opening -= 1;
        self.forget_server(epoch);
    }

    /// A login has ended without a server. `listens`: it was to be the listener. Returns whether
    /// another one is to be opened now, whose place is reserved then.
    pub(crate) fn login_lost(&mut self, epoch: u64, listens: bool, now: Micros) -> bool {
        if listens {
            self.listener_gone();
        }
        self.opening_ended(epoch);
        self.reserve_opening(now)
    }

    /// Returns when the next attempt may be made after a failure just now, and the pause from which
    /// the next one grows.
    pub fn next_attempt(&self, refused: bool, now: Micros) -> (Micros, Micros) {
        match &self.failure {
            // Several attempts ran at the same time, and another one failed before.
            Some(last) if !refused && now < last.retry_at => (last.retry_at, last.pause),
            last => self.attempt_after(last.as_ref().map_or(0, |last| last.pause), refused, now),
        }
    }

    /// Returns when the next attempt may be made after a failure just now, and the pause from which
    /// the next one grows. `pause` is what the last failure returned, or 0 for the first one.
    ///
    /// After a refused login Weir waits for `server_login_retry`, because repeated failures may
    /// lock the user. A failed connection locks no user. Its pause begins at [`CONNECT_PAUSE_MIN`]
    /// and grows by half with each attempt, up to `server_login_retry`. So clients are refused for
    /// at most 1.5 times as long as PostgreSQL was away.
    pub fn attempt_after(&self, pause: Micros, refused: bool, now: Micros) -> (Micros, Micros) {
        let most = self.settings.server_login_retry;
        let first = CONNECT_PAUSE_MIN.min(most);
        if refused {
            return (now + most, first);
        }
        let pause = (pause + pause / 2).clamp(first, most);
        (now + pause, pause)
    }

    /// Notes that opening a server of this epoch failed. If PostgreSQL itself refused it
    /// (`refused`) and the pool has no other server, the waiting clients are removed from the queue
    /// and returned.
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
}
