//! The rows `cluster-*`: a primary and two standbys behind Weir, and behind Debian's Pgpool-II.
//!
//! Each side is measured in turn, and each fault gets nodes of its own. The nodes, Weir and
//! Pgpool-II run as an unprivileged user.

mod crowd;
mod fault;
mod front;
mod nodes;
mod own;
mod pgpool;
mod row;
mod select;
mod session;
mod table;

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::rig::RealOptions;
use crate::stats::write_json;
use front::Side;
use nodes::{Nodes, Rig};
use table::Table;

pub(super) use row::{ROWS, is_row};

/// Measures the rows with these names, prints their tables and writes every measurement as JSON.
///
/// # Errors
///
/// At the end when a row has failed. The other rows are measured nevertheless.
pub(super) fn run(options: &RealOptions, names: &[String]) -> Result<()> {
    let rows = row::select(names)?;
    let weir = fs::canonicalize(&options.weir).context("no program of Weir: see --weir")?;
    testkit::use_pooler(&weir);
    let label = pgpool::label()?;
    let rig = Rig { nodes: Nodes::start(options)?, options };
    let mut table = Table::new(label, options.rounds, options.seconds);
    let mut failed = Vec::new();
    for row in rows {
        table.begin(row);
        for round in 0..options.rounds {
            for side in order(row.sides, round) {
                match (row.play)(&rig, side) {
                    Ok(facts) => table.add(side, round, facts),
                    Err(error) => {
                        eprintln!("{} ({side:?}): {error:#}", row.name);
                        failed.push(row.name);
                    }
                }
            }
            eprintln!("{:<24} {}/{}", row.name, round + 1, options.rounds);
        }
    }
    println!("{}", table.to_text());
    write_json(&options.json, &table.to_json())?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the sides, in reverse order every second round.
fn order(sides: &[Side], round: usize) -> Vec<Side> {
    let mut sides = sides.to_vec();
    if round % 2 == 1 {
        sides.reverse();
    }
    sides
}
