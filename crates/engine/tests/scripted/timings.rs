//! The checkpoints of connections (`connection_timings`).

use engine::timings::{Choice, Connection};

use crate::messages::*;
use crate::rig::{Rig, add_others, server_welcome};

const MS: u64 = 1_000;

fn timed(workers: usize) -> Rig {
    Rig::with_workers(workers, |config| {
        add_others(config);
        config.global.connection_timings = 10;
        config.global.max_server_connections = 1;
    })
}

fn choices(rig: &Rig) -> Vec<Choice> {
    rig.ended().iter().map(|one| one.choice).collect()
}

/// The only connection that has ended, with its times in milliseconds since accept.
fn only(rig: &Rig) -> (Choice, [u64; 8]) {
    let all = rig.ended();
    let [one] = &all[..] else { panic!("{all:?}") };
    (one.choice, times(one))
}

fn times(one: &Connection) -> [u64; 8] {
    [
        one.startup_at,
        one.authenticated_at,
        one.welcomed_at,
        one.queued_at,
        one.linked_at,
        one.applied_at,
        one.sent_at,
        one.first_byte_at,
    ]
    .map(|at| at.saturating_sub(one.accepted_at) / MS)
}

#[test]
fn the_first_client_of_a_pool_gets_a_new_server_before_its_welcome() {
    let rig = timed(1).manual();
    let client = rig.connect();
    rig.wait_ms(10);
    client.say_hello(&[]);
    rig.wait_ms(20);
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([server_welcome(0)]);
    rig.wait_ms(30);
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    rig.wait_ms(5);
    server.send([done("SELECT 1")]);
    // Only the first transaction counts.
    rig.wait_ms(50);
    client.send([query("SELECT 2")]);
    server.expect([query("SELECT 2")]);
    server.send([done("SELECT 1")]);
    assert!(rig.ended().is_empty());
    rig.wait_ms(50);
    client.leave();
    assert_eq!(only(&rig), (Choice::New, [10, 10, 30, 10, 30, 30, 60, 65]));
    let one = &rig.ended()[0];
    assert_eq!((one.done_at - one.accepted_at) / MS, 165);
    assert_eq!((&*one.identity.database, &*one.identity.user), ("app", "alice"));
}

#[test]
fn a_server_is_new_reused_stolen_or_in_the_seat_of_another() {
    let rig = timed(2);
    let first = rig.client();
    let second = rig.client();
    for (client, worker) in [(first, 0), (second, 0), (rig.client_at(1), 1)] {
        rig.wait_ms(1);
        client.send([query("SELECT 1")]);
        rig.server(0).answers("SELECT 1");
        assert_eq!(rig.server(0).worker(), worker);
        client.leave();
    }
    // The only seat goes to another pool.
    let other = rig.client_of(1, "bob", "other");
    other.leave();
    assert_eq!(choices(&rig), [Choice::New, Choice::Reused, Choice::Stolen, Choice::Evicting]);
    let last = &rig.ended()[3];
    assert!(last.linked_at != 0 && last.sent_at == 0, "it has asked for nothing: {last:?}");
}

#[test]
fn a_first_transaction_that_a_lost_server_has_not_begun_is_that_of_the_next_server() {
    let rig = timed(1);
    let client = rig.client();
    rig.wait(31);
    client.send([query("SELECT 1")]);
    // It is checked first, and lost.
    rig.server(0).die();
    rig.wait_ms(7);
    rig.server(1).answers("SELECT 1");
    client.leave();
    let (choice, times) = only(&rig);
    assert_eq!(choice, Choice::New, "it waited for its welcome");
    assert_eq!(times[6], 31_000, "the second server got the request at once: {times:?}");
}

#[test]
fn a_session_is_welcomed_by_its_server() {
    let rig = Rig::with_workers(1, |config| {
        config.global.connection_timings = 10;
        config.global.pool_mode = config::PoolMode::Session;
    });
    let client = rig.client();
    rig.wait_ms(500);
    client.send([query("SELECT 1")]);
    rig.server(0).expect([query("SELECT 1")]);
    rig.wait_ms(3);
    rig.server(0).send([done("SELECT 1")]);
    client.leave();
    assert_eq!(only(&rig), (Choice::New, [0, 0, 0, 0, 0, 0, 500, 503]));
}

#[test]
fn of_a_pipeline_the_first_transaction_counts() {
    for mode in [config::PoolMode::Session, config::PoolMode::Transaction] {
        let rig = Rig::with_workers(1, |config| {
            config.global.connection_timings = 10;
            config.global.pool_mode = mode;
        });
        let client = rig.client();
        rig.wait_ms(10);
        client.send([query("SELECT 1"), query("SELECT 2"), query("SELECT 3")]);
        rig.server(0).take();
        for _ in 0..3 {
            rig.wait_ms(7);
            rig.server(0).send([done("SELECT 1")]);
        }
        client.leave();
        let (_, times) = only(&rig);
        assert_eq!(times[6..], [10, 17], "{mode:?}");
        let order = rig.transactions(0);
        assert!(order.iter().all(|one| one.sent <= one.first_byte), "{order:?}");
    }
}

#[test]
fn a_reload_begins_and_ends_the_record() {
    let rig = Rig::with_workers(1, |_| {});
    let before = rig.client();
    rig.reload(|config| config.global.connection_timings = 10);
    let during = rig.client();
    for client in [&before, &during] {
        client.send([query("SELECT 1")]);
        rig.server(0).answers("SELECT 1");
    }
    before.leave();
    assert!(rig.ended().is_empty(), "it had logged in before");
    during.leave();
    assert_eq!(rig.ended().len(), 1);
    let after = rig.client();
    rig.reload(|config| config.global.connection_timings = 0);
    after.send([query("SELECT 1")]);
    rig.server(0).answers("SELECT 1");
    after.leave();
    assert_eq!(rig.ended().len(), 1);
}

#[test]
fn a_client_that_is_refused_or_sends_nothing_has_no_row() {
    let rig = timed(1);
    let silent = rig.connect();
    silent.leave();
    let unknown = rig.connect();
    unknown.say_hello_as("alice", "nowhere");
    assert!(rig.ended().is_empty());
}
