//! The pool's bookkeeping, with two workers A and B unless a test says otherwise.

mod openings;
mod spares;

use std::path::Path;

use config::{Config, Host};

use super::*;
use crate::relay::unnamed::ServerUnnamed;
use crate::routing::Place;
use crate::server::{Server, ServerLogin};
use crate::values::Values;
use crate::vars::Vars;
use wire::scram::{ScramKeys, ScramVerifier};

/// Here a server's connection is its serial number.
type Pool = super::Pool<u64>;
type Grant = super::Grant<u64>;

const A: WorkerId = WorkerId(0);
const B: WorkerId = WorkerId(1);
const MS: Micros = 1_000;
const SECOND: Micros = 1_000_000;

fn pool(settings: &str) -> Pool {
    let text = format!("[databases]\napp = host=h {settings}\n[pgbouncer]\n");
    pool_of(&text)
}

fn pool_of(text: &str) -> Pool {
    let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let config = Config::parse_ini(text, "test.ini", &no_file).unwrap();
    let key = PoolKey { database: "app".into(), user: "alice".into(), place: Place::Writer };
    let settings = crate::settings::settings_for(&config, &key).unwrap();
    Pool::new(PoolId(0), key, settings, 2)
}

fn client(n: u32) -> ClientId {
    ClientId(n)
}

/// Returns an opened server with this serial number.
fn server(serial: u64) -> Parked<u64> {
    let server = Server::new(PoolId(0), serial, ServerLogin::default(), 0);
    Parked { server: Box::new(server), transport: serial }
}

/// Returns a pool with this many servers in use.
fn pool_with_busy(settings: &str, servers: u32) -> Pool {
    let mut pool = pool(settings);
    for _ in 0..servers {
        pool.reserve_unasked();
        pool.opened(pool.epoch());
    }
    pool
}

fn ticket(grant: Grant) -> u64 {
    match grant {
        Grant::Queued { ticket, .. } => ticket,
        other => panic!("not queued: {other:?}"),
    }
}

fn granted(grant: Grant) -> u64 {
    match grant {
        Grant::Server(parked) => parked.server.serial,
        other => panic!("no server: {other:?}"),
    }
}

/// Closes a server. Is another one opened in its place?
fn gone(pool: &mut Pool) -> bool {
    pool.server_gone(0);
    pool.reserve_opening(0)
}

fn opens(grant: &Grant) -> bool {
    matches!(grant, Grant::Queued { open: true, .. })
}

fn failure(retry_at: Micros) -> Failure {
    let error = Arc::new(ErrorFields::new("FATAL", "28P01", "no"));
    Failure { error, names_user: false, retry_at, pause: 0, refusal: None }
}

#[test]
fn first_come_first_served() {
    let mut pool = pool_with_busy("pool_size=1", 1);
    for n in 0..3 {
        assert!(!opens(&pool.request(A, client(n), None, 0)));
    }
    for n in 0..3 {
        let Next::Local(waiter) = pool.release(A, 0, false, 1) else {
            panic!("client {n} is not served")
        };
        assert_eq!(waiter.client, client(n));
    }
    assert_eq!(pool.release(A, 0, false, 1), Next::Park);
    pool.check_invariants();
}

#[test]
fn another_worker_is_served_when_its_client_has_waited_clearly_longer() {
    // (A's client since, B's client since, does A's server go to B?)
    let table = [
        (0, 0, false),
        (0, 5 * MS, false),
        (CROSS_WORKER_PATIENCE, 0, false),
        (CROSS_WORKER_PATIENCE + 1, 0, true),
    ];
    for (a_since, b_since, crosses) in table {
        let mut pool = pool_with_busy("pool_size=1", 1);
        let mut requests = [(a_since, A), (b_since, B)];
        requests.sort();
        for (since, worker) in requests {
            pool.request(worker, client(0), None, since);
        }
        let next = pool.release(A, 0, false, 10 * MS);
        let to_b = matches!(next, Next::Remote(to, _) if to == B);
        assert_eq!(to_b, crosses, "A since {a_since}, B since {b_since}: {next:?}");
    }
}

