//! Real drivers, in every mode as far as the mode supports them: psycopg 3, asyncpg,
//! tokio-postgres.

mod tokio_postgres;

use std::path::Path;
use std::process::Command;

use crate::support::{self, run};

/// Debian's Python, since Debian's packages of the drivers belong to it.
const PYTHON: &str = "/usr/bin/python3";

/// Runs a script of `e2e/python` with a pooler that has few servers.
#[track_caller]
fn python(script: &str, mode: &str) {
    let (setup, database) = support::setup(mode);
    // In session mode each client keeps its server.
    let servers = if mode == "session" { 20 } else { 3 };
    let pooler = setup.set("default_pool_size", servers).workers(2).start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script);
    let output = run(Command::new(PYTHON).arg("-B").arg(&path).args([
        &pooler.url(&database),
        mode,
        named(mode),
    ]));
    assert_eq!(output, "ok\n", "{mode}: are python3-psycopg and python3-asyncpg installed?");
    pooler.wait_until_quiet(&database, servers);
}

/// Returns whether named statements survive a transaction. Debian's PgBouncer does not support that
/// yet.
fn named(mode: &str) -> &'static str {
    if mode == "session" || support::only_weir() { "named" } else { "unnamed" }
}

#[test]
fn psycopg_in_session_mode() {
    python("psycopg_client.py", "session");
}

#[test]
fn psycopg_in_transaction_mode() {
    python("psycopg_client.py", "transaction");
}

#[test]
fn psycopg_in_statement_mode() {
    python("psycopg_client.py", "statement");
}

#[test]
fn asyncpg_in_session_mode() {
    python("asyncpg_client.py", "session");
}

#[test]
fn asyncpg_in_transaction_mode() {
    python("asyncpg_client.py", "transaction");
}

#[test]
fn asyncpg_in_statement_mode() {
    python("asyncpg_client.py", "statement");
}
