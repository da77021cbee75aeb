//! The real thing: a real PostgreSQL under the load of `weir bench` or of pgbench, directly, through
//! PgBouncer and through Weir, in turn. What is read are transactions a second and latencies, as a user
//! has them, and the CPU time of the pooler; PostgreSQL takes most of the machine, so a pooler shows less
//! than in `run`.

mod cluster;
mod generator;
mod meter;
mod report;
mod row;
mod scene;
mod stage;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::run::{Programs, Workplace};
use cluster::Cluster;
use generator::Generator;
use report::Report;
use row::ROWS;

/// Whom the clients talk to, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Direct,
    PgBouncer,
    Weir,
}

const SIDES: [Side; 3] = [Side::Direct, Side::PgBouncer, Side::Weir];

#[derive(Debug, Args)]
pub(crate) struct RealOptions {
    /// The rows to measure, by name or by what their names begin with; see --list. When none is named,
    /// the first fifteen
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// Name the rows and end
    #[arg(long)]
    list: bool,
    /// How long each measurement lasts; rows about latencies last ten at least
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// How many times the sides are measured in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Accounts in units of 100,000
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// How many clients the rows have that leave it open
    #[arg(long, value_name = "CLIENTS", default_value_t = 2_000)]
    fleet: usize,
    /// A row is measured directly, too, unless it has more clients than this: PostgreSQL has a process
    /// for each
    #[arg(long, value_name = "CLIENTS", default_value_t = 1_000)]
    direct_max: usize,
    /// What puts the load on: weir or pgbench, which knows no percentiles
    #[arg(long, value_enum, default_value_t = Generator::Weir)]
    generator: Generator,
    /// Weir's program
    #[arg(long, value_name = "PATH", default_value = "target/release/weir")]
    weir: PathBuf,
    /// PgBouncer's program, looked for in the usual places when not given
    #[arg(long, value_name = "PATH")]
    pgbouncer: Option<PathBuf>,
    /// Where every single measurement is written
    #[arg(long, value_name = "FILE", default_value = "bench/out/real.json")]
    json: PathBuf,
}

/// Measures the rows asked for, prints the tables and writes every measurement as JSON.
///
/// # Errors
///
/// When PostgreSQL or a pooler cannot be started, and at the end when a row failed. The other rows are
/// measured all the same.
pub(crate) fn run(options: &RealOptions) -> Result<()> {
    if options.list {
        ROWS.iter().for_each(|row| println!("{row}"));
        return Ok(());
    }
    let rows = row::select(&options.rows)?;
    let is_plain = rows.iter().all(|row| row.scene.is_for_any_generator());
    ensure!(
        is_plain || options.generator == Generator::Weir,
        "pgbench cannot do all of these rows"
    );
    let workplace = Workplace::create()?;
    let rig = Rig {
        programs: Programs::find(&workplace, &options.weir, options.pgbouncer.as_deref())?,
        cluster: Cluster::start(&workplace, options.direct_max)?,
        workplace: &workplace,
        options,
    };
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

/// The other way round every second time, so that what drifts falls on all.
fn order(round: usize) -> [Side; 3] {
    let mut sides = SIDES;
    if round % 2 == 1 {
        sides.reverse();
    }
    sides
}
