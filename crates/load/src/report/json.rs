//! The figures of a run for programs. Times are in milliseconds unless their name has another unit.

use serde_json::{Value, json};

use super::{PERCENTILES, Report};
use crate::{
    histogram::Histogram,
    stats::{Counts, ScriptStats},
};

impl Report<'_> {
    pub(crate) fn to_json(&self) -> Value {
        let (plan, outcome) = (self.plan, self.outcome);
        let total = outcome.stats.total();
        let scripts: Vec<Value> = outcome
            .stats
            .scripts
            .iter()
            .enumerate()
            .map(|(at, stats)| self.script_json(at, stats))
            .collect();
        let histogram = outcome.stats.histogram();
        let mut figures = self.figures(&total, &histogram);
        let buckets = histogram.buckets_us().map(|(us, count)| (us.to_string(), json!(count)));
        figures["latencies_us"] = Value::Object(buckets.collect());
        if let Some((fewest, most)) = outcome.stats.of_clients {
            figures["client_transactions"] = json!({ "fewest": fewest, "most": most });
        }
        figures["transaction_type"] = json!(self.transaction_type());
        figures["scale"] = json!(self.scale);
        figures["query_mode"] = json!(plan.mode.name());
        figures["clients"] = json!(plan.clients);
        figures["threads"] = json!(plan.threads);
        figures["seconds"] = json!(outcome.running.as_secs_f64());
        figures["initial_connection_ms"] = json!(outcome.connecting.as_secs_f64() * 1000.0);
        figures["logins"] = json!(outcome.stats.connecting.count);
        figures["login_ms"] = json!(outcome.stats.connecting.mean_ms());
        figures["aborted_clients"] = json!(outcome.stats.aborted);
        figures["first_error"] = json!(outcome.first_error);
        figures["random_seed"] = json!(plan.seed);
        figures["scripts"] = json!(scripts);
        figures
    }

    fn figures(&self, counts: &Counts, histogram: &Histogram) -> Value {
        let mut latency = json!({
            "average": counts.latency.mean_ms(),
            "stddev": counts.latency.deviation_ms(),
            "max": histogram.max_us() as f64 / 1000.0,
        });
        for (name, at) in PERCENTILES {
            latency[name] = json!(histogram.percentile_us(at) as f64 / 1000.0);
        }
        let mut figures = json!({
            "transactions": counts.done,
            "tps": self.tps(counts),
            "failed": counts.failed(),
            "serialization_failures": counts.serialization,
            "deadlock_failures": counts.deadlock,
            "retried": counts.retried,
            "retries": counts.retries,
            "latency_ms": latency,
        });
        if self.plan.pause_us.is_some() {
            figures["lag_ms"] =
                json!({ "average": counts.lag.mean_ms(), "max": counts.lag.max / 1000.0 });
            figures["skipped"] = json!(counts.skipped);
        }
        if self.plan.latency_limit_us.is_some() {
            figures["late"] = json!(counts.late);
        }
        figures
    }

    fn script_json(&self, at: usize, stats: &ScriptStats) -> Value {
        let script = &self.plan.scripts[at];
        let mut figures = self.figures(&stats.counts, &stats.histogram);
        figures["name"] = json!(script.name);
        figures["weight"] = json!(script.weight);
        if self.plan.by_command {
            let commands = script.commands.iter().zip(&stats.commands).map(|(command, counts)| {
                json!({
                    "text": command.text,
                    "latency_ms": counts.latency.mean_ms(),
                    "failures": counts.failures,
                    "retries": counts.retries,
                })
            });
            figures["commands"] = commands.collect();
        }
        figures
    }
}
