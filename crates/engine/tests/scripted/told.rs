//! Tells new clients what servers report. No client sets a default back.

use std::time::Duration;

use config::{Config, PoolMode};

use crate::messages::*;
use crate::rig::{Client, Rig, Server, app, server_welcome_with};

const HOT: &str = "in_hot_standby";

fn reload() -> Message {
    status("TimeZone", "Europe/Berlin")
}

/// Returns what a new client is told.
#[track_caller]
fn login(rig: &Rig) -> Vec<u8> {
    let client = rig.connect();
    client.say_hello(&[]);
    client.take()
}

fn tells(welcome: &[u8], name: &str, value: &str) -> bool {
    let message = status(name, value);
    welcome.windows(message.len()).any(|part| part == message)
}

/// A pool of one server with this parameter.
fn pool(mode: PoolMode, parameter: (&str, &str)) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.pool_mode = mode;
        config.global.default_pool_size = 1;
    })
    .manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([server_welcome_with(0, &[parameter])]);
    client.take();
    (rig, client, server)
}

#[test]
fn the_end_of_recovery_is_told_once_a_server_has_reported_it() {
    for mode in [PoolMode::Session, PoolMode::Transaction, PoolMode::Statement, PoolMode::Auto] {
        let (rig, client, server) = pool(mode, (HOT, "on"));
        client.send([query("SELECT 1")]);
        server.expect([query("SELECT 1")]);
        server.send([complete("SELECT 1"), status(HOT, "off"), ready('I')]);
        client.expect([complete("SELECT 1"), status(HOT, "off"), ready('I')]);
        if mode == PoolMode::Session {
            client.leave();
            server.answers("DISCARD ALL");
        }
        let told = login(&rig);
        assert!(tells(&told, HOT, "off") && !tells(&told, HOT, "on"), "{mode}");
    }
}

/// PostgreSQL was upgraded while the pool had no server.
#[test]
fn a_login_opens_a_server_if_there_is_none_that_could_tell() {
    for mode in [PoolMode::Transaction, PoolMode::Statement, PoolMode::Auto] {
        let (rig, client, server) = pool(mode, (HOT, "off"));
        server.die();
        let second = rig.connect();
        second.say_hello(&[]);
        second.expect([]);
        rig.server(1).connect();
        rig.server(1).take();
        rig.server(1).send([server_welcome_with(1, &[("extra", "17.1")])]);
        assert!(tells(&second.take(), "extra", "17.1"), "{mode}");
        assert!(client.is_open() && rig.server(1).is_parked());
    }
}

/// Clients get in while PostgreSQL restarts, as with PgBouncer.
#[test]
fn the_last_parameters_are_told_if_no_server_can_be_reached() {
    for workers in [1, 2] {
        let rig = Rig::with_workers(workers, |_| {}).manual();
        let first = rig.connect();
        first.say_hello(&[]);
        rig.server(0).connect();
        rig.server(0).send([server_welcome_with(0, &[])]);
        first.take();
        rig.server(0).die();
        let clients: Vec<_> =
            (0..workers).map(|at| rig.connect_from(at, Default::default())).collect();
        clients.iter().for_each(|client| client.say_hello(&[]));
        clients[0].expect([]);
        rig.server(1).refuse();
        for client in clients {
            client.expect_welcome(&[]);
        }
        rig.connect().say_hello(&[]);
        assert_eq!(rig.clients_in_tables(), workers + 2);
    }
}

fn transaction() -> (Rig, Client, Client, Server) {
    let rig = Rig::of_size(1);
    let (one, other) = (rig.client(), rig.client());
    let server = rig.server(0);
    (rig, one, other, server)
}

/// The server reports a new default at the end of a transaction. RESET shows that no client has set
/// it.
fn reloads(client: &Client, server: &Server) {
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    server.send([complete("SELECT 1"), reload(), ready('I')]);
    client.expect([complete("SELECT 1"), reload(), ready('I')]);
    server.expect([query("RESET TimeZone;")]);
    server.send([done("RESET")]);
    assert!(server.is_parked());
}