#[test]
fn without_waiters_of_its_own_a_worker_serves_others_at_once() {
    let mut pool = pool_with_busy("pool_size=1", 1);
    let own = ticket(pool.request(B, client(4), None, 7));
    let waiter = Waiter { client: client(4), pool: pool.id, ticket: own, since: 7 };
    assert_eq!(pool.release(A, 0, false, 7), Next::Remote(B, waiter));
}

#[test]
fn the_warmest_server_is_taken_first_or_the_coldest_when_asked_for() {
    for (round_robin, order) in [("0", [3, 2, 1]), ("1", [1, 2, 3])] {
        let mut pool = pool_of(&format!(
            "[databases]\napp = host=h\n[pgbouncer]\nserver_round_robin = {round_robin}\n"
        ));
        for serial in 1..=3 {
            pool.reserve_unasked();
            pool.opened(pool.epoch());
            pool.park(A, server(serial));
        }
        let taken = [0; 3].map(|_| granted(pool.request(A, client(0), None, 0)));
        assert_eq!(taken, order, "round robin {round_robin}");
    }
}

#[test]
fn own_servers_come_before_stolen_ones_and_the_coldest_is_stolen() {
    let mut pool = pool_with_busy("", 3);
    let mut marked = server(1);
    marked.server.unnamed = ServerUnnamed::imported(9);
    pool.park(B, marked);
    pool.park(B, server(2));
    pool.park(A, server(3));
    assert_eq!(granted(pool.request(A, client(0), None, 0)), 3);
    let Grant::Server(stolen) = pool.request(A, client(0), None, 0) else {
        panic!("nothing stolen")
    };
    let stolen = stolen.server;
    assert_eq!(
        (stolen.serial, stolen.unnamed),
        (1, ServerUnnamed::default()),
        "it brings nothing of its old worker's"
    );
}

/// Returns a different set of values for each number.
fn values(n: u8) -> Values {
    let mut vars = Vars::default();
    vars.set(0, &[n]);
    Values::new(vars)
}

/// Parks servers with these values at `home`, in this order, with serial numbers from `first`.
fn park_with(pool: &mut Pool, home: WorkerId, first: u64, all: &[u8]) {
    for (serial, n) in (first..).zip(all) {
        let mut parked = server(serial);
        parked.server.vars = values(*n);
        pool.reserve_unasked();
        pool.opened(pool.epoch());
        pool.park(home, parked);
    }
}

fn asked(pool: &mut Pool, worker: WorkerId, n: u8) -> u64 {
    granted(pool.request(worker, client(0), Some(values(n).digest()), 0))
}

#[test]
fn a_server_with_the_clients_values_is_preferred() {
    // (round robin, values that clients request one after another, servers they get)
    let table: [(&str, &[u8], &[u64]); 5] = [
        ("0", &[1, 1, 1], &[5, 2, 1]),
        ("0", &[2, 2, 2], &[4, 3, 1]),
        ("0", &[1, 2, 1, 2, 1], &[5, 4, 2, 3, 1]),
        ("0", &[9, 9], &[1, 2]),
        ("1", &[2, 2, 1], &[1, 2, 3]),
    ];
    for (round_robin, wanted, order) in table {
        let mut pool = pool_of(&format!(
            "[databases]\napp = host=h\n[pgbouncer]\nserver_round_robin = {round_robin}\n"
        ));
        park_with(&mut pool, A, 1, &[1, 1, 2, 2, 1]);
        let got: Vec<_> = wanted.iter().map(|n| asked(&mut pool, A, *n)).collect();
        assert_eq!(got, order, "round robin {round_robin}, for {wanted:?}");
    }
}

#[test]
fn another_workers_server_with_the_right_values_comes_before_an_own_one_with_wrong_ones() {
    let mut pool = pool("");
    park_with(&mut pool, A, 1, &[1, 1]);
    park_with(&mut pool, B, 11, &[1, 2, 2]);
    let got = [2, 2, 2, 1, 2].map(|n| asked(&mut pool, A, n));
    assert_eq!(got, [12, 13, 1, 2, 11]);
}

