//! The decisions of the limits about claims.

use super::*;
use crate::admission::shares::TURN;

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
fn hanging_logins_delay_other_pools_only_briefly() {
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
fn a_pool_that_must_come_first_is_the_next_one_fed() {
    let mut all = Limits { openings_max: 1, ..Limits::default() };
    let [rich, poor, hung] = [0, 1, 2].map(|pool| claim(pool, "d", "u", [0, 0, 2]));
    all.seat_anyway(&rich);
    assert!(all.seat(&hung, 0).is_ok());
    starving(all.seat(&poor, 0));
    let late = 10 * STANDSTILL_MAX;
    all.vacate(rich.pool, &rich.identity, late);
    // Otherwise the pool would ask forever.
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
fn a_database_limit_and_a_user_limit_count_separately() {
    let mut all = Limits::default();
    assert!(all.seat(&claim(0, "d", "u", [1, 1, 0]), 0).is_ok());
    assert!(all.seat(&claim(1, "d", "v", [1, 1, 0]), 0).is_err(), "the database is full");
    assert!(all.seat(&claim(2, "e", "u", [1, 1, 0]), 0).is_err(), "the user is full");
    assert!(all.seat(&claim(3, "e", "v", [1, 1, 0]), 0).is_ok());
}

#[test]
fn the_first_starving_pool_gets_a_seat_that_it_can_use() {
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
fn a_later_claim_is_not_forgotten() {
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
fn names_without_connections_are_forgotten() {
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

/// Two users of one database always have work, and the first one has all servers.
#[test]
fn a_seat_goes_to_the_pool_that_has_had_least() {
    let mut all = Limits::default();
    let (rich, poor) = (claim(0, "d", "u", [2, 0, 0]), claim(1, "d", "v", [2, 0, 0]));
    assert!(all.seat(&rich, 0).is_ok() && all.seat(&rich, 0).is_ok());
    starving(all.seat(&poor, 1_000_000));
    let better_claim = |all: &mut Limits, now| all.better_claim(rich.pool, &rich.identity, now);
    assert_eq!(better_claim(&mut all, 1_000_001), None, "nobody else wanted what it has had");
    let turn = 1_000_000 + TURN / 2;
    assert_eq!(better_claim(&mut all, turn - 1), None);
    assert_eq!(better_claim(&mut all, turn), Some((poor.pool, 1)));
    all.vacate(rich.pool, &rich.identity, turn);
    // The pool would like to have the seat back at once.
    assert!(matches!(all.seat(&rich, turn), Err(Denied::Behind)));
    assert_eq!(all.next_fed(0), Some(poor.pool));
    assert!(all.seat(&poor, turn).is_ok());
    starving(all.seat(&rich, turn));
    assert_eq!(
        all.better_claim(poor.pool, &poor.identity, turn + 10 * TURN),
        None,
        "they are even"
    );
}

#[test]
fn pools_without_a_common_limit_do_not_compete() {
    let mut all = Limits::default();
    let (one, other) = (claim(0, "d", "u", [1, 0, 0]), claim(1, "e", "u", [1, 0, 0]));
    assert!(all.seat(&one, 0).is_ok() && all.seat(&other, 0).is_ok());
    starving(all.seat(&claim(2, "d", "v", [1, 0, 0]), 0));
    assert_eq!(all.better_claim(other.pool, &other.identity, 100 * TURN), None);
    assert!(all.better_claim(one.pool, &one.identity, 100 * TURN).is_some());
}

/// A pool pays for its servers only if another pool starves for these servers.
#[test]
fn starving_in_one_database_costs_pools_of_another_nothing() {
    for process in [0, 9] {
        let mut all = Limits::default();
        let [rich, poor, holds, comes] =
            [(0, "d", "u"), (1, "d", "v"), (2, "e", "u"), (3, "e", "v")]
                .map(|(pool, database, user)| claim(pool, database, user, [1, 0, process]));
        all.seat_anyway(&rich);
        all.seat_anyway(&holds);
        starving(all.seat(&poor, 0));
        let now = 5 * TURN;
        starving(all.seat(&comes, now));
        let better_claim = |all: &mut Limits, claim: &Claim, now| {
            all.better_claim(claim.pool, &claim.identity, now).map(|(pool, _)| pool)
        };
        assert_eq!(better_claim(&mut all, &rich, now), Some(poor.pool));
        assert_eq!(better_claim(&mut all, &holds, now), None);
        assert_eq!(better_claim(&mut all, &holds, now + TURN), Some(comes.pool));
    }
}

/// Another user has a database's one seat, and another database has a user's.
#[test]
fn room_in_one_limit_is_held_while_the_other_is_full() {
    let limits = [1, 1, 0];
    let mut all = Limits::default();
    let [both, by_database, by_user] = [(0, "d", "u"), (1, "d", "v"), (2, "e", "u")]
        .map(|(pool, database, user)| claim(pool, database, user, limits));
    all.seat_anyway(&by_database);
    all.seat_anyway(&by_user);
    assert_eq!(starving(all.seat(&both, 0)).scope, Scope::Database);
    let now = 10 * TURN;
    all.vacate(by_database.pool, &by_database.identity, now);
    assert!(matches!(all.seat(&by_database, now), Err(Denied::Behind)));
    assert_eq!(all.next_fed(now), Some(both.pool));
    assert_eq!(starving(all.seat(&both, now)).scope, Scope::User, "now for the other");
    assert_eq!(starving(all.seat(&by_database, now)).scope, Scope::Database, "it is held");
    assert_eq!(
        all.better_claim(by_user.pool, &by_user.identity, now).map(|(pool, _)| pool),
        Some(both.pool)
    );
    all.vacate(by_user.pool, &by_user.identity, now + 1);
    assert!(matches!(all.seat(&by_user, now + 1), Err(Denied::Behind)));
    assert_eq!(all.next_fed(now + 1), Some(both.pool));
    assert!(all.seat(&both, now + 1).is_ok());
    assert_eq!(all.next_fed(now + 1), None);
    assert!(all.held.is_empty());
}

#[test]
fn room_is_held_briefly_and_only_while_it_is_needed() {
    let limits = [1, 1, 0];
    let [both, by_database, by_user] = [(0, "d", "u"), (1, "d", "v"), (2, "e", "u")]
        .map(|(pool, database, user)| claim(pool, database, user, limits));
    let held = || {
        let mut all = Limits::default();
        all.seat_anyway(&by_database);
        all.seat_anyway(&by_user);
        starving(all.seat(&both, 0));
        all.vacate(by_database.pool, &by_database.identity, 0);
        assert_eq!(all.next_fed(0), Some(both.pool));
        all
    };
    let mut all = held();
    starving(all.seat(&both, 0));
    assert!(all.seat(&by_database, HOLD_MAX - 1).is_err());
    assert!(all.seat(&by_database, HOLD_MAX).is_ok());
    // The pool goes on to wait for the limit that had no room in time.
    assert_eq!(starving(all.seat(&both, HOLD_MAX)).scope, Scope::User);
    let mut all = held();
    all.let_go(both.pool);
    assert!(all.seat(&by_database, 0).is_ok());
    let mut all = held();
    let since = starving(all.seat(&both, 0)).serial;
    all.forget(both.pool, since);
    assert!(all.seat(&by_database, 0).is_ok());
}

/// Two pools of one database and user, such as those of two nodes, may each hold room that the
/// other needs. The one that comes first must get its seat, and each may be asked a few times only.
#[test]
fn pools_do_not_take_room_from_each_other_for_ever() {
    let pools = [0, 1].map(|pool| claim(pool, "d", "u", [1, 1, 1]));
    for [first, second] in [[0, 1], [1, 0]] {
        let mut all = Limits::default();
        all.hold(&pools[first], Scope::User, 0);
        all.hold(&pools[second], Scope::Process, 0);
        for (pool, scope) in [(first, Scope::Process), (second, Scope::Database)] {
            all.serial += 1;
            let starving = Starving { claim: pools[pool].clone(), scope, serial: all.serial };
            all.starving.push_back(starving);
        }
        let mut asked = 0;
        let mut seated = Vec::new();
        while let Some(PoolId(pool)) = all.next_fed(0) {
            asked += 1;
            assert!(asked < 8, "{all:?}");
            if all.seat(&pools[pool as usize], 0).is_ok() {
                seated.push(pool);
            }
        }
        assert_eq!(seated, [0], "neither has had anything, and the first has the smaller number");
    }
}
