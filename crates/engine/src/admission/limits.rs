//! Counts connections by database, by user and in total, and enforces the `max_*` keys. Like
//! `Pool`, it is plain bookkeeping, which the shell puts behind a lock. The lock is taken when a
//! connection begins or ends. While pools compete, it is also taken when a server becomes free that
//! another pool may need more.
//!
//! A server needs a *seat* before it is opened. If there is none, the pool *starves*, and is noted
//! in the same step, so the next free seat can be offered to it. The pools whose servers fill the
//! limit are told (`Pool::wanted`). They then close a free server that they do not need, instead of
//! parking it. If such a pool has had its share ([`Shares`]), it also closes a server that it
//! needs.
//!
//! A pool may find two limits full, its database's and its user's. Only its own servers count in
//! both. It then starves for one limit at a time. When that limit has room, the room is held for
//! the pool, for at most [`HOLD_MAX`], while the pool starves for the other. Otherwise the pool
//! that gave it up would take it back. Pools that have had less can take it.
//!
//! With a seat, a server also takes one of [`OPENINGS_MAX`] turns until it is logged in. A pool
//! that finds a seat but no turn is queued as well, but takes no server from other pools.
//!
//! Invariant: with a limit of `n`, at most `n` seats are taken, even with concurrent requests.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::admission::shares::{Shares, TURN};
use crate::ids::{Identity, Micros, PoolId};
use crate::login::guesses::Guesses;

mod wanted;

use wanted::Wanted;

/// Maximal number of servers that all pools together open at the same time. PostgreSQL forks for
/// each. When the clients of a thousand pools return at once, it must not fork thousands of times.
pub const OPENINGS_MAX: u32 = 64;
/// If no opening has begun for this time, one more may begin. The present ones may hang because a
/// host does not answer, and must not delay other pools.
pub const STANDSTILL_MAX: Micros = 200_000;

/// The time for which room in one limit is held for a pool that starves for another one. Afterwards
/// other pools can use it.
pub const HOLD_MAX: Micros = 3 * TURN;

/// The time that a server has to leave its lobby before another one is asked for the same pool.
const ORDER_PATIENCE: Micros = 1_000_000;

/// The limits on a pool's servers beyond the pool's size; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// `max_db_connections`.
    pub database: u32,
    /// `max_user_connections`.
    pub user: u32,
    /// `max_server_connections`.
    pub process: u32,
}

/// The servers that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The servers of the pool's database.
    Database,
    /// The servers of the pool's user.
    User,
    /// All servers.
    Process,
}

/// The limits in the order in which PgBouncer checks them.
const SCOPES: [Scope; 3] = [Scope::Database, Scope::User, Scope::Process];

impl Scope {
    /// Do servers of this database and user count in the same limit as those of `identity`?
    fn spans(self, identity: &Identity, database: &str, user: &str) -> bool {
        match self {
            Self::Database => identity.database == database,
            Self::User => identity.user == user,
            Self::Process => true,
        }
    }
}

/// A pool that requests a seat.
#[derive(Clone, Debug)]
pub struct Claim {
    pub pool: PoolId,
    pub identity: Arc<Identity>,
    pub limits: ServerLimits,
    /// The pool's weight, compared with other pools.
    pub weight: u32,
}

impl Claim {
    /// Does a pool of this identity count in any of the same limits?
    fn competes_with(&self, other: &Identity) -> bool {
        let ServerLimits { database, user, process } = self.limits;
        process > 0
            || database > 0 && self.identity.database == other.database
            || user > 0 && self.identity.user == other.user
    }
}

/// A claim that could not be granted.
#[derive(Clone, Debug)]
pub struct Starving {
    pub claim: Claim,
    pub scope: Scope,
    /// Increases from one claim to the next; never 0.
    pub serial: u64,
}

impl Starving {
    /// Would a seat of this database and user help the pool?
    pub fn covers(&self, database: &str, user: &str) -> bool {
        self.scope.spans(&self.claim.identity, database, user)
    }
}

/// Room for one server in a limit, kept for a pool.
#[derive(Debug)]
struct Held {
    pool: PoolId,
    identity: Arc<Identity>,
    scope: Scope,
    until: Micros,
}

