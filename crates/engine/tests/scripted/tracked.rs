//! Tracked parameters, reported by PostgreSQL or not. Each client has its own value on every
//! server.

use config::{Config, PoolMode};

use crate::messages::*;
use crate::rig::{Client, Rig, Server, server_welcome_with};

const SETS: &str = "SELECT pg_catalog.set_config('search_path','a',false) IS NULL;";
const RESETS: &str = "RESET \"search_path\";";

/// A pool with one server that tracks `search_path`. PostgreSQL before 18 does not report it.
fn unreported(mode: PoolMode, change: impl FnOnce(&mut Config)) -> Rig {
    Rig::new(|config| {
        config.global.pool_mode = mode;
        config.global.default_pool_size = 1;
        config.global.track_extra_parameters = vec!["IntervalStyle".into(), "search_path".into()];
        change(config);
    })
}

/// A rig with a parameter that is reported, and a client that starts with the server's value.
fn reported(name: &str, value: &str) -> (Rig, Client, Server) {
    let extra = vec!["IntervalStyle".into(), name.into()];
    let rig = unreported(PoolMode::Transaction, |config| {
        config.global.track_extra_parameters = extra;
    });
    let rig = rig.manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.send([server_welcome_with(0, &[(name, value)])]);
    client.take();
    server.take();
    (rig, client, server)
}

/// As in PgBouncer since 1.26, no key has to name them.
#[test]
fn reported_settings_are_each_clients_own_by_default() {
    let names = ["search_path", "scram_iterations", "IntervalStyle"];
    for name in names {
        let rig = Rig::new(|config| {
            config.global.pool_mode = PoolMode::Transaction;
            config.global.default_pool_size = 1;
            config.global.track_extra_parameters = Vec::new();
        });
        let rig = rig.manual();
        let [owner, other] = [(); 2].map(|()| rig.connect());
        owner.say_hello(&[]);
        let server = rig.server(0);
        server.connect();
        server.send([server_welcome_with(0, &[(name, "1")])]);
        other.say_hello(&[]);
        server.take();
        owner.send([query("SET it")]);
        server.expect([query("SET it")]);
        server.send([status(name, "2"), done("SET")]);
        other.send([query("select 1")]);
        let sent = String::from_utf8_lossy(&server.take()).into_owned();
        assert!(sent.contains(&format!("RESET {name};")), "{sent}");
        server.send([status(name, "1"), done("SET")]);
        server.answers("select 1");
    }
}

/// PgBouncer 1.25.2 does not track them. Many files have it drop `search_path`.
#[test]
fn a_setting_that_shall_be_ignored_is_dropped_unless_a_key_tracks_it() {
    for (extra, sql) in [(vec![], None), (vec!["search_path".into()], Some(SETS))] {
        let rig = unreported(PoolMode::Transaction, |config| {
            config.global.track_extra_parameters = extra;
            config.global.ignore_startup_parameters = vec!["search_path".into()];
        });
        let (_, server) = (rig.client(), rig.server(0));
        for parameter in [("search_path", "a"), ("options", "-c search_path=a")] {
            let client = rig.connect();
            client.say_hello(&[parameter]);
            client.send([query("select 1")]);
            sql.into_iter().for_each(|sql| server.answers(sql));
            server.answers("select 1");
            client.leave();
            let other = rig.client();
            other.send([query("select 2")]);
            sql.into_iter().for_each(|_| server.answers(RESETS));
            server.answers("select 2");
        }
    }
}

/// A client with `search_path = a` in its startup packet.
fn of_path_a(rig: &Rig) -> Client {
    let client = rig.connect();
    client.say_hello(&[("search_path", "a")]);
    client
}

#[test]
fn an_unreported_value_stays_with_its_client() {
    for mode in [PoolMode::Transaction, PoolMode::Statement, PoolMode::Auto] {
        let rig = unreported(mode, |_| {});
        let (other, server) = (rig.client(), rig.server(0));
        let owner = of_path_a(&rig);
        owner.take();
        for _ in 0..2 {
            owner.send([query("select 1")]);
            server.answers(SETS);
            server.answers("select 1");
            owner.expect([done("OK")]);
            // The server already has the value.
            owner.send([query("select 2")]);
            server.answers("select 2");
            owner.expect([done("OK")]);
            other.send([query("select 3")]);
            server.answers(RESETS);
            server.answers("select 3");
            other.expect([done("OK")]);
        }
    }
}

/// A version that does not report the parameter does not know it.
#[test]
fn a_server_gets_no_parameter_that_it_does_not_know() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let rig = unreported(mode, |config| config.global.track_extra_parameters.clear());
        let (other, server) = (rig.client(), rig.server(0));
        let client = rig.connect();
        client.say_hello(&[("scram_iterations", "5000"), ("search_path", "a")]);
        client.take();
        client.send([query("select 1")]);
        server.answers(SETS);
        server.answers("select 1");
        client.expect([done("OK")]);
        drop(other);
    }
}

