//! One row of the report: the figures of each side, and their comparison.

use std::collections::HashMap;
use std::fmt::Write as _;

use load::Histogram;
use serde_json::{Value, json};

use crate::real::fact::Fact;
use crate::real::rig::SIDES;
use crate::real::row::{Beside, Row};
use crate::real::sample::Sample;
use crate::stats::{median, range};

/// The JSON keys, in the order of [`SIDES`].
const KEYS: [&str; SIDES.len()] = ["direct", "pgbouncer", "weir", "direct_pool"];
const DIRECT: usize = 0;
const PGBOUNCER: usize = 1;
const WEIR: usize = 2;
const DIRECT_POOL: usize = 3;

/// The names of the sides.
pub(super) type Labels = [String; SIDES.len()];

#[derive(Debug)]
pub(super) struct Line {
    row: &'static Row,
    clients: usize,
    /// Rows with more clients than this have no direct side.
    direct_max: usize,
    /// The samples of each side with their rounds. A round may be missing if something failed in
    /// it.
    samples: [Vec<(usize, Sample)>; SIDES.len()],
}

impl Line {
    /// Creates an empty line. `fleet` is the number of clients of rows that do not define it.
    pub(super) fn new(row: &'static Row, fleet: usize, direct_max: usize) -> Self {
        let clients = row.clients(fleet);
        Self { row, clients, direct_max, samples: [const { Vec::new() }; SIDES.len()] }
    }

