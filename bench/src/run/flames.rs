//! Flame graphs of the poolers under the load of a row. Nothing is measured, since sampling takes
//! CPU time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::binary::Programs;
use super::row::{self, Job};
use super::sample::Bench;
use super::workplace::Workplace;
use crate::flame::Recorder;
use crate::sys;

/// The load begins earlier than the sampling, and goes on for longer than it, by this time in
/// total.
const BESIDES: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct FlameOptions {
    /// The row that defines the load; see `run --list`
    #[arg(value_name = "ROW")]
    row: String,
    /// Seconds for which each pooler is sampled
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Weir's program
    #[arg(long, value_name = "PATH", default_value = "target/release/weir")]
    weir: PathBuf,
    /// PgBouncer's program; searched for in the usual places if not given
    #[arg(long, value_name = "PATH")]
    pgbouncer: Option<PathBuf>,
    /// The folder for the pictures
    #[arg(long, value_name = "FOLDER", default_value = "docs/plots")]
    to: PathBuf,
}

/// # Errors
///
/// When a pooler cannot be started or fails under the load, or perf has no permission to sample it.
pub(crate) fn run(options: &FlameOptions) -> Result<()> {
    let row = row::select(std::slice::from_ref(&options.row))?[0];
    let lasts = matches!(row.job, Job::Query { .. } | Job::Login { .. } | Job::Bulk { .. });
    ensure!(lasts, "{} is not a load that lasts", row.name);
    let cores = sys::allowed_cores()?;
    ensure!(!cores.is_empty(), "no core to run on");
    let workplace = Workplace::create()?;
    let programs = Programs::find(&workplace, &options.weir, options.pgbouncer.as_deref())?;
    let duration = Duration::from_secs_f64(options.seconds);
    fs::create_dir_all(&options.to).with_context(|| options.to.display().to_string())?;
    for (side, name) in row.sides().into_iter().enumerate() {
        let pooler = row.pooler(side, &programs);
        if !row.can_run(pooler) {
            continue;
        }
        let recorder = Recorder { file: workplace.file(&format!("{name}.perf")), duration };
        let bench = Bench {
            workplace: &workplace,
            cores: cores.clone(),
            interval: duration + BESIDES,
            pool_mode: "transaction",
            recorder: Some(&recorder),
        };
        bench.sample(row, pooler, side)?;
        let title = format!("{}: where the CPU time of {} goes ({name})", row.name, pooler.label);
        let path = options.to.join(format!("flame-{}-{name}.svg", row.name));
        recorder.draw(&pooler.path, &pooler.label, &title, &path)?;
    }
    Ok(())
}
