//! Charts for files: panels of lines over two axes, one below the other, and the names of the lines
//! at the end.

use super::{Anchor, Drawing};

const WIDTH: i64 = 720;
/// The space for the labels at the left side, and the empty space at the right one.
const MARGIN: i64 = 84;
const RIGHT: i64 = 10;
/// The height of one panel, and of the space below its title and above its labels.
const HEIGHT: f64 = 180.0;
const ABOVE: f64 = 24.0;
const BELOW: f64 = 26.0;
const LEGEND: f64 = 20.0;
const COLORS: [&str; 6] = ["#06c", "#c00", "#080", "#e80", "#90c", "#666"];
const TEXT: &str = "#000";
const RULE: &str = "#ddd";

/// The points of a line, from left to right.
pub type Points = Vec<(f64, f64)>;

/// The values along an axis, and how they are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// From 0 to 1, written in per cent.
    Shares,
    /// Milliseconds on a logarithmic scale, from a microsecond on.
    Times,
    /// From 0 to the largest number, in this unit.
    Numbers(&'static str),
}

/// Lines over the same axes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub across: Axis,
    pub up: Axis,
    /// A line for each name of the chart, in their order.
    pub lines: Vec<Points>,
}

/// Draws a file of panels whose lines have these names.
#[must_use]
pub fn chart(names: &[&str], panels: &[Panel]) -> String {
    let step = ABOVE + HEIGHT + BELOW;
    let below = step * panels.len() as f64;
    let mut svg = Drawing::new(WIDTH, below + LEGEND * names.len() as f64);
    for (at, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, step * at as f64 + ABOVE, names);
    }
    for (at, (name, color)) in names.iter().zip(COLORS.iter().cycle()).enumerate() {
        let y = below + LEGEND * at as f64 + 12.0;
        svg.label(MARGIN, y, Anchor::Start, color, &format!("■ {name}"));
    }
    svg.into_file()
}

/// Returns a line with a step for each time: the share of times that are not longer.
#[must_use]
pub fn cumulative(times: &[f64]) -> Points {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let share = |count: usize| count as f64 / times.len() as f64;
    let steps = times.iter().enumerate();
    steps.flat_map(|(at, time)| [(*time, share(at)), (*time, share(at + 1))]).collect()
}

impl Panel {
    fn draw(&self, svg: &mut Drawing, top: f64, names: &[&str]) {
        svg.label(MARGIN, top - 8.0, Anchor::Start, TEXT, &self.title);
        let bottom = top + HEIGHT;
        let (left, right) = (MARGIN as f64, (WIDTH - RIGHT) as f64);
        let all = || self.lines.iter().flatten();
        let up = Scale::of(self.up, all().map(|(_, y)| *y), (bottom, top));
        let across = Scale::of(self.across, all().map(|(x, _)| *x), (left, right));
        for (at, text) in up.marks() {
            svg.path(&text, RULE, [(left, at), (right, at)]);
            svg.label(MARGIN - 4, at + 4.0, Anchor::End, TEXT, &text);
        }
        if all().next().is_none() {
            return svg.label(WIDTH / 2, top + HEIGHT / 2.0, Anchor::Middle, TEXT, "no data");
        }
        for (at, text) in across.marks() {
            let at = at.round() as i64;
            let anchor = if at > WIDTH - 3 * RIGHT { Anchor::End } else { Anchor::Middle };
            svg.upright(at, (top, bottom), RULE, "", "");
            svg.label(at, bottom + 14.0, anchor, TEXT, &text);
        }
        for ((line, name), color) in self.lines.iter().zip(names).zip(COLORS.iter().cycle()) {
            if !line.is_empty() {
                svg.path(name, color, line.iter().map(|(x, y)| (across.at(*x), up.at(*y))));
            }
        }
    }
}

/// An axis with its ends, as values and on the page.
#[derive(Clone, Copy, Debug)]
struct Scale {
    axis: Axis,
    /// For times: as powers of ten.
    values: (f64, f64),
    page: (f64, f64),
}

