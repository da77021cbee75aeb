//! The tables of `weir-bench real`, and the JSON with every measurement.

mod line;

use std::fmt::Write as _;

use serde_json::{Value, json};

use self::line::{Labels, Line};
pub(super) use self::line::{digits, ratio_and_range};
use super::rig::{RealOptions, SIDES, Side};
use super::row::Row;
use super::sample::Sample;
use crate::run::Programs;

#[derive(Debug)]
pub(super) struct Report {
    head: String,
    labels: Labels,
    lines: Vec<Line>,
    fleet: usize,
    direct_max: usize,
}

impl Report {
    pub(super) fn new(options: &RealOptions, programs: &Programs) -> Self {
        let head = format!(
            "{:?} as generator, scale {}; median of {} measurements of {} s",
            options.generator, options.scale, options.rounds, options.seconds
        );
        let [pgbouncer, weir] =
            [&programs.pgbouncer, &programs.weir].map(|program| program.label.clone());
        let direct_pool = "Weir, a direct pool".to_owned();
        let labels = ["direct".to_owned(), pgbouncer, weir, direct_pool];
        Self {
            head,
            labels,
            lines: Vec::new(),
            fleet: options.fleet,
            direct_max: options.direct_max,
        }
    }

    /// Begins a row. Later calls of `add` add to this row.
    pub(super) fn begin(&mut self, row: &'static Row) {
        self.lines.push(Line::new(row, self.fleet, self.direct_max));
    }

    pub(super) fn add(&mut self, side: Side, round: usize, sample: Sample) {
        let at = SIDES.iter().position(|known| *known == side);
        if let (Some(at), Some(line)) = (at, self.lines.last_mut()) {
            line.add(at, round, sample);
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.head);
        let _ = writeln!(
            text,
            "  {:<24} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "tps", "mean ms", "p50", "p99", "p99.9", "CPU µs"
        );
        for line in &self.lines {
            line.write(&mut text, &self.labels, self.few_beside(line));
        }
        text
    }

    /// Returns the row with few clients that this one is compared with, if it was measured.
    fn few_beside(&self, line: &Line) -> Option<&Line> {
        self.lines.iter().find(|few| line.few() == Some(few.name()) && line.name() != few.name())
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "how": self.head,
            "pgbouncer": self.labels[1],
            "weir": self.labels[2],
            "rows": self.lines.iter().map(|line| line.to_json(self.few_beside(line))).collect::<Value>(),
        })
    }
}
