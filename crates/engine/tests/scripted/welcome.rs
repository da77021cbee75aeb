//! The end of a login, and the settings that a client carries from server to server.

use std::time::Duration;

use config::PoolMode;
use engine::auth::Peer;
use engine::pool::Pool;

use crate::messages::*;
use crate::rig::{Client, Rig, Server, app};

/// A client of a new pool with one server, both idle.
fn pair(rig: &Rig) -> (Client, Server) {
    (rig.client(), rig.server(0))
}

#[test]
fn the_first_client_waits_for_a_server_and_later_ones_need_none() {
    let rig = Rig::of_size(1).manual();
    let first = rig.connect();
    first.say_hello(&[]);
    first.expect([]);
    let server = rig.server(0);
    server.connect();
    server.send([crate::rig::server_welcome(0)]);
    first.expect_welcome(&[]);
    first.send([query("begin")]);
    server.expect([server_startup(&[("user", "alice"), ("database", "app")]), query("begin")]);
    rig.client();
    assert_eq!(rig.servers(), 1);
}

/// As PgBouncer does since 1.26. In auto mode, a client gets only what PostgreSQL sends.
#[test]
fn a_client_is_told_which_pooler_it_is_in_which_mode() {
    for (mode, told) in [
        (PoolMode::Session, Some("session")),
        (PoolMode::Transaction, Some("transaction")),
        (PoolMode::Statement, Some("statement")),
        (PoolMode::Auto, None),
    ] {
        let rig = Rig::new(|config| config.global.pool_mode = mode);
        let client = rig.connect();
        client.say_hello(&[]);
        let welcome = client.take();
        let said = |name: &str, value: &str| {
            let message = status(name, value);
            welcome.windows(message.len()).any(|part| part == message)
        };
        assert!(said("server_version", "15.0"), "{mode}");
        assert_eq!(said("pgbouncer.version", config::PGBOUNCER_VERSION), told.is_some(), "{mode}");
        assert_eq!(said("pgbouncer.pool_mode", told.unwrap_or("auto")), told.is_some(), "{mode}");
        let statements = said("pgbouncer.max_prepared_statements", "200");
        assert_eq!(statements, told.is_some(), "{mode}");
    }
}

/// RECONNECT forgets what the pool's servers have reported. A client that waits for one of them is
/// told what that server has.
#[test]
fn a_reconnect_takes_no_clients_welcome_away() {
    let rig = Rig::with_workers(2, |config| config.global.default_pool_size = 1).manual();
    let [first, second] = [0, 1].map(|worker| rig.connect_from(worker, Peer::default()));
    first.say_hello(&[]);
    second.say_hello(&[]);
    rig.hold_mail(true);
    let server = rig.server(0);
    server.connect();
    server.send([crate::rig::server_welcome(0)]);
    first.expect_welcome(&[]);
    rig.order(Pool::replace_servers);
    rig.hold_mail(false);
    second.expect_welcome(&[]);
    assert!(!server.is_open(), "it serves nobody else");
}

#[test]
fn every_client_has_a_cancel_key_of_its_own() {
    let rig = Rig::transaction();
    let mut keys: Vec<_> = (0..20)
        .map(|_| {
            let client = rig.connect();
            client.say_hello(&[]);
            client.expect_welcome(&[])
        })
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 20);
}

#[test]
fn queries_sent_ahead_of_the_welcome_are_answered() {
    for cold in [true, false] {
        let rig = Rig::transaction();
        if !cold {
            rig.client();
        }
        let client = rig.connect();
        client.send([startup(&[("user", "alice"), ("database", "app")]), query("select 1")]);
        client.expect_welcome(&[]);
        let server = rig.server(0);
        server.answers("select 1");
        client.expect([done("OK")]);
        assert!(server.is_parked(), "cold: {cold}");
    }
}

#[test]
fn half_a_query_sent_ahead_waits_without_a_server() {
    for cold in [true, false] {
        let rig = Rig::transaction();
        if !cold {
            rig.client();
        }
        let client = rig.connect();
        let whole = query("select 1");
        client.send([startup(&[("user", "alice"), ("database", "app")]), whole[..3].to_vec()]);
        client.expect_welcome(&[]);
        let server = rig.server(0);
        assert!(server.is_parked(), "cold: {cold}");
        client.send([whole[3..].to_vec()]);
        server.answers("select 1");
        client.expect([done("OK")]);
    }
}

