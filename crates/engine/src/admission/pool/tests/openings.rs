//! When a pool opens servers, and what it does after failures.

use super::*;

#[test]
fn no_more_servers_are_opened_than_are_wanted_and_allowed() {
    // (pool size, servers in use, clients that have waited, servers opened)
    let table = [(3, 0, 1, 1), (3, 0, 2, 2), (3, 0, 9, 3), (3, 2, 9, 1), (3, 3, 9, 0)];
    let pace = [(0, 0, 9, OPENING_MAX), (20, 0, 9, OPENING_MAX)];
    for (size, busy, clients, opened) in table.into_iter().chain(pace) {
        let mut pool = pool_with_busy(&format!("pool_size={size}"), busy);
        let opens = (0..clients).filter(|n| opens(&pool.request(A, client(*n), None, 0))).count();
        assert_eq!(opens as u32, opened.min(1), "one for all of them at first");
        while pool.reserve_opening(OPENING_PATIENCE) {}
        assert_eq!(pool.counts(), (busy + opened, opened), "size {size}, {clients} ask");
    }
}

#[test]
fn a_second_server_is_opened_when_clients_wait_too_long_for_the_first() {
    let mut pool = pool("pool_size=20");
    assert!(opens(&pool.request(A, client(1), None, 0)));
    assert!(!opens(&pool.request(B, client(2), None, 1)));
    assert!(!opens(&pool.request(A, client(3), None, OPENING_PATIENCE - 1)));
    // The first client has waited long enough on one of the workers, and then the second one.
    assert!(opens(&pool.request(B, client(4), None, OPENING_PATIENCE)));
    assert!(!pool.reserve_opening(OPENING_PATIENCE));
    assert!(pool.reserve_opening(OPENING_PATIENCE + 1));
    // One server fewer is being opened, and the client that got it no longer waits.
    pool.opened(pool.epoch());
    assert!(matches!(
        pool.release(A, 0, false, OPENING_PATIENCE),
        Next::Local(Waiter { client: ClientId(1), .. })
    ));
    assert!(!pool.reserve_opening(OPENING_PATIENCE + 1), "two are under way, and one has waited");
}

#[test]
fn no_server_is_opened_without_a_waiting_client() {
    let mut pool = pool("");
    assert!(!pool.reserve_opening(0));
    let one = ticket(pool.request(A, client(1), None, 0));
    pool.forget(A, one);
    pool.opened(pool.epoch());
    assert!(!gone(&mut pool), "nobody waits any more");
    assert_eq!(pool.counts(), (0, 0));
}

#[test]
fn a_server_that_goes_makes_room_for_the_next() {
    let mut pool = pool_with_busy("pool_size=1", 1);
    pool.request(A, client(1), None, 0);
    assert!(gone(&mut pool));
    assert_eq!(pool.counts(), (1, 1));
}

#[test]
fn after_a_failure_one_attempt_is_made_in_its_time() {
    let mut pool = pool("");
    let first = pool.request(A, client(1), None, 0);
    assert!(opens(&first));
    assert!(pool.open_failed(0, failure(100), false).is_empty(), "waiters may still be served");
    assert_eq!(pool.waiting_total(), 1);
    assert!(matches!(pool.request(A, client(2), None, 99), Grant::Refused(_)));
    assert!(!pool.reserve_opening(99));
    assert!(pool.reserve_opening(100));
    assert!(!pool.reserve_opening(100), "one at a time");
    let second = pool.request(A, client(2), None, 100);
    assert!(matches!(second, Grant::Queued { open: false, .. }), "{second:?}");
    pool.opened(pool.epoch());
    assert!(pool.failure.is_none());
    assert!(opens(&pool.request(A, client(3), None, 100)), "the pace is restored");
}

#[test]
fn the_pause_grows_from_one_failed_connection_to_the_next() {
    let mut pool = pool_of("[databases]\napp = host=h\n[pgbouncer]\nserver_login_retry = 1\n");
    let mut due = 0;
    let mut fail = |refused| {
        let now = due;
        assert!(pool.reserve_opening(now) || opens(&pool.request(A, client(1), None, now)));
        let (retry_at, pause) = pool.next_attempt(refused, now);
        pool.open_failed(0, Failure { pause, ..failure(retry_at) }, refused);
        due = retry_at;
        (retry_at - now) / MS
    };
    let pauses = [(); 8].map(|()| fail(false));
    assert_eq!(pauses, [100, 150, 225, 337, 506, 759, 1000, 1000]);
    assert_eq!(fail(true), 1000, "a refused login");
    assert_eq!(fail(false), 150, "a connection that failed after it");
    pool.request(A, client(2), None, due);
    pool.opened(0);
    assert_eq!(pool.next_attempt(false, due).1, 100 * MS, "the first after a success");
}

#[test]
fn connections_that_fail_together_count_as_one_attempt() {
    let mut pool = pool("");
    pool.request(A, client(1), None, 0);
    pool.request(A, client(2), None, 0);
    let (retry_at, pause) = pool.next_attempt(false, 0);
    pool.open_failed(0, Failure { pause, ..failure(retry_at) }, false);
    assert_eq!(pool.next_attempt(false, 50 * MS), (100 * MS, 100 * MS));
}

#[test]
fn a_refusal_turns_waiters_away_only_when_no_server_is_left() {
    // (servers in use, did PostgreSQL refuse, clients that are refused)
    for (busy, refused, expected) in
        [(0, true, vec![1, 2]), (0, false, vec![]), (1, true, vec![]), (1, false, vec![])]
    {
        let mut pool = pool_with_busy("pool_size=2", busy);
        pool.request(B, client(1), None, 0);
        pool.request(A, client(2), None, 0);
        let turned = pool.open_failed(0, failure(100), refused);
        let clients: Vec<u32> = turned.iter().map(|(_, waiter)| waiter.client.0).collect();
        assert_eq!(clients, expected, "{busy} busy, refused: {refused}");
        assert_eq!(pool.waiting_total() as usize, 2 - expected.len());
    }
}

#[test]
fn with_a_server_in_use_a_new_client_waits_despite_failures() {
    let mut pool = pool_with_busy("pool_size=2", 1);
    pool.request(A, client(1), None, 0);
    pool.open_failed(0, failure(100), true);
    assert!(matches!(pool.request(A, client(2), None, 1), Grant::Queued { open: false, .. }));
}