/// Why there is no seat.
#[derive(Clone, Debug)]
pub enum Denied {
    /// A limit has no room.
    Full(Starving),
    /// There is a seat, but a starving pool has had less: see [`Limits::next_fed`].
    Behind,
    /// There is a seat, but the maximal number of servers is being opened. The pool has been queued
    /// for a turn.
    Busy,
}

/// The number of clients in the process, of one database, and of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCounts {
    pub process: u32,
    pub database: u32,
    pub user: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    servers: u32,
    /// The number of listeners among these servers.
    listeners: u32,
    clients: u32,
}

/// Counts by name; names without connections are removed.
#[derive(Debug, Default)]
struct Tallies(HashMap<String, Tally, RandomState>);

impl Tallies {
    #[inline]
    fn of(&self, name: &str) -> Tally {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Tally)) -> Tally {
        let mut tally = self.of(name);
        change(&mut tally);
        if tally == Tally::default() {
            self.0.remove(name);
        } else if let Some(known) = self.0.get_mut(name) {
            *known = tally;
        } else {
            self.0.insert(name.to_owned(), tally);
        }
        tally
    }
}

#[derive(Debug)]
pub struct Limits {
    all: Tally,
    databases: Tallies,
    users: Tallies,
    /// Starving pools in the order in which they began to starve; each pool at most once.
    starving: VecDeque<Starving>,
    held: Vec<Held>,
    /// Servers that are being opened.
    openings: u32,
    /// [`OPENINGS_MAX`], except in tests.
    pub openings_max: u32,
    /// When the latest opening began.
    begun_at: Micros,
    /// Pools that wait for a turn to open a server, in the order of their requests; each at most
    /// once.
    turns: VecDeque<PoolId>,
    /// Pools whose listener found no seat because of other listeners; each at most once.
    deaf: Vec<(PoolId, Arc<Identity>, Scope)>,
    /// The pools for which a server was asked to leave its lobby, and when.
    orders: Vec<(PoolId, Micros)>,
    shares: Shares,
    pub guesses: Guesses,
    serial: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            all: Tally::default(),
            databases: Tallies::default(),
            users: Tallies::default(),
            starving: VecDeque::new(),
            held: Vec::new(),
            openings: 0,
            openings_max: OPENINGS_MAX,
            begun_at: 0,
            turns: VecDeque::new(),
            deaf: Vec::new(),
            orders: Vec::new(),
            shares: Shares::default(),
            guesses: Guesses::default(),
            serial: 0,
        }
    }
}

impl Limits {
    /// Counts one more client. Returns the counts, which include it.
    pub fn client_came(&mut self, identity: &Identity) -> ClientCounts {
        let add = |tally: &mut Tally| tally.clients += 1;
        add(&mut self.all);
        ClientCounts {
            process: self.all.clients,
            database: self.databases.change(&identity.database, add).clients,
            user: self.users.change(&identity.user, add).clients,
        }
    }

    pub fn client_left(&mut self, identity: &Identity) {
        let take = |tally: &mut Tally| tally.clients -= 1;
        take(&mut self.all);
        self.databases.change(&identity.database, take);
        self.users.change(&identity.user, take);
    }

    /// Returns the number of clients in the process.
    pub fn clients(&self) -> u32 {
        self.all.clients
    }

    /// Returns the number of seats taken in the process.
    pub fn servers(&self) -> u32 {
        self.all.servers
    }

    /// Returns the number of servers that are being opened in the process.
    pub fn openings(&self) -> u32 {
        self.openings
    }

