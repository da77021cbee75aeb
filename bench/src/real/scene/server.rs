//! Measures the effects of many clients on PostgreSQL: its page tables and its CPU profile.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::actor::Actor;
use crate::process::page_table_bytes;
use crate::real::fact::{Fact, fact};
use crate::real::place::output;
use crate::real::sample::Sample;
use crate::real::stage::Stage;

static BACKENDS: Fact = fact("backends", "server processes");
static PAGE_TABLES: Fact = fact("page_tables_kib", "their page tables, KiB");
static PAGE_TABLES_EACH: Fact = fact("page_tables_each_kib", "of one, KiB");

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Lines of a profile that are shown.
const SYMBOLS: usize = 8;
/// Samples per second. Not a divisor of the clock's tick rate.
const FREQUENCY: &str = "499";

impl Actor<'_> {
    /// Measures page tables. They grow but do not shrink while a process lives, so the largest sum
    /// counts.
    pub(super) fn pages(&self, stage: &Stage) -> Result<Sample> {
        let own = self.rig.cluster.processes()?;
        let mut load = self.load(stage.place)?.begin()?;
        let mut most = (0, 0);
        while load.goes_on()? {
            let all = self.rig.cluster.processes()?;
            let backends = all.into_iter().filter(|pid| !own.contains(pid));
            // A process may have ended since it was listed.
            let tables: Vec<u64> = backends.flat_map(page_table_bytes).collect();
            most = most.max((tables.iter().sum::<u64>(), tables.len()));
            thread::sleep(LOOK_EVERY);
        }
        let figures = load.finish()?;
        let is_whole = figures.evenness.is_some_and(|evenness| evenness > 0.0);
        ensure!(is_whole, "some clients have not had their turn: more --seconds are needed");
        let (bytes, backends) = most;
        let kib = bytes as f64 / 1024.0;
        let each = kib / backends as f64;
        let facts =
            vec![(&BACKENDS, backends as f64), (&PAGE_TABLES, kib), (&PAGE_TABLES_EACH, each)];
        Ok(Sample { facts, ..Sample::new(figures, None) })
    }

    pub(super) fn profile(&self, stage: &Stage) -> Result<Sample> {
        let mut load = self.load(stage.place)?;
        let seconds = load.seconds.to_string();
        load.seconds += 3;
        let load = load.begin()?;
        let file = self.rig.workplace.file("perf.data");
        let mut record = Command::new("perf");
        record.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", FREQUENCY, "-o"]);
        output(record.arg(&file).args(["--", "sleep", &seconds]))
            .context("perf is needed, and leave to look at all processes (as root)")?;
        let figures = load.finish()?;
        let mut report = Command::new("perf");
        report.args(["report", "--stdio", "-q", "--comm", "postgres", "--no-children"]);
        report.args(["--percentage", "relative", "-F", "overhead,sym", "-i"]);
        let text = output(report.arg(&file))?;
        Ok(Sample { notes: symbols(&text), ..Sample::new(figures, None) })
    }
}

/// Returns the first lines of a report by perf, without padding.
fn symbols(report: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = report.lines().map(words).filter(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with('#')).take(SYMBOLS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_its_first_lines() {
        let report =
            "# Samples: 9\n\n    12.31%  [k] finish_task_switch    \n  1.00%  [.] hash_any\n";
        assert_eq!(symbols(report), ["12.31% [k] finish_task_switch", "1.00% [.] hash_any"]);
    }
}
