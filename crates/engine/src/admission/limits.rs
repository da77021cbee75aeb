//! How many connections there are, by database, by user and in all, and what the `max_*` keys make
//! of it. Plain bookkeeping like the `Pool`: the shell puts it behind a lock, which is taken when a
//! connection begins or ends, and in between only while pools compete: when a server becomes free for
//! which another pool may have a better use.
//!
//! A server needs a *seat* before it is opened. A pool that finds no seat *starves*, which is noted
//! in the same step, so that the next seat given up can be offered to it. Pools whose servers stand
//! in its way are told (`Pool::wanted`): what becomes free there and is not needed is closed, not
//! parked; and if they have had their share for now ([`Shares`]), it is closed even if it is needed.
//!
//! A pool may find two limits full, its database's and its user's, and no server counts in both but its
//! own. Then it starves for one of them, and when that has room it holds the room while it starves for
//! the other, for [`HOLD_MAX`] at most: or whoever gave the first up would take it back meanwhile.
//!
//! With the seat a server takes one of the turns to be opened, of which there are [`OPENINGS_MAX`], until
//! it is logged in. A pool that finds a seat and no turn is noted as well, but takes nothing from others.
//!
//! Invariant: with a limit of `n` no more than `n` seats are taken, whoever asks at the same time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::admission::shares::{Shares, TURN};
use crate::ids::{Identity, Micros, PoolId};
use crate::login::guesses::Guesses;

mod wanted;

use wanted::Wanted;

/// Servers that are being opened at a time, in all pools together, at most: PostgreSQL forks for each, and
/// a thousand pools whose clients come back at once must not make it fork thousands of times.
pub const OPENINGS_MAX: u32 = 64;
/// If none could be begun for so long, one more may be: those that are being opened hang, as they do when
/// a host does not answer, and must not hold up the pools of others.
pub const STANDSTILL_MAX: Micros = 200_000;

/// How long room in one limit is held for a pool that starves for another one. If that takes longer
/// somebody else can make use of it meanwhile.
pub const HOLD_MAX: Micros = 3 * TURN;

/// What a pool's servers are limited by beyond the size of the pool; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// `max_db_connections`.
    pub database: u32,
    /// `max_user_connections`.
    pub user: u32,
    /// `max_server_connections`.
    pub process: u32,
}

/// Whose servers fill a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the pool's database.
    Database,
    /// Those of the pool's user.
    User,
    /// All of them.
    Process,
}

/// In the order in which PgBouncer looks.
const SCOPES: [Scope; 3] = [Scope::Database, Scope::User, Scope::Process];

impl Scope {
    /// Do servers of this database and user count in the same limit as those of that identity?
    fn spans(self, identity: &Identity, database: &str, user: &str) -> bool {
        match self {
            Self::Database => identity.database == database,
            Self::User => identity.user == user,
            Self::Process => true,
        }
    }
}

/// A pool that asks for a seat.
#[derive(Clone, Debug)]
pub struct Claim {
    pub pool: PoolId,
    pub identity: Arc<Identity>,
    pub limits: ServerLimits,
    /// The pool's share beside others.
    pub weight: u32,
}

impl Claim {
    /// Does a pool of that identity count in any of the same limits?
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
    /// Grows from one to the next; never 0.
    pub serial: u64,
}

impl Starving {
    /// Would a seat of this database and user help?
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
    /// There is a seat, for a starving pool that has had less: see [`Limits::next_fed`].
    Behind,
    /// There is a seat, but as many servers are being opened as may be. The pool has its turn.
    Busy,
}

/// Clients in the whole process, those of a database, those of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCounts {
    pub process: u32,
    pub database: u32,
    pub user: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    servers: u32,
    /// Of them, those that listen for all clients of a pool.
    listeners: u32,
    clients: u32,
}