    /// Takes a seat for a server that is opened at once. This needs room in every limit, and no
    /// starving pool may have a better right to the seat. If a limit has no room, the pool starves.
    ///
    /// # Errors
    /// Returns the limit that has no room, that another pool comes first, or that too many servers
    /// are being opened.
    pub fn seat(&mut self, claim: &Claim, now: Micros) -> Result<(), Denied> {
        self.pass(now);
        let known = self.starving.iter().position(|known| known.claim.pool == claim.pool);
        let before = known.map(|at| self.starving[at].scope);
        // A pool starves for one limit until it has room. If the limits alternated, the pools in
        // both would lose servers for nothing.
        let full = before.filter(|scope| !self.has_room(claim, *scope)).or(self.full(claim));
        if known.is_none() && (full.is_some() || !self.starving.is_empty()) {
            let Claim { pool, identity, weight, .. } = claim;
            self.shares.compete(*pool, identity, *weight, |other| claim.competes_with(other));
        }
        let Some(scope) = full else {
            if !self.has_turn(now) {
                self.starving.retain(|one| one.claim.pool != claim.pool);
                if !self.turns.contains(&claim.pool) {
                    self.turns.push_back(claim.pool);
                }
                return Err(Denied::Busy);
            }
            if self.starving.iter().any(|rival| self.goes_before(rival, claim)) {
                return Err(Denied::Behind);
            }
            self.starving.retain(|one| one.claim.pool != claim.pool);
            self.orders.retain(|(pool, _)| *pool != claim.pool);
            self.let_go(claim.pool);
            self.begin(claim, now);
            return Ok(());
        };
        if let Some(before) = before.filter(|before| *before != scope) {
            self.hold(claim, before, now);
        }
        self.serial += 1;
        let starving = Starving { claim: claim.clone(), scope, serial: self.serial };
        match known {
            Some(at) => self.starving[at] = starving.clone(),
            None => self.starving.push_back(starving.clone()),
        }
        Err(Denied::Full(starving))
    }

    /// Can the rival use the claimed seat, and has it had less than the claimant?
    fn goes_before(&self, rival: &Starving, claim: &Claim) -> bool {
        let had = |pool| self.shares.service(pool);
        rival.claim.pool != claim.pool
            && rival.covers(&claim.identity.database, &claim.identity.user)
            && had(rival.claim.pool) < had(claim.pool)
            && self.has_room(&rival.claim, rival.scope)
    }

    /// Holds room that the pool starved for, because it also needs room in another limit.
    fn hold(&mut self, claim: &Claim, scope: Scope, now: Micros) {
        self.let_go(claim.pool);
        let (pool, identity) = (claim.pool, claim.identity.clone());
        self.held.push(Held { pool, identity, scope, until: now + HOLD_MAX });
    }

    /// Gives up the room that is held for the pool.
    pub fn let_go(&mut self, pool: PoolId) {
        self.held.retain(|held| held.pool != pool);
    }

    /// Returns the starving pool that has a better right to a server of this pool, and the serial
    /// number of its claim. Only if this pool has had its share.
    pub fn better_claim(
        &mut self,
        pool: PoolId,
        identity: &Identity,
        now: Micros,
    ) -> Option<(PoolId, u64)> {
        self.pass(now);
        let owed = |one: &&Starving| {
            one.claim.pool != pool
                && one.covers(&identity.database, &identity.user)
                && self.shares.is_over(pool, one.claim.pool)
        };
        let had = |one: &&Starving| self.shares.service(one.claim.pool);
        let first = self.starving.iter().filter(owed).min_by_key(had);
        first.map(|one| (one.claim.pool, one.serial))
    }

    fn pass(&mut self, now: Micros) {
        let passed = self.shares.advance(now);
        if passed > 0 && !self.starving.is_empty() {
            let mut shares = std::mem::take(&mut self.shares);
            let wanted = self.wanted();
            shares.serve(passed, |identity| wanted.includes(identity));
            self.shares = shares;
        }
        self.held.retain(|held| held.until > now);
    }

