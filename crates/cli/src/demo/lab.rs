//! The lab: pgbench with 20 clients and a new connection for every transaction, directly on
//! PostgreSQL and through each pool mode. It mainly measures the cost of a login.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use super::{
    child::{self, Finished},
    cluster::Cluster,
    names::{DEMO, MODES},
    pgbench,
    table::{self, DIRECT, Row},
    terminal::{go_on, say},
};

const CLIENTS: u32 = 20;
/// Transactions of each client in the run that counts server processes.
const COUNTED_TRANSACTIONS: u32 = 10;
/// The tables. Each counted transaction writes the id of the process that ran it into `counted`.
const TABLES: &str = "\
CREATE TABLE test_tbl (id serial PRIMARY KEY, name varchar);
CREATE UNLOGGED TABLE counted (pid int NOT NULL);
";

/// A kind of transaction: the timed one, and the same one that also writes its process id.
struct Script {
    name: &'static str,
    /// `None` is pgbench's own select-only script.
    timed: Option<&'static str>,
    counted: &'static str,
}

const SCRIPTS: [Script; 2] = [
    Script {
        name: "select",
        timed: None,
        counted: "\
\\set aid random(1, 100000 * :scale)
INSERT INTO counted SELECT pg_backend_pid() FROM pgbench_accounts WHERE aid = :aid;
",
    },
    Script {
        name: "insert",
        timed: Some("INSERT INTO test_tbl (name) SELECT 'ala';\n"),
        counted: "\
WITH inserted AS (INSERT INTO test_tbl (name) SELECT 'ala' RETURNING id)
INSERT INTO counted SELECT pg_backend_pid() FROM inserted;
",
    },
];

/// Runs all rows for `seconds` each and prints the table. The exit status shows whether every
/// transaction succeeded and every mode pooled.
///
/// # Errors
/// When the lab could not be run at all.
pub(super) fn run(cluster: &Cluster, port: u16, seconds: u32) -> anyhow::Result<ExitCode> {
    let sockets = cluster.socket_directory()?;
    say("filling the database (pgbench -i)");
    let mut fill = cluster.client("pgbench", sockets, cluster.port);
    fill.args(["-i", "-q", DEMO]);
    child::run(fill, "")?.success("pgbench -i")?;
    cluster.sql(TABLES)?;

    let direct = (DIRECT, DEMO, cluster.port);
    let ways: Vec<_> =
        [direct].into_iter().chain(MODES.map(|(database, mode)| (mode, database, port))).collect();
    let total = SCRIPTS.len() * ways.len();
    let mut rows = Vec::new();
    for script in &SCRIPTS {
        let files = Files::write(cluster, script)?;
        for &(through, database, port) in &ways {
            go_on()?;
            let (name, number) = (script.name, rows.len() + 1);
            say(&format!("{number} of {total}: {name}, {through}, {seconds} s"));
            let pgbench = || {
                let mut command = cluster.client("pgbench", sockets, port);
                command.args(["-n", "-C", "-j", "1", "-c", &CLIENTS.to_string()]);
                command.env("PGDATABASE", database);
                command
            };
            let report = time(pgbench(), files.timed.as_deref(), seconds)?;
            let processes = count_processes(cluster, pgbench(), &files.counted)?;
            rows.push(Row { script: name, through, report, processes });
        }
    }
    Ok(conclude(&rows, seconds))
}

/// The files of a script. They are written once, so that all runs use the same ones.
struct Files {
    timed: Option<PathBuf>,
    counted: PathBuf,
}

impl Files {
    fn write(cluster: &Cluster, script: &Script) -> anyhow::Result<Self> {
        let file = |kind: &str, text| cluster.write(&format!("{}-{kind}.sql", script.name), text);
        let timed = script.timed.map(|text| file("timed", text)).transpose()?;
        Ok(Self { timed, counted: file("counted", script.counted)? })
    }
}

fn time(
    mut pgbench: Command,
    script: Option<&Path>,
    seconds: u32,
) -> anyhow::Result<pgbench::Report> {
    match script {
        Some(path) => pgbench.arg("-f").arg(path),
        None => pgbench.arg("-S"),
    };
    pgbench.args(["-T", &seconds.to_string()]);
    let Finished { status, output } = child::run(pgbench, "")?;
    if let Some(complaint) = pgbench::complaint(&output) {
        say(&format!("    {complaint}"));
    }
    Ok(pgbench::parse(&output, status.success()))
}

/// Returns the number of server processes that run a given number of transactions. Each transaction
/// writes its `pg_backend_pid()`. It is a separate run, so that writing the ids does not affect the
/// figures.
fn count_processes(cluster: &Cluster, mut pgbench: Command, script: &Path) -> anyhow::Result<u64> {
    cluster.sql("TRUNCATE counted;")?;
    pgbench.arg("-f").arg(script).args(["-t", &COUNTED_TRANSACTIONS.to_string()]);
    child::run(pgbench, "")?.success("pgbench, counting server processes,")?;
    let counts = cluster.sql("SELECT count(*), count(DISTINCT pid) FROM counted;")?;
    let (transactions, processes) = counts.trim().split_once('|').context("no counts")?;
    if transactions != (CLIENTS * COUNTED_TRANSACTIONS).to_string() {
        bail!("{transactions} transactions left their process id, not all");
    }
    processes.parse().context("no count of processes")
}

fn conclude(rows: &[Row], seconds: u32) -> ExitCode {
    say(&format!(
        "\n{CLIENTS} clients, one pgbench thread, a new connection by Unix socket for every \
         transaction, {seconds} s a row.\nratio: tps to that of the direct row. server processes: \
         how many ran {} transactions of those clients.\n",
        CLIENTS * COUNTED_TRANSACTIONS
    ));
    say(&table::render(rows));
    let objections = table::objections(rows);
    for objection in &objections {
        say(&format!("not good: {objection}"));
    }
    if objections.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