#[test]
fn in_transaction_mode_no_client_sets_the_new_default_back() {
    let (rig, one, other, server) = transaction();
    reloads(&one, &server);
    assert!(tells(&login(&rig), "TimeZone", "Europe/Berlin"));
    // It does not know the new default yet.
    other.send([query("SELECT 2")]);
    server.expect([query("RESET TimeZone;")]);
    server.send([done("RESET")]);
    server.answers("SELECT 2");
    other.expect([reload(), done("OK")]);
    for client in [&one, &other] {
        client.send([query("SELECT 3")]);
        server.answers("SELECT 3");
        client.expect([done("OK")]);
    }
    // Nor does the client that has noticed it keep it.
    other.send([query("SELECT 4")]);
    server.expect([query("SELECT 4")]);
    let second = status("TimeZone", "Europe/Paris");
    server.send([complete("SELECT 4"), second.clone(), ready('I')]);
    server.expect([query("RESET TimeZone;")]);
    server.send([done("RESET")]);
    one.send([query("SELECT 5")]);
    server.expect([query("RESET TimeZone;")]);
    server.send([done("RESET")]);
    server.answers("SELECT 5");
    one.expect([second, done("OK")]);
}

#[test]
fn in_transaction_mode_a_value_that_a_client_has_set_is_its_own() {
    for (text, tag) in [("SET TimeZone = 'Europe/Berlin'", "SET"), ("SELECT set()", "SELECT 1")] {
        let (rig, one, other, server) = transaction();
        one.send([query(text)]);
        server.expect([query(text)]);
        server.send([complete(tag), reload(), ready('I')]);
        one.take();
        if tag != "SET" {
            server.expect([query("RESET TimeZone;")]);
            server.send([complete("RESET"), status("TimeZone", "UTC"), ready('I')]);
        }
        assert!(tells(&login(&rig), "TimeZone", "UTC"));
        other.send([query("SELECT 2")]);
        if tag == "SET" {
            server.expect([query("RESET TimeZone;")]);
            server.send([complete("RESET"), status("TimeZone", "UTC"), ready('I')]);
        }
        server.answers("SELECT 2");
        other.expect([done("OK")]);
        one.send([query("SELECT 3")]);
        server.expect([query("SET TimeZone = 'Europe/Berlin';")]);
        server.send([complete("SET"), reload(), ready('I')]);
        server.answers("SELECT 3");
        one.expect([done("OK")]);
    }
}

#[test]
fn a_value_for_the_transaction_is_no_default() {
    let (rig, one, _other, server) = transaction();
    one.send([query("SELECT set_config('TimeZone', 'Europe/Berlin', true)")]);
    server.take();
    server.send([complete("SELECT 1"), reload(), status("TimeZone", "UTC"), ready('I')]);
    one.take();
    assert!(server.is_parked() && tells(&login(&rig), "TimeZone", "UTC"));
}

/// RESET would undo its settings.
#[test]
fn the_settings_of_connect_query_are_not_reset() {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        app(config).connect_query = Some("SET TimeZone = 'UTC'".into());
    });
    let one = rig.connect();
    one.say_hello(&[]);
    let server = rig.server(0);
    server.answers("SET TimeZone = 'UTC'");
    one.take();
    one.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    server.send([complete("SELECT 1"), reload(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn in_session_mode_discard_all_shows_the_new_default() {
    let (rig, client, server) = pool(PoolMode::Session, (HOT, "off"));
    client.send([query("SELECT 1")]);
    server.take();
    server.send([complete("SELECT 1"), reload(), ready('I')]);
    client.leave();
    server.answers("DISCARD ALL");
    assert!(tells(&login(&rig), "TimeZone", "Europe/Berlin"));
    server.expect([]);
}

/// A client of the library `libpq` with `target_session_attrs=read-write` leaves as soon as it is told
/// that the server is a standby. So nobody ever uses a server.
#[test]
fn a_login_asks_a_server_and_is_told_what_that_has_reported() {
    let rig = Rig::new(|config: &mut Config| {
        config.global.role_check_interval = Duration::from_secs(1);
    })
    .manual();
    let first = rig.connect();
    first.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([server_welcome_with(0, &[(HOT, "on")])]);
    let answers = |reports: &[Message]| {
        assert!(String::from_utf8_lossy(&server.take()).contains("own.usesysid"));
        server.send(crate::principals::told("17 5", "17 5").into_iter().take(3));
        server.send(reports.iter().cloned());
        server.send([ready('I')]);
    };
    answers(&[]);
    assert!(tells(&first.take(), HOT, "on"));
    first.leave();
    rig.wait(2);
    let second = rig.connect();
    second.say_hello(&[]);
    answers(&[status(HOT, "off"), reload()]);
    let told = second.take();
    assert!(tells(&told, HOT, "off") && tells(&told, "TimeZone", "Europe/Berlin"));
}