    pub(super) fn name(&self) -> &'static str {
        self.row.name
    }

    /// Returns the name of the row with few clients that this one is to be compared with.
    pub(super) fn few(&self) -> Option<&'static str> {
        match self.row.beside {
            Beside::Few { row, .. } => Some(row),
            Beside::Nothing
            | Beside::Direct { .. }
            | Beside::DirectPool { .. }
            | Beside::Tail { .. }
            | Beside::Latency { .. } => None,
        }
    }

    pub(super) fn add(&mut self, side: usize, round: usize, sample: Sample) {
        self.samples[side].push((round, sample));
    }

    fn samples(&self, side: usize) -> impl DoubleEndedIterator<Item = &Sample> {
        self.samples[side].iter().map(|(_, sample)| sample)
    }

    fn of(&self, side: usize, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples(side).filter_map(figure).collect()
    }

    /// Returns one side's transactions per second divided by another's, round by round.
    fn ratios(&self, side: usize, by: usize) -> Vec<f64> {
        self.ratios_of(side, by, |sample| Some(sample.figures.tps))
    }

    /// Returns Weir's CPU time for a transaction divided by PgBouncer's, round by round.
    fn cpu_ratios(&self) -> Vec<f64> {
        self.ratios_of(WEIR, PGBOUNCER, |sample| sample.cpu_us)
    }

    fn ratios_of(
        &self,
        side: usize,
        by: usize,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Vec<f64> {
        let of_round = |(round, sample): &(usize, Sample)| Some((*round, figure(sample)?));
        let others: HashMap<usize, f64> = self.samples[by].iter().filter_map(of_round).collect();
        let own = self.samples[side].iter().filter_map(of_round);
        own.filter_map(|(round, figure)| Some(figure / others.get(&round)?)).collect()
    }

    /// Returns one side's transactions per second divided by those of the row with few clients. It
    /// compares medians, since the rows are not measured in turn.
    fn by_few(&self, few: &Self, side: usize) -> Option<f64> {
        let tps = |line: &Self| median(&line.of(side, |sample| Some(sample.figures.tps)));
        Some(tps(self)? / tps(few)?)
    }

    /// Returns the latencies of all rounds together, since a single round shows rare latencies
    /// poorly.
    fn latencies(&self, side: usize) -> Option<Histogram> {
        let mut rounds = self.samples(side).filter_map(|s| s.figures.latencies.as_ref());
        let mut all = rounds.next()?.clone();
        rounds.for_each(|round| all.add(round));
        Some(all)
    }

    fn percentile_ms(&self, side: usize, share: f64) -> Option<f64> {
        self.latencies(side).map(|all| all.percentile_us(share) as f64 / 1e3)
    }

    /// Returns the 99th percentile of the latency divided by its median.
    fn tail(&self, side: usize) -> Option<f64> {
        Some(self.percentile_ms(side, 0.99)? / self.percentile_ms(side, 0.5)?)
    }

    /// Returns the facts that the side's measurements found, each once.
    fn facts(&self) -> Vec<&'static Fact> {
        let mut facts: Vec<&'static Fact> = Vec::new();
        for (fact, _) in self.samples.iter().flatten().flat_map(|(_, sample)| &sample.facts) {
            if !facts.contains(fact) {
                facts.push(fact);
            }
        }
        facts
    }

    /// Returns the sides that the row measures, with their labels.
    fn sides<'a>(&self, labels: &'a Labels) -> impl Iterator<Item = (usize, &'a String)> {
        let has_direct_pool = self.row.library.is_direct();
        labels.iter().enumerate().filter(move |(side, _)| *side != DIRECT_POOL || has_direct_pool)
    }

    pub(super) fn write(&self, text: &mut String, labels: &Labels, few: Option<&Self>) {
        let _ = writeln!(text, "\n  {}", self.row.title(Some(self.clients)));
        for (side, label) in self.sides(labels) {
            let cell = |digits: usize, value: Option<f64>| {
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let middle = |figure: fn(&Sample) -> Option<f64>| median(&self.of(side, figure));
            let _ = writeln!(
                text,
                "  {label:<24} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
                cell(0, middle(|sample| Some(sample.figures.tps))),
                cell(3, middle(|sample| Some(sample.figures.mean))),
                cell(3, self.percentile_ms(side, 0.5)),
                cell(3, self.percentile_ms(side, 0.99)),
                cell(3, self.percentile_ms(side, 0.999)),
                cell(2, middle(|sample| sample.cpu_us)),
            );
        }
        if self.clients > self.direct_max && !self.row.needs_pool() {
            let _ = writeln!(text, "  not direct: more than {} clients", self.direct_max);
        }
        self.write_ratio(text, "tps of Weir by PgBouncer's", WEIR, PGBOUNCER);
        write_range(text, "CPU time of Weir by PgBouncer's", &self.cpu_ratios());
        self.write_beside(text, labels, few);
        for fact in self.facts() {
            let _ = write!(text, "    {:<44}", fact.title);
            for (side, _) in self.sides(labels) {
                let found = self.of(side, |sample| {
                    sample.facts.iter().find(|(own, _)| *own == fact).map(|(_, figure)| *figure)
                });
                let _ = match median(&found) {
                    Some(figure) => write!(text, " {:>10}", digits(figure)),
                    None => write!(text, " {:>10}", "-"),
                };
            }
            let _ = match fact.goal {
                Some(goal) => writeln!(text, "   {goal}"),
                None => writeln!(text),
            };
        }
        for (side, label) in labels.iter().enumerate() {
            for note in self.samples(side).next_back().iter().flat_map(|sample| &sample.notes) {
                let _ = writeln!(text, "    {label:<24} {note}");
            }
        }
    }

    fn write_ratio(&self, text: &mut String, what: &str, side: usize, by: usize) {
        write_range(text, what, &self.ratios(side, by));
    }

    fn write_beside(&self, text: &mut String, labels: &Labels, few: Option<&Self>) {
        match self.row.beside {
            Beside::Nothing => {}
            Beside::Direct { proposed } => {
                for side in [PGBOUNCER, WEIR, DIRECT_POOL] {
                    let what = format!(
                        "tps by direct ones ({proposed:.2} in the proposal of 2019), {}",
                        labels[side]
                    );
                    self.write_ratio(text, &what, side, DIRECT);
                }
            }
            Beside::DirectPool { by_pgbouncer } => {
                let what = format!("tps of a direct pool by PgBouncer's, at least {by_pgbouncer}");
                self.write_ratio(text, &what, DIRECT_POOL, PGBOUNCER);
                self.write_ratio(
                    text,
                    "tps of a direct pool by a proxied one's",
                    DIRECT_POOL,
                    WEIR,
                );
                self.write_ratio(text, "tps of a direct pool by direct ones", DIRECT_POOL, DIRECT);
            }
            Beside::Few { row, least } => {
                for (side, label) in labels.iter().enumerate() {
                    if let Some(ratio) = few.and_then(|few| self.by_few(few, side)) {
                        let _ = writeln!(
                            text,
                            "  tps by those of {row}, {label}: {ratio:.2}, at least {least}"
                        );
                    }
                }
            }
            Beside::Tail { most } => {
                for (side, label) in labels.iter().enumerate() {
                    if let Some(tail) = self.tail(side) {
                        let _ = writeln!(text, "  p99 by p50, {label}: {tail:.2}, at most {most}");
                    }
                }
            }
            Beside::Latency { more_max } => {
                let Some(direct) = self.percentile_ms(DIRECT, 0.5) else { return };
                for side in [PGBOUNCER, WEIR] {
                    if let Some(p50) = self.percentile_ms(side, 0.5) {
                        let more = p50 - direct;
                        let _ = writeln!(
                            text,
                            "  p50 above direct, {}: {more:.3} ms, at most {more_max:.3}",
                            labels[side]
                        );
                    }
                }
            }
        }
    }

    pub(super) fn to_json(&self, few: Option<&Self>) -> Value {
        let mut value = json!({
            "row": self.row.name,
            "clients": self.clients,
            "tps_ratio": median(&self.ratios(WEIR, PGBOUNCER)),
            "cpu_ratio": median(&self.cpu_ratios()),
        });
        if let Beside::Direct { proposed } = self.row.beside {
            value["by_direct"] = json!({
                "proposed": proposed,
                "pgbouncer": median(&self.ratios(PGBOUNCER, DIRECT)),
                "weir": median(&self.ratios(WEIR, DIRECT)),
                "direct_pool": median(&self.ratios(DIRECT_POOL, DIRECT)),
            });
        }
        for (side, key) in KEYS.into_iter().enumerate() {
            if let Some(few) = few {
                value["by_few"][key] = json!(self.by_few(few, side));
            }
            value[key] = self.samples(side).map(Sample::to_json).collect();
            value["all_rounds"][key] = json!({
                "p50_ms": self.percentile_ms(side, 0.5),
                "p99_ms": self.percentile_ms(side, 0.99),
                "p999_ms": self.percentile_ms(side, 0.999),
                "p99_by_p50": self.tail(side),
            });
        }
        value
    }
}

