//! `weir-bench`: measures the cost of a connection pooler, Weir's beside PgBouncer's.
//!
//! A canned PostgreSQL and a canned load generator share one thread on one core, and the pooler
//! under test has another core alone. So neither PostgreSQL nor pgbench hides its cost. The figures
//! are the pooler's CPU time. See docs/performance.md.

mod bulk;
mod client;
mod command;
mod flame;
mod flood;
mod frame;
mod guard;
mod load;
mod named;
mod pattern;
mod process;
mod reactor;
mod real;
mod relay;
mod run;
mod server;
mod socket;
mod stats;
mod steps;
mod storm;
mod sys;
mod tls;
mod traffic;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match command::Command::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
