//! Spare servers, which follow the demand.

use super::*;

/// A pool with a client, and with this many servers in use.
fn used(settings: &str, servers: u32) -> Pool {
    let mut pool = pool_with_busy(settings, servers);
    (pool.clients, pool.welcome) = (1, Some(Arc::default()));
    pool
}

/// Opens all spare servers that the pool wants now, and parks them. Returns how many.
fn open_spares(pool: &mut Pool, now: Micros) -> u32 {
    let mut under_way = 0;
    while pool.reserve_spare(now) {
        under_way += 1;
    }
    for _ in 0..under_way {
        pool.opened(pool.epoch());
        let mut parked = server(1_000 + u64::from(pool.counts().0));
        parked.server.times.released(now);
        pool.park(A, parked);
    }
    under_way
}

fn idle(pool: &Pool) -> usize {
    pool.parked().count()
}

#[test]
fn a_pool_has_spare_servers_beyond_those_in_use() {
    let mut pool = used("min_spare_servers=3 pool_size=20", 2);
    let mut opened = 0;
    for tick in 0..9 {
        opened += open_spares(&mut pool, tick * DOUBLE);
    }
    assert_eq!((opened, pool.places()), (3, 5));
    granted(pool.request(A, client(0), None, 9 * DOUBLE));
    assert_eq!(open_spares(&mut pool, 9 * DOUBLE), 1, "one of them is in use now");
    assert_eq!(pool.places(), 6);
}

/// The time after which twice as many are opened at once.
const DOUBLE: Micros = 200 * MS;

#[test]
fn more_are_opened_at_once_while_the_pool_stays_short() {
    let mut pool = used("min_spare_servers=40 pool_size=100", 1);
    let opened: Vec<_> = (0..6).map(|tick| open_spares(&mut pool, tick * DOUBLE)).collect();
    assert_eq!(opened, [1, 2, 4, OPENING_MAX, OPENING_MAX, OPENING_MAX]);
    pool.reserve_unasked();
    let under_way = (0..).take_while(|_| pool.reserve_spare(9 * DOUBLE)).count() as u32;
    assert_eq!(under_way, OPENING_MAX - 1, "with one for a client that waits");
}

#[test]
fn the_pace_begins_anew_when_the_pool_was_not_short() {
    let mut pool = used("min_spare_servers=3 pool_size=20", 0);
    let opened: Vec<_> = (0..4).map(|tick| open_spares(&mut pool, tick * DOUBLE)).collect();
    assert_eq!(opened, [1, 2, 0, 0]);
    for n in 0..3 {
        granted(pool.request(A, client(n), None, 4 * DOUBLE));
    }
    assert_eq!(open_spares(&mut pool, 4 * DOUBLE), 1);
}

#[test]
fn spare_servers_keep_to_the_size_and_leave_the_reserve_alone() {
    let mut pool = used("min_spare_servers=9 pool_size=4 reserve_pool_size=3", 2);
    for tick in 0..20 {
        open_spares(&mut pool, tick * DOUBLE);
    }
    assert_eq!(pool.places(), 4);
    let mut closed = used("min_spare_servers=9 pool_size=4", 0);
    closed.set_gate(Gate::Paused);
    assert!(!closed.reserve_spare(0));
    let mut fails = used("min_spare_servers=9 pool_size=9", 1);
    fails.failure = Some(failure(SECOND));
    assert!(!fails.reserve_spare(0), "the pause after a failure");
    assert!(fails.reserve_spare(SECOND) && !fails.reserve_spare(SECOND), "then one at a time");
}

#[test]
fn a_pool_without_clients_has_only_its_least_size() {
    let mut pool = pool_with_busy("min_spare_servers=2 min_pool_size=1", 3);
    assert!(!pool.reserve_spare(0), "no client has logged in");
    pool.welcome = Some(Arc::default());
    park_all(&mut pool, A, 3);
    let timeout = CloseReason::IdleTimeout;
    assert_eq!(expired(&mut pool, A, 1_000 * SECOND), [(1, timeout), (2, timeout)]);
    assert!(!pool.reserve_spare(1_000 * SECOND));
    pool.clients = 1;
    assert!(pool.reserve_spare(1_000 * SECOND));
}