/// By name, as long as there is anything to count.
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
    /// In the order in which they began to starve; each pool once.
    starving: VecDeque<Starving>,
    held: Vec<Held>,
    /// Servers that are being opened.
    openings: u32,
    /// [`OPENINGS_MAX`], but in tests.
    pub openings_max: u32,
    /// When one was begun last.
    begun_at: Micros,
    /// Pools that may open a server when fewer are being opened, in the order in which they asked; each
    /// once.
    turns: VecDeque<PoolId>,
    /// Pools whose listener found no seat because of other listeners; each once.
    deaf: Vec<(PoolId, Arc<Identity>, Scope)>,
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
            shares: Shares::default(),
            guesses: Guesses::default(),
            serial: 0,
        }
    }
}

impl Limits {
    /// One more client. The counts include it.
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

    /// Clients in the whole process.
    pub fn clients(&self) -> u32 {
        self.all.clients
    }

    /// Seats taken in the whole process.
    pub fn servers(&self) -> u32 {
        self.all.servers
    }

    /// Servers that are being opened in the whole process.
    pub fn openings(&self) -> u32 {
        self.openings
    }

    /// Takes a seat, for a server that is opened at once, if every limit has room and no starving pool
    /// has a better right to it. If a limit has none, the pool starves from now on, or still.
    ///
    /// # Errors
    /// Which limit has no room; or that somebody else has to be fed first; or that too many are being
    /// opened.
    pub fn seat(&mut self, claim: &Claim, now: Micros) -> Result<(), Denied> {
        self.pass(now);
        let known = self.starving.iter().position(|known| known.claim.pool == claim.pool);
        let before = known.map(|at| self.starving[at].scope);
        // Who starves for one limit does so until that has room: were it the other one's turn each
        // time, both of those in the way would lose servers for nothing.
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

    /// Could the rival make use of the seat that is claimed, and has it had less than the claimant?
    fn goes_before(&self, rival: &Starving, claim: &Claim) -> bool {
        let had = |pool| self.shares.service(pool);
        rival.claim.pool != claim.pool
            && rival.covers(&claim.identity.database, &claim.identity.user)
            && had(rival.claim.pool) < had(claim.pool)
            && self.has_room(&rival.claim, rival.scope)
    }

    /// The pool has what it starved for, and may need more than that.
    fn hold(&mut self, claim: &Claim, scope: Scope, now: Micros) {
        self.let_go(claim.pool);
        let (pool, identity) = (claim.pool, claim.identity.clone());
        self.held.push(Held { pool, identity, scope, until: now + HOLD_MAX });
    }

    /// The pool needs nothing that is held for it.
    pub fn let_go(&mut self, pool: PoolId) {
        self.held.retain(|held| held.pool != pool);
    }

    /// Who starves for the like of this pool's servers, while this one has had its share for now;
    /// and the serial of that.
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

    /// Takes a seat, for a server that is opened at once, if there is one, and does without if not.
    pub fn spare_seat(&mut self, claim: &Claim, now: Micros) -> bool {
        self.pass(now);
        let free = self.full(claim).is_none() && self.has_turn(now);
        if free {
            self.begin(claim, now);
        }
        free
    }

    /// Takes a seat, for a connection that listens for all clients of a pool and is opened at once, if
    /// there is one. In each limit a seat is left for servers, or listeners could take them all.
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

    /// Does another pool lack a listener because this one has one?
    pub fn listener_is_lacked(&self, pool: PoolId, identity: &Identity) -> bool {
        let Identity { database, user, .. } = identity;
        let lacks = |(other, its, scope): &(PoolId, Arc<Identity>, Scope)| {
            *other != pool && scope.spans(its, database, user)
        };
        self.deaf.iter().any(lacks)
    }

    /// The pool needs no listener any more.
    pub fn needs_no_listener(&mut self, pool: PoolId) {
        self.deaf.retain(|(other, ..)| *other != pool);
    }

    /// A connection that listened is gone, or could not be opened. Its seat is given up by
    /// [`Limits::vacate`].
    pub fn listener_gone(&mut self, identity: &Identity) {
        self.count_listener(identity, |tally| tally.listeners -= 1);
    }

    fn count_listener(&mut self, identity: &Identity, change: impl Fn(&mut Tally)) {
        change(&mut self.all);
        self.databases.change(&identity.database, &change);
        self.users.change(&identity.user, change);
    }

    /// May one more be opened?
    fn has_turn(&self, now: Micros) -> bool {
        let stands_still = now.saturating_sub(self.begun_at) >= STANDSTILL_MAX;
        self.openings < self.openings_max || stands_still
    }

    fn begin(&mut self, claim: &Claim, now: Micros) {
        self.seat_anyway(claim);
        self.openings += 1;
        self.begun_at = now;
    }

    /// A server is opened in a seat that was another one's, whatever the bound says.
    pub fn opening_begins(&mut self) {
        self.openings += 1;
    }

    /// A server is logged in, or will not be. [`Limits::next_fed`] tells who may open one now.
    pub fn opening_ended(&mut self) {
        self.openings -= 1;
    }

    /// Takes a seat for a server that is open, whatever the limits say.
    pub fn seat_anyway(&mut self, claim: &Claim) {
        let Claim { pool, identity, weight, .. } = claim;
        self.shares.seated(*pool, identity, *weight);
        let add = |tally: &mut Tally| tally.servers += 1;
        add(&mut self.all);
        self.databases.change(&identity.database, add);
        self.users.change(&identity.user, add);
    }

    /// A server is gone. [`Limits::next_fed`] tells who can have its seat.
    pub fn vacate(&mut self, pool: PoolId, identity: &Identity, now: Micros) {
        self.pass(now);
        self.shares.vacated(pool);
        let take = |tally: &mut Tally| tally.servers -= 1;
        take(&mut self.all);
        self.databases.change(&identity.database, take);
        self.users.change(&identity.user, take);
    }

    /// The first limit that has no room for this claim.
    fn full(&self, claim: &Claim) -> Option<Scope> {
        SCOPES.into_iter().find(|scope| !self.has_room(claim, *scope))
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
            held.scope == scope && is_same && held.pool != *pool
        });
        limit == 0 || u64::from(tally.servers) + (of_others.count() as u64) < u64::from(limit)
    }

    /// The starving pool for which the limit that it starves for has room now, of several the one that
    /// has had least, and then the first; or else the pool whose turn it is. It starves no longer; whether
    /// it still needs the seat is for it to say.
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

    /// Will this pool be offered a seat, or its turn to open a server?
    pub fn will_be_fed(&self, pool: PoolId) -> bool {
        self.starving.iter().any(|one| one.claim.pool == pool) || self.turns.contains(&pool)
    }

    /// The pool is no more.
    pub fn forget_pool(&mut self, pool: PoolId) {
        self.shares.forget(pool);
        self.let_go(pool);
        self.starving.retain(|one| one.claim.pool != pool);
        self.turns.retain(|other| *other != pool);
        self.needs_no_listener(pool);
    }

    /// Who starves for want of a seat of this database and user, and the serial of that.
    pub fn starving_for(&self, identity: &Identity) -> Option<(PoolId, u64)> {
        let hungry = self.starving.iter();
        let mut hungry = hungry.filter(|one| one.covers(&identity.database, &identity.user));
        hungry.next().map(|one| (one.claim.pool, one.serial))
    }

    /// This pool wanted nothing any more when it was asked about that serial. If it has begun to
    /// starve anew since, that stands.
    pub fn forget(&mut self, pool: PoolId, serial: u64) {
        self.starving.retain(|one| (one.claim.pool, one.serial) != (pool, serial));
        if !self.will_be_fed(pool) {
            self.let_go(pool);
        }
    }
}

#[cfg(test)]
mod tests;
