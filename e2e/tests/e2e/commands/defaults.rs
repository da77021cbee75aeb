//! Defaults that differ from PgBouncer's, which a `pgbouncer.ini` has: those of a `weir.toml` and of
//! `serve URL`.

use std::path::Path;

use crate::commands::{stdout, weir};
use crate::support::only_weir;
use testkit::{Pooler, Postgres, RawClient, Role, Setup};

/// Returns a new database and a pooler whose configuration has no `pool_mode`.
fn silent() -> (Setup, String) {
    let postgres = Postgres::shared();
    let database = postgres.database();
    (Pooler::before(postgres).workers(1).database(&database, ""), database)
}

/// Returns value and default of `pool_mode` in SHOW CONFIG.
fn shown(pooler: &Pooler) -> [String; 2] {
    let rows = pooler.admin("SHOW CONFIG").with("key", "pool_mode");
    ["value", "default"].map(|column| rows.column(column)[0].to_owned())
}

/// Returns the pool mode that `check-config` prints for the file.
fn understood(file: &Path) -> String {
    let text = stdout(&weir(&["check-config", &file.to_string_lossy()]));
    let mut lines = text.lines().skip_while(|line| *line != "Pool mode").skip(1);
    lines.next().unwrap_or_else(|| panic!("no pool mode in {text}")).trim().to_owned()
}

fn backend(client: &mut RawClient) -> String {
    client.value("SELECT pg_backend_pid()")
}

/// Returns whether clients release their servers after transactions, so that they share them.
fn shares_servers(pooler: &Pooler, database: &str) -> bool {
    let [mut one, mut another] = [pooler.client(database), pooler.client(database)];
    // The first queries may each have got a new server.
    (0..10).any(|_| backend(&mut one) == backend(&mut another))
}

/// Checks that a client's setting follows it to another server, and that other clients do not see
/// it.
#[track_caller]
fn carries_settings(pooler: &Pooler, database: &str) {
    let mut client = pooler.client(database);
    client.rows("SET work_mem = '5MB'");
    let before = backend(&mut client);
    let mut strangers = Vec::new();
    // Other clients begin a transaction on each server that is free.
    while backend(&mut client) == before {
        assert!(strangers.len() < 10, "it keeps its server");
        let mut stranger = pooler.client(database);
        stranger.rows("BEGIN");
        assert_eq!(stranger.value("SHOW work_mem"), "4MB");
        strangers.push(stranger);
    }
    assert_eq!(client.value("SHOW work_mem"), "5MB");
}

#[test]
fn a_weir_toml_pools_in_auto_mode() {
    if !only_weir() {
        return;
    }
    let (setup, database) = silent();
    let pooler = setup.in_toml().start();
    assert_eq!(understood(&pooler.configuration()), "auto");
    assert_eq!(shown(&pooler), ["auto", "auto"]);
    assert!(shares_servers(&pooler, &database));
    carries_settings(&pooler, &database);
}

#[test]
fn serve_pools_in_auto_mode() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let pooler = Pooler::serve(postgres, &postgres.url(&database));
    assert!(shares_servers(&pooler, &database));
    carries_settings(&pooler, &database);
}

#[test]
fn an_ini_file_stays_in_session_mode_also_when_it_is_converted_core() {
    if !only_weir() {
        return;
    }
    let (setup, database) = silent();
    let pooler = setup.start();
    assert_eq!(understood(&pooler.configuration()), "session");
    assert_eq!(shown(&pooler), ["session", "session"]);
    assert!(!shares_servers(&pooler, &database));

    let converted = testkit::open_folder("converted").join("weir.toml");
    let reload = |text: &str| {
        std::fs::write(&converted, text).expect("our own folder");
        pooler.admin(&format!("SET conffile = '{}'", converted.display()));
        pooler.reload();
    };
    let text = stdout(&weir(&["convert", &pooler.configuration().to_string_lossy()]));
    reload(&text);
    assert_eq!(understood(&converted), "session");
    assert_eq!(shown(&pooler), ["session", "auto"]);
    assert!(!shares_servers(&pooler, &database));

    let line = "pool_mode = \"session\"\n";
    assert!(text.contains(line), "{text}");
    reload(&text.replace(line, ""));
    assert_eq!(shown(&pooler), ["auto", "auto"]);
    assert!(shares_servers(&pooler, &database));
}

/// Returns the value of `max_client_conn` in SHOW CONFIG.
fn clients_max(pooler: &Pooler) -> usize {
    let rows = pooler.admin("SHOW CONFIG").with("key", "max_client_conn");
    rows.column("value")[0].parse().expect("a number")
}

#[test]
fn ten_thousand_clients_are_let_in_or_as_many_as_files_allow() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    Pooler::serve(postgres, &postgres.url(&database)).log_contains("max_client_conn: 10000, ");

    let (setup, database) = silent();
    let pooler = setup.in_toml().open_files_max(100).start();
    let allowed = clients_max(&pooler);
    assert!((40..100).contains(&allowed), "{allowed}");
    let told = format!(
        "files is 100, so {allowed} clients are let in at most, not 1000 (max_client_conn). Raise"
    );
    pooler.log_contains(&told);
    // So many descriptors are there.
    let mut clients: Vec<_> = (0..allowed).map(|_| pooler.client(&database)).collect();
    assert_eq!(clients[0].value("SELECT 1"), "1");
    let error = pooler.login(Role::APP, &database, Role::APP_PASSWORD).expect_err("a refusal");
    assert_eq!(error.message(), "no more connections allowed (max_client_conn)");
    let detail = format!("max_client_conn is {allowed}.");
    assert_eq!(error.field('D'), detail);
    assert_eq!(error.field('H'), "Raise the key in parentheses and reload, or close connections.");
    drop(clients);
    assert_eq!(pooler.console().query("RELOAD").tags, ["RELOAD"]);
    assert_eq!(clients_max(&pooler), allowed, "the limit of open files is the same");
}
