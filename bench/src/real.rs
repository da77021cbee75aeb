//! Measures a real PostgreSQL under the load of `weir bench` or of pgbench: directly, through
//! PgBouncer and through Weir, in turn. The figures are transactions per second, latencies as a
//! user sees them, and the pooler's CPU time. PostgreSQL takes most of the machine, so poolers
//! differ less than in `run`.

mod cluster;
mod generator;
mod meter;
mod report;
mod row;
mod scene;
mod stage;
mod standbys;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::run::{Programs, Workplace};
use cluster::{Cluster, Library};
use generator::Generator;
use report::Report;
use row::{ROWS, Use};

/// The side under test, which clients connect to. The order is that of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Direct,
    PgBouncer,
    Weir,
    /// Weir with `data_path = direct`: backends serve the clients' sockets.
    DirectPool,
}

const SIDES: [Side; 4] = [Side::Direct, Side::PgBouncer, Side::Weir, Side::DirectPool];

#[derive(Debug, Args)]
pub(crate) struct RealOptions {
    /// The rows to measure, by their names or by beginnings of names; see --list. Without any, the
    /// first fifteen of the list
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// List the rows and exit
    #[arg(long)]
    list: bool,
    /// Seconds of each measurement; rows about latencies take at least ten
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Number of rounds; each measures all sides in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Accounts in units of 100,000
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Number of clients of the rows that do not define it
    #[arg(long, value_name = "CLIENTS", default_value_t = 2_000)]
    fleet: usize,
    /// Measure a row directly as well, unless it has more clients than this: PostgreSQL has a
    /// process for each
    #[arg(long, value_name = "CLIENTS", default_value_t = 1_000)]
    direct_max: usize,
    /// The load generator: weir, or pgbench, which has no percentiles
    #[arg(long, value_enum, default_value_t = Generator::Weir)]
    generator: Generator,
    /// Weir's program
    #[arg(long, value_name = "PATH", default_value = "target/release/weir")]
    weir: PathBuf,
    /// The library `weir` for the server, which the rows direct-* and builtin-* need
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// PgBouncer's program, looked for in the usual places when not given
    #[arg(long, value_name = "PATH")]
    pgbouncer: Option<PathBuf>,
    /// File for the JSON with every measurement
    #[arg(long, value_name = "FILE", default_value = "bench/out/real.json")]
    json: PathBuf,
}

/// Measures the chosen rows, prints the tables and writes every measurement as JSON.
///
/// # Errors
///
/// When PostgreSQL or a pooler cannot be started, and at the end when a row has failed. The other
/// rows are measured nevertheless.
pub(crate) fn run(options: &RealOptions) -> Result<()> {
    if options.list {
        ROWS.iter().for_each(|row| println!("{row}"));
        standbys::ROWS.iter().for_each(|row| println!("{row}"));
        return Ok(());
    }
    if options.rows.iter().any(|name| standbys::is_row(name)) {
        let is_alone = options.rows.iter().all(|name| standbys::is_row(name));
        ensure!(is_alone, "the rows cluster-* have other sides: measure them alone");
        return standbys::run(options, &options.rows);
    }
    let rows = row::select(&options.rows)?;
    let is_plain = rows.iter().all(|row| row.scene.is_for_any_generator());
    ensure!(
        is_plain || options.generator == Generator::Weir,
        "pgbench cannot do all of these rows"
    );
    let needs = |what: fn(Use) -> bool| rows.iter().any(|row| what(row.library));
    let workplace = Workplace::create()?;
    let programs = Programs::find(&workplace, &options.weir, options.pgbouncer.as_deref())?;
    let pooler = needs(Use::is_pooler).then_some(programs.weir.path());
    let library = if pooler.is_some() || needs(Use::is_direct) {
        let file = options.library.as_deref();
        let file = file.context("the rows direct-* and builtin-* need --library")?;
        Some(Library { file, pooler })
    } else {
        None
    };
    let cluster = Cluster::start(&workplace, options.direct_max, library.as_ref())?;
    let rig = Rig { programs, cluster, workplace: &workplace, options };
    eprintln!("filling the tables, scale {}", options.scale);
    generator::initialise(&options.weir, &rig.cluster.place(), options.scale)?;
    let mut report = Report::new(options, &rig.programs);
    let mut failed = Vec::new();
    for row in rows {
        report.begin(row);
        for round in 0..options.rounds {
            for side in order(round) {
                match scene::play(&rig, row, side) {
                    Ok(Some(sample)) => report.add(side, round, sample),
                    Ok(None) => {}
                    Err(error) => {
                        eprintln!("{} ({side:?}): {error:#}", row.name);
                        failed.push(row.name);
                    }
                }
            }
            eprintln!("{:<16} {}/{}", row.name, round + 1, options.rounds);
        }
    }
    println!("{}", report.to_text());
    report.write_json(&options.json)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

#[derive(Debug)]
struct Rig<'a> {
    programs: Programs,
    cluster: Cluster,
    workplace: &'a Workplace,
    options: &'a RealOptions,
}

/// Returns the sides, in reverse order every second round, so that drift affects all sides equally.
fn order(round: usize) -> [Side; SIDES.len()] {
    let mut sides = SIDES;
    if round % 2 == 1 {
        sides.reverse();
    }
    sides
}