#[test]
fn without_a_fitting_server_a_recently_used_one_changes_its_values() {
    let mut pool = pool("");
    park_with(&mut pool, A, 1, &[1; 40]);
    assert_eq!(asked(&mut pool, A, 2), 25, "the oldest of the sixteen used last");
    assert_eq!(asked(&mut pool, A, 1), 40);
    let left: Vec<_> = pool.parked().map(|parked| parked.transport).collect();
    assert!(left.iter().copied().eq((1..=24).chain(26..=39)), "{left:?}");
}

#[test]
fn a_parked_server_is_found_by_its_connection_at_its_home_only() {
    let mut pool = pool_with_busy("", 2);
    pool.park(A, server(1));
    pool.park(A, server(2));
    let is_first = |parked: &Parked<u64>| parked.transport == 1;
    assert!(pool.take_parked(B, is_first).is_none());
    assert_eq!(pool.take_parked(A, is_first).unwrap().server.serial, 1);
    assert!(pool.take_parked(A, is_first).is_none());
    assert_eq!(pool.parked().count(), 1);
}

#[test]
fn any_parked_server_makes_room_and_first_an_own_one() {
    let mut pool = pool_with_busy("", 2);
    pool.park(B, server(1));
    pool.park(A, server(2));
    let taken = [A, A].map(|worker| pool.take_one_parked(worker).unwrap().server.serial);
    assert_eq!(taken, [2, 1]);
    assert!(pool.take_one_parked(A).is_none());
}

#[test]
fn a_smaller_size_ends_servers_as_they_come_back() {
    let mut pool = pool_with_busy("pool_size=3", 3);
    pool.settings = self::pool("pool_size=1").settings;
    pool.request(A, client(1), None, 0);
    assert_eq!(pool.release(A, 0, false, 0), Next::Close(CloseReason::TooMany));
    assert!(!gone(&mut pool));
    assert_eq!(pool.release(A, 0, false, 0), Next::Close(CloseReason::TooMany));
    assert!(!gone(&mut pool));
    assert!(matches!(pool.release(A, 0, false, 0), Next::Local(_)));
}

#[test]
fn a_proof_may_exceed_the_size_by_its_own_connection() {
    let mut pool = pool_with_busy("pool_size=1", 1);
    pool.reserve_unasked();
    assert_eq!(pool.counts(), (2, 1));
    pool.withdraw_opening();
    assert_eq!(pool.counts(), (1, 0));
    assert!(pool.failure.is_none(), "one client's wrong password is no failure of the pool");
    pool.reserve_unasked();
    pool.opened(pool.epoch());
    assert_eq!(pool.release(A, 0, false, 0), Next::Close(CloseReason::TooMany));
}

#[test]
fn a_closed_pool_refuses_clients_and_parks_no_server() {
    let mut pool = pool_with_busy("", 2);
    pool.park(A, server(1));
    pool.set_gate(Gate::Closed(CloseReason::ShuttingDown));
    assert!(matches!(pool.request(A, client(1), None, 0), Grant::Closed(_)));
    assert_eq!(pool.release(A, 0, false, 0), Next::Close(CloseReason::Paused));
    assert!(!gone(&mut pool));
}

#[test]
fn a_waiter_that_leaves_the_queue_is_forgotten() {
    let mut pool = pool_with_busy("pool_size=1", 1);
    let tickets: Vec<u64> =
        (0..3).map(|n| ticket(pool.request(A, client(n), None, u64::from(n)))).collect();
    pool.forget(A, tickets[1]);
    pool.forget(A, tickets[1]);
    pool.forget(B, tickets[0]);
    assert_eq!(pool.waiting_total(), 2);
    assert_eq!(pool.oldest_waiter(A).unwrap().client, client(0));
    assert_eq!(pool.oldest_wait(), Some(0));
    let left: Vec<u32> = pool.take_waiters().iter().map(|(_, waiter)| waiter.client.0).collect();
    assert_eq!(left, [0, 2]);
    assert_eq!(pool.oldest_wait(), None);
}

