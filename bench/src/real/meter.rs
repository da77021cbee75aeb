//! Measures the pooler's CPU time for a transaction while the load is on: from the generator's
//! first line of progress to its last, one a second. This excludes logins and logouts, of which
//! there may be thousands, unless each transaction has its own.

use std::time::Instant;

use anyhow::Result;

use super::stage::Stage;

#[derive(Debug)]
pub(super) struct Meter<'a> {
    stage: &'a Stage,
    /// The time of the last line, and the pooler's CPU time until then in nanoseconds.
    last: Option<(Instant, u64)>,
    transactions: f64,
    spent_ns: u64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(stage: &'a Stage) -> Self {
        Self { stage, last: None, transactions: 0.0, spent_ns: 0 }
    }

    /// Notes a line of progress, which reports the transactions per second since the previous line.
    pub(super) fn note(&mut self, tps: f64) -> Result<()> {
        if let Some(cpu_ns) = self.stage.cpu_ns()? {
            self.read(Instant::now(), cpu_ns, tps);
        }
        Ok(())
    }

    fn read(&mut self, now: Instant, cpu_ns: u64, tps: f64) {
        if let Some((then, before_ns)) = self.last.replace((now, cpu_ns)) {
            self.transactions += tps * (now - then).as_secs_f64();
            self.spent_ns += cpu_ns.saturating_sub(before_ns);
        }
    }

    /// Returns microseconds per transaction. Returns `None` without a pooler, or if the run was too
    /// short for two lines.
    pub(super) fn cpu_us(&self) -> Option<f64> {
        (self.transactions > 0.0).then(|| self.spent_ns as f64 / 1e3 / self.transactions)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cpu_time_before_the_first_line_does_not_count() {
        let stage = Stage::without_pooler();
        let mut meter = Meter::new(&stage);
        let start = Instant::now();
        meter.read(start, 7_000_000_000, 900.0);
        assert_eq!(meter.cpu_us(), None);
        meter.read(start + Duration::from_secs(1), 7_010_000_000, 1_000.0);
        meter.read(start + Duration::from_secs(3), 7_050_000_000, 2_000.0);
        assert_eq!(meter.cpu_us(), Some(10.0));
    }
}
