//! The tables of `weir-bench real`, and the JSON with every measurement behind them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::generator::Figures;
use super::row::Row;
use super::{RealOptions, SIDES, Side};
use crate::run::Binary;
use crate::stats::{median, range};

/// One measurement of one side.
#[derive(Debug)]
pub(super) struct Sample {
    figures: Figures,
    /// The pooler's CPU time for a transaction, in microseconds.
    cpu_us: Option<f64>,
}

impl Sample {
    pub(super) fn new(figures: Figures, cpu_ns: Option<u64>) -> Self {
        let each = |ns: u64| ns as f64 / 1e3 / figures.transactions;
        Self { cpu_us: cpu_ns.map(each), figures }
    }

    fn to_json(&self) -> Value {
        let figures = &self.figures;
        json!({
            "transactions": figures.transactions,
            "tps": figures.tps,
            "mean_ms": figures.mean,
            "p50_ms": figures.p50,
            "p99_ms": figures.p99,
            "p999_ms": figures.p999,
            "pooler_cpu_us": self.cpu_us,
        })
    }
}

/// A row and what each side, in the order of [`SIDES`], gave.
#[derive(Debug)]
struct Line {
    title: String,
    name: &'static str,
    samples: [Vec<Sample>; 3],
}

impl Line {
    fn of(&self, side: usize, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples[side].iter().filter_map(figure).collect()
    }

    /// Weir's transactions a second by PgBouncer's, round by round.
    fn ratios(&self) -> Vec<f64> {
        let tps = |side| self.of(side, |sample| Some(sample.figures.tps));
        tps(1).into_iter().zip(tps(2)).map(|(pgbouncer, weir)| weir / pgbouncer).collect()
    }

    fn write(&self, text: &mut String, labels: &[String; 3]) {
        let _ = writeln!(text, "\n  {}", self.title);
        for (side, label) in labels.iter().enumerate() {
            let cell = |digits: usize, figure: fn(&Sample) -> Option<f64>| {
                median(&self.of(side, figure))
                    .map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let _ = writeln!(
                text,
                "  {label:<24} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
                cell(0, |sample| Some(sample.figures.tps)),
                cell(3, |sample| Some(sample.figures.mean)),
                cell(3, |sample| sample.figures.p50),
                cell(3, |sample| sample.figures.p99),
                cell(3, |sample| sample.figures.p999),
                cell(1, |sample| sample.cpu_us),
            );
        }
        let ratios = self.ratios();
        if let (Some(ratio), Some((from, to))) = (median(&ratios), range(&ratios)) {
            let _ = writeln!(text, "  tps of Weir by PgBouncer's: {ratio:.2}, {from:.2}..{to:.2}");
        }
    }
}

#[derive(Debug)]
pub(super) struct Report {
    head: String,
    labels: [String; 3],
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(options: &RealOptions, poolers: &[Binary; 2]) -> Self {
        let head = format!(
            "{:?} as generator, scale {}; median of {} measurements of {} s",
            options.generator, options.scale, options.rounds, options.seconds
        );
        let [pgbouncer, weir] = [0, 1].map(|at| poolers[at].label.clone());
        Self { head, labels: ["direct".to_owned(), pgbouncer, weir], lines: Vec::new() }
    }

    /// What is added from now on is of this row.
    pub(super) fn begin(&mut self, row: &Row) {
        self.lines.push(Line {
            title: row.to_string(),
            name: row.name,
            samples: [const { Vec::new() }; 3],
        });
    }

    pub(super) fn add(&mut self, side: Side, sample: Sample) {
        let at = SIDES.iter().position(|known| *known == side);
        if let (Some(at), Some(line)) = (at, self.lines.last_mut()) {
            line.samples[at].push(sample);
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.head);
        let _ = writeln!(
            text,
            "  {:<24} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "tps", "mean ms", "p50", "p99", "p99.9", "CPU µs"
        );
        self.lines.iter().for_each(|line| line.write(&mut text, &self.labels));
        text
    }

    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let rows = self.lines.iter().map(|line| {
            let side = |at: usize| line.samples[at].iter().map(Sample::to_json).collect::<Value>();
            json!({
                "row": line.name,
                "direct": side(0),
                "pgbouncer": side(1),
                "weir": side(2),
                "tps_ratio": median(&line.ratios()),
            })
        });
        let document = json!({
            "how": self.head,
            "pgbouncer": self.labels[1],
            "weir": self.labels[2],
            "rows": rows.collect::<Value>(),
        });
        let text = serde_json::to_string_pretty(&document)?;
        fs::write(path, text).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tps: f64) -> Sample {
        Sample::new(Figures { transactions: 100.0, tps, ..Figures::default() }, Some(400_000))
    }

    #[test]
    fn sides_are_compared_round_by_round() {
        let mut line =
            Line { title: "row".to_owned(), name: "row", samples: [const { Vec::new() }; 3] };
        for (pgbouncer, weir) in [(100.0, 150.0), (200.0, 200.0), (100.0, 120.0)] {
            line.samples[1].push(sample(pgbouncer));
            line.samples[2].push(sample(weir));
        }
        let mut text = String::new();
        line.write(&mut text, &["direct", "PgBouncer", "Weir"].map(str::to_owned));
        let lines: Vec<_> = text.lines().collect();
        let cells = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(2), ["direct", "-", "-", "-", "-", "-", "-"]);
        assert_eq!(cells(4), ["Weir", "150", "0.000", "-", "-", "-", "4.0"]);
        assert_eq!(lines[5].trim(), "tps of Weir by PgBouncer's: 1.20, 1.00..1.50");
    }
}
