//! Measures a real PostgreSQL under the load of `weir bench` or of pgbench: directly, through
//! PgBouncer and through Weir, in turn. The figures are transactions per second, latencies as a
//! user sees them, and the pooler's CPU time. PostgreSQL takes most of the machine, so poolers
//! differ less than in `run`.

mod cluster;
mod fact;
mod generator;
mod meter;
mod place;
mod report;
mod rig;
mod row;
mod sample;
mod scene;
mod stage;
mod standbys;

use anyhow::{Context as _, Result, ensure};

use crate::run::{Programs, Workplace};
use crate::stats::write_json;
use cluster::{Cluster, Library};
use generator::Generator;
use report::Report;
pub(crate) use rig::RealOptions;
use rig::{Rig, order};
use row::{ROWS, Use};

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
    write_json(&options.json, &report.to_json())?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
