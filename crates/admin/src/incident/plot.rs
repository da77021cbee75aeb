//! The plots of the page: a drawing for each of the busiest pools, in SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Answer, escaped};
use crate::svg::{Anchor, Drawing};

/// Pools that have a plot.
const PLOTS_MAX: usize = 8;
/// The size of a plot.
const WIDTH: i64 = 720;
const HEIGHT: f64 = 120.0;
/// The shortest and the longest time that a plot shows, in seconds.
const SPAN: (i64, i64) = (60, 3_600);

/// The lines of a plot, from columns of SHOW RECORDER. Holders are servers that a client has.
const LINES: [(&str, &str, &[&str]); 4] = [
    ("clients waiting", "#c00", &["waiting"]),
    ("servers active", "#06c", &["active"]),
    ("servers idle in transaction or kept", "#e80", &["in_transaction", "kept"]),
    ("servers", "#999", &["active", "in_transaction", "kept", "idle", "opening"]),
];
const ERRORS: &str = "#c0c";
const TEXT: &str = "#000";
/// The style of a marked event.
const DASHED: &str = " stroke-width=\"2\" stroke-dasharray=\"4 2\"";
/// The events that have a line of their own in each plot.
const MARKED: [(&str, &str); 8] = [
    ("start", "#080"),
    ("restart", "#080"),
    ("shutdown", "#080"),
    ("reload", "#0a8"),
    ("reload failed", "#c00"),
    ("order", "#888"),
    ("server down", "#c00"),
    ("server up", "#080"),
];

/// The time that all plots show.
#[derive(Clone, Copy)]
struct Axis {
    /// Seconds since 1970.
    end: i64,
    span: i64,
    /// The number of seconds of a point, which shows their worst value.
    step: i64,
}

impl Axis {
    fn new(begin: i64, end: i64) -> Self {
        let span = (end - begin).clamp(SPAN.0, SPAN.1);
        Self { end, span, step: (span / WIDTH).max(1) }
    }

    /// Returns the age of a moment in points.
    fn age(self, epoch: i64) -> i64 {
        (self.end - epoch) / self.step
    }

    /// Returns the ages from the oldest to the youngest.
    fn ages(self) -> impl Iterator<Item = i64> {
        (0..=self.span / self.step).rev()
    }

    fn x(self, age: i64) -> i64 {
        WIDTH - age * self.step * WIDTH / self.span
    }
}

/// The values of one pool: for each point of time, the height of each line and the errors.
type Points = BTreeMap<i64, ([u64; LINES.len()], u64)>;

/// Draws all plots.
pub(super) fn all(recorder: &Answer, events: &Answer) -> String {
    let epochs = || recorder.rows.iter().map(|row| recorder.number(row, "epoch"));
    let (Some(begin), Some(end)) = (epochs().min(), epochs().max()) else {
        return "<p>No pool was used.</p>\n".to_owned();
    };
    let axis = Axis::new(begin, end);
    let number = |row: &[Option<String>], name: &str| recorder.number(row, name);
    let text = |row: &[Option<String>], name: &str| recorder.text(row, name).to_owned();
    let mut pools: BTreeMap<(String, String), (u64, Points)> = BTreeMap::new();
    for row in &recorder.rows {
        let at = axis.age(number(row, "epoch"));
        let key = (text(row, "database"), text(row, "user"));
        let (weight, points) = pools.entry(key).or_default();
        let (heights, errors) = points.entry(at).or_default();
        for ((_, _, columns), height) in LINES.iter().zip(heights) {
            let sum: i64 = columns.iter().map(|name| number(row, name)).sum();
            *height = (*height).max(sum.unsigned_abs());
        }
        *errors += number(row, "errors").unsigned_abs();
        // Pools with trouble come first.
        *weight += 100 * (number(row, "waiting") + number(row, "errors")).unsigned_abs()
            + number(row, "transactions").unsigned_abs();
    }
    let mut pools: Vec<_> = pools.into_iter().collect();
    pools.sort_by_key(|(_, (weight, _))| std::cmp::Reverse(*weight));
    let mut page = legend();
    for ((database, user), (_, points)) in pools.iter().take(PLOTS_MAX) {
        let _ = writeln!(page, "<h3>{}/{}</h3>", escaped(database), escaped(user));
        page += &drawing(axis, points, &marks(axis, events));
    }
    if pools.len() > PLOTS_MAX {
        let _ = writeln!(page, "<p>{} more pools are not shown.</p>", pools.len() - PLOTS_MAX);
    }
    page
}

fn legend() -> String {
    let mut text = "<p>".to_owned();
    for (name, color, _) in LINES {
        let _ = write!(text, "<span style=\"color:{color}\">■ {name}</span> ");
    }
    let _ = write!(text, "<span style=\"color:{ERRORS}\">▌errors</span> ");
    text += "Vertical lines: start, restart, reload, order; point at one to read it.</p>\n";
    text
}

/// The marked events: age in points, color and text.
fn marks(axis: Axis, events: &Answer) -> Vec<(i64, &'static str, String)> {
    let mark = |row: &Vec<Option<String>>| {
        let kind = events.text(row, "event");
        let (_, color) = MARKED.iter().find(|(marked, _)| *marked == kind)?;
        let age = axis.age(events.number(row, "epoch"));
        let text = format!("{} {kind}: {}", events.text(row, "time"), events.text(row, "text"));
        Some((age, *color, text))
    };
    events.rows.iter().filter_map(mark).collect()
}

fn drawing(axis: Axis, points: &Points, marks: &[(i64, &str, String)]) -> String {
    let most = points.values().flat_map(|(heights, _)| heights).max().copied().unwrap_or(0).max(1);
    let errors_most = points.values().map(|(_, errors)| *errors).max().unwrap_or(0).max(1);
    let height = |value: u64, most: u64| HEIGHT - value as f64 / most as f64 * (HEIGHT - 10.0);
    let mut svg = Drawing::new(WIDTH, HEIGHT + 14.0);
    for (age, (_, errors)) in points.iter().filter(|(_, (_, errors))| *errors > 0) {
        let (x, y) = (axis.x(*age), height(*errors, 2 * errors_most));
        svg.upright(x, (HEIGHT, y), ERRORS, "", &format!("{errors} errors"));
    }
    for (at, (name, color, _)) in LINES.iter().enumerate() {
        let value = |age| points.get(&age).map_or(0, |(heights, _)| heights[at]);
        let line = axis.ages().map(|age| (axis.x(age) as f64, height(value(age), most)));
        svg.path(name, color, line);
    }
    for (age, color, text) in marks.iter().filter(|(age, _, _)| axis.x(*age) >= 0) {
        let x = axis.x((*age).max(0));
        svg.upright(x, (0.0, HEIGHT), color, DASHED, text);
    }
    let bottom = HEIGHT + 11.0;
    svg.label(2, 10.0, Anchor::Start, TEXT, &most.to_string());
    svg.label(2, bottom, Anchor::Start, TEXT, &format!("{} s before", axis.span));
    svg.label(WIDTH, bottom, Anchor::End, TEXT, "the last second");
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_as_long_as_the_recording() {
        for (begin, span, step, points) in
            [(999_990, 60, 1, 61), (999_000, 1_000, 1, 1_001), (0, 3_600, 5, 721)]
        {
            let axis = Axis::new(begin, 1_000_000);
            assert_eq!((axis.span, axis.step), (span, step));
            assert_eq!(axis.ages().count(), points);
            let ends = (axis.x(axis.age(1_000_000)), axis.x(axis.age(1_000_000 - span)));
            assert_eq!(ends, (WIDTH, 0));
        }
    }
}
