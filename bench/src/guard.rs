//! Counts Weir's instructions per unit of work with callgrind and compares them with the record.
//! Unlike times, counts do not depend on the load of the machine. They exclude the kernel, which
//! takes most of the time; `run.rs` measures both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::flood::SHORT;
use crate::pattern::{PATTERNS, Pattern};
use crate::steps::{self, Steps};

/// Disables CPU features, since the C library chooses its copy functions by them. Thus the record
/// holds on any x86-64.
const PLAIN_COPIES: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load,-AVX2_Usable:\
     glibc.cpu.x86_non_temporal_threshold=0xc0000";

/// The maximum by which a row may exceed its record, in percent.
const TOLERANCE: f64 = 2.0;

/// The number of messages of the long floods, which are compared with [`SHORT`] ones.
const LONG: u64 = 100_000;
/// The maximum cost of a message in a long flood, divided by that in a short one.
const GROWTH_MAX: f64 = 1.2;

#[derive(Debug, Args)]
pub(crate) struct GuardOptions {
    /// The rows to count; all if none is given
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// Write the counts into the record
    #[arg(long)]
    update: bool,
    #[arg(long, value_name = "FILE", default_value = "bench/instructions.json")]
    record: PathBuf,
    /// Folder for callgrind's profiles, which callgrind_annotate reads
    #[arg(long, value_name = "FOLDER", default_value = "bench/out")]
    profiles: PathBuf,
}

/// The recorded figures.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    /// The compiler that built Weir for these figures. Another compiler gives other figures.
    compiler: String,
    instructions: BTreeMap<String, f64>,
}

/// Counts, prints, and compares the figures with the record or replaces the record.
///
/// # Errors
/// When a row costs more than its record allows, or a message of a long flood more than of a short one.
pub(crate) fn guard(options: &GuardOptions) -> Result<()> {
    let mut record = match fs::read_to_string(&options.record) {
        Ok(text) => serde_json::from_str(&text)
            .with_context(|| format!("{} is no record", options.record.display()))?,
        Err(_) if options.update => Record::default(),
        Err(error) => bail!("{}: {error}", options.record.display()),
    };
    let compiler = env!("WEIR_BENCH_COMPILER");
    ensure!(
        options.update || record.compiler == compiler,
        "the record was made with {}, this program with {compiler}; --update makes a new record",
        record.compiler
    );
    fs::create_dir_all(&options.profiles)?;
    let mut worse = Vec::new();
    println!("{:<24} {:>12} {:>9}", "row", "instructions", "change");
    let (rows, patterns) = select(&options.rows)?;
    for steps in rows {
        let cost = count(&steps, steps.name, &options.profiles)?;
        let known = record.instructions.insert(steps.name.to_owned(), cost);
        let change = known.map(|known| (cost / known - 1.0) * 100.0);
        let shown = change.map_or_else(|| "new".to_owned(), |change| format!("{change:+.2} %"));
        println!("{:<24} {cost:>12.1} {shown:>9}", steps.name);
        if change.is_none_or(|change| change > TOLERANCE) {
            worse.push(steps.name);
        }
    }
    let growing = floods(&patterns, &options.profiles)?;
    if options.update {
        record.compiler = compiler.to_owned();
        let text = serde_json::to_string_pretty(&record)? + "\n";
        return fs::write(&options.record, text)
            .with_context(|| options.record.display().to_string());
    }
    ensure!(
        worse.is_empty(),
        "more than {TOLERANCE} % dearer than on record: {}. If a change is worth that, say why in its \
         commit and move the record: bench/count --update",
        worse.join(", ")
    );
    ensure!(
        growing.is_empty(),
        "a message costs more than {GROWTH_MAX} times as much in a flood of {LONG} as in one of {SHORT}: {}",
        growing.join(", ")
    );
    Ok(())
}

/// Prints the cost of a message of each pattern in short floods and in a long one. Returns the
/// patterns whose cost grows.
fn floods(patterns: &[Pattern], profiles: &Path) -> Result<Vec<&'static str>> {
    let mut growing = Vec::new();
    println!("\n{:<23} {:>12} {:>12} {:>7}", "flood", SHORT, LONG, "growth");
    for pattern in patterns {
        let cost = |messages, all| {
            let steps = steps::floods(*pattern, messages, all);
            count(&steps, &format!("{}/{messages}/{all}", steps.name), profiles)
        };
        let (short, long) = (cost(SHORT, 10 * SHORT)?, cost(LONG, LONG)?);
        let growth = long / short;
        println!("{:<23} {short:>12.1} {long:>12.1} {growth:>7.2}", pattern.name());
        if growth > GROWTH_MAX {
            growing.push(pattern.name());
        }
    }
    Ok(growing)
}

/// Returns the rows and floods with these names, or all.
fn select(names: &[String]) -> Result<(Vec<Steps>, Vec<Pattern>)> {
    if names.is_empty() {
        return Ok((steps::ALL.to_vec(), PATTERNS.to_vec()));
    }
    let (mut rows, mut patterns) = (Vec::new(), Vec::new());
    for name in names {
        match PATTERNS.iter().find(|pattern| pattern.name() == name) {
            Some(pattern) => patterns.push(*pattern),
            None => rows.push(steps::named(name)?),
        }
    }
    Ok((rows, patterns))
}

/// Returns the instructions per unit of work. `name` is the argument of the `steps` command.
fn count(steps: &Steps, name: &str, profiles: &Path) -> Result<f64> {
    let profile = profiles.join(format!("callgrind.{}", name.replace('/', "-")));
    let output = Command::new("valgrind")
        .env("GLIBC_TUNABLES", PLAIN_COPIES)
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={}", steps::COUNTED))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["steps", name])
        .output()
        .context("cannot run valgrind; on Debian: apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} under valgrind: {said}", steps.name);
    let text = fs::read_to_string(&profile).with_context(|| profile.display().to_string())?;
    let all = total(&text).with_context(|| format!("{}: {said}", profile.display()))?;
    Ok((all as f64 / steps.count as f64 * 100.0).round() / 100.0)
}

/// Returns the number of instructions in a profile.
fn total(profile: &str) -> Result<u64> {
    let line = |name: &str| profile.lines().find_map(|line| line.strip_prefix(name));
    ensure!(line("events:").is_some_and(|events| events.trim() == "Ir"), "other events than Ir");
    let figure = line("totals:").context("a profile without totals")?.trim();
    let all = figure.parse().with_context(|| format!("totals of {figure:?}"))?;
    ensure!(all > 0, "nothing was counted");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_profile_is_read() {
        assert_eq!(total("version: 1\nevents: Ir\nfn=x\n1 2\ntotals: 70\n").unwrap(), 70);
        for bad in ["", "events: Ir\n", "events: Ir\ntotals: 0\n", "events: Dw\ntotals: 7\n"] {
            assert!(total(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rows_are_chosen_by_name() {
        let (rows, patterns) = select(&[]).unwrap();
        assert_eq!((rows.len(), patterns.len()), (steps::ALL.len(), PATTERNS.len()));
        let names = ["simple-10", "flood-sync"].map(str::to_owned);
        let (rows, patterns) = select(&names).unwrap();
        assert_eq!((rows[0].name, &patterns[..]), ("simple-10", &[Pattern::Sync][..]));
        assert!(select(&["simple-7".to_owned()]).is_err());
    }
}