#[test]
fn a_clients_values_are_set_before_its_query() {
    let rig = Rig::of_size(1);
    let (_, server) = pair(&rig);
    let client = rig.client_with(0, &[("application_name", "it's"), ("DateStyle", "German")]);
    client.send([query("select 1")]);
    server.expect([query("SET DateStyle = 'German';SET application_name = 'it''s';")]);
    assert_eq!(client.unread(), query("select 1").len(), "its bytes stay in the kernel");
    server.send([
        complete("SET"),
        status("DateStyle", "German, DMY"),
        complete("SET"),
        status("application_name", "it's"),
        ready('I'),
    ]);
    client.expect([]);
    server.answers("select 1");
    client.expect([done("OK")]);
    // The client has adopted the server's spelling, so nothing is set the second time.
    client.send([query("select 2")]);
    server.answers("select 2");
}

#[test]
fn the_next_client_gets_its_own_values_back() {
    let rig = Rig::of_size(1);
    let (first, server) = pair(&rig);
    let second = rig.client();
    first.send([query("set timezone = 'Asia/Tokyo'")]);
    server.take();
    let answer = [status("TimeZone", "Asia/Tokyo"), complete("SET"), ready('I')];
    server.send(answer.clone());
    first.expect(answer);
    second.send([query("select 1")]);
    server.expect([query("RESET TimeZone;")]);
    server.send([status("TimeZone", "UTC"), done("SET")]);
    server.answers("select 1");
    second.expect([done("OK")]);
    first.send([query("select 2")]);
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
}

#[test]
fn spelling_alone_is_no_difference() {
    let rig = Rig::of_size(1);
    let (_, server) = pair(&rig);
    let client = rig.client_with(0, &[("timezone", "utc"), ("datestyle", "iso, mdy")]);
    client.send([query("select 1")]);
    server.answers("select 1");
}

#[test]
fn an_encoding_is_told_as_postgresql_spells_it() {
    for (given, told) in [("eucjp", "EUC_JP"), ("utf-8", "UTF8"), ("UNICODE", "UNICODE")] {
        for settings in
            [("client_encoding", given), ("options", &format!("-cclient_encoding={given}"))]
        {
            let rig = Rig::of_size(1);
            let (_, server) = pair(&rig);
            let client = rig.connect();
            client.say_hello(&[settings]);
            let (got, told_so) = (client.take(), status("client_encoding", told));
            assert!(got.windows(told_so.len()).any(|part| part == told_so), "{settings:?}");
            client.send([query("select 1")]);
            match told {
                "UTF8" => server.answers("select 1"),
                _ => server.expect([query(&format!("SET client_encoding = '{told}';"))]),
            }
        }
    }
}

#[test]
fn a_value_the_server_refuses_ends_the_client() {
    let rig = Rig::of_size(1);
    let (_, server) = pair(&rig);
    let client = rig.client_with(0, &[("TimeZone", "Nowhere")]);
    client.send([query("select 1")]);
    server.take();
    server.send([error("22023", "invalid value for parameter"), ready('I')]);
    client.expect_fatal("invalid server parameter");
    rig.client().send([query("select 1")]);
    server.answers("select 1");
}

#[test]
fn extra_parameters_are_carried_too() {
    let rig = Rig::new(|config| {
        config.global.track_extra_parameters = vec!["search_path".into(), "IntervalStyle".into()];
    });
    let (_, server) = pair(&rig);
    let client = rig.client_with(0, &[("IntervalStyle", "iso_8601")]);
    client.send([query("select 1")]);
    server.expect([query("SET IntervalStyle = 'iso_8601';")]);
}

#[test]
fn a_session_client_is_told_its_servers_process_id() {
    let rig = Rig::session();
    for at in 0..2 {
        let client = rig.connect();
        client.say_hello(&[]);
        let (pid, _) = client.expect_welcome(&[]);
        assert_eq!(pid, rig.server(at).pid());
    }
}

#[test]
fn a_session_client_finds_the_values_it_was_told() {
    // Without a reset query, the server keeps the first client's value.
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.server_reset_query.clear();
        config.global.default_pool_size = 1;
    });
    let (first, server) = pair(&rig);
    first.send([query("set timezone = 'Asia/Tokyo'")]);
    server.take();
    server.send([status("TimeZone", "Asia/Tokyo"), done("SET")]);
    first.leave();
    assert!(server.is_parked());
    let second = rig.connect();
    second.say_hello(&[]);
    server.expect([query("RESET TimeZone;")]);
    server.send([status("TimeZone", "UTC"), done("SET")]);
    second.expect_welcome(&[]);
}