fn write_range(text: &mut String, what: &str, ratios: &[f64]) {
    if let Some(ratio) = ratio_and_range(ratios) {
        let _ = writeln!(text, "  {what}: {ratio}");
    }
}

/// Formats the median of ratios, and behind it the smallest and the largest.
pub(in crate::real) fn ratio_and_range(ratios: &[f64]) -> Option<String> {
    let (ratio, (from, to)) = (median(ratios)?, range(ratios)?);
    Some(format!("{ratio:.2}, {from:.2}..{to:.2}"))
}

/// Formats a figure with three significant digits, and with all digits before the point.
pub(in crate::real) fn digits(figure: f64) -> String {
    let before = figure.abs().max(0.1).log10().floor() as i32;
    let behind = usize::try_from(2 - before).unwrap_or(0);
    format!("{figure:.behind$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::fact::Goal;
    use crate::real::generator::Figures;
    use crate::real::row::select;

    static GOOD: Fact = Fact { key: "good", title: "how good", goal: Some(Goal::AtLeast(0.5)) };

    fn line(name: &str) -> Line {
        Line::new(select(&[name.to_owned()]).unwrap()[0], 100, 1_000)
    }

    fn sample(tps: f64, latencies_us: &[u64]) -> Sample {
        let mut latencies = Histogram::new();
        latencies_us.iter().for_each(|us| latencies.record_times(*us, 1));
        let latencies = Some(latencies);
        let figures = Figures { transactions: 100.0, tps, latencies, ..Figures::default() };
        Sample::new(figures, Some(4.0))
    }

    fn labels() -> Labels {
        ["direct", "PgBouncer", "Weir", "a direct pool"].map(str::to_owned)
    }

    fn written(line: &Line) -> String {
        let mut text = String::new();
        line.write(&mut text, &labels(), None);
        text
    }

    #[test]
    fn sides_are_compared_round_by_round_and_latencies_put_together() {
        let mut line = line("tpcb");
        // PgBouncer failed in the first round.
        line.add(WEIR, 0, sample(15.0, &[15]));
        let rounds = [(100.0, 150.0), (200.0, 200.0), (100.0, 120.0)];
        for (round, (pgbouncer, weir)) in (1..).zip(rounds) {
            line.add(PGBOUNCER, round, sample(pgbouncer, &[100]));
            line.add(WEIR, round, sample(weir, &[weir as u64 / 10]));
        }
        let text = written(&line);
        let lines: Vec<_> = text.lines().collect();
        let cells = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(2), ["direct", "-", "-", "-", "-", "-", "-"]);
        assert_eq!(cells(4), ["Weir", "135", "0.000", "0.015", "0.020", "0.020", "4.00"]);
        assert_eq!(lines[5].trim(), "tps of Weir by PgBouncer's: 1.20, 1.00..1.50");
        assert_eq!(lines[6].trim(), "CPU time of Weir by PgBouncer's: 1.00, 1.00..1.00");
        assert_eq!(line.to_json(None)["all_rounds"]["weir"]["p99_ms"], 0.02);
    }

    #[test]
    fn the_ratio_to_direct_connections_is_shown_where_a_row_asks() {
        let mut proposed = line("proposal-10");
        let mut one = line("fleet-one");
        for (side, tps) in [(DIRECT, 200.0), (PGBOUNCER, 140.0), (WEIR, 160.0)] {
            proposed.add(side, 0, sample(tps, &[]));
            one.add(side, 0, sample(tps, &[(1e5 / tps) as u64]));
        }
        let text = written(&proposed);
        assert!(
            text.contains(
                "tps by direct ones (0.78 in the proposal of 2019), Weir: 0.80, 0.80..0.80"
            ),
            "{text}"
        );
        assert_eq!(proposed.to_json(None)["by_direct"]["pgbouncer"], 0.7);
        let text = written(&one);
        assert!(text.contains("p50 above direct, Weir: 0.125 ms, at most 0.040"), "{text}");
    }

    #[test]
    fn a_direct_pool_of_the_pooler_in_the_server_is_compared_with_direct_connections() {
        let mut line = line("builtin-direct-10");
        for (side, tps) in [(DIRECT, 100.0), (WEIR, 80.0), (DIRECT_POOL, 125.0)] {
            line.add(side, 0, sample(tps, &[]));
        }
        let text = written(&line);
        let of = "tps by direct ones (0.78 in the proposal of 2019)";
        assert!(text.contains(&format!("{of}, Weir: 0.80,")), "{text}");
        assert!(text.contains(&format!("{of}, a direct pool: 1.25,")), "{text}");
        assert_eq!(line.to_json(None)["by_direct"]["direct_pool"], 1.25);
    }

    #[test]
    fn a_direct_pool_is_compared_with_every_other_side() {
        let mut line = line("direct-500");
        for (side, tps) in
            [(DIRECT, 100.0), (PGBOUNCER, 125.0), (WEIR, 160.0), (DIRECT_POOL, 200.0)]
        {
            line.add(side, 0, sample(tps, &[]));
        }
        let text = written(&line);
        let of = "tps of a direct pool by";
        assert!(text.contains(&format!("{of} PgBouncer's, at least 1.5: 1.60,")), "{text}");
        assert!(text.contains(&format!("{of} a proxied one's: 1.25,")), "{text}");
        assert!(text.contains(&format!("{of} direct ones: 2.00,")), "{text}");
        assert_eq!(line.to_json(None)["direct_pool"][0]["tps"], 200.0);
        assert!(!written(&self::line("tpcb")).contains("a direct pool"));
    }

    #[test]
    fn the_tail_of_a_full_pool_is_compared_with_its_median() {
        let mut line = line("tail-1000");
        for (side, slowest) in [(PGBOUNCER, 180), (WEIR, 105)] {
            let latencies: Vec<u64> = [100; 97].into_iter().chain([slowest; 3]).collect();
            line.add(side, 0, sample(1.0, &latencies));
        }
        let text = written(&line);
        assert!(text.contains("p99 by p50, PgBouncer: 1.80, at most 1.1"), "{text}");
        assert!(text.contains("p99 by p50, Weir: 1.05, at most 1.1"), "{text}");
        assert!(!text.contains("p99 by p50, direct"), "{text}");
    }

    #[test]
    fn many_clients_are_compared_with_few_and_not_direct_beyond_what_fits() {
        let (mut few, mut many) = (line("select-64"), line("select-19900"));
        for (few_tps, many_tps) in [(100.0, 96.0), (90.0, 99.0), (110.0, 90.0)] {
            few.add(WEIR, 0, sample(few_tps, &[]));
            many.add(WEIR, 0, sample(many_tps, &[]));
        }
        let mut text = String::new();
        many.write(&mut text, &labels(), Some(&few));
        let of = "tps by those of select-64";
        assert!(text.contains(&format!("{of}, Weir: 0.96, at least 0.95")), "{text}");
        assert!(!text.contains(&format!("{of}, PgBouncer")), "{text}");
        assert!(text.contains("not direct: more than 1000 clients"), "{text}");
        assert_eq!(many.to_json(Some(&few))["by_few"]["weir"], 0.96);
        assert!(!written(&few).contains("not direct"));
    }

    #[test]
    fn facts_and_notes_follow_with_their_goals() {
        let mut line = line("fleet-among");
        let facts = vec![(&GOOD, 0.75)];
        line.add(WEIR, 0, Sample { facts, notes: vec!["12% f".to_owned()], ..sample(1.0, &[]) });
        let text = written(&line);
        let fact = text.lines().find(|line| line.contains("how good")).unwrap();
        let cells: Vec<_> = fact.split_whitespace().collect();
        assert_eq!(cells, ["how", "good", "-", "-", "0.750", "at", "least", "0.5"]);
        assert!(text.contains("Weir                     12% f"), "{text}");
        assert_eq!(line.to_json(None)["weir"][0]["good"], 0.75);
        assert!(text.contains("100 clients"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([12_345.6, 0.0, 1.234, 56.78].map(digits), ["12346", "0.000", "1.23", "56.8"]);
    }
}
