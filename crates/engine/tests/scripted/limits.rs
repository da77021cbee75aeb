//! Connection limits of a database, a user and the process; the reserve and the least size of a
//! pool; the hints for waiting clients.

use std::time::Duration;

use config::{Config, PoolMode};

use crate::messages::*;
use crate::rig::{Client, Rig, add_others, app};

/// A rig with two databases, two users, this number of workers, and a limit.
fn limited(workers: usize, set: impl FnOnce(&mut Config)) -> Rig {
    Rig::with_workers(workers, |config| {
        add_others(config);
        set(config);
    })
}

/// The numbers of the open servers.
fn open(rig: &Rig) -> Vec<usize> {
    (0..rig.servers()).filter(|at| rig.server(*at).is_open()).collect()
}

/// Sends one request, which server `at` answers.
#[track_caller]
fn asks(rig: &Rig, client: &Client, at: usize) {
    client.send([query("one")]);
    rig.server(at).answers("one");
    client.expect([done("OK")]);
}

#[test]
fn an_idle_server_of_the_database_makes_room() {
    let rig = limited(1, |config| app(config).max_db_connections = Some(1));
    let (alice, bob) = (rig.client(), rig.connect());
    asks(&rig, &alice, 0);
    bob.say_hello_as("bob", "app");
    bob.expect_welcome(&[]);
    assert!(rig.logged("evicted"));
    assert_eq!(open(&rig), [1]);
    asks(&rig, &bob, 1);
    rig.server(0).expect([terminate()]);
    rig.client_of(0, "alice", "other");
    assert_eq!(open(&rig), [1, 2], "another database is not concerned");
}

#[test]
fn a_server_that_becomes_free_makes_room_at_once() {
    for workers in [1, 2] {
        let rig = limited(workers, |config| config.global.max_db_connections = 1);
        let alice = rig.client();
        alice.send([query("begin")]);
        rig.server(0).send([complete("BEGIN"), ready('T')]);
        let bob = rig.connect_from(workers - 1, Default::default());
        bob.say_hello_as("bob", "app");
        assert_eq!(rig.servers(), 1, "there is no room");
        alice.send([query("commit")]);
        rig.server(0).send([done("COMMIT")]);
        bob.expect_welcome(&[]);
        assert_eq!(open(&rig), [1]);
        // No pool starves any more, so a free server is kept.
        asks(&rig, &bob, 1);
        assert!(rig.server(1).is_parked());
    }
}

#[test]
fn a_server_that_dies_makes_room() {
    let rig = limited(2, |config| config.global.max_server_connections = 1);
    let alice = rig.client();
    alice.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let bob = rig.connect_from(1, Default::default());
    bob.say_hello_as("bob", "other");
    rig.server(0).die();
    bob.expect_welcome(&[]);
    assert_eq!(open(&rig), [1]);
}

#[test]
fn for_a_client_that_has_left_no_pool_closes_a_server() {
    let rig = limited(1, |config| config.global.max_server_connections = 1);
    let alice = rig.client();
    alice.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let bob = rig.connect();
    bob.say_hello_as("bob", "other");
    bob.leave();
    alice.send([query("commit")]);
    rig.server(0).send([done("COMMIT")]);
    assert!(rig.server(0).is_parked());
}

#[test]
fn a_users_servers_are_counted_over_all_databases() {
    let rig = limited(1, |config| {
        config.users.entry("alice".into()).or_default().max_user_connections = Some(1);
    });
    rig.client();
    rig.client_of(0, "bob", "app");
    assert_eq!(open(&rig), [0, 1]);
    rig.client_of(0, "alice", "other");
    assert_eq!(open(&rig), [1, 2]);
}

#[test]
fn the_process_closes_the_server_used_least_recently() {
    let rig = limited(2, |config| config.global.max_server_connections = 3);
    let (alice, bob) = (rig.client(), rig.client_of(1, "bob", "app"));
    rig.client_of(0, "alice", "other");
    rig.later(1_000_000);
    asks(&rig, &alice, 0);
    rig.later(1_000_000);
    asks(&rig, &bob, 1);
    rig.client_of(0, "bob", "other");
    assert_eq!(open(&rig), [0, 1, 3], "one of alice's, of the other database, was the oldest");
}

/// The reset of a server may take longer than that of another one.
#[test]
pub(crate) fn a_server_counts_as_used_until_its_client_has_given_it_back() {
    let rig = limited(1, |config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.server_reset_query = "DISCARD ALL".into();
        config.global.max_server_connections = 2;
    });
    let (alice, bob) = (rig.client(), rig.client_of(0, "bob", "app"));
    asks(&rig, &alice, 0);
    asks(&rig, &bob, 1);
    alice.say_goodbye();
    rig.later(1_000);
    bob.say_goodbye();
    for at in [1, 0] {
        rig.later(1_000);
        rig.server(at).answers("DISCARD ALL");
    }
    rig.client_of(0, "alice", "other");
    assert_eq!(open(&rig), [1, 2], "alice has left first");
}

