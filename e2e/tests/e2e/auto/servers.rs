//! Servers are older than their clients, and PostgreSQL may end them: what a client notices of it.

use std::time::Duration;

use testkit::{Postgres, eventually};

use super::{backend, pooler, settle};
use crate::support;

#[test]
fn what_is_set_for_new_connections_reaches_new_servers() {
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

#[test]
fn postgresql_counts_how_long_a_server_is_idle_and_not_its_client() {
    if !support::only_weir() {
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
fn who_has_set_what_postgresql_does_not_show_keeps_the_server() {
    if !support::only_weir() {
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
