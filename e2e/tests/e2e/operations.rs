//! Keys of the process whose effect is visible only from outside.

use std::fs;
use std::time::Duration;

use crate::support;
use testkit::{RawClient, Role, eventually, frontend};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the times until the kernel's next keepalive on the idle connections to this local port,
/// in hundredths of a second.
fn keepalives(port: u16) -> Vec<u64> {
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let local = format!(":{port:04X}");
    let of_line = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (timer, when) = fields.get(5)?.split_once(':')?;
        let fits = fields[1].ends_with(&local) && fields[3] == ESTABLISHED && timer == "02";
        fits.then(|| u64::from_str_radix(when, 16).expect("a hexadecimal number"))
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

#[test]
fn silent_connections_are_asked_whether_they_live() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("tcp_keepidle", 300).start();
    let _client = pooler.client(&database);
    let due = eventually("a keepalive is due", PATIENCE, || keepalives(pooler.port()).pop());
    assert!((20_000..=30_000).contains(&due), "{due}");

    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("tcp_keepalive", 0).start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 'served'"), "served");
    assert!(keepalives(pooler.port()).is_empty());
}

#[test]
fn statistics_are_logged_each_stats_period() {
    let (setup, _) = support::setup("transaction");
    let pooler = setup.set("stats_period", 1).start();
    let lines = || pooler.log().matches("LOG stats: 0 xacts/s").count();
    eventually("two lines of statistics", PATIENCE, || (lines() >= 2).then_some(()));
}

#[test]
fn a_verifier_made_from_a_password_has_scram_iterations() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let setup = setup.set("auth_type", "scram-sha-256").set("scram_iterations", 8191);
    let pooler = setup.start();
    let mut client = RawClient::connect(pooler.port());
    let startup = [("user", Role::APP), ("database", database.as_str())];
    let messages = client.try_authenticate(&startup, Role::APP_PASSWORD);
    let has = |text: &str| {
        messages.iter().any(|message| String::from_utf8_lossy(&message.body).ends_with(text))
    };
    assert!(has(",i=8191"), "{messages:?}");
    assert_eq!(client.value("SELECT 'served'"), "served");
}

#[test]
fn a_database_may_have_a_server_lifetime_of_its_own() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.database(&database, "server_lifetime=1").start();
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    pooler.log_contains("closing because: server lifetime over");
}

#[test]
fn a_user_may_have_a_reserve_of_its_own() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let setup = setup.database(&database, "pool_size=1").set("reserve_pool_timeout", "0.2");
    let pooler = setup.user(Role::APP, "reserve_pool_size=1").start();
    let mut first = pooler.client(&database);
    first.rows("BEGIN");
    let mut second = pooler.client(&database);
    assert_eq!(second.value("SELECT 'served'"), "served");
    pooler.log_contains("taking connection from reserve_pool");
    // Pool and reserve have one server each, so a third server is not opened.
    second.rows("BEGIN");
    let mut third = pooler.client(&database);
    third.send(frontend::query("SELECT 'served'"));
    support::until_waiting(&pooler, &database, 1);
    first.rows("COMMIT");
    assert_eq!(third.read_to_ready().last().map(|message| message.tag), Some(b'Z'));
}

#[test]
fn a_reload_reads_the_file_that_conffile_names() {
    let (setup, _) = support::setup("transaction");
    let pooler = setup.start();
    let present = fs::read_to_string(pooler.configuration()).expect("its configuration");
    let other = testkit::open_folder("conffile").join("other.ini");
    let more = present.replacen("[pgbouncer]", "[pgbouncer]\nquery_wait_timeout = 77", 1);
    fs::write(&other, more).expect("our own folder");
    let set = pooler.try_admin(&format!("SET conffile = '{}'", other.display()));
    assert!(set.error.is_none(), "{:?}", set.error);
    pooler.admin("RELOAD");
    eventually("the other file is in force", PATIENCE, || {
        let rows = pooler.admin("SHOW CONFIG").with("key", "query_wait_timeout");
        (rows.only("value") == "77").then_some(())
    });
}