/// Parks servers 1 to `count`; server N was last used at second N.
fn park_all(pool: &mut Pool, worker: WorkerId, count: u64) {
    for serial in 1..=count {
        let mut parked = server(serial);
        parked.server.times.released(serial * SECOND);
        parked.server.times.given_back(serial * SECOND);
        pool.park(worker, parked);
    }
}

fn expired(pool: &mut Pool, worker: WorkerId, now: Micros) -> Vec<(u64, CloseReason<'static>)> {
    let taken = pool.take_expired(worker, now);
    for _ in &taken {
        pool.server_gone(0);
    }
    taken.iter().map(|(parked, why)| (parked.server.serial, *why)).collect()
}

#[test]
fn idle_servers_are_taken_out_of_their_home() {
    let mut pool = pool_with_busy("", 3);
    park_all(&mut pool, A, 2);
    pool.park(B, server(3));
    let idle = CloseReason::IdleTimeout;
    assert_eq!(expired(&mut pool, A, 600 * SECOND), []);
    assert_eq!(expired(&mut pool, A, 601 * SECOND + 1), [(1, idle)]);
    assert_eq!(pool.parked().count(), 2);
    assert_eq!(expired(&mut pool, B, 601 * SECOND), [(3, idle)]);
}

#[test]
fn idle_servers_stay_as_long_as_the_pool_has_no_more_than_its_least() {
    let mut pool = pool_with_busy("min_pool_size=2", 4);
    park_all(&mut pool, A, 3);
    let idle = CloseReason::IdleTimeout;
    assert_eq!(expired(&mut pool, A, 1000 * SECOND), [(1, idle), (2, idle)]);
}

#[test]
fn surplus_servers_of_a_smaller_pool_are_closed() {
    let mut pool = pool_with_busy("", 4);
    park_all(&mut pool, A, 4);
    pool.settings = self::pool("pool_size=1 reserve_pool_size=1").settings;
    let many = CloseReason::TooMany;
    assert_eq!(expired(&mut pool, A, 5 * SECOND), [(1, many), (2, many)]);
}

#[test]
fn old_servers_are_closed_one_after_the_other() {
    let mut pool = pool_with_busy("pool_size=4 server_lifetime=100", 4);
    park_all(&mut pool, A, 4);
    let over = CloseReason::LifetimeOver;
    assert_eq!(expired(&mut pool, A, 100 * SECOND), []);
    assert_eq!(expired(&mut pool, A, 101 * SECOND), [(1, over)]);
    assert_eq!(expired(&mut pool, A, 125 * SECOND), []);
    assert_eq!(expired(&mut pool, A, 126 * SECOND), [(2, over)]);
    assert!(!pool.age_out(150 * SECOND) && pool.age_out(151 * SECOND));
}

#[test]
fn the_reserve_is_for_clients_that_have_waited_and_has_its_limit() {
    let mut pool = pool_with_busy("pool_size=1 reserve_pool_size=2", 1);
    let patience = pool.settings.reserve_timeout;
    assert_eq!(patience, 5 * SECOND);
    for n in 0..4 {
        assert!(!opens(&pool.request(A, client(n), None, u64::from(n))));
    }
    assert!(!pool.reserve_opening(patience - 1));
    assert!(pool.reserve_opening(patience) && pool.is_in_reserve());
    assert!(!pool.reserve_opening(patience), "one has waited, one is opened");
    assert!(pool.reserve_opening(patience + 3), "the others have waited");
    assert!(!pool.reserve_opening(patience + 3), "the reserve is used up");
    assert_eq!(pool.counts(), (3, 2));
    pool.opened(pool.epoch());
    assert!(matches!(pool.release(A, 0, false, patience), Next::Local(_)), "not too many");
}

