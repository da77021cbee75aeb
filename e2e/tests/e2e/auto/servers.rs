//! Servers are older than their clients, and PostgreSQL may end them: what a client notices of it.

use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, eventually};

use super::{backend, pooler, settle};
use crate::support;

#[test]
fn settings_for_new_connections_reach_new_servers() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2);
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SHOW work_mem"), "4MB");
    let mut owner = Postgres::shared().superuser(&database);
    owner.rows(&format!("ALTER DATABASE \"{database}\" SET work_mem = '7MB'"));
    assert_eq!(pooler.client(&database).value("SHOW work_mem"), "4MB");
    pooler.admin("RECONNECT");
    for client in [&mut client, &mut pooler.client(&database)] {
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        client.rows("SET work_mem = '8MB'; RESET work_mem");
        assert_eq!(client.value("SHOW work_mem"), "7MB");
    }
    drop(owner);
    let dropping = format!("DROP DATABASE \"{database}\"");
    let mut elsewhere = Postgres::shared().superuser("postgres");
    assert_eq!(elsewhere.query(&dropping).error.expect("it is in use").code(), "55006");
    pooler.admin(&format!("PAUSE {database}"));
    elsewhere.rows(&dropping);
}

/// As on a direct connection where nothing is carried: what others have set is reset, not set.
#[test]
fn nothing_given_has_no_source_in_the_session() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let sources = "SELECT name, setting, source FROM pg_settings WHERE name IN ('TimeZone', \
                   'DateStyle', 'application_name', 'search_path', 'work_mem', 'IntervalStyle', \
                   'client_encoding') ORDER BY name";
    let mut direct = RawClient::connect(Postgres::shared().port());
    let startup = [("user", Role::APP), ("database", &database)];
    direct.authenticate(&startup, Role::APP_PASSWORD).expect("it is let in");
    let direct = direct.rows(sources);
    let mut plain = pooler.client(&database);
    assert_eq!(plain.rows(sources), direct);
    let mut other = pooler.client(&database);
    other.rows(
        "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET application_name = 'other'; \
         SET search_path = 'pg_catalog'; SET work_mem = '9MB'; SET IntervalStyle = 'iso_8601'",
    );
    assert_eq!(other.value("SHOW TimeZone"), "Asia/Tokyo");
    assert_eq!(plain.rows(sources), direct);
    assert_eq!(other.value("SHOW TimeZone"), "Asia/Tokyo");
    // Whoever gives a value is its source.
    plain.rows("SET TimeZone = 'Europe/Rome'");
    other.rows("SET TimeZone = 'Asia/Tokyo'");
    let source = "SELECT source FROM pg_settings WHERE name = 'TimeZone'";
    assert_eq!(plain.value(source), "session");
}

#[test]
fn a_reload_does_not_override_what_a_client_has_given() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    // Who is let in by then finds the servers of others told of it.
    let begins_with = |zone: &str| {
        postgres.sql("postgres", &format!("ALTER SYSTEM SET timezone = '{zone}'"));
        postgres.sql("postgres", "SELECT pg_reload_conf()");
        eventually("new servers have it", Duration::from_secs(10), || {
            (postgres.superuser("postgres").value("SHOW timezone") == zone).then_some(())
        });
    };
    begins_with("UTC");
    let setup = Pooler::before(&postgres).set("pool_mode", "auto").workers(1);
    let pooler = setup.set("default_pool_size", 1).database(&database, "").start();
    let mut client = RawClient::connect(pooler.port());
    let startup = [("user", Role::APP), ("database", &database), ("TimeZone", "UTC")];
    client.authenticate(&startup, Role::APP_PASSWORD).expect("it is let in");
    assert_eq!(client.value("SHOW timezone"), "UTC");
    begins_with("Europe/Rome");
    client.rows("SELECT 1");
    for _ in 0..2 {
        assert_eq!(client.value("SHOW timezone"), "UTC");
    }
}

#[test]
fn postgresql_counts_how_long_a_server_is_idle_and_not_its_client() {
    if !support::only_proxied("idle_session_timeout ends no backend that serves the lobby") {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.rows("SET idle_session_timeout = '500ms'");
    let own = backend(&mut client);
    eventually("PostgreSQL ends the server", Duration::from_secs(10), || {
        (pooler.pool_sums(&database, ["sv_idle", "sv_used"]) == [0, 0]).then_some(())
    });
    assert_eq!(pooler.client(&database).value("SHOW idle_session_timeout"), "0");
    assert_eq!(client.value("SHOW idle_session_timeout"), "500ms");
    assert_ne!(backend(&mut client), own);
    // Who keeps its server is idle with it.
    client.rows("CREATE TEMP TABLE mine (a int)");
    let last = client.read_until(|message| message.tag == b'E');
    let error = last.iter().find_map(testkit::Message::error).expect("it is told why");
    assert_eq!(error.code(), "57P05");
}

#[test]
fn a_client_with_a_hidden_setting_keeps_its_server() {
    if !support::only_probed() {
        return;
    }
    let (pooler, database) = pooler(1);
    let postgres = Postgres::shared();
    postgres.superuser("postgres").rows("GRANT SET ON PARAMETER dynamic_library_path TO app");
    let mut client = pooler.client(&database);
    let shown = "SELECT count(*) FROM pg_settings WHERE name = 'dynamic_library_path'";
    assert_eq!(client.value(shown), "0");
    let before = backend(&mut client);
    client.rows("SET dynamic_library_path = '/nowhere'");
    settle(&pooler);
    assert_eq!(pooler.admin("SHOW PINS").column("reason"), ["load"]);
    assert_eq!(backend(&mut client), before);
    drop(client);
    assert_ne!(backend(&mut pooler.client(&database)), before);
}
