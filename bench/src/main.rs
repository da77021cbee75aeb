//! `weir-bench`: measures what a connection pooler costs, Weir beside PgBouncer.
//!
//! A canned PostgreSQL and a canned load generator, one thread between them, stand on one core and
//! the pooler under test alone on another, so that neither PostgreSQL nor pgbench hides it. What is
//! read is the pooler's CPU time. See docs/performance.md.

mod auth;
mod bulk;
mod client;
mod command;
mod flame;
mod flood;
mod frame;
mod guard;
mod load;
mod named;
mod plot;
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