    fn wanted(&self) -> Wanted<'_> {
        let mut wanted = Wanted::default();
        for Starving { claim, .. } in &self.starving {
            let full = SCOPES.into_iter().filter(|scope| !self.has_room(claim, *scope));
            full.for_each(|scope| wanted.add(scope, &claim.identity));
        }
        wanted
    }

    /// Takes a seat for a server that is opened at once, if there is a free seat.
    pub fn spare_seat(&mut self, claim: &Claim, now: Micros) -> bool {
        self.pass(now);
        let free = self.full(claim).is_none() && self.has_turn(now);
        if free {
            self.begin(claim, now);
        }
        free
    }

    /// Takes a seat, if there is one, for a listener that is opened at once. In each limit one seat
    /// is left for servers. Otherwise listeners could take all seats.
    ///
    /// # Errors
    /// Returns the limit that is reached, if closing an idle server of another pool would help.
    pub fn listener_seat(&mut self, claim: &Claim, now: Micros) -> Result<(), Option<Starving>> {
        self.pass(now);
        self.deaf.retain(|(pool, ..)| *pool != claim.pool);
        let is_last = |scope: &Scope| {
            let (limit, tally) = self.limit_of(claim, *scope);
            limit > 0 && tally.listeners + 1 >= limit
        };
        if let Some(scope) = SCOPES.into_iter().find(is_last) {
            self.deaf.push((claim.pool, claim.identity.clone(), scope));
            return Err(None);
        }
        if !self.has_turn(now) {
            return Err(None);
        }
        if let Some(scope) = self.full(claim) {
            self.serial += 1;
            return Err(Some(Starving { claim: claim.clone(), scope, serial: self.serial }));
        }
        self.begin(claim, now);
        self.count_listener(&claim.identity, |tally| tally.listeners += 1);
        Ok(())
    }

    /// Does another pool lack a listener because of this pool's listener?
    pub fn listener_is_lacked(&self, pool: PoolId, identity: &Identity) -> bool {
        let Identity { database, user, .. } = identity;
        let lacks = |(other, its, scope): &(PoolId, Arc<Identity>, Scope)| {
            *other != pool && scope.spans(its, database, user)
        };
        self.deaf.iter().any(lacks)
    }

    /// Notes that the pool needs no listener any more.
    pub fn needs_no_listener(&mut self, pool: PoolId) {
        self.deaf.retain(|(other, ..)| *other != pool);
    }

    /// Counts a listener that was closed or could not be opened. [`Limits::vacate`] gives up its
    /// seat.
    pub fn listener_gone(&mut self, identity: &Identity) {
        self.count_listener(identity, |tally| tally.listeners -= 1);
    }

    fn count_listener(&mut self, identity: &Identity, change: impl Fn(&mut Tally)) {
        change(&mut self.all);
        self.databases.change(&identity.database, &change);
        self.users.change(&identity.user, change);
    }

    /// May one more server be opened?
    fn has_turn(&self, now: Micros) -> bool {
        let stands_still = now.saturating_sub(self.begun_at) >= STANDSTILL_MAX;
        self.openings < self.openings_max || stands_still
    }

    fn begin(&mut self, claim: &Claim, now: Micros) {
        self.seat_anyway(claim);
        self.openings += 1;
        self.begun_at = now;
    }

    /// Counts an opening that reuses the seat of another server, regardless of the bound.
    pub fn opening_begins(&mut self) {
        self.openings += 1;
    }

    /// Counts a login that has succeeded or failed. [`Limits::next_fed`] tells which pool may open
    /// a server now.
    pub fn opening_ended(&mut self) {
        self.openings -= 1;
    }

    /// Takes a seat for a server that is open, regardless of the limits.
    pub fn seat_anyway(&mut self, claim: &Claim) {
        let Claim { pool, identity, weight, .. } = claim;
        self.shares.seated(*pool, identity, *weight);
        let add = |tally: &mut Tally| tally.servers += 1;
        add(&mut self.all);
        self.databases.change(&identity.database, add);
        self.users.change(&identity.user, add);
    }

    /// Gives up the seat of a closed server. [`Limits::next_fed`] tells which pool can have it.
    pub fn vacate(&mut self, pool: PoolId, identity: &Identity, now: Micros) {
        self.pass(now);
        self.shares.vacated(pool);
        let take = |tally: &mut Tally| tally.servers -= 1;
        take(&mut self.all);
        self.databases.change(&identity.database, take);
        self.users.change(&identity.user, take);
    }

    /// Returns the first limit that has no room for this claim.
    fn full(&self, claim: &Claim) -> Option<Scope> {
        SCOPES.into_iter().find(|scope| !self.has_room(claim, *scope))
    }

    /// Does the room that is held for `holder` count as taken for the other pool? The order is total,
    /// so pools cannot take room from each other for ever: the first of them gets its seat.
    fn comes_before(&self, holder: PoolId, other: PoolId) -> bool {
        let rank = |pool| (self.shares.service(pool), pool);
        rank(holder) < rank(other)
    }

    fn limit_of(&self, claim: &Claim, scope: Scope) -> (u32, Tally) {
        let Claim { identity, limits, .. } = claim;
        match scope {
            Scope::Database => (limits.database, self.databases.of(&identity.database)),
            Scope::User => (limits.user, self.users.of(&identity.user)),
            Scope::Process => (limits.process, self.all),
        }
    }

    fn has_room(&self, claim: &Claim, scope: Scope) -> bool {
        let Claim { pool, identity, .. } = claim;
        let (limit, tally) = self.limit_of(claim, scope);
        let of_others = self.held.iter().filter(|held| {
            let is_same = scope.spans(&held.identity, &identity.database, &identity.user);
            held.scope == scope && is_same && self.comes_before(held.pool, *pool)
        });
        limit == 0 || u64::from(tally.servers) + (of_others.count() as u64) < u64::from(limit)
    }

    /// Returns the next pool that may open a server. This is the starving pool whose limit has room
    /// now; of several, the one that has had least. Otherwise it is the pool whose turn it is. The
    /// pool no longer starves; it may not need the seat any more.
    pub fn next_fed(&mut self, now: Micros) -> Option<PoolId> {
        self.pass(now);
        if !self.has_turn(now) {
            return None;
        }
        let fits = |at: &usize| {
            let one = &self.starving[*at];
            self.has_room(&one.claim, one.scope)
        };
        let had = |at: &usize| self.shares.service(self.starving[*at].claim.pool);
        let at = (0..self.starving.len()).filter(fits).min_by_key(had);
        let Some(Starving { claim, scope, .. }) = at.and_then(|at| self.starving.remove(at)) else {
            return self.turns.pop_front();
        };
        if self.full(&claim).is_some() {
            self.hold(&claim, scope, now);
        }
        Some(claim.pool)
    }

    /// Will this pool be offered a seat, or a turn to open a server?
    pub fn will_be_fed(&self, pool: PoolId) -> bool {
        self.starving.iter().any(|one| one.claim.pool == pool) || self.turns.contains(&pool)
    }

    /// May a server be asked to leave its lobby for this pool? Only if the one that was asked before
    /// has had the time to leave.
    pub fn may_order(&mut self, pool: PoolId, now: Micros) -> bool {
        self.orders.retain(|(_, at)| now.saturating_sub(*at) <= ORDER_PATIENCE);
        let may = self.orders.iter().all(|(other, _)| *other != pool);
        if may {
            self.orders.push((pool, now));
        }
        may
    }

    /// Returns the claim of a pool that starves.
    pub fn claim_of(&self, pool: PoolId) -> Option<&Starving> {
        self.starving.iter().find(|one| one.claim.pool == pool)
    }

    /// Removes everything about a pool that no longer exists.
    pub fn forget_pool(&mut self, pool: PoolId) {
        self.shares.forget(pool);
        self.orders.retain(|(other, _)| *other != pool);
        self.let_go(pool);
        self.starving.retain(|one| one.claim.pool != pool);
        self.turns.retain(|other| *other != pool);
        self.needs_no_listener(pool);
    }

    /// Returns the pool that starves for a seat of this database and user, and the serial number of
    /// its claim.
    pub fn starving_for(&self, identity: &Identity) -> Option<(PoolId, u64)> {
        let hungry = self.starving.iter();
        let mut hungry = hungry.filter(|one| one.covers(&identity.database, &identity.user));
        hungry.next().map(|one| (one.claim.pool, one.serial))
    }

    /// Removes the claim with this serial number, because the pool does not need a seat any more. A
    /// later claim of the pool is kept.
    pub fn forget(&mut self, pool: PoolId, serial: u64) {
        self.starving.retain(|one| (one.claim.pool, one.serial) != (pool, serial));
        if !self.will_be_fed(pool) {
            self.let_go(pool);
        }
    }
}

#[cfg(test)]
mod tests;
