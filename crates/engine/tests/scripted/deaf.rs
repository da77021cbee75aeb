//! Auto mode: clients listen, their listener is lost, and no other can be opened.

use engine::Drain;
use engine::pool::Gate;

use crate::clusters::tell;
use crate::listen::{DEAF, GAP, begin, left, listening, locks, of_another_encoding, rig};
use crate::messages::*;
use crate::relief::prepared;
use crate::rig::{Client, Rig, add_others};

/// A rig whose database may have this number of servers, over all users.
fn with_room_for(servers: u32) -> Rig {
    Rig::new(|config| {
        add_others(config);
        config.global.pool_mode = config::PoolMode::Auto;
        config.global.max_db_connections = servers;
    })
}

/// A client of another pool listens on the server that was opened third.
fn bob_listens(rig: &Rig) -> Client {
    let bob = rig.client_of(0, "bob", "app");
    bob.send([query("LISTEN news")]);
    let server = rig.server(2);
    server.expect([query("LISTEN news")]);
    server.send([done("LISTEN")]);
    bob.expect([done("LISTEN")]);
    left(&server, &["news"]);
    bob
}

#[test]
fn clients_are_warned_while_there_is_no_listener() {
    let rig = rig(2);
    let (client, _, listener, _) = listening(&rig, 1);
    rig.set_automatic(false);
    listener.die();
    client.expect([]);
    for attempt in 2..4 {
        rig.server(attempt).refuse();
        rig.wait(16);
        // The client gets only one warning.
        client.expect((attempt == 2).then(|| warning("01000", DEAF)));
    }
    rig.set_automatic(true);
    rig.server(4).refuse();
    rig.wait(16);
    begin(&rig.server(5), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

#[test]
pub(crate) fn a_listener_returns_soon_after_postgresql() {
    let rig = rig(1);
    let (client, _, listener, _) = listening(&rig, 0);
    rig.set_automatic(false);
    listener.die();
    // Each pause is longer by half.
    for (attempt, pause) in [(2, 100), (3, 150), (4, 225)] {
        rig.server(attempt).refuse();
        rig.wait_ms(pause - 5);
        assert_eq!(rig.servers(), attempt + 1, "{pause} ms are not over");
        rig.wait_ms(5);
    }
    client.expect([warning("01000", DEAF)]);
    // PostgreSQL has started, and does not let anybody in yet.
    rig.server(5).connect();
    rig.server(5).send([fatal("57P03", "the database system is starting up")]);
    rig.set_automatic(true);
    rig.wait_ms(338);
    let listener = rig.server(6);
    begin(&listener, "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    // The next loss begins with the first pause.
    rig.set_automatic(false);
    listener.die();
    client.take();
    rig.server(7).refuse();
    rig.wait_ms(100);
    assert_eq!(rig.servers(), 9);
}

/// The address of a lost primary may not answer for a long time.
#[test]
pub(crate) fn a_listener_does_not_wait_for_a_lost_primary() {
    let (rig, client, _, listener, _) = prepared();
    rig.set_automatic(false);
    listener.die();
    let at_the_lost = rig.server(2);
    tell(&rig, Some("10.0.0.1"), Some("it is gone"));
    assert!(!at_the_lost.is_open());
    rig.wait(1);
    client.expect([warning("01000", DEAF)]);
    assert_eq!(rig.servers(), 3);
    tell(&rig, Some("10.0.0.1"), None);
    rig.wait(1);
    let at_the_old = rig.server(3);
    tell(&rig, Some("10.0.0.2"), None);
    assert!(!at_the_old.is_open());
    rig.set_automatic(true);
    rig.wait(1);
    begin(&rig.server(4), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

#[test]
fn clients_are_warned_of_a_shutdown() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    let keeping = rig.client_at(0);
    keeping.send([query("SELECT pg_advisory_lock(1)")]);
    server.expect([query("SELECT pg_advisory_lock(1)")]);
    server.send([done("SELECT")]);
    keeping.take();
    server.take();
    server.send([row("k"), done("SELECT")]);
    rig.begin_drain(Drain::WaitForServers);
    assert!(!listener.is_open());
    client.expect([warning("01000", DEAF)]);
    keeping.expect([]);
}

#[test]
fn a_client_that_keeps_its_server_is_warned_of_a_shutdown() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    locks(&client, &server);
    rig.begin_drain(Drain::WaitForServers);
    assert!(!listener.is_open());
    client.expect([warning("01000", DEAF)]);
    server.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
}

#[test]
fn a_listener_that_has_lost_its_seat_takes_that_of_an_idle_server() {
    let rig = with_room_for(3);
    let (client, server, listener, _) = listening(&rig, 0);
    let (bob, amy) = (rig.client_of(0, "bob", "app"), rig.client());
    bob.send([query("BEGIN")]);
    let of_bob = rig.server(2);
    of_bob.send([complete("BEGIN"), ready('T')]);
    amy.send([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    // A waiting client gets the seat as soon as it is free.
    client.send([query("SELECT 1")]);
    listener.die();
    let second = rig.server(3);
    second.answers("LISTEN \"news\";");
    second.answers("SELECT 1");
    client.expect([warning("01000", DEAF), done("OK")]);
    rig.wait(0);
    assert!(!second.is_open() && rig.logged("evicted"));
    begin(&rig.server(4), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

#[test]
fn listeners_leave_a_seat_for_those_who_work() {
    let rig = with_room_for(2);
    let (_client, server, ..) = listening(&rig, 0);
    let _bob = bob_listens(&rig);
    assert!(!server.is_open());
    // If a listener replaced the idle server, no server would be left.
    rig.wait(1);
    assert_eq!(rig.servers(), 3);
}

#[test]
fn an_unneeded_listener_makes_room_for_another_pools_listener() {
    let rig = with_room_for(2);
    let (client, server, listener, _) = listening(&rig, 0);
    let _bob = bob_listens(&rig);
    assert!(!server.is_open());
    client.leave();
    listener.expect([query("UNLISTEN \"news\";")]);
    listener.send([done("UNLISTEN")]);
    assert!(listener.is_open());
    rig.wait(1);
    assert!(!listener.is_open() && rig.logged("evicted"));
    rig.wait(1);
    begin(&rig.server(3), "LISTEN \"news\";");
}

#[test]
fn a_pool_that_is_paused_has_no_listener() {
    let rig = rig(2);
    let (client, _, listener, _) = listening(&rig, 1);
    rig.order(|pool| pool.set_gate(Gate::Paused));
    assert!(!listener.is_open());
    client.expect([warning("01000", DEAF)]);
    rig.wait(5);
    assert_eq!((rig.servers(), rig.pool(|pool| pool.counts())), (2, (0, 0)));
    rig.order(|pool| pool.set_gate(Gate::Open));
    rig.wait(1);
    begin(&rig.server(2), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

#[test]
pub(crate) fn a_pause_takes_the_server_of_a_client_that_listens() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    client.send([query("BEGIN; LISTEN news")]);
    server.expect([query("BEGIN; LISTEN news")]);
    server.send([complete("BEGIN"), complete("LISTEN"), ready('T')]);
    client.take();
    rig.order(|pool| pool.set_gate(Gate::Paused));
    rig.wait(1);
    client.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([done("COMMIT")]);
    client.expect([done("COMMIT")]);
    left(&server, &["news"]);
    rig.wait(1);
    assert!(!server.is_open());
    client.expect([warning("01000", DEAF)]);
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
    rig.order(|pool| pool.set_gate(Gate::Open));
    rig.wait(1);
    begin(&rig.server(1), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

#[test]
pub(crate) fn a_pause_waits_for_a_client_of_another_encoding() {
    let rig = rig(1);
    let (client, server) = of_another_encoding(&rig);
    rig.order(|pool| pool.set_gate(Gate::Paused));
    rig.wait(5);
    assert!(server.is_open());
    client.expect([]);
}