#[test]
fn a_reserve_without_a_timeout_stays_closed() {
    let text = "[databases]\napp = host=h pool_size=1 reserve_pool_size=1\n\
                [pgbouncer]\nreserve_pool_timeout = 0\n";
    let mut pool = pool_of(text);
    pool.reserve_unasked();
    pool.opened(pool.epoch());
    pool.request(A, client(0), None, 0);
    assert!(!pool.reserve_opening(1000 * SECOND));
}

#[test]
fn a_pool_in_use_is_filled_one_by_one() {
    let mut pool = pool("min_pool_size=2 pool_size=5");
    assert!(!pool.reserve_spare(0), "nobody uses it");
    pool.clients = 1;
    assert!(!pool.reserve_spare(0), "a client that replicates has a server of its own");
    pool.welcome = Some(Arc::default());
    assert!(pool.reserve_spare(0));
    assert!(!pool.reserve_spare(0), "one at a time");
    pool.opened(pool.epoch());
    assert!(pool.reserve_spare(0));
    pool.opened(pool.epoch());
    assert!(!pool.reserve_spare(0), "it has enough");
    let mut small = self::pool("min_pool_size=2 pool_size=1 user=alice");
    assert!(small.reserve_spare(0), "its user is known");
    small.opened(small.epoch());
    assert!(!small.reserve_spare(0), "its size is the limit");
}

#[test]
fn while_another_pool_starves_no_server_is_parked_unchecked() {
    let mut pool = pool_with_busy("", 3);
    park_all(&mut pool, A, 1);
    pool.park(B, server(9));
    assert_eq!(pool.want(7), Some((0, 9)), "the one that was idle longest");
    let (servers, _) = pool.counts();
    assert!(pool.evict(9).is_some() && pool.evict(9).is_none());
    assert_eq!(pool.counts().0, servers - 1, "its place is free at once");
    assert_eq!(pool.release(A, 0, false, 0), Next::Yield(7));
    pool.want(8);
    pool.unwant(7);
    assert_eq!(pool.release(A, 0, false, 0), Next::Yield(8), "one began to starve meanwhile");
    pool.unwant(8);
    assert_eq!(pool.release(A, 0, false, 0), Next::Park);
    pool.want(9);
    assert!(
        matches!(pool.request(A, client(0), None, 0), Grant::Server(_)),
        "its own clients first"
    );
}

#[test]
fn a_client_whose_server_died_gets_its_old_place_or_an_idle_server() {
    let mut pool = pool_with_busy("pool_size=2", 2);
    for n in 0..3 {
        pool.request(A, client(n), None, 0);
    }
    let Next::Local(first) = pool.release(A, 0, false, 0) else { panic!("nobody is served") };
    pool.server_gone(0);
    let again = pool.requeue(A, first, None, 5);
    assert!(matches!(again, Grant::Queued { ticket, .. } if ticket == first.ticket), "{again:?}");
    assert_eq!(pool.oldest_waiter(A), Some(first));
    pool.take_waiters();
    pool.park(A, server(7));
    assert_eq!(granted(pool.requeue(A, first, None, 5)), 7);
    pool.set_gate(Gate::Closed(CloseReason::ShuttingDown));
    assert!(matches!(pool.requeue(A, first, None, 5), Grant::Closed(_)));
}

#[test]
fn a_paused_pool_queues_and_gives_nothing_until_it_goes_on() {
    let mut pool = pool_with_busy("", 2);
    pool.park(A, server(1));
    pool.set_gate(Gate::Paused);
    let grant = pool.request(B, client(1), None, 0);
    assert!(matches!(grant, Grant::Queued { open: false, .. }), "{grant:?}");
    assert_eq!(pool.release(A, 0, false, 0), Next::Close(CloseReason::Paused));
    let condemned = pool.take_condemned(A);
    assert_eq!((condemned[0].0.transport, condemned[0].1), (1, CloseReason::Paused));
    assert!(!gone(&mut pool) && !gone(&mut pool));
    pool.set_gate(Gate::Open);
    assert!(pool.reserve_opening(0));
}

