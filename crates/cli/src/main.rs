//! The `weir` binary: it executes the commands with the libraries. It contains no pooling.

mod advise;
mod args;
mod boot;
mod check_config;
mod checks;
mod console;
mod convert;
mod ctl;
mod daemon;
mod demo;
mod explain;
mod health;
mod metrics;
mod moment;
mod pcp;
mod pidfile;
mod privileges;
mod report;
mod serve;
mod showpool;
mod supervised;
mod sys;
mod timings;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

use crate::args::Invocation;

fn main() -> ExitCode {
    let invocation = match args::parse(env::args_os()) {
        Ok(invocation) => invocation,
        Err(complaint) => {
            let _ = io::stderr().write_all(complaint.as_bytes());
            return ExitCode::FAILURE;
        }
    };
    let done = match invocation {
        Invocation::Print(text) => explain::print(&text),
        Invocation::Run { options, config } => return boot::run(&options, &config),
        Invocation::Serve { options, url } => {
            return boot::serve(&options, url.as_deref());
        }
        Invocation::Health(options) => health::run(&options),
        Invocation::Demo(options) => demo::run(&options),
        Invocation::Bench(options) => return load::run(&options),
        Invocation::CheckConfig { file, how } => check_config::run(&file, how),
        Invocation::Advise(options) => advise::run(&options),
        Invocation::Timings(options) => timings::run(&options),
        Invocation::Showpool(options) => showpool::run(&options),
        Invocation::Ctl(options) => return ctl::run(&options),
        Invocation::Report(options) => report::run(&options),
        Invocation::Convert(options) => convert::run(&options),
        Invocation::Help { topic } => explain::topic(&topic),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "weir: {error:#}");
        ExitCode::FAILURE
    })
}
