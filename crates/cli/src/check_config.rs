//! `weir check-config FILE`: prints problems to stderr, then the configuration as Weir understands
//! it.

pub(crate) mod connect;

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use config::{Config, ConfigError, Mistake};

use crate::{
    args::CheckOptions,
    checks::{self, Finding, Level},
    explain,
};

/// The exit status is 1 if Weir would not start, or if a database cannot be used (`--connect`); with
/// `--strict`, if there is any problem.
pub(crate) fn run(file: &Path, how: CheckOptions) -> anyhow::Result<ExitCode> {
    match Config::load(file) {
        Ok(config) => check(&config, &[], how),
        // The rest is checked as well, so that all problems are told at once.
        Err(ConfigError { mistakes, rest: Some(rest) }) => check(&rest, &mistakes, how),
        Err(error) => explain::mistaken(&error),
    }
}

/// Checks a configuration, which lacks the settings with these mistakes.
fn check(config: &Config, mistakes: &[Mistake], how: CheckOptions) -> anyhow::Result<ExitCode> {
    let mut text = config::describe(config);
    let mut findings = checks::all(config);
    // A mistaken key has its default here, which the file does not want.
    let positions: Vec<_> =
        mistakes.iter().map(|mistake| config.positions.of_key(&mistake.key)).collect();
    findings.retain(|finding| !positions.iter().any(|position| finding.is_at(position)));
    findings.extend(mistakes.iter().map(Finding::mistake));
    if how.connect {
        let dialled = connect::all(&without_mistakes(config, mistakes));
        text += &format!("\nConnections\n{}", dialled.lines);
        findings.extend(dialled.findings);
    }
    findings.sort_by_key(|finding| finding.level);
    let shown = findings.iter().filter(|it| !how.quiet || it.level != Level::Warns);
    let mut problems: String =
        shown.map(|it| format!("{}: {}\n", word(it.level), it.located())).collect();
    if !how.quiet {
        problems += &summary(config, &findings);
    }
    // If the problems cannot be written, there is no other place to report them.
    let _ = io::stderr().write_all(problems.as_bytes());
    // A description without the mistaken settings would mislead.
    let is_shown = !how.quiet && mistakes.is_empty();
    let printed = if is_shown { explain::print(&text)? } else { ExitCode::SUCCESS };
    let fails = |finding: &Finding| how.strict || finding.level <= Level::Fails;
    Ok(if findings.iter().any(fails) { ExitCode::FAILURE } else { printed })
}

/// Leaves out the databases whose entries have mistakes.
fn without_mistakes(config: &Config, mistakes: &[Mistake]) -> Config {
    let mut config = config.clone();
    let is_mistaken = |name: &String| {
        let own = mistakes.iter().filter(|mistake| mistake.section == "databases");
        own.filter_map(|mistake| mistake.key.strip_prefix(name.as_str()))
            .any(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    config.databases.retain(|name, _| !is_mistaken(name));
    config
}

/// Returns the word in front of a problem. An error prevents the start, and nothing else does.
fn word(level: Level) -> &'static str {
    match level {
        Level::Stops => "error",
        Level::Fails => "failed",
        Level::KeepsOut | Level::Warns => "warning",
    }
}

fn summary(config: &Config, findings: &[Finding]) -> String {
    let file = config.path.as_deref().unwrap_or(Path::new("")).display();
    let count = |word_of: &str| findings.iter().filter(|it| word(it.level) == word_of).count();
    let (errors, failed, warnings) = (count("error"), count("failed"), count("warning"));
    let mut counts = Vec::new();
    if errors > 0 {
        counts.push(format!("{errors} error{}", plural(errors)));
    }
    if failed > 0 {
        counts.push(format!("{failed} failed"));
    }
    if warnings > 0 {
        counts.push(format!("{warnings} warning{}", plural(warnings)));
    }
    let verdict = match (errors, failed) {
        (0, 0) if warnings == 0 => return format!("{file}: no problems\n\n"),
        (0, 0) => "Weir starts",
        (0, _) => "Weir starts, but cannot use these databases",
        (_, _) => "Weir does not start",
    };
    format!("{file}: {}; {verdict}\n\n", counts.join(", "))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
