//! The tables of the rows with a cluster, and the JSON with every measurement.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::front::{SIDES, Side};
use super::row::{Ratio, Row};
use crate::real::fact::{Fact, Facts};
use crate::real::report::{digits, ratio_and_range};
use crate::stats::median;

pub(super) struct Table {
    head: String,
    labels: [String; SIDES.len()],
    lines: Vec<Line>,
}

/// A row, and what each measurement of it has found: the round, the side, and the facts.
struct Line {
    row: &'static Row,
    samples: Vec<(usize, Side, Facts)>,
}

impl Table {
    pub(super) fn new(pgpool: String, rounds: usize, seconds: u32) -> Self {
        let head = format!("a primary and two standbys; median of {rounds} measurements");
        let head = format!("{head}, those of selects take {seconds} s");
        let [weir, statement, unrouted] =
            ["Weir", "per statement", "no standbys"].map(str::to_owned);
        Self { head, labels: [pgpool, weir, statement, unrouted], lines: Vec::new() }
    }

    /// Begins a row. Later calls of `add` add to this row.
    pub(super) fn begin(&mut self, row: &'static Row) {
        self.lines.push(Line { row, samples: Vec::new() });
    }

    pub(super) fn add(&mut self, side: Side, round: usize, facts: Facts) {
        if let Some(line) = self.lines.last_mut() {
            line.samples.push((round, side, facts));
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.head);
        for line in &self.lines {
            let _ = write!(text, "\n  {}\n    {:<58}", line.row, "");
            for (side, label) in SIDES.iter().zip(&self.labels) {
                let label = if line.row.sides.contains(side) { label } else { "" };
                let _ = write!(text, " {label:>15}");
            }
            text.push('\n');
            line.write(&mut text);
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "how": self.head,
            "sides": self.labels,
            "rows": self.lines.iter().map(Line::to_json).collect::<Value>(),
        })
    }
}

impl Line {
    /// Returns the figures of one fact, each with its round.
    fn of(&self, side: Side, fact: &Fact) -> Vec<(usize, f64)> {
        let samples = self.samples.iter().filter(|(_, own, _)| *own == side);
        let found = samples.filter_map(|(round, _, facts)| {
            let (_, figure) = facts.iter().find(|(own, _)| *own == fact)?;
            Some((*round, *figure))
        });
        found.collect()
    }

    /// Returns the ratios of one side's figures to those of the other, round by round.
    fn ratios(&self, ratio: &Ratio) -> Vec<f64> {
        let others = self.of(ratio.by, ratio.fact);
        let own = self.of(ratio.of, ratio.fact).into_iter();
        let pairs = own.filter_map(|(round, figure)| {
            let (_, other) = others.iter().find(|(of, _)| *of == round)?;
            Some(figure / other)
        });
        pairs.collect()
    }

    fn write(&self, text: &mut String) {
        let first = self.samples.first().map(|(_, _, facts)| &facts[..]);
        for (fact, _) in first.unwrap_or_default() {
            let _ = write!(text, "    {:<58}", fact.title);
            for side in SIDES {
                let found: Vec<_> =
                    self.of(side, fact).into_iter().map(|(_, figure)| figure).collect();
                let cell = median(&found).map_or_else(String::new, digits);
                let _ = write!(text, " {cell:>15}");
            }
            let goal = fact.goal.map_or_else(String::new, |goal| format!("   {goal}"));
            let _ = writeln!(text, "{goal}");
        }
        for ratio in self.row.ratios {
            if let Some(found) = ratio_and_range(&self.ratios(ratio)) {
                let _ = writeln!(text, "    {}: {found}   {}", ratio.what, ratio.goal);
            }
        }
    }

    fn to_json(&self) -> Value {
        let samples = self.samples.iter().map(|(round, side, facts)| {
            let mut value = json!({ "round": round, "side": format!("{side:?}") });
            for (fact, figure) in facts {
                value[fact.key] = json!(figure);
            }
            value
        });
        json!({ "row": self.row.name, "samples": samples.collect::<Value>() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::select;
    use super::super::select::CPU;
    use super::*;

    #[test]
    fn figures_are_medians_and_ratios_are_of_one_round() {
        let mut table = Table::new("Pgpool-II 4".to_owned(), 3, 5);
        table.begin(select(&["cluster-select".to_owned()]).unwrap()[0]);
        for (round, pgpool, weir) in [(0, 40.0, 10.0), (1, 60.0, 12.0), (2, 50.0, 11.0)] {
            table.add(Side::Weir, round, vec![(&CPU, weir)]);
            table.add(Side::Pgpool, round, vec![(&CPU, pgpool)]);
        }
        let text = table.to_text();
        let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap().to_owned();
        let cells = line("for a select");
        let cells: Vec<_> = cells.split_whitespace().rev().take(2).collect();
        assert_eq!(cells, ["11.0", "50.0"]);
        assert!(line("by Pgpool-II's").ends_with("0.22, 0.20..0.25   at most 0.25"), "{text}");
        assert!(!text.contains("by its own"), "one side is not measured: {text}");
    }
}
