//! `weir demo`: a throw-away PostgreSQL with Weir in front of it, to watch live or, with `--bench`,
//! to measure; with `--cluster`, a primary and two standbys (`trio.rs`). It removes everything at
//! its end, even after a failure.

mod binaries;
mod child;
mod cluster;
mod lab;
mod library;
mod live;
mod names;
mod pgbench;
mod pooler;
mod scratch;
mod secret;
mod table;
mod terminal;
mod trio;

use std::process::ExitCode;

use anyhow::Context as _;

use self::{binaries::Binaries, cluster::Cluster, pooler::WayIn, terminal::say};
use crate::{args::DemoOptions, privileges, sys};

/// Runs the demo until it is interrupted, or the lab.
///
/// # Errors
/// When PostgreSQL is not there or does not start, or when the pooler does not.
pub(crate) fn run(options: &DemoOptions) -> anyhow::Result<ExitCode> {
    sys::remember_termination().context("could not watch for Ctrl-C")?;
    let outcome = start_and_run(options);
    match outcome {
        Err(_) if sys::terminated() => {
            say("interrupted");
            Ok(ExitCode::from(130))
        }
        outcome => outcome,
    }
}

fn start_and_run(options: &DemoOptions) -> anyhow::Result<ExitCode> {
    let binaries = Binaries::find()?;
    let library = options.library.as_deref().map(library::read).transpose()?;
    if let Some(user) = privileges::leave_root()? {
        say(&format!("continuing as user {user}: neither PostgreSQL nor Weir runs as root"));
    }
    if let Some(options) = options.cluster {
        return trio::run(binaries, options);
    }
    let mut cluster = Cluster::create(binaries, library.as_deref())?;
    let way_in = if options.bench_seconds.is_some() { WayIn::Socket } else { WayIn::Tcp };
    let pooler = pooler::start(&cluster, way_in)?;
    let status = match options.bench_seconds {
        Some(seconds) => lab::run(&cluster, pooler.port, seconds),
        None => live::run(&mut cluster, &pooler, library.is_some()),
    };
    say("stopping, and removing everything");
    drop(pooler);
    drop(cluster);
    status
}