#[test]
fn a_startup_value_that_the_client_has_reset_is_set_again_for_the_next_transaction() {
    let rig = unreported(PoolMode::Transaction, |_| {});
    let (other, server) = (rig.client(), rig.server(0));
    let owner = of_path_a(&rig);
    for tag in ["RESET", "DISCARD ALL"] {
        owner.send([query("select 1")]);
        server.answers(SETS);
        server.answers("select 1");
        owner.send([query(tag)]);
        server.expect([query(tag)]);
        server.send([done(tag)]);
        owner.send([query("select 2")]);
        server.answers(SETS);
        server.answers("select 2");
        owner.send([query("RESET ALL")]);
        server.expect([query("RESET ALL")]);
        server.send([done("RESET")]);
        other.send([query("select 3")]);
        server.answers(RESETS);
        server.answers("select 3");
    }
    owner.send([query("DISCARD ALL")]);
    server.answers(SETS);
    server.expect([query("DISCARD ALL")]);
    server.send([done("DISCARD ALL")]);
    // No trace of the value is left.
    other.send([query("select 4")]);
    server.answers("select 4");
}

#[test]
fn after_any_reset_query_each_client_has_its_own_settings() {
    for (reset, tag) in [("select clean()", "SELECT 1"), ("RESET ALL", "RESET")] {
        let rig = unreported(PoolMode::Session, |config| {
            config.global.server_reset_query = reset.into();
        });
        let owner = of_path_a(&rig);
        let server = rig.server(0);
        let finds_and_leaves = |client: &Client, sql: &str| {
            server.answers(sql);
            assert!(client.take().ends_with(&ready('I')), "it is welcome");
            client.leave();
            server.expect([query(reset)]);
            server.send([done(tag)]);
        };
        finds_and_leaves(&owner, SETS);
        let other = rig.connect();
        other.say_hello(&[]);
        finds_and_leaves(&other, RESETS);
        for _ in 0..2 {
            finds_and_leaves(&of_path_a(&rig), SETS);
        }
    }
}

#[test]
fn discard_all_as_the_reset_query_leaves_nothing_to_be_reset() {
    let rig = unreported(PoolMode::Session, |_| {});
    let owner = of_path_a(&rig);
    let server = rig.server(0);
    server.answers(SETS);
    owner.leave();
    server.expect([query("DISCARD ALL")]);
    server.send([done("DISCARD ALL")]);
    assert!(server.is_parked());
    let other = rig.connect();
    other.say_hello(&[]);
    other.expect_welcome(&[]);
}

#[test]
fn a_parameter_that_servers_no_longer_report_stays_with_its_client() {
    let (rig, other, first) = reported("search_path", "public");
    let owner = of_path_a(&rig);
    owner.take();
    first.die();
    // The standby has an older version.
    rig.set_automatic(true);
    owner.send([query("select 1")]);
    let second = rig.server(1);
    second.answers(SETS);
    second.answers("select 1");
    other.send([query("select 2")]);
    let public = SETS.replace("'a'", "'public'");
    second.answers(&public);
    second.answers("select 2");
    owner.send([query("select 3")]);
    second.answers(SETS);
    second.answers("select 3");
    other.send([query("select 4")]);
    second.answers(&public);
    second.answers("select 4");
}

#[test]
fn a_parameter_that_only_newer_servers_report_is_each_clients_own() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let rig = unreported(mode, |_| {});
        let (other, first) = (rig.client(), rig.server(0));
        let owner = of_path_a(&rig);
        owner.take();
        rig.set_automatic(false);
        first.die();
        // PostgreSQL was upgraded in between.
        owner.send([query("select 1")]);
        let second = rig.server(1);
        second.connect();
        second.take();
        second.send([server_welcome_with(1, &[("search_path", "public")])]);
        for (client, path) in [(&other, "a"), (&owner, "public"), (&other, "a"), (&owner, "public")]
        {
            // One of them waits for the server before the other comes.
            let sets = match path {
                "public" => "RESET search_path;".to_owned(),
                _ => format!("SELECT pg_catalog.set_config('search_path', '{path}', false);"),
            };
            second.expect([query(&sets)]);
            second.send([status("search_path", path), done("SELECT 1")]);
            second.answers("select 1");
            client.send([query("select 1")]);
        }
    }
}

#[test]
fn a_list_of_names_is_set_as_a_list() {
    let (rig, _, server) = reported("search_path", "public");
    let client = rig.connect();
    client.say_hello(&[("search_path", "a, \"B\"")]);
    client.send([query("select 1")]);
    server.expect([query("SELECT pg_catalog.set_config('search_path', 'a, \"B\"', false);")]);
    server.send([columns("set_config"), row("a"), done("SELECT 1")]);
    server.answers("select 1");
}

#[test]
fn schemas_and_users_differ_by_case_alone() {
    for name in ["search_path", "session_authorization"] {
        let (rig, _, server) = reported(name, "Ab");
        let client = rig.connect();
        client.say_hello(&[(name, "aB")]);
        client.send([query("select 1")]);
        let sent = String::from_utf8_lossy(&server.take()).into_owned();
        assert!(sent.contains(name) && sent.contains("'aB'"), "{sent}");
        server.send([status(name, "aB"), done("SET")]);
        server.expect([query("select 1")]);
    }
}

#[test]
fn another_spelling_of_the_same_value_is_set_no_more_than_once() {
    let (rig, other, server) = reported("default_transaction_read_only", "off");
    let client = rig.connect();
    client.say_hello(&[("default_transaction_read_only", "OFF"), ("client_encoding", "utf8")]);
    client.send([query("select 1")]);
    // The server has that value already and reports nothing.
    server.answers("SET default_transaction_read_only = 'OFF';");
    server.answers("select 1");
    for client in [&other, &client] {
        client.send([query("select 2")]);
        server.answers("select 2");
    }
}