#[test]
fn settings_of_the_database_go_into_the_servers_startup_packet() {
    let rig = Rig::new(|config| {
        let app = app(config);
        app.dbname = Some("real".into());
        app.timezone = Some("Asia/Tokyo".into());
        app.application_name = Some("pooled".into());
    });
    rig.client();
    let server = rig.server(0);
    assert_eq!(
        server.startup(),
        server_startup(&[
            ("user", "alice"),
            ("database", "real"),
            ("timezone", "Asia/Tokyo"),
            ("application_name", "pooled"),
        ])
    );
    assert_eq!(server.target(), "Tcp(\"10.0.0.1\", 5432)");
}

fn checking() -> Rig {
    Rig::new(|config| {
        config.global.default_pool_size = 1;
        config.global.server_check_query = "select 1".into();
        config.global.server_check_delay = Duration::from_secs(30);
    })
}

#[test]
fn a_server_that_was_idle_for_long_is_checked_first() {
    let rig = checking();
    let (client, server) = pair(&rig);
    rig.wait(30);
    client.send([query("mine")]);
    server.expect([query("select 1")]);
    server.send([columns("x"), row("1"), done("SELECT 1")]);
    client.expect([]);
    server.answers("mine");
    client.expect([done("OK")]);
    rig.wait(29);
    client.send([query("mine")]);
    server.answers("mine");
}

#[test]
fn an_empty_check_query_is_a_query_too() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    rig.wait(31);
    client.send([query("mine")]);
    server.expect([query("")]);
    server.send([b"I\0\0\0\x04".to_vec(), ready('I')]);
    server.answers("mine");
}

/// A login's welcome does not show that the server is alive.
#[test]
fn a_server_that_was_needed_for_a_welcome_only_is_not_fresher_for_it() {
    let rig = Rig::with_workers(2, |config| config.global.default_pool_size = 1).manual();
    let [first, second] = [0, 1].map(|worker| rig.connect_from(worker, Peer::default()));
    first.say_hello(&[]);
    second.say_hello(&[]);
    rig.hold_mail(true);
    let server = rig.server(0);
    server.connect();
    server.send([crate::rig::server_welcome(0)]);
    first.expect_welcome(&[]);
    server.take();
    rig.later(31_000_000);
    rig.hold_mail(false);
    second.expect_welcome(&[]);
    second.send([query("mine")]);
    server.expect([query("")]);
}

#[test]
fn a_server_that_fails_its_check_is_replaced_unnoticed() {
    for dies in [true, false] {
        let rig = checking();
        let (client, server) = pair(&rig);
        rig.wait(31);
        client.send([query("mine")]);
        server.take();
        match dies {
            true => server.die(),
            false => server.send([error("XX000", "no"), ready('I')]),
        }
        assert!(!server.is_open());
        rig.server(1).answers("mine");
        client.expect([done("OK")]);
    }
}

#[test]
fn a_check_is_given_time() {
    let rig = checking();
    let (client, server) = pair(&rig);
    rig.wait(100);
    client.send([query("mine")]);
    server.take();
    rig.wait(1);
    assert!(server.is_open(), "the answer may be under way");
    rig.wait(15);
    assert!(!server.is_open(), "server_connect_timeout is long enough");
    rig.server(1).answers("mine");
    client.expect([done("OK")]);
}

#[test]
fn a_check_comes_before_the_clients_values() {
    let rig = checking();
    let (_, server) = pair(&rig);
    rig.wait(31);
    let client = rig.client_with(0, &[("TimeZone", "Asia/Tokyo")]);
    client.send([query("mine")]);
    server.answers("select 1");
    server.answers("SET TimeZone = 'Asia/Tokyo';");
    server.answers("mine");
    client.expect([done("OK")]);
}

#[test]
fn settings_of_connect_query_belong_to_the_pool() {
    let rig = Rig::new(|config| app(config).connect_query = Some("set it".into())).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.send([crate::rig::server_welcome(0)]);
    let startup = server_startup(&[("user", "alice"), ("database", "app")]);
    server.expect([startup.clone(), query("set it")]);
    client.expect([]);
    let said = [columns("a"), row("1"), complete("SELECT 1"), error("42601", "no"), notice("so")];
    server.send(said);
    server.send([status("TimeZone", "Mars"), ready('I')]);
    assert!(rig.logged("query: Connect, message: \"ERROR: no\", repeats: false"));
    client.expect_welcome(&[("TimeZone", "Mars")]);
    client.send([query("one")]);
    server.answers("one");
    client.expect([done("OK")]);
}

#[test]
fn a_connect_query_that_leaves_a_transaction_open_fails_the_login() {
    let rig = Rig::new(|config| app(config).connect_query = Some("begin".into())).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.send([crate::rig::server_welcome(0)]);
    server.send([complete("BEGIN"), ready('T')]);
    assert!(!server.is_open());
    assert!(rig.logged("connect_query has left a transaction open"));
}
