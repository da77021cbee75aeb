//! `weir check-config FILE`: prints problems to stderr, then the configuration as Weir understands
//! it.

pub(crate) mod connect;

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use config::Config;

use crate::{
    args::CheckOptions,
    checks::{self, Finding, Level},
    explain,
};

/// The exit status is 1 if Weir would not start, or a database cannot be reached with `--connect`;
/// with `--strict`, if there is any problem.
pub(crate) fn run(file: &Path, how: CheckOptions) -> anyhow::Result<ExitCode> {
    explain::of_file(file, |config| {
        let mut text = config::describe(config);
        let mut findings = checks::all(config);
        let mut failed = false;
        if how.connect {
            let dialled = connect::all(config);
            text += &format!("\nConnections\n{}", dialled.lines);
            failed = dialled.failed;
            findings.extend(dialled.findings);
            findings.sort_by_key(|finding| finding.level);
        }
        let shown = findings.iter().filter(|it| !how.quiet || it.level != Level::Warns);
        let mut problems: String =
            shown.map(|it| format!("{}: {}\n", word(it.level), it.located())).collect();
        if !how.quiet {
            problems += &summary(config, &findings);
        }
        // If the problems cannot be written, there is no other place to report them.
        let _ = io::stderr().write_all(problems.as_bytes());
        let printed = if how.quiet { ExitCode::SUCCESS } else { explain::print(&text)? };
        let fails = |finding: &Finding| how.strict || finding.level == Level::Stops;
        Ok(if failed || findings.iter().any(fails) { ExitCode::FAILURE } else { printed })
    })
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Stops | Level::KeepsOut => "error",
        Level::Warns => "warning",
    }
}

fn summary(config: &Config, findings: &[Finding]) -> String {
    let file = config.path.as_deref().unwrap_or(Path::new("")).display();
    let stops = findings.iter().filter(|finding| finding.level == Level::Stops).count();
    match (findings.len(), stops) {
        (0, _) => format!("{file}: no problems\n\n"),
        (count, 0) => format!("{file}: {count} problem{}, Weir starts\n\n", plural(count)),
        (count, stops) => {
            format!("{file}: {count} problem{}, of which {stops} must be solved\n\n", plural(count))
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
