//! How many connections there are, by database, by user and in all, and what the `max_*` keys make
//! of it. Plain bookkeeping like the `Pool`: the shell puts it behind a lock, which is taken when a
//! connection begins or ends and at no time in between.
//!
//! A server needs a *seat* before it is opened. A pool that finds no seat *starves*, which is noted
//! in the same step, so that the next seat given up can be offered to it. Pools whose idle servers
//! stand in its way are told (`Pool::wanted`): what becomes free there is closed, not parked.
//!
//! Invariant: with a limit of `n` no more than `n` seats are taken, whoever asks at the same time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::client::Identity;
use crate::guesses::Guesses;
use crate::ids::PoolId;

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

#[derive(Debug, Default)]
pub struct Limits {
    all: Tally,
    databases: Tallies,
    users: Tallies,
    /// In the order in which they began to starve; each pool once.
    starving: VecDeque<Starving>,
    pub guesses: Guesses,
    serial: u64,
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

    /// Takes a seat if every limit has room. If not, the pool starves from now on, or still.
    ///
    /// # Errors
    /// Which limit has no room.
    pub fn seat(&mut self, claim: &Claim) -> Result<(), Starving> {
        let Some(scope) = self.full(claim) else {
            self.starving.retain(|one| one.claim.pool != claim.pool);
            self.seat_anyway(&claim.identity);
            return Ok(());
        };
        self.serial += 1;
        let starving = Starving { claim: claim.clone(), scope, serial: self.serial };
        match self.starving.iter_mut().find(|known| known.claim.pool == claim.pool) {
            Some(known) => *known = starving.clone(),
            None => self.starving.push_back(starving.clone()),
        }
        Err(starving)
    }

    /// Takes a seat if there is one, and does without if not.
    pub fn spare_seat(&mut self, claim: &Claim) -> bool {
        let free = self.full(claim).is_none();
        if free {
            self.seat_anyway(&claim.identity);
        }
        free
    }

    /// Takes a seat, whatever the limits say.
    pub fn seat_anyway(&mut self, identity: &Identity) {
        let add = |tally: &mut Tally| tally.servers += 1;
        add(&mut self.all);
        self.databases.change(&identity.database, add);
        self.users.change(&identity.user, add);
    }

    /// A server is gone. [`Limits::next_fed`] tells who can have its seat.
    pub fn vacate(&mut self, identity: &Identity) {
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

    /// The first starving pool for which there is a seat now. It starves no longer; whether it
    /// still needs the seat is for it to say.
    pub fn next_fed(&mut self) -> Option<PoolId> {
        let at = (0..self.starving.len()).find(|at| self.full(&self.starving[*at].claim).is_none());
        at.and_then(|at| self.starving.remove(at)).map(|fed| fed.claim.pool)
    }

    /// Will this pool be offered a seat?
    pub fn starves(&self, pool: PoolId) -> bool {
        self.starving.iter().any(|one| one.claim.pool == pool)
    }

    /// The pool is no more.
    pub fn forget_pool(&mut self, pool: PoolId) {
        self.starving.retain(|one| one.claim.pool != pool);
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

    fn who(database: &str, user: &str) -> Arc<Identity> {
        Arc::new(Identity { database: database.into(), user: user.into() })
    }

    fn claim(pool: u32, database: &str, user: &str, limits: [u32; 3]) -> Claim {
        let [database_max, user_max, process] = limits;
        Claim {
            pool: PoolId(pool),
            identity: who(database, user),
            limits: ServerLimits { database: database_max, user: user_max, process },
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
            assert!(all.seat(&claim).is_ok() && all.seat(&claim).is_ok());
            let starving = all.seat(&claim).expect_err("it is full");
            assert_eq!(starving.scope, scope);
            assert!(!all.spare_seat(&claim));
            assert_eq!(all.servers(), 2);
            all.vacate(&claim.identity);
            assert!(all.spare_seat(&claim));
        }
        let mut all = Limits::default();
        let endless = claim(0, "d", "u", [0; 3]);
        assert!((0..100).all(|_| all.seat(&endless).is_ok()));
    }

    #[test]
    fn a_limit_counts_those_of_its_own_kind_only() {
        let mut all = Limits::default();
        assert!(all.seat(&claim(0, "d", "u", [1, 1, 0])).is_ok());
        assert!(all.seat(&claim(1, "d", "v", [1, 1, 0])).is_err(), "the database is full");
        assert!(all.seat(&claim(2, "e", "u", [1, 1, 0])).is_err(), "the user is full");
        assert!(all.seat(&claim(3, "e", "v", [1, 1, 0])).is_ok());
    }

    #[test]
    fn who_starved_first_is_fed_first_if_the_seat_is_of_use() {
        let mut all = Limits::default();
        assert!(all.seat(&claim(0, "d", "u", [1, 0, 0])).is_ok());
        assert!(all.seat(&claim(1, "e", "u", [1, 0, 0])).is_ok());
        assert!(all.seat(&claim(2, "e", "v", [1, 0, 0])).is_err());
        assert!(all.seat(&claim(3, "d", "v", [1, 0, 0])).is_err());
        assert!(all.seat(&claim(4, "d", "w", [1, 0, 0])).is_err());
        assert_eq!(all.starving_for(&who("d", "u")), Some((PoolId(3), 2)));
        assert_eq!(all.next_fed(), None);
        all.vacate(&who("d", "u"));
        assert_eq!(all.next_fed(), Some(PoolId(3)));
        assert!(all.seat(&claim(3, "d", "v", [1, 0, 0])).is_ok());
        assert_eq!(all.next_fed(), None, "pool 4 has no room");
        assert_eq!(all.starving_for(&who("d", "u")), Some((PoolId(4), 3)));
        all.forget(PoolId(4), 3);
        assert_eq!(all.starving_for(&who("d", "u")), None);
        assert_eq!(all.starving_for(&who("e", "u")), Some((PoolId(2), 1)));
    }

    #[test]
    fn what_began_since_is_not_forgotten() {
        let mut all = Limits::default();
        assert!(all.seat(&claim(0, "d", "u", [1, 0, 0])).is_ok());
        let first = all.seat(&claim(1, "d", "v", [1, 0, 0])).expect_err("it is full");
        let again = all.seat(&claim(1, "d", "v", [1, 0, 0])).expect_err("it is full");
        all.forget(PoolId(1), first.serial);
        assert!(all.starves(PoolId(1)));
        all.forget(PoolId(1), again.serial);
        assert!(!all.starves(PoolId(1)));
    }

    #[test]
    fn names_are_forgotten_when_nothing_is_left_to_count() {
        let mut all = Limits::default();
        let (one, two) = (who("d", "u"), who("d", "v"));
        all.client_came(&one);
        let counts = all.client_came(&two);
        assert_eq!(counts, ClientCounts { process: 2, database: 2, user: 1 });
        all.seat_anyway(&one);
        all.client_left(&one);
        all.client_left(&two);
        all.vacate(&one);
        assert!(all.databases.0.is_empty() && all.users.0.is_empty());
        assert_eq!((all.clients(), all.servers()), (0, 0));
    }
}
