//! `weir ctl`: the console from the shell.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Pooler, Postgres, Role, pooler_binary};

use super::{stderr, stdout};
use crate::support::{self, only_weir, run_any};

/// Runs `weir ctl` without any connection parameter in its environment.
fn ctl(arguments: &[&str]) -> Output {
    let mut command = Command::new(pooler_binary());
    command.arg("ctl").args(arguments).env("HOME", "/nonexistent");
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"] {
        command.env_remove(variable);
    }
    run_any(&mut command)
}

/// Runs `weir ctl` for a running pooler, whose configuration contains its address and password.
fn of(pooler: &Pooler, arguments: &[&str]) -> Output {
    let file = pooler.configuration();
    ctl(&[&["-c", &file.to_string_lossy()], arguments].concat())
}

#[test]
fn tables_and_json_say_the_same_core() {
    if !only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let _client = pooler.client(&database);
    let shown = of(&pooler, &["SHOW", "POOLS"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let text = stdout(&shown);
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|line| line.contains("| cl_active |")), "{text}");
    assert!(lines.next().is_some_and(|line| line.starts_with("---")), "{text}");
    assert!(text.contains(&format!(" {database} ")) && text.contains(" rows)\n"), "{text}");

    let shown = of(&pooler, &["--json", "show pools"]);
    let read: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let rows = read.as_array().expect("an array");
    let pool = rows.iter().find(|row| row["database"] == database.as_str()).expect("the pool");
    assert_eq!((&pool["user"], &pool["cl_active"]), (&Value::from(Role::APP), &Value::from(1)));
}

/// `weir ctl health` has the status that keepalived and scripts need.
#[test]
fn a_health_check_is_an_exit_status() {
    if !only_weir() {
        return;
    }
    let (pooler, _) = support::pooler("transaction");
    let health = |words: &[&str]| {
        let said = of(&pooler, &[&["health"], words].concat());
        (said.status.code(), [stdout(&said), stderr(&said)].concat())
    };
    assert_eq!(health(&[]), (Some(0), "ready: ok\n".to_owned()));
    pooler.admin("PAUSE");
    let paused = "the pooler is paused (PAUSE); RESUME ends that";
    assert_eq!(health(&["ready"]), (Some(1), format!("ready: {paused}\n")));
    assert_eq!(health(&["live"]), (Some(0), "live: ok\n".to_owned()));
    pooler.admin("RESUME");
    let lacking = "primary: no cluster is configured, so no primary is watched\n";
    assert_eq!(health(&["primary"]), (Some(1), lacking.to_owned()));
    let unknown = "weir ctl: there is no check \"x\"; the checks are live, ready, primary\n";
    assert_eq!(health(&["x"]), (Some(1), unknown.to_owned()));
    let shown = pooler.admin("SHOW HEALTH");
    assert_eq!(shown.column("check"), ["live", "ready", "primary"]);
    assert_eq!(shown.column("ok"), ["yes", "yes", "no"]);

    let closed = testkit::free_port().to_string();
    let none = ctl(&["-h", "127.0.0.1", "-p", &closed, "health"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[test]
fn the_secrets_of_the_service_are_not_needed() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let secret = testkit::open_folder("ctl").join("password");
    fs::write(&secret, Role::APP_PASSWORD).expect("our own folder");
    testkit::give_away(&secret);
    let at = |more: String| format!("dbname={database} user={} {more}", Role::APP);
    let pooler = Pooler::before(postgres)
        .in_toml()
        .environment("WEIR_TEST_SECRET", Role::APP_PASSWORD)
        .database("by_variable", &at("password=${WEIR_TEST_SECRET}".to_owned()))
        .database("by_file", &at(format!("password_file={}", secret.display())))
        .start();
    fs::remove_file(&secret).expect("our own file");
    let shown = of(&pooler, &["SHOW", "DATABASES"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(stdout(&shown).contains("by_variable"), "{shown:?}");
    // Another mistake may be about the address.
    let file = pooler.configuration();
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, format!("listen_prot = 1\n{text}")).expect("the configuration");
    let refused = of(&pooler, &["SHOW", "DATABASES"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("unknown parameter: pgbouncer/listen_prot"), "{refused:?}");
}

#[test]
fn the_exit_status_tells_an_error_from_no_connection() {
    if !only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let refused = of(&pooler, &["PAUSE", "no_such_database"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("no such database: no_such_database"), "{refused:?}");

    let paused = of(&pooler, &["pause", &database]);
    assert_eq!((paused.status.code(), stdout(&paused).as_str()), (Some(0), "PAUSE\n"));
    assert_eq!(of(&pooler, &["--json", "resume", &database]).stdout, b"[]\n");

    // Tries an unknown variable, and an address without a pooler.
    let port = testkit::free_port().to_string();
    let lost = ctl(&["-h", "127.0.0.1", "-p", &port, "-U", "x", "SHOW", "POOLS"]);
    assert_eq!(lost.status.code(), Some(2), "{lost:?}");
    assert!(stderr(&lost).contains("Connection refused"), "{lost:?}");
    let port = pooler.port().to_string();
    let refused = ctl(&["-h", "127.0.0.1", "-p", &port, "-U", "nobody", "SHOW", "POOLS"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn notices_go_to_standard_error_and_a_shutdown_is_no_failure() {
    if !only_weir() {
        return;
    }
    let (mut pooler, _) = support::pooler("transaction");
    let help = of(&pooler, &["--json", "SHOW", "HELP"]);
    assert_eq!((help.status.code(), help.stdout.as_slice()), (Some(0), &b"[]\n"[..]));
    assert!(stderr(&help).contains("Console usage"), "{help:?}");
    let ended = of(&pooler, &["SHUTDOWN"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(pooler.wait_for_exit().success());
}
