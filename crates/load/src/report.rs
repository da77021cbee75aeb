//! The report of a run: pgbench's lines plus percentiles, and the same as JSON.

mod json;

use std::{fmt::Write as _, time::Duration};

use crate::{
    histogram::Histogram,
    options::Options,
    plan::Plan,
    stats::{Counts, ScriptStats, Stats},
};

/// The reported percentiles, with their names.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stats: Stats,
    /// The time until all clients were logged in.
    pub(crate) connecting: Duration,
    pub(crate) running: Duration,
    pub(crate) first_error: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) options: &'a Options,
    pub(crate) plan: &'a Plan,
    pub(crate) scale: u32,
    pub(crate) outcome: &'a Outcome,
}

impl Report<'_> {
    fn transaction_type(&self) -> &str {
        match self.plan.scripts.as_slice() {
            [only] => &only.name,
            _ => "multiple scripts",
        }
    }

    /// Returns transactions per second, without failed ones.
    fn tps(&self, counts: &Counts) -> f64 {
        counts.done as f64 / self.outcome.running.as_secs_f64()
    }

    pub(crate) fn to_text(&self) -> String {
        let (plan, outcome) = (self.plan, self.outcome);
        let total = outcome.stats.total();
        let mut text = String::new();
        let mut line = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        line(format!("transaction type: {}", self.transaction_type()));
        line(format!("scaling factor: {}", self.scale));
        line(format!("query mode: {}", plan.mode.name()));
        line(format!("number of clients: {}", plan.clients));
        line(format!("number of threads: {}", plan.threads));
        if plan.tries_max > 0 {
            line(format!("maximum number of tries: {}", plan.tries_max));
        }
        match (plan.duration_us, plan.transactions) {
            (Some(us), _) => {
                line(format!("duration: {} s", us / 1_000_000));
                line(format!("number of transactions actually processed: {}", total.done));
            }
            (None, most) => {
                let most = most.unwrap_or_default();
                line(format!("number of transactions per client: {most}"));
                line(format!(
                    "number of transactions actually processed: {}/{}",
                    total.done,
                    most * plan.clients as u64
                ));
            }
        }
        self.failures(&total, "", &mut line);
        if total.done > 0 {
            self.latencies(&total, &outcome.stats.histogram(), "", &mut line);
            let connecting = match plan.reconnects {
                true => format!(
                    "average connection time = {:.3} ms",
                    outcome.stats.connecting.mean_ms()
                ),
                false => format!(
                    "initial connection time = {:.3} ms",
                    outcome.connecting.as_secs_f64() * 1000.0
                ),
            };
            line(connecting);
            let how = match plan.reconnects {
                true => "including reconnection times",
                false => "without initial connection time",
            };
            line(format!("tps = {:.6} ({how})", self.tps(&total)));
        }
        if outcome.stats.aborted > 0 {
            line(format!("number of clients that gave up: {}", outcome.stats.aborted));
            line(format!("first error: {}", outcome.first_error.as_deref().unwrap_or_default()));
        }
        let is_one = plan.scripts.len() == 1;
        for (at, stats) in outcome.stats.scripts.iter().enumerate() {
            if !is_one {
                self.script(at, stats, &total, &mut line);
            }
            if plan.by_command && total.done > 0 {
                self.commands(at, stats, if is_one { "" } else { " - " }, &mut line);
            }
        }
        text
    }

    fn failures(&self, counts: &Counts, bullet: &str, line: &mut impl FnMut(String)) {
        let share = |part: u64| share(part, counts.total());
        let failed = counts.failed();
        line(format!("{bullet}number of failed transactions: {failed} ({})", share(failed)));
        if self.options.failures_detailed {
            for (kind, count) in
                [("serialization", counts.serialization), ("deadlock", counts.deadlock)]
            {
                line(format!("{bullet}number of {kind} failures: {count} ({})", share(count)));
            }
        }
        if self.plan.tries_max != 1 {
            let retried = counts.retried;
            line(format!("{bullet}number of transactions retried: {retried} ({})", share(retried)));
            line(format!("{bullet}total number of retries: {}", counts.retries));
        }
        let Some(limit) = self.plan.latency_limit_us else { return };
        if self.plan.pause_us.is_some() {
            let skipped = counts.skipped;
            line(format!("{bullet}number of transactions skipped: {skipped} ({})", share(skipped)));
        }
        line(format!(
            "{bullet}number of transactions above the {:.1} ms latency limit: {}/{} ({})",
            limit as f64 / 1000.0,
            counts.late,
            counts.done,
            self::share(counts.late, counts.done)
        ));
    }

    fn latencies(
        &self,
        counts: &Counts,
        histogram: &Histogram,
        bullet: &str,
        line: &mut impl FnMut(String),
    ) {
        line(format!("{bullet}latency average = {:.3} ms", counts.latency.mean_ms()));
        line(format!("{bullet}latency stddev = {:.3} ms", counts.latency.deviation_ms()));
        let mut percentiles = String::new();
        for (name, at) in PERCENTILES {
            let ms = histogram.percentile_us(at) as f64 / 1000.0;
            let _ = write!(percentiles, "{name} {ms:.3}, ");
        }
        let max = histogram.max_us() as f64 / 1000.0;
        line(format!("{bullet}latency percentiles: {percentiles}max {max:.3} ms"));
        if bullet.is_empty() && self.plan.pause_us.is_some() {
            line(format!(
                "rate limit schedule lag: avg {:.3} (max {:.3}) ms",
                counts.lag.mean_ms(),
                counts.lag.max / 1000.0
            ));
        }
    }

    fn script(
        &self,
        at: usize,
        stats: &ScriptStats,
        total: &Counts,
        line: &mut impl FnMut(String),
    ) {
        let script = &self.plan.scripts[at];
        let weights: u64 = self.plan.scripts.iter().map(|script| u64::from(script.weight)).sum();
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        line(format!("SQL script {}: {}", at + 1, script.name));
        line(format!(
            " - weight: {} (targets {:.1}% of total)",
            script.weight,
            percent(script.weight.into(), weights)
        ));
        line(format!(
            " - {} transactions ({:.1}% of total, tps = {:.6})",
            stats.counts.done,
            percent(stats.counts.done, total.done),
            self.tps(&stats.counts)
        ));
        self.failures(&stats.counts, " - ", line);
        if stats.counts.done > 0 {
            self.latencies(&stats.counts, &stats.histogram, " - ", line);
        }
    }

    fn commands(
        &self,
        at: usize,
        stats: &ScriptStats,
        bullet: &str,
        line: &mut impl FnMut(String),
    ) {
        let retries = self.plan.tries_max != 1;
        let what = if retries { ", failures and retries" } else { " and failures" };
        line(format!("{bullet}statement latencies in milliseconds{what}:"));
        for (command, counts) in self.plan.scripts[at].commands.iter().zip(&stats.commands) {
            let mut row = format!("   {:11.3}  {:10} ", counts.latency.mean_ms(), counts.failures);
            if retries {
                let _ = write!(row, "{:10} ", counts.retries);
            }
            line(format!("{row} {}", command.text));
        }
    }
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "NaN%".to_owned(),
        _ => format!("{:.3}%", 100.0 * part as f64 / whole as f64),
    }
}
