//! The output of `make bench`, and the JSON with every measurement.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::binary::Programs;
use super::row::Row;
use super::sample::Sample;
use crate::stats::{median, range};

/// All measurements of a row, by side.
#[derive(Debug)]
pub(super) struct Line {
    row: &'static Row,
    samples: [Vec<Sample>; 2],
}

impl Line {
    pub(super) fn new(row: &'static Row) -> Self {
        Self { row, samples: [Vec::new(), Vec::new()] }
    }

    pub(super) fn add(&mut self, side: usize, sample: Sample) {
        self.samples[side].push(sample);
    }

    fn figures(&self, side: usize, part: usize) -> Vec<f64> {
        self.samples[side].iter().map(|sample| sample.figures[part]).collect()
    }

    /// Returns the second side's figure divided by the first one's, pair by pair.
    fn ratios(&self, part: usize) -> Vec<f64> {
        let pairs = self.figures(0, part).into_iter().zip(self.figures(1, part));
        pairs.map(|(one, other)| other / one).collect()
    }

    fn rate(&self, side: usize) -> Option<f64> {
        median(&self.samples[side].iter().filter_map(|sample| sample.rate).collect::<Vec<_>>())
    }

    fn write(&self, text: &mut String, part: usize) {
        let name = format!("{}{}", self.row.name, self.row.parts()[part]);
        let [a, b] = [0, 1].map(|side| figure(median(&self.figures(side, part))));
        let [a_rate, b_rate] = [0, 1].map(|side| rate(self.rate(side)));
        let ratios = self.ratios(part);
        let ratios: Vec<_> = ratios.into_iter().filter(|ratio| !ratio.is_nan()).collect();
        let ratio = median(&ratios).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let spread =
            range(&ratios).map_or("-".to_owned(), |(from, to)| format!("{from:.2}..{to:.2}"));
        let _ = writeln!(
            text,
            "  {name:<28} {a:>10} {b:>10} {ratio:>7} {spread:>12} {a_rate:>10} {b_rate:>10}"
        );
    }

    fn to_json(&self) -> Value {
        let side = |side: usize| {
            let samples = self.samples[side].iter();
            json!({
                "median": (0..self.row.parts().len()).map(|part| median(&self.figures(side, part))).collect::<Vec<_>>(),
                "samples": samples.map(|s| json!({ "figures": s.figures, "rate": s.rate, "detail": s.detail })).collect::<Vec<_>>(),
            })
        };
        let sides = self.row.sides();
        json!({
            "row": self.row.name,
            "unit": self.row.unit(),
            "parts": self.row.parts(),
            sides[0]: side(0),
            sides[1]: side(1),
            "ratio": (0..self.row.parts().len()).map(|part| median(&self.ratios(part))).collect::<Vec<_>>(),
        })
    }
}

/// Formats a figure with three significant digits; the noise makes more of them meaningless.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "n/a".to_owned(),
        Some(value) if value.is_nan() => "ended".to_owned(),
        Some(value) if value >= 99.95 => format!("{value:.0}"),
        Some(value) if value >= 9.995 => format!("{value:.1}"),
        Some(value) if value >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

fn rate(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.0}"))
}

/// All measured rows, and how they were measured.
#[derive(Debug)]
pub(super) struct Report {
    head: String,
    labels: [String; 2],
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(programs: &Programs, cores: &[usize], seconds: f64, pairs: usize) -> Self {
        let (pooler, peers) = (cores[0], cores[cores.len() - 1]);
        let mut head = format!(
            "pooler on core {pooler}, clients and canned server on core {peers}; \
             median of {pairs} measurements of {seconds} s"
        );
        if pooler == peers {
            head.push_str("\nonly one core: the figures hold the other side's cache misses too");
        }
        let labels = [&programs.pgbouncer, &programs.weir].map(|program| program.label.clone());
        Self { head, labels, lines: Vec::new() }
    }

    pub(super) fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Returns one table for each unit, in the order of the rows.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}\nA is {}, B is {}\n", self.head, self.labels[0], self.labels[1]);
        let mut unit = "";
        for line in &self.lines {
            if line.row.unit() != unit {
                unit = line.row.unit();
                let _ = writeln!(
                    text,
                    "\n  {unit}\n  {:<28} {:>10} {:>10} {:>7} {:>12} {:>10} {:>10}",
                    "", "A", "B", "B/A", "range", "A per s", "B per s"
                );
            }
            (0..line.row.parts().len()).for_each(|part| line.write(&mut text, part));
        }
        if let Some(warning) = self.warning() {
            let _ = writeln!(text, "\n{warning}");
        }
        text
    }

    /// Returns a warning if the poolers waited for their core for too long because of other work.
    fn warning(&self) -> Option<String> {
        let (mut run, mut wait) = (0.0, 0.0);
        let lines = self.lines.iter().filter(|line| !line.row.waits_by_design());
        for sample in lines.flat_map(|line| line.samples.iter().flatten()) {
            run += sample.detail["pooler_cpu_ns"].as_f64().unwrap_or(0.0);
            wait += sample.detail["pooler_wait_ns"].as_f64().unwrap_or(0.0);
        }
        let share = wait / (run + wait);
        (share > 0.1).then(|| {
            format!(
                "The poolers waited for their core {:.0} % of the time: something else ran there. \
                 Read only the ratios, and those with care.",
                share * 100.0
            )
        })
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "how": self.head,
            "pgbouncer": self.labels[0],
            "weir": self.labels[1],
            "rows": self.lines.iter().map(Line::to_json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::row::ROWS;

    fn sample(figure: f64) -> Sample {
        Sample { figures: vec![figure], rate: Some(1_000.0), detail: Value::Null }
    }

    fn report(line: Line) -> String {
        let labels = ["PgBouncer 1.18.0".to_owned(), "Weir".to_owned()];
        Report { head: "how".to_owned(), labels, lines: vec![line] }.to_text()
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        let mut line = Line::new(&ROWS[0]);
        for (pgbouncer, weir) in [(10.0, 5.0), (20.0, 16.0), (10.0, 9.0)] {
            line.add(0, sample(pgbouncer));
            line.add(1, sample(weir));
        }
        let text = report(line);
        let row: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["cpu-10", "10.0", "9.00", "0.80", "0.50..0.90", "1000", "1000"]);
    }

    #[test]
    fn waiting_for_a_core_gives_a_warning_unless_the_row_intends_it() {
        let waiting = || Sample {
            detail: json!({ "pooler_cpu_ns": 80, "pooler_wait_ns": 20 }),
            ..sample(1.0)
        };
        for (name, warns) in [("cpu-10", true), ("workers-2", false), ("schedule-random", false)] {
            let mut line = Line::new(ROWS.iter().find(|row| row.name == name).unwrap());
            line.samples[1]
                .push(Sample { figures: vec![1.0; line.row.parts().len()], ..waiting() });
            assert_eq!(report(line).contains("20 % of the time"), warns, "{name}");
        }
    }

    #[test]
    fn a_row_that_one_pooler_cannot_do_has_no_ratio() {
        let mut line = Line::new(&ROWS[0]);
        line.add(1, sample(0.25));
        let text = report(line);
        let row: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["cpu-10", "n/a", "0.250", "-", "-", "-", "1000"]);
    }
}