impl Scale {
    fn of(axis: Axis, values: impl Iterator<Item = f64>, page: (f64, f64)) -> Self {
        let values = match axis {
            Axis::Shares => (0.0, 1.0),
            Axis::Times => {
                let ends = values.fold((f64::INFINITY, -3.0f64), |(low, high), time| {
                    let power = power(time);
                    (low.min(power), high.max(power))
                });
                let low = ends.0.min(ends.1).floor();
                (low, ends.1.ceil().max(low + 1.0))
            }
            Axis::Numbers(_) => (0.0, round_up(values.fold(0.0, f64::max))),
        };
        Self { axis, values, page }
    }

    /// Returns the place of a value on the page.
    fn at(self, value: f64) -> f64 {
        let value = match self.axis {
            Axis::Times => power(value),
            Axis::Shares | Axis::Numbers(_) => value,
        };
        let ((low, high), (first, last)) = (self.values, self.page);
        first + (value - low) / (high - low) * (last - first)
    }

    /// Returns the values to be named, by their places.
    fn marks(self) -> Vec<(f64, String)> {
        let (low, high) = self.values;
        let mark = |value: f64, text: String| (self.at(value), text);
        match self.axis {
            Axis::Shares => [(1.0, "100 %"), (0.5, "50 %"), (0.0, "0 %")]
                .map(|(share, text)| mark(share, text.to_owned()))
                .to_vec(),
            Axis::Times => (low as i32..=high as i32)
                .map(|power| mark(10f64.powi(power), milliseconds(power)))
                .collect(),
            Axis::Numbers(unit) => [0.0, 0.25, 0.5, 0.75, 1.0]
                .map(|part| mark(part * high, format!("{} {unit}", short(part * high))))
                .to_vec(),
        }
    }
}

/// Returns a time's power of ten. Below a microsecond there is nothing to see.
fn power(time: f64) -> f64 {
    time.max(0.001).log10()
}

/// Returns the next number of which the quarters are short.
fn round_up(number: f64) -> f64 {
    if number <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(number.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    let fits = steps.into_iter().map(|step| step * decade).find(|step| *step >= number * 0.999);
    fits.unwrap_or(10.0 * decade)
}

/// Returns a number with at most three digits behind the point.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a power of ten of milliseconds.
fn milliseconds(decade: i32) -> String {
    match decade {
        ..-3 => format!("{} ns", 10u64.pow((decade + 6).max(0) as u32)),
        -3..0 => format!("{} µs", 10u64.pow((decade + 3) as u32)),
        0..3 => format!("{} ms", 10u64.pow(decade as u32)),
        3.. => format!("{} s", 10u64.pow((decade - 3) as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cumulative_line_reaches_the_whole() {
        assert_eq!(cumulative(&[3.0, 1.0]), [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]);
        assert_eq!(cumulative(&[]), []);
    }

    #[test]
    fn the_ends_of_an_axis_contain_all_values() {
        let ends =
            |axis, values: &[f64]| Scale::of(axis, values.iter().copied(), (0.0, 1.0)).values;
        assert_eq!(ends(Axis::Times, &[0.02, 300.0]), (-2.0, 3.0));
        assert_eq!(ends(Axis::Times, &[]), (-3.0, -2.0));
        assert_eq!(ends(Axis::Numbers("MB"), &[3.0, 171.0]), (0.0, 200.0));
        assert_eq!(ends(Axis::Numbers("MB"), &[31.0]), (0.0, 32.0));
        assert_eq!(ends(Axis::Numbers("MB"), &[]), (0.0, 1.0));
        assert_eq!(ends(Axis::Shares, &[9.0]), (0.0, 1.0));
    }

    #[test]
    fn larger_values_are_farther_up_and_right() {
        let panel = Panel {
            title: "memory".to_owned(),
            across: Axis::Numbers("sessions"),
            up: Axis::Numbers("MB"),
            lines: vec![vec![(0.0, 0.0), (100.0, 40.0)]],
        };
        let svg = chart(&["a & b"], &[panel]);
        let (left, right) = (MARGIN, WIDTH - RIGHT);
        let line = format!("points=\"{left},204.0 {right},24.0\"");
        assert!(svg.contains(&line), "{svg}");
        for text in ["75 sessions", "30 MB", "■ a &amp; b", "memory"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_panel_without_points_says_so() {
        let panel = Panel {
            title: String::new(),
            across: Axis::Times,
            up: Axis::Shares,
            lines: vec![Vec::new()],
        };
        assert!(chart(&["x"], &[panel]).contains("no data"));
    }
}
