//! The benchmark as a whole: all rows, PgBouncer and Weir in turn, pairs and medians.

mod binary;
mod flames;
mod pooler;
mod report;
mod row;
mod sample;
mod setting;
mod workplace;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::stats::write_json;
use crate::sys;
pub(crate) use binary::Programs;
pub(crate) use flames::{FlameOptions, run as flames};
pub(crate) use pooler::{Pooler, free_port};
use report::{Line, Report};
use row::Row;
use sample::Bench;
pub(crate) use setting::{Setting, Workers};
pub(crate) use workplace::{Key, Tls, Workplace};

const PAIRS: usize = 7;
const PAIRS_QUICK: usize = 2;
const SECONDS: f64 = 1.5;
const SECONDS_QUICK: f64 = 0.7;

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The rows to measure; see --list. Without any, all that are not marked as extra
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// List the rows and exit
    #[arg(long)]
    list: bool,
    /// Fewer and shorter measurements: a quarter of the time, with more noise
    #[arg(long)]
    quick: bool,
    /// Seconds of each measured interval
    #[arg(long)]
    seconds: Option<f64>,
    /// Number of pairs: how many times each pooler is measured, in turn
    #[arg(long)]
    pairs: Option<usize>,
    /// Weir's program
    #[arg(long, value_name = "PATH", default_value = "target/release/weir")]
    weir: PathBuf,
    /// PgBouncer's program; searched for in the usual places if not given
    #[arg(long, value_name = "PATH")]
    pgbouncer: Option<PathBuf>,
    /// Weir's pool mode in the rows that compare it with PgBouncer, which stays in transaction mode
    #[arg(long, value_name = "MODE", default_value = "transaction")]
    #[arg(value_parser = ["session", "transaction", "auto"])]
    pool_mode: String,
    /// File for the JSON with every measurement
    #[arg(long, value_name = "FILE", default_value = "bench/out/bench.json")]
    json: PathBuf,
}

/// Measures the chosen rows, prints the table and writes every measurement as JSON.
///
/// # Errors
///
/// When a pooler cannot be started, and at the end when a row has failed: a wrong answer, a closed
/// connection, a query without an answer. The other rows are measured nevertheless.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    if options.list {
        row::ROWS.iter().for_each(|row| println!("{row}"));
        return Ok(());
    }
    let rows = row::select(&options.rows)?;
    let cores = sys::allowed_cores()?;
    ensure!(!cores.is_empty(), "no core to run on");
    let workplace = Workplace::create()?;
    let mut programs = Programs::find(&workplace, &options.weir, options.pgbouncer.as_deref())?;
    if options.pool_mode != "transaction" {
        let _ = write!(programs.weir.label, " in {} mode", options.pool_mode);
    }
    let seconds = options.seconds.unwrap_or(if options.quick { SECONDS_QUICK } else { SECONDS });
    let pairs = options.pairs.unwrap_or(if options.quick { PAIRS_QUICK } else { PAIRS });
    let interval = Duration::from_secs_f64(seconds);
    let bench = Bench {
        workplace: &workplace,
        cores,
        interval,
        pool_mode: &options.pool_mode,
        recorder: None,
    };
    let mut report = Report::new(&programs, &bench.cores, seconds, pairs);
    let mut failed = Vec::new();
    for row in rows {
        match measure(&bench, row, &programs, pairs) {
            Ok(line) => report.add(line),
            Err(error) => {
                eprintln!("\r{error:#}");
                failed.push(row.name);
            }
        }
    }
    println!("{}", report.to_text());
    write_json(&options.json, &report.to_json())?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Measures one row: the poolers in turn, in reverse order every second time, so that drift affects
/// both equally.
fn measure(
    bench: &Bench<'_>,
    row: &'static Row,
    programs: &Programs,
    pairs: usize,
) -> Result<Line> {
    let mut line = Line::new(row);
    let started = Instant::now();
    for pair in 0..pairs {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let pooler = row.pooler(side, programs);
            if row.can_run(pooler) {
                let sample = bench
                    .sample(row, pooler, side)
                    .with_context(|| format!("{}: {}", row.name, pooler.label))?;
                line.add(side, sample);
            }
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r{:<23} {}/{pairs} ", row.name, pair + 1);
        }
    }
    eprintln!("\r{:<23} measured in {:.0} s", row.name, started.elapsed().as_secs_f64());
    Ok(line)
}