#[test]
fn a_pool_that_clients_of_another_one_use_has_spare_servers() {
    let mut reader = pool_with_busy("min_spare_servers=1 pool_size=9", 1);
    reader.welcome = Some(Arc::default());
    let mut no_reader = pool_with_busy("min_spare_servers=1 pool_size=9", 1);
    no_reader.welcome = Some(Arc::default());
    assert_eq!(open_spares(&mut no_reader, 0), 0, "the login of a client elsewhere");
    reader.key.place = Place::Reader(crate::ids::NodeId(0));
    assert_eq!(open_spares(&mut reader, 0), 1);
    reader.park(A, server(1));
    assert_eq!(open_spares(&mut reader, 9 * SECOND), 0, "none is in use any more");
}

#[test]
fn idle_spare_servers_are_kept_beyond_their_timeout() {
    let mut pool = used("min_spare_servers=2", 5);
    park_all(&mut pool, A, 5);
    let timeout = CloseReason::IdleTimeout;
    let closed = expired(&mut pool, A, 1_000 * SECOND);
    assert_eq!(closed, [(1, timeout), (2, timeout), (3, timeout)]);
    assert!(!pool.reserve_spare(1_000 * SECOND));
}

#[test]
fn servers_beyond_the_spare_ones_are_closed_little_by_little_the_coldest_first() {
    let mut pool = used("max_spare_servers=2", 20);
    park_all(&mut pool, A, 20);
    let start = 30 * SECOND;
    for early in [2 * SECOND, SECOND] {
        assert_eq!(expired(&mut pool, A, start - early), [], "the demand is not known yet");
    }
    let mut closed = Vec::new();
    for tick in 0..40 {
        let these = expired(&mut pool, A, start + tick * DOUBLE);
        assert!(these.iter().all(|(_, why)| *why == CloseReason::TooManySpare));
        closed.push(these.into_iter().map(|(serial, _)| serial).collect::<Vec<_>>());
    }
    assert_eq!(closed[0], [1, 2, 3], "an eighth of the eighteen");
    assert_eq!(closed.concat(), (1..=18).collect::<Vec<_>>());
    assert_eq!(closed.iter().filter(|these| !these.is_empty()).count(), 12);
    assert_eq!(idle(&pool), 2);
}

#[test]
fn a_short_lull_closes_nothing() {
    let mut pool = used("max_spare_servers=1", 4);
    park_all(&mut pool, A, 4);
    for n in 0..4 {
        granted(pool.request(A, client(n), None, 30 * SECOND));
    }
    assert_eq!(expired(&mut pool, A, 30 * SECOND), []);
    park_all(&mut pool, A, 4);
    assert_eq!(expired(&mut pool, A, 31 * SECOND - 1), [], "they were all in use a moment ago");
    assert_eq!(expired(&mut pool, A, 31 * SECOND), []);
    let spare = CloseReason::TooManySpare;
    assert_eq!(expired(&mut pool, A, 32 * SECOND), [(1, spare)]);
}

#[test]
fn clients_that_wait_are_demand() {
    let mut pool = used("max_spare_servers=1 min_spare_servers=1 pool_size=2", 2);
    for n in 0..3 {
        assert!(!opens(&pool.request(A, client(n), None, 0)));
    }
    pool.settings = self::pool("max_spare_servers=1 min_spare_servers=1 pool_size=20").settings;
    assert_eq!(pool.least_size(OPENING_PATIENCE - 1), 3, "they have just come");
    assert_eq!(pool.least_size(OPENING_PATIENCE), 6);
    pool.take_waiters();
    let mut opened = 0;
    for tick in 1..5 {
        opened += open_spares(&mut pool, tick * DOUBLE);
    }
    assert_eq!((opened, pool.places()), (4, 6), "two in use, three have waited, one is spare");
}

#[test]
fn the_coldest_of_all_workers_goes_first() {
    let mut pool = used("max_spare_servers=1", 3);
    park_all(&mut pool, B, 1);
    let mut warm = server(9);
    warm.server.times.released(5 * SECOND);
    pool.park(A, warm);
    for second in 30..34 {
        let closed = expired(&mut pool, A, second * SECOND);
        assert_eq!(closed, [], "the other worker has a colder one");
    }
    assert_eq!(expired(&mut pool, B, 33 * SECOND), [(1, CloseReason::TooManySpare)]);
}

#[test]
fn the_least_size_stays_below_the_spare_servers() {
    let mut pool = used("max_spare_servers=1 min_pool_size=3", 4);
    park_all(&mut pool, A, 4);
    let mut closed = 0;
    for tick in 0..20 {
        closed += expired(&mut pool, A, 30 * SECOND + tick * SECOND).len();
    }
    assert_eq!((closed, pool.places()), (1, 3));
}
