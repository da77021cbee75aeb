//! The report of a run: pgbench's lines plus percentiles, and the same as JSON. Times in the JSON are
//! in milliseconds unless their name has another unit.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{plan::Plan, stats::Stats};

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
    pub(crate) plan: &'a Plan,
    pub(crate) scale: u32,
    pub(crate) outcome: &'a Outcome,
}

impl Report<'_> {
    /// Returns transactions per second, without failed ones.
    fn tps(&self) -> f64 {
        self.outcome.stats.done as f64 / self.outcome.running.as_secs_f64()
    }

    fn percentile_ms(&self, share: f64) -> f64 {
        self.outcome.stats.histogram.percentile_us(share) as f64 / 1000.0
    }

    pub(crate) fn to_text(&self) -> String {
        let (plan, outcome) = (self.plan, self.outcome);
        let Stats { done, failed, aborted, .. } = outcome.stats;
        let mut lines = vec![
            format!("transaction type: {}", plan.script.name),
            format!("scaling factor: {}", self.scale),
            format!("query mode: {}", plan.mode.name()),
            format!("number of clients: {}", plan.clients),
            format!("number of threads: {}", plan.threads),
            "maximum number of tries: 1".to_owned(),
        ];
        match (plan.duration_us, plan.transactions) {
            (Some(us), _) => lines.extend([
                format!("duration: {} s", us / 1_000_000),
                format!("number of transactions actually processed: {done}"),
            ]),
            (None, most) => {
                let most = most.unwrap_or_default();
                let all = most * plan.clients as u64;
                lines.extend([
                    format!("number of transactions per client: {most}"),
                    format!("number of transactions actually processed: {done}/{all}"),
                ]);
            }
        }
        let share = 100.0 * failed as f64 / (done + failed) as f64;
        lines.push(format!("number of failed transactions: {failed} ({share:.3}%)"));
        if done > 0 {
            self.latencies(&mut lines);
        }
        if aborted > 0 {
            let first_error = outcome.first_error.as_deref().unwrap_or_default();
            lines.push(format!("number of clients that gave up: {aborted}"));
            lines.push(format!("first error: {first_error}"));
        }
        lines.join("\n") + "\n"
    }

    fn latencies(&self, lines: &mut Vec<String>) {
        let Outcome { stats, connecting, .. } = self.outcome;
        let named = |(name, share)| format!("{name} {:.3}, ", self.percentile_ms(share));
        let percentiles: String = PERCENTILES.into_iter().map(named).collect();
        let max_ms = stats.histogram.max_us() as f64 / 1000.0;
        lines.extend([
            format!("latency average = {:.3} ms", stats.latency.mean_ms()),
            format!("latency stddev = {:.3} ms", stats.latency.deviation_ms()),
            format!("latency percentiles: {percentiles}max {max_ms:.3} ms"),
        ]);
        if self.plan.pause_us.is_some() {
            let (mean_ms, max_ms) = (stats.lag.mean_ms(), stats.lag.max / 1000.0);
            lines.push(format!("rate limit schedule lag: avg {mean_ms:.3} (max {max_ms:.3}) ms"));
        }
        let (connection, how) = if self.plan.reconnects {
            let mean_ms = stats.connecting.mean_ms();
            (format!("average connection time = {mean_ms:.3} ms"), "including reconnection times")
        } else {
            let ms = connecting.as_secs_f64() * 1000.0;
            (format!("initial connection time = {ms:.3} ms"), "without initial connection time")
        };
        lines.extend([connection, format!("tps = {:.6} ({how})", self.tps())]);
    }

    pub(crate) fn to_json(&self) -> Value {
        let (plan, outcome) = (self.plan, self.outcome);
        let stats = &outcome.stats;
        let mut latency = json!({
            "average": stats.latency.mean_ms(),
            "stddev": stats.latency.deviation_ms(),
            "max": stats.histogram.max_us() as f64 / 1000.0,
        });
        for (name, share) in PERCENTILES {
            latency[name] = json!(self.percentile_ms(share));
        }
        let buckets =
            stats.histogram.buckets_us().map(|(us, count)| (us.to_string(), json!(count)));
        let mut figures = json!({
            "transactions": stats.done,
            "tps": self.tps(),
            "failed": stats.failed,
            "latency_ms": latency,
            "latencies_us": Value::Object(buckets.collect()),
            "transaction_type": plan.script.name,
            "scale": self.scale,
            "query_mode": plan.mode.name(),
            "clients": plan.clients,
            "threads": plan.threads,
            "seconds": outcome.running.as_secs_f64(),
            "initial_connection_ms": outcome.connecting.as_secs_f64() * 1000.0,
            "logins": stats.connecting.count,
            "login_ms": stats.connecting.mean_ms(),
            "aborted_clients": stats.aborted,
            "first_error": outcome.first_error,
            "random_seed": plan.seed,
        });
        if let Some((fewest, most)) = stats.of_clients {
            figures["client_transactions"] = json!({ "fewest": fewest, "most": most });
        }
        if plan.pause_us.is_some() {
            figures["lag_ms"] =
                json!({ "average": stats.lag.mean_ms(), "max": stats.lag.max / 1000.0 });
        }
        figures
    }
}