#[test]
fn clients_beyond_a_limit_are_turned_away() {
    let texts = [
        "client connections exceeded (max_db_client_connections)",
        "client connections exceeded (max_user_client_connections)",
    ];
    for (at, text) in texts.into_iter().enumerate() {
        let rig = limited(2, |config| match at {
            0 => app(config).max_db_client_connections = Some(2),
            _ => config.global.max_user_client_connections = 2,
        });
        let kept = [rig.client(), rig.client_at(1)];
        let third = rig.connect();
        third.say_hello(&[]);
        third.expect_fatal(text);
        rig.client_of(0, "bob", "other");
        kept[0].leave();
        rig.client();
    }
}

#[test]
fn the_reserve_opens_for_a_client_that_has_waited() {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        config.global.reserve_pool_size = 1;
    });
    let busy = rig.client();
    busy.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let waiting = rig.client();
    waiting.send([query("one")]);
    rig.wait(4);
    assert_eq!(rig.servers(), 1);
    rig.wait(1);
    rig.server(1).answers("one");
    waiting.expect([done("OK")]);
    assert!(rig.logged("ReserveTaken"));
    assert!(rig.server(1).is_parked(), "it stays");
}

#[test]
fn a_pool_in_use_keeps_its_least_size() {
    let rig = Rig::new(|config| {
        config.global.min_pool_size = 3;
        config.global.server_idle_timeout = Duration::from_secs(10);
    });
    assert_eq!(rig.servers(), 0);
    let client = rig.client();
    for servers in [2, 3, 3] {
        rig.wait(1);
        assert_eq!(rig.servers(), servers);
    }
    rig.wait(60);
    assert_eq!(open(&rig), [0, 1, 2]);
    rig.server(1).die();
    client.leave();
    rig.wait(1);
    assert_eq!(open(&rig).len(), 2, "it is not filled for nobody");
}

#[test]
fn a_pool_of_a_forced_user_needs_no_client() {
    let rig = Rig::new(|config| {
        app(config).user = Some("alice".into());
        app(config).min_pool_size = Some(1);
    });
    rig.wait(1);
    assert_eq!(open(&rig), [0]);
}

#[test]
fn filling_a_pool_closes_no_server_of_others() {
    let rig = limited(1, |config| {
        config.global.max_db_connections = 1;
        config.global.min_pool_size = 1;
    });
    let (_alice, _bob) = (rig.client(), rig.client_of(0, "bob", "app"));
    rig.wait(1);
    assert_eq!(open(&rig), [1]);
}

#[test]
fn a_waiting_client_is_told_once_for_each_wait() {
    let rig = Rig::of_size(1);
    let (busy, waiting) = (rig.client(), rig.client());
    busy.send([query("begin")]);
    let server = rig.server(0);
    server.take();
    server.send([complete("BEGIN"), ready('T')]);
    waiting.send([query("one")]);
    rig.wait(5);
    waiting.expect([]);
    rig.wait(1);
    let text = "No server connection available in postgres backend, client being queued";
    waiting.expect([notice(text)]);
    rig.wait(10);
    waiting.expect([]);
    busy.send([query("commit")]);
    server.answers("commit");
    server.answers("one");
    waiting.take();
    busy.send([query("begin")]);
    server.take();
    server.send([complete("BEGIN"), ready('T')]);
    waiting.send([query("two")]);
    rig.wait(6);
    waiting.expect([notice(text)]);
    let unwelcomed = Rig::transaction().manual();
    let client = unwelcomed.connect();
    client.say_hello(&[]);
    unwelcomed.wait(10);
    client.expect([]);
}

#[test]
fn a_message_to_every_client_that_logs_in() {
    let rig = Rig::new(|config| config.global.login_notify_message = "maintenance at noon".into());
    let client = rig.connect();
    client.say_hello(&[]);
    let got = client.take();
    let end = [notice("maintenance at noon"), ready('I')].concat();
    assert!(got.ends_with(&end), "{:?}", show(&got));
}

#[test]
fn waiting_is_limited_by_user_before_database_before_all() {
    let rig = limited(1, |config| {
        config.global.default_pool_size = 1;
        config.global.query_wait_timeout = Duration::from_secs(100);
        app(config).query_wait_timeout = Some(Duration::from_secs(20));
        let bob = config.users.entry("bob".into()).or_default();
        bob.query_wait_timeout = Some(Duration::from_secs(10));
        app(config).user = Some("alice".into());
    });
    let busy = rig.client();
    busy.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let (alice, bob) = (rig.client(), rig.client_of(0, "bob", "app"));
    alice.send([query("one")]);
    bob.send([query("one")]);
    rig.wait(11);
    assert!(alice.is_open() && !bob.is_open());
    rig.wait(10);
    assert!(!alice.is_open());
}

#[test]
fn idling_is_limited_by_user_before_all() {
    let rig = limited(1, |config| {
        config.global.client_idle_timeout = Duration::from_secs(20);
        let bob = config.users.entry("bob".into()).or_default();
        bob.client_idle_timeout = Some(Duration::from_secs(10));
    });
    let (alice, bob) = (rig.client(), rig.client_of(0, "bob", "app"));
    rig.wait(11);
    bob.expect_fatal("client_idle_timeout");
    assert!(alice.is_open());
    rig.wait(10);
    alice.expect_fatal("client_idle_timeout");
}

#[test]
fn simple_queries_may_be_disallowed() {
    let rig = Rig::new(|config| config.global.disable_pqexec = true);
    let client = rig.client();
    client.send([parse("", "select 1"), sync()]);
    client.send([query("select 1")]);
    client.expect_fatal("PQexec disallowed");
}
