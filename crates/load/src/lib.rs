//! `weir bench`: a load generator for PostgreSQL and its poolers. Options, scripts and reports are
//! pgbench's, but there are fewer of them. The difference is that one loop per thread serves any number of clients, so ten
//! thousand of them cost the generator little. It waits for none of them, not even for a login or a
//! Parse.
//!
//! Read it in this order: `options` (the command line), `script` and `expr` (what a client does),
//! `plan` (the run), `client` (one client, without sockets), `worker` (one thread with its
//! sockets), `run` (the whole), `report`. `init` makes the tables.

#![forbid(unsafe_code)]

mod client;
pub mod console;
mod expr;
mod histogram;
mod inbox;
mod init;
mod login;
mod names;
mod options;
mod plan;
pub mod probe;
mod progress;
mod random;
mod report;
mod run;
mod script;
mod session;
mod stats;
mod summary;
mod target;
mod worker;

use std::{process::ExitCode, sync::Arc};

use crate::target::Wanted;
pub use crate::{
    histogram::Histogram,
    login::{Keyring, Login},
    options::Options,
    plan::Mode,
    session::{Column, Outcome},
    summary::Summary,
};

/// Carries out the command line. The exit status is pgbench's: 0, 1 if there was no run, 2 if
/// clients gave up.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    match carry_out(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir bench: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(options: &Options) -> Result<ExitCode, String> {
    let target = Arc::new(wanted(options)?.resolve()?);
    if options.initialize {
        init::initialize(options, &target)?;
        return Ok(ExitCode::SUCCESS);
    }
    run::run(options, &target)
}

fn wanted(options: &Options) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    let typed = [("host", &options.host), ("port", &options.port), ("user", &options.username)];
    for (keyword, value) in typed {
        if let Some(value) = value {
            wanted.set(keyword, value)?;
        }
    }
    if let Some(database) = options.database.as_ref().or(options.dbname.as_ref()) {
        wanted.set_database(database)?;
    }
    Ok(wanted)
}
