//! Queries by PostgreSQL's programs psql and pgbench, in all three modes.

use std::process::Command;

use crate::support::{self, MODES, run, run_any};
use testkit::{Pooler, Postgres, RawClient};

fn psql(pooler: &Pooler, database: &str, sql: &str) -> Command {
    let mut command = pooler.client_program("psql", database);
    command.args(["-X", "-A", "-t", "-q", "-c", sql]);
    command
}

#[test]
fn psql_gets_rows_in_every_mode_core() {
    for mode in MODES {
        let (pooler, database) = support::pooler(mode);
        let rows =
            run(&mut psql(&pooler, &database, "SELECT n, n * n FROM generate_series(1, 3) n"));
        assert_eq!(rows, "1|1\n2|4\n3|9\n", "{mode}");
    }
}

#[test]
fn psql_shows_the_servers_error() {
    let (pooler, database) = support::pooler("transaction");
    let output = run_any(&mut psql(&pooler, &database, "SELECT 1/0"));
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "ERROR:  division by zero\n");
}

#[test]
fn an_error_leaves_the_connection_usable_core() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let error = client.query("SELECT nothing FROM nowhere").error.expect("no such table");
    assert_eq!(error.code(), "42P01");
    assert_eq!(client.value("SELECT 7"), "7");
}

#[test]
fn notices_come_before_the_result_they_belong_to() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.send(testkit::frontend::query(
        "DO $$ BEGIN RAISE NOTICE 'first'; RAISE NOTICE 'second'; END $$; SELECT 1; \
         DO $$ BEGIN RAISE NOTICE 'third'; END $$",
    ));
    let tags: String = client.read_to_ready().iter().map(|m| char::from(m.tag)).collect();
    assert_eq!(tags, "NNCTDCNCZ");
}

#[test]
fn several_statements_in_one_query_are_one_transaction() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let outcome = client.query("CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2); SELECT 1/0");
    assert_eq!(outcome.tags, ["CREATE TABLE", "INSERT 0 2"]);
    assert_eq!(outcome.error.expect("division by zero").code(), "22012");
    assert_eq!(outcome.status, b'I');
    assert_eq!(client.value("SELECT to_regclass('t') IS NULL"), "t");
}

#[test]
fn an_empty_query_is_answered() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.send(testkit::frontend::query(""));
    let tags: String = client.read_to_ready().iter().map(|m| char::from(m.tag)).collect();
    assert_eq!(tags, "IZ");
}

#[test]
fn a_result_of_many_megabytes_arrives_whole() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let sql = "SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 30000) n";
    let pooled = digest(&mut client, sql);
    assert!(pooled.1 > 28_000_000, "only {} bytes", pooled.1);
    assert_eq!(pooled, digest(&mut support::direct(&database), sql));
}

/// Returns the number of rows, the number of bytes, and a checksum over all.
fn digest(client: &mut RawClient, sql: &str) -> (usize, usize, u64) {
    client.send(testkit::frontend::query(sql));
    let (mut rows, mut bytes, mut checksum) = (0, 0, 0u64);
    client.read_until(|message| {
        rows += usize::from(message.tag == b'D');
        bytes += message.body.len();
        for &byte in &message.body {
            checksum = checksum.rotate_left(5).wrapping_add(u64::from(byte));
        }
        message.tag == b'Z'
    });
    (rows, bytes, checksum)
}

#[test]
fn one_huge_row_arrives_whole() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let text = client.value("SELECT repeat('0123456789', 2000000)");
    assert_eq!(text.len(), 20_000_000);
    assert!(text.ends_with("789"));
}

#[test]
fn pgbench_fails_no_transaction_in_any_mode_core() {
    for mode in MODES {
        let (pooler, database) = support::pooler(mode);
        initialise(&database);
        // Statement mode refuses BEGIN, so only the script with a single SELECT can run.
        let script = if mode == "statement" { "select-only" } else { "tpcb-like" };
        for protocol in protocols(mode) {
            let report = run(pooler
                .client_program("pgbench", &database)
                .args(["-n", "-c", "8", "-t", "50", "-b", script, "-M", protocol]));
            assert_all_processed(&report, 400, &format!("{mode}, {protocol}"));
        }
    }
}

#[test]
fn pgbench_with_a_login_per_transaction_fails_none() {
    for mode in MODES {
        let (pooler, database) = support::pooler(mode);
        initialise(&database);
        let report = run(pooler
            .client_program("pgbench", &database)
            .args(["-n", "-C", "-c", "8", "-t", "20", "-S"]));
        assert_all_processed(&report, 160, mode);
    }
}

/// Fills pgbench's tables directly, since that needs a transaction.
fn initialise(database: &str) {
    let port = Postgres::shared().port();
    run(Postgres::client_program("pgbench", port, database).args(["-i", "-q", "-n"]));
}

/// Returns pgbench's protocols. Debian's PgBouncer supports named prepared statements in session
/// mode only.
fn protocols(mode: &str) -> &'static [&'static str] {
    if mode == "session" || support::only_weir() {
        &["simple", "extended", "prepared"]
    } else {
        &["simple", "extended"]
    }
}

#[track_caller]
fn assert_all_processed(report: &str, transactions: u32, what: &str) {
    let processed = format!("processed: {transactions}/{transactions}");
    assert!(report.contains(&processed), "{what}: {report}");
    assert!(report.contains("failed transactions: 0 (0.000%)"), "{what}: {report}");
}