#[test]
fn servers_of_an_earlier_epoch_are_counted_until_they_have_gone() {
    let mut pool = pool("pool_size=9");
    let open = |pool: &mut Pool| {
        pool.reserve_unasked();
        pool.begin_opening()
    };
    let (old, older_login) = (open(&mut pool), open(&mut pool));
    pool.opened(pool.epoch());
    pool.reserve_unasked();
    pool.replace_servers();
    assert_eq!(pool.obsolete(), 2, "one place has no server yet");
    let new = pool.begin_opening();
    assert_ne!(old, new);
    assert_eq!(pool.release(A, old, false, 0), Next::Close(CloseReason::CloseNeeded));
    pool.server_gone(old);
    pool.opening_ended(older_login);
    assert_eq!((pool.obsolete(), pool.counts()), (0, (1, 1)));
    pool.opened(pool.epoch());
    assert_eq!(pool.release(A, new, false, 0), Next::Park);
}

#[test]
fn settings_that_lead_elsewhere_replace_the_servers() {
    let changed = |text: &str| {
        let mut pool = pool_with_busy("", 1);
        pool.park(A, server(1));
        pool.set_settings(self::pool(text).settings);
        pool.take_condemned(A).len() == 1
    };
    assert!(!changed("pool_size=3") && !changed("password=secret") && !changed("timezone=UTC"));
    assert!(changed("port=1") && changed("dbname=other") && changed("user=alice"));
}

#[test]
fn a_changed_secret_is_tried_at_once_and_an_unchanged_one_is_not() {
    let settings = |secret: Option<&str>| {
        let mut config = Config::default();
        if let Some(secret) = secret {
            config.auth_file.users.insert("alice".into(), secret.into());
        }
        Arc::new(PoolSettings::new(&config, &config::Database::default(), "alice"))
    };
    let verifier =
        |password: &str| ScramVerifier::from_password(password.as_bytes(), b"salt", 1).to_string();
    let keys =
        |byte| ServerSecret::Scram(ScramKeys { client_key: [byte; 32], server_key: [byte; 32] });
    let [first, second] = ["first", "second"].map(verifier);
    let asked = || ServerSecret::Password("asked".into());
    let tried = |learnt: Option<ServerSecret>, before: Option<&str>, now: Option<&str>| {
        let mut pool = pool("");
        pool.set_settings(settings(before));
        pool.server_secret = learnt;
        pool.failure = Some(failure(100));
        pool.set_settings(settings(now));
        (pool.failure.is_none(), pool.server_secret.is_some())
    };
    assert_eq!(tried(None, Some("wrong"), Some("wrong")), (false, false));
    assert_eq!(tried(None, Some("wrong"), Some("right")), (true, false));
    assert_eq!(tried(None, Some("wrong"), None), (true, false));
    assert_eq!(tried(Some(asked()), None, Some("right")), (true, false), "no longer asked for");
    assert_eq!(tried(Some(keys(1)), Some(&first), Some(&second)), (false, true), "no new keys");
    assert_eq!(tried(Some(keys(1)), Some(&first), Some("right")), (true, true));
    for (learnt, expected) in [(keys(1), false), (keys(2), true), (asked(), true)] {
        let mut pool = pool("");
        pool.server_secret = Some(keys(1));
        pool.failure = Some(failure(100));
        pool.learn_secret(learnt);
        assert_eq!(pool.failure.is_none(), expected);
    }
}

#[test]
fn changed_tls_settings_replace_servers_except_at_a_unix_socket() {
    let changed = |host: &str, key: &str, value: &str| {
        let mut config = Config::default();
        let database = config::Database { hosts: vec![Host::new(host)], ..Default::default() };
        let before = PoolSettings::new(&config, &database, "u");
        config.global.set(key, value).unwrap();
        !before.leads_to_the_same(&PoolSettings::new(&config, &database, "u"))
    };
    assert!(changed("10.0.0.1", "server_tls_sslmode", "verify-full"));
    assert!(changed("10.0.0.1", "server_tls_ca_file", "other.pem"));
    assert!(!changed("10.0.0.1", "client_tls_sslmode", "require"));
    assert!(!changed("/tmp", "server_tls_sslmode", "verify-full"));
}
