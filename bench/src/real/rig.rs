//! The sides of the rows, the options of a run, and what all rows share.

use std::path::PathBuf;

use clap::Args;

use super::cluster::Cluster;
use super::generator::Generator;
use crate::run::{Programs, Workplace};

/// The side under test, which clients connect to. The order is that of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Direct,
    PgBouncer,
    Weir,
    /// Weir with `data_path = direct`: backends serve the clients' sockets.
    DirectPool,
}

pub(super) const SIDES: [Side; 4] = [Side::Direct, Side::PgBouncer, Side::Weir, Side::DirectPool];

#[derive(Debug, Args)]
pub(crate) struct RealOptions {
    /// The rows to measure, by their names or by beginnings of names; see --list. Without any, the
    /// first fifteen of the list
    #[arg(value_name = "ROW")]
    pub(super) rows: Vec<String>,
    /// List the rows and exit
    #[arg(long)]
    pub(super) list: bool,
    /// Seconds of each measurement; rows about latencies take at least ten
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) seconds: u32,
    /// Number of rounds; each measures all sides in turn
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Accounts in units of 100,000
    #[arg(long, default_value_t = 10)]
    pub(super) scale: u32,
    /// Number of clients of the rows that do not define it
    #[arg(long, value_name = "CLIENTS", default_value_t = 2_000)]
    pub(super) fleet: usize,
    /// Measure a row directly as well, unless it has more clients than this: PostgreSQL has a
    /// process for each
    #[arg(long, value_name = "CLIENTS", default_value_t = 1_000)]
    pub(super) direct_max: usize,
    /// The load generator: weir, or pgbench, which has no percentiles
    #[arg(long, value_enum, default_value_t = Generator::Weir)]
    pub(super) generator: Generator,
    /// Weir's program
    #[arg(long, value_name = "PATH", default_value = "target/release/weir")]
    pub(super) weir: PathBuf,
    /// The library `weir` for the server, which the rows direct-* and builtin-* need
    #[arg(long, value_name = "PATH")]
    pub(super) library: Option<PathBuf>,
    /// PgBouncer's program, looked for in the usual places when not given
    #[arg(long, value_name = "PATH")]
    pub(super) pgbouncer: Option<PathBuf>,
    /// File for the JSON with every measurement
    #[arg(long, value_name = "FILE", default_value = "bench/out/real.json")]
    pub(super) json: PathBuf,
}

#[derive(Debug)]
pub(super) struct Rig<'a> {
    pub(super) programs: Programs,
    pub(super) cluster: Cluster,
    pub(super) workplace: &'a Workplace,
    pub(super) options: &'a RealOptions,
}

/// Returns the sides, in reverse order every second round, so that drift affects all sides equally.
pub(super) fn order(round: usize) -> [Side; SIDES.len()] {
    let mut sides = SIDES;
    if round % 2 == 1 {
        sides.reverse();
    }
    sides
}
