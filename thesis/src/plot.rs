//! Plots of lines over time, one panel below the other, as an SVG file.

use admin::{Anchor, Drawing};

const WIDTH: i64 = 720;
/// The space for the labels of heights.
const MARGIN: i64 = 60;
/// The height of one panel, and of the space below its title and above the next one.
const HEIGHT: f64 = 180.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 26.0;
/// The height of a line of the legend.
const LINE: f64 = 20.0;
const COLORS: [&str; 6] = ["#06c", "#c00", "#080", "#e80", "#90c", "#666"];
const TEXT: &str = "#000";
const RULE: &str = "#ddd";

/// Some lines with a common scale, which begins at 0.
#[derive(Debug)]
pub(crate) struct Panel<'a> {
    pub(crate) title: &'a str,
    /// For each name of the plot: the points of its line, as seconds and heights.
    pub(crate) lines: Vec<Vec<(f64, f64)>>,
}

/// Draws the panels. Line N of each panel has name N.
pub(crate) fn draw(names: &[String], panels: &[Panel<'_>]) -> String {
    let step = ABOVE + HEIGHT + BELOW;
    let legend = step * panels.len() as f64;
    let mut svg = Drawing::new(WIDTH, legend + LINE * names.len() as f64 + 6.0);
    let points = panels.iter().flat_map(|panel| panel.lines.iter().flatten());
    let end = points.map(|(seconds, _)| *seconds).fold(1.0, f64::max).ceil();
    for (at, panel) in panels.iter().enumerate() {
        draw_one(&mut svg, step * at as f64 + ABOVE, end, names, panel);
    }
    for (at, name) in names.iter().enumerate() {
        let y = legend + LINE * at as f64 + 12.0;
        svg.label(MARGIN, y, Anchor::Start, color(at), &format!("■ {name}"));
    }
    svg.into_file()
}

fn draw_one(svg: &mut Drawing, top: f64, end: f64, names: &[String], panel: &Panel<'_>) {
    svg.label(MARGIN, top - 10.0, Anchor::Start, TEXT, panel.title);
    let heights = panel.lines.iter().flatten().map(|(_, height)| *height);
    let most = heights.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let bottom = top + HEIGHT;
    let width = (WIDTH - 10 - MARGIN) as f64;
    for share in [0.0, 0.5, 1.0] {
        let y = bottom - share * HEIGHT;
        svg.path("", RULE, [(MARGIN as f64, y), (MARGIN as f64 + width, y)]);
        svg.label(MARGIN - 4, y + 4.0, Anchor::End, TEXT, &rounded(most * share));
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let x = MARGIN + (share * width) as i64;
        svg.label(x, bottom + 14.0, Anchor::Middle, TEXT, &format!("{} s", rounded(end * share)));
    }
    for (at, (line, name)) in panel.lines.iter().zip(names).enumerate() {
        let point = |(seconds, height): &(f64, f64)| {
            (MARGIN as f64 + seconds / end * width, bottom - height / most * HEIGHT)
        };
        svg.path(name, color(at), line.iter().map(point));
    }
}

fn color(at: usize) -> &'static str {
    COLORS[at % COLORS.len()]
}

/// Returns a number with at most one digit behind the point.
fn rounded(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_panel_has_a_line_for_each_name() {
        let names = ["first".to_owned(), "<second>".to_owned()];
        let lines = || vec![vec![(0.0, 1.0), (2.0, 3.0)], Vec::new()];
        let panels = ["servers", "waits"].map(|title| Panel { title, lines: lines() });
        let svg = draw(&names, &panels);
        assert_eq!(svg.matches("<polyline").count(), 2 * (3 + 2), "{svg}");
        assert!(svg.contains("■ &lt;second&gt;") && svg.contains(">1.5<"), "{svg}");
    }
}
