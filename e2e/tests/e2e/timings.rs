//! The checkpoints of connections: SHOW TIMINGS, and `weir timings`, which exports them.

use std::{
    fs,
    process::{Command, Output},
    time::Duration,
};

use testkit::{Pooler, Postgres, Role, Setup, Table, eventually, pooler_binary};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

fn setup(postgres: &Postgres, database: &str, mode: &str) -> Setup {
    let setup = Pooler::before(postgres).set("pool_mode", mode).workers(1);
    setup.set("connection_timings", 100).database(database, "")
}

/// Waits until so many rows are there.
fn rows(pooler: &Pooler, count: usize) -> Table {
    eventually("the ended connections have rows", PATIENCE, || {
        let shown = pooler.admin("SHOW TIMINGS");
        (shown.rows.len() == count).then_some(shown)
    })
}

/// Returns this checkpoint of all rows, in microseconds; None if it was not reached.
fn micros(shown: &Table, column: &str) -> Vec<Option<u64>> {
    let at = shown.columns.iter().position(|name| name == column).expect("a column");
    let time = |text: &String| (!text.is_empty()).then(|| text.parse().expect("a number"));
    shown.rows.iter().map(|row| time(&row[at])).collect()
}

fn timings(pooler: &Pooler, arguments: &[&str]) -> Output {
    let mut command = Command::new(pooler_binary());
    command.arg("timings").arg("-c").arg(pooler.configuration()).args(arguments);
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"] {
        command.env_remove(variable);
    }
    support::run_any(command.env("HOME", "/nonexistent"))
}

fn printed(pooler: &Pooler, arguments: &[&str]) -> String {
    let out = timings(pooler, arguments);
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("UTF-8")
}

#[test]
fn each_ended_connection_has_a_row_with_its_checkpoints_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    for mode in ["transaction", "session", "auto"] {
        let pooler = setup(&postgres, &database, mode).start();
        for at in 0..2 {
            let mut client = pooler.client(&database);
            client.rows("SELECT pg_sleep(0.05)");
            drop(client);
            rows(&pooler, at + 1);
        }
        drop(pooler.client(&database));
        let shown = rows(&pooler, 3);
        assert_eq!(shown.column("user"), [Role::APP; 3]);
        let last = if mode == "session" { "reused" } else { "" };
        assert_eq!(shown.column("server"), ["new", "reused", last], "{mode}: {shown:?}");
        let times = |name| micros(&shown, name);
        let [startup, known, welcomed] =
            ["startup_us", "authenticated_us", "welcomed_us"].map(times);
        let [queued, linked, applied] = ["queued_us", "linked_us", "applied_us"].map(times);
        let [sent, first, done] = ["sent_us", "first_byte_us", "done_us"].map(times);
        for at in 0..2 {
            assert!(startup[at] <= known[at] && known[at] <= welcomed[at], "{shown:?}");
            assert!(known[at] <= queued[at] && queued[at] <= linked[at], "{shown:?}");
            assert!(linked[at] <= applied[at] && applied[at] <= sent[at], "{shown:?}");
            let slept = first[at].expect("an answer") - sent[at].expect("a request");
            assert!(slept >= 50_000 && first[at] <= done[at], "{mode}: {shown:?}");
        }
        assert_eq!((sent[2], first[2]), (None, None), "it has asked for nothing");
        assert!(linked[0].expect("a new server") - queued[0].expect("a wait") > 0, "{shown:?}");
    }
}

#[test]
fn the_key_is_reloadable_and_bounds_the_rows_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let pooler = setup(&postgres, &database, "transaction").start();
    pooler.admin("SET connection_timings = 2");
    for _ in 0..5 {
        pooler.client(&database).rows("SELECT 1");
    }
    rows(&pooler, 2);
    pooler.admin("SET connection_timings = 0");
    rows(&pooler, 0);
    let out = timings(&pooler, &[]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && told.contains("connection_timings is 0"), "{told}");
}

#[test]
fn after_an_online_restart_only_new_connections_have_rows() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let mut pooler = setup(&postgres, &database, "transaction").start();
    let mut before = pooler.client(&database);
    before.rows("SELECT 1");
    assert_eq!(pooler.take_over().code(), Some(0));
    before.rows("SELECT 1");
    drop(before);
    pooler.client(&database).rows("SELECT 1");
    let shown = rows(&pooler, 1);
    assert_eq!(shown.only("server"), "reused");
}

#[test]
fn weir_timings_exports_rows_tables_and_drawings_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let pooler = setup(&postgres, &database, "transaction").start();
    for _ in 0..3 {
        pooler.client(&database).rows("SELECT 1");
    }
    rows(&pooler, 3);
    let csv = printed(&pooler, &["--csv"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let file = pooler.configuration().with_file_name("before.csv");
    fs::write(&file, &csv).expect("a file");
    let file = file.to_string_lossy().into_owned();
    let json = printed(&pooler, &["--json"]);
    assert_eq!(json.matches("\"done_us\": ").count(), 3, "{json}");

    let svg = pooler.configuration().with_file_name("all.svg");
    let drawn = svg.to_string_lossy().into_owned();
    let tables = printed(&pooler, &["--compare", &file, "--svg", &drawn]);
    let (now, before) = tables.split_once("before: 3 connections").expect("two tables");
    for table in [now, before] {
        for line in ["Fork", "Reactivate", "Init", "Total"] {
            assert!(table.lines().any(|own| own.starts_with(line)), "{line}: {table}");
        }
    }
    // The file has what the pooler has.
    let without_names = |table: &str| table.lines().skip(1).collect::<String>();
    assert_eq!(without_names(now), without_names(before));
    let svg = fs::read_to_string(svg).expect("the drawing");
    assert!(svg.starts_with("<svg") && svg.contains("■ before"), "{svg}");

    assert_eq!(printed(&pooler, &["--input", &file, "--csv"]), csv);
    fs::write(&file, "a,b\n1,2\n").expect("a file");
    assert!(!timings(&pooler, &["--input", &file]).status.success());
}
