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
//! With the seat a server takes one of the turns to be opened, of which there are [`OPENINGS_MAX`], until
//! it is logged in. A pool that finds a seat and no turn is noted as well, but takes nothing from others.
//!
//! Invariant: with a limit of `n` no more than `n` seats are taken, whoever asks at the same time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::client::Identity;
use crate::guesses::Guesses;
use crate::ids::{Micros, PoolId};
use crate::shares::Shares;

/// Servers that are being opened at a time, in all pools together, at most: PostgreSQL forks for each, and
/// a thousand pools whose clients come back at once must not make it fork thousands of times.
pub const OPENINGS_MAX: u32 = 64;
/// If none could be begun for so long, one more may be: those that are being opened hang, as they do when
/// a host does not answer, and must not hold up the pools of others.
pub const STANDSTILL_MAX: Micros = 200_000;

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
        match self.scope {
            Scope::Database => self.claim.identity.database == database,
            Scope::User => self.claim.identity.user == user,
            Scope::Process => true,
        }
    }
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
    clients: u32,
}

/// By name, as long as there is anything to count.
#[derive(Debug, Default)]
struct Tallies(HashMap<String, Tally, RandomState>);

impl Tallies {
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
    /// Servers that are being opened.
    openings: u32,
    /// [`OPENINGS_MAX`], but in tests.
    pub openings_max: u32,
    /// When one was begun last.
    begun_at: Micros,
    /// Pools that may open a server when fewer are being opened, in the order in which they asked; each
    /// once.
    turns: VecDeque<PoolId>,
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
            openings: 0,
            openings_max: OPENINGS_MAX,
            begun_at: 0,
            turns: VecDeque::new(),
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
        let full = self.full(claim);
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
            self.begin(claim, now);
            return Ok(());
        };
        self.serial += 1;
        let starving = Starving { claim: claim.clone(), scope, serial: self.serial };
        match known {
            Some(at) => self.starving[at] = starving.clone(),
            None => self.starving.push_back(starving.clone()),
        }
        Err(Denied::Full(starving))
    }

    /// Could the rival have the seat that is claimed, and has it had less than the claimant?
    fn goes_before(&self, rival: &Starving, claim: &Claim) -> bool {
        let had = |pool| self.shares.service(pool);
        rival.claim.pool != claim.pool
            && rival.covers(&claim.identity.database, &claim.identity.user)
            && had(rival.claim.pool) < had(claim.pool)
            && self.full(&rival.claim).is_none()
    }

    /// Who starves for the like of this pool's servers, while this one has had its share for now;
    /// and the serial of that.
    pub fn creditor(
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
        self.shares.pass(now, !self.starving.is_empty());
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

    /// The first limit that has no room for this claim, in the order in which PgBouncer looks.
    fn full(&self, claim: &Claim) -> Option<Scope> {
        let full = |limit: u32, tally: Tally| limit > 0 && tally.servers >= limit;
        let (limits, identity) = (&claim.limits, &claim.identity);
        if full(limits.database, self.databases.of(&identity.database)) {
            Some(Scope::Database)
        } else if full(limits.user, self.users.of(&identity.user)) {
            Some(Scope::User)
        } else if full(limits.process, self.all) {
            Some(Scope::Process)
        } else {
            None
        }
    }

    /// The starving pool for which there is a seat now, of several the one that has had least, and
    /// then the first; or else the pool whose turn it is. It starves no longer; whether it still needs
    /// the seat is for it to say.
    pub fn next_fed(&mut self, now: Micros) -> Option<PoolId> {
        if !self.has_turn(now) {
            return None;
        }
        let fits = |at: &usize| self.full(&self.starving[*at].claim).is_none();
        let had = |at: &usize| self.shares.service(self.starving[*at].claim.pool);
        let at = (0..self.starving.len()).filter(fits).min_by_key(had);
        let fed = at.and_then(|at| self.starving.remove(at)).map(|fed| fed.claim.pool);
        fed.or_else(|| self.turns.pop_front())
    }

    /// Will this pool be offered a seat, or its turn to open a server?
    pub fn will_be_fed(&self, pool: PoolId) -> bool {
        self.starving.iter().any(|one| one.claim.pool == pool) || self.turns.contains(&pool)
    }

    /// The pool is no more.
    pub fn forget_pool(&mut self, pool: PoolId) {
        self.shares.forget(pool);
        self.starving.retain(|one| one.claim.pool != pool);
        self.turns.retain(|other| *other != pool);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::TURN;

    fn who(database: &str, user: &str) -> Arc<Identity> {
        Arc::new(Identity { database: database.into(), user: user.into() })
    }

    fn claim(pool: u32, database: &str, user: &str, limits: [u32; 3]) -> Claim {
        let [database_max, user_max, process] = limits;
        Claim {
            pool: PoolId(pool),
            identity: who(database, user),
            limits: ServerLimits { database: database_max, user: user_max, process },
            weight: 1,
        }
    }

    fn starving(seat: Result<(), Denied>) -> Starving {
        match seat {
            Err(Denied::Full(starving)) => starving,
            other => panic!("it is full, but {other:?}"),
        }
    }

    #[test]
    fn each_limit_is_exact_and_0_is_none() {
        for (limits, scope) in [
            ([2, 0, 0], Scope::Database),
            ([0, 2, 0], Scope::User),
            ([0, 0, 2], Scope::Process),
            ([2, 2, 2], Scope::Database),
        ] {
            let mut all = Limits::default();
            let claim = claim(0, "d", "u", limits);
            assert!(all.seat(&claim, 0).is_ok() && all.seat(&claim, 0).is_ok());
            assert_eq!(starving(all.seat(&claim, 0)).scope, scope);
            assert!(!all.spare_seat(&claim, 0));
            assert_eq!(all.servers(), 2);
            all.vacate(claim.pool, &claim.identity, 0);
            assert!(all.spare_seat(&claim, 0));
        }
        let mut all = Limits::default();
        let endless = claim(0, "d", "u", [0; 3]);
        for _ in 0..100 {
            assert!(all.seat(&endless, 0).is_ok());
            all.opening_ended();
        }
    }

    #[test]
    fn so_many_are_opened_at_a_time_and_then_pools_have_their_turns() {
        let mut all = Limits { openings_max: 2, ..Limits::default() };
        let claims = [0, 1, 2, 3].map(|pool| claim(pool, "d", "u", [0; 3]));
        assert!(all.seat(&claims[0], 0).is_ok() && all.seat(&claims[0], 0).is_ok());
        for late in [2, 1, 3, 2] {
            assert!(matches!(all.seat(&claims[late], 0), Err(Denied::Busy)));
        }
        assert!(!all.spare_seat(&claims[0], 0));
        assert!(all.will_be_fed(PoolId(1)) && !all.will_be_fed(PoolId(0)));
        assert_eq!(all.next_fed(0), None);
        all.opening_ended();
        assert_eq!(all.next_fed(0), Some(PoolId(2)), "who asked first");
        assert!(all.seat(&claims[2], 0).is_ok());
        assert_eq!((all.next_fed(0), all.openings(), all.servers()), (None, 2, 3));
        all.forget_pool(PoolId(1));
        all.opening_ended();
        assert_eq!(all.next_fed(0), Some(PoolId(3)));
    }

    #[test]
    fn logins_that_hang_hold_nobody_up_for_long() {
        let mut all = Limits { openings_max: 1, ..Limits::default() };
        let [one, other] = [0, 1].map(|pool| claim(pool, "d", "u", [0; 3]));
        assert!(all.seat(&one, 5).is_ok());
        assert!(all.seat(&other, 5 + STANDSTILL_MAX - 1).is_err());
        assert!(all.seat(&other, 5 + STANDSTILL_MAX).is_ok());
        assert!(all.seat(&other, 5 + STANDSTILL_MAX + 1).is_err(), "one after the other");
        all.opening_ended();
        assert_eq!(all.next_fed(5 + STANDSTILL_MAX + 1), None, "there are too many still");
        assert_eq!(all.next_fed(5 + 2 * STANDSTILL_MAX), Some(PoolId(1)));
    }

    #[test]
    fn who_has_to_be_fed_first_is_fed_by_the_same_rule() {
        let mut all = Limits { openings_max: 1, ..Limits::default() };
        let [rich, poor, hung] = [0, 1, 2].map(|pool| claim(pool, "d", "u", [0, 0, 2]));
        all.seat_anyway(&rich);
        assert!(all.seat(&hung, 0).is_ok());
        starving(all.seat(&poor, 0));
        let late = 10 * STANDSTILL_MAX;
        all.vacate(rich.pool, &rich.identity, late);
        // Or it would ask for ever.
        assert!(matches!(all.seat(&rich, late), Err(Denied::Behind)));
        assert_eq!(all.next_fed(late), Some(poor.pool));
    }

    #[test]
    fn a_turn_comes_when_there_is_a_seat_and_no_sooner() {
        let mut all = Limits { openings_max: 1, ..Limits::default() };
        let [one, other] = [0, 1].map(|pool| claim(pool, "d", "u", [0, 0, 2]));
        all.seat_anyway(&one);
        assert!(all.seat(&one, 0).is_ok());
        assert_eq!(starving(all.seat(&other, 0)).scope, Scope::Process);
        all.vacate(PoolId(0), &who("d", "u"), 0);
        assert_eq!(all.next_fed(0), None, "there is a seat, but no turn");
        assert!(matches!(all.seat(&other, 0), Err(Denied::Busy)));
        assert_eq!(all.starving_for(&who("d", "u")), None, "no server has to go for it");
        all.opening_ended();
        assert_eq!(all.next_fed(0), Some(PoolId(1)));
    }

    #[test]
    fn a_limit_counts_those_of_its_own_kind_only() {
        let mut all = Limits::default();
        assert!(all.seat(&claim(0, "d", "u", [1, 1, 0]), 0).is_ok());
        assert!(all.seat(&claim(1, "d", "v", [1, 1, 0]), 0).is_err(), "the database is full");
        assert!(all.seat(&claim(2, "e", "u", [1, 1, 0]), 0).is_err(), "the user is full");
        assert!(all.seat(&claim(3, "e", "v", [1, 1, 0]), 0).is_ok());
    }

    #[test]
    fn who_starved_first_is_fed_first_if_the_seat_is_of_use() {
        let mut all = Limits::default();
        assert!(all.seat(&claim(0, "d", "u", [1, 0, 0]), 0).is_ok());
        assert!(all.seat(&claim(1, "e", "u", [1, 0, 0]), 0).is_ok());
        assert!(all.seat(&claim(2, "e", "v", [1, 0, 0]), 0).is_err());
        assert!(all.seat(&claim(3, "d", "v", [1, 0, 0]), 0).is_err());
        assert!(all.seat(&claim(4, "d", "w", [1, 0, 0]), 0).is_err());
        assert_eq!(all.starving_for(&who("d", "u")), Some((PoolId(3), 2)));
        assert_eq!(all.next_fed(0), None);
        all.vacate(PoolId(0), &who("d", "u"), 0);
        assert_eq!(all.next_fed(0), Some(PoolId(3)));
        assert!(all.seat(&claim(3, "d", "v", [1, 0, 0]), 0).is_ok());
        assert_eq!(all.next_fed(0), None, "pool 4 has no room");
        assert_eq!(all.starving_for(&who("d", "u")), Some((PoolId(4), 3)));
        all.forget(PoolId(4), 3);
        assert_eq!(all.starving_for(&who("d", "u")), None);
        assert_eq!(all.starving_for(&who("e", "u")), Some((PoolId(2), 1)));
    }

    #[test]
    fn what_began_since_is_not_forgotten() {
        let mut all = Limits::default();
        assert!(all.seat(&claim(0, "d", "u", [1, 0, 0]), 0).is_ok());
        let first = starving(all.seat(&claim(1, "d", "v", [1, 0, 0]), 0));
        let again = starving(all.seat(&claim(1, "d", "v", [1, 0, 0]), 0));
        all.forget(PoolId(1), first.serial);
        assert!(all.will_be_fed(PoolId(1)));
        all.forget(PoolId(1), again.serial);
        assert!(!all.will_be_fed(PoolId(1)));
    }

    #[test]
    fn names_are_forgotten_when_nothing_is_left_to_count() {
        let mut all = Limits::default();
        let (one, two) = (who("d", "u"), who("d", "v"));
        all.client_came(&one);
        let counts = all.client_came(&two);
        assert_eq!(counts, ClientCounts { process: 2, database: 2, user: 1 });
        all.seat_anyway(&claim(0, "d", "u", [0; 3]));
        all.client_left(&one);
        all.client_left(&two);
        all.vacate(PoolId(0), &one, 0);
        assert!(all.databases.0.is_empty() && all.users.0.is_empty());
        assert_eq!((all.clients(), all.servers()), (0, 0));
    }

    /// Two users of one database with work without end, of which the first has all servers.
    #[test]
    fn a_seat_goes_to_who_has_had_least() {
        let mut all = Limits::default();
        let (rich, poor) = (claim(0, "d", "u", [2, 0, 0]), claim(1, "d", "v", [2, 0, 0]));
        assert!(all.seat(&rich, 0).is_ok() && all.seat(&rich, 0).is_ok());
        starving(all.seat(&poor, 1_000_000));
        let creditor = |all: &mut Limits, now| all.creditor(rich.pool, &rich.identity, now);
        assert_eq!(creditor(&mut all, 1_000_001), None, "nobody else wanted what it has had");
        let turn = 1_000_000 + TURN / 2;
        assert_eq!(creditor(&mut all, turn - 1), None);
        assert_eq!(creditor(&mut all, turn), Some((poor.pool, 1)));
        all.vacate(rich.pool, &rich.identity, turn);
        // It would like to have it back at once.
        assert!(matches!(all.seat(&rich, turn), Err(Denied::Behind)));
        assert_eq!(all.next_fed(0), Some(poor.pool));
        assert!(all.seat(&poor, turn).is_ok());
        starving(all.seat(&rich, turn));
        assert_eq!(
            all.creditor(poor.pool, &poor.identity, turn + 10 * TURN),
            None,
            "they are even"
        );
    }

    #[test]
    fn who_has_no_limit_in_common_does_not_compete() {
        let mut all = Limits::default();
        let (one, other) = (claim(0, "d", "u", [1, 0, 0]), claim(1, "e", "u", [1, 0, 0]));
        assert!(all.seat(&one, 0).is_ok() && all.seat(&other, 0).is_ok());
        starving(all.seat(&claim(2, "d", "v", [1, 0, 0]), 0));
        assert_eq!(all.creditor(other.pool, &other.identity, 100 * TURN), None);
        assert!(all.creditor(one.pool, &one.identity, 100 * TURN).is_some());
    }
}
