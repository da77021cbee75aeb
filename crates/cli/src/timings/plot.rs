//! The drawing: for each sum, the share of connections that took at most a time. Times are on a
//! logarithmic axis.

use admin::{Anchor, Drawing};

use super::{Run, intervals::INTERVALS};

const WIDTH: i64 = 720;
/// The space for the labels of shares.
const MARGIN: i64 = 50;
/// The height of one plot, and of the space below its title and above its labels.
const HEIGHT: f64 = 180.0;
const ABOVE: f64 = 24.0;
const BELOW: f64 = 26.0;
const COLORS: [&str; 6] = ["#06c", "#c00", "#080", "#e80", "#90c", "#666"];
const TEXT: &str = "#000";
const RULE: &str = "#ddd";

/// Draws all sums of all runs.
pub(super) fn draw(runs: &[Run]) -> String {
    let sums: Vec<_> = INTERVALS.into_iter().filter(|interval| interval.is_sum()).collect();
    let step = ABOVE + HEIGHT + BELOW;
    let mut svg = Drawing::new(WIDTH, step * sums.len() as f64 + 20.0 * runs.len() as f64);
    for (at, sum) in sums.iter().enumerate() {
        let top = step * at as f64 + ABOVE;
        let title = format!("{}: {}", sum.name, sum.about);
        svg.label(MARGIN, top - 8.0, Anchor::Start, TEXT, &title);
        let times = runs.iter().map(|run| sum.times(&run.rows));
        draw_one(&mut svg, top, &times.collect::<Vec<_>>(), runs);
    }
    for (at, run) in runs.iter().enumerate() {
        let y = step * sums.len() as f64 + 20.0 * at as f64 + 12.0;
        svg.label(MARGIN, y, Anchor::Start, COLORS[at % COLORS.len()], &format!("■ {}", run.name));
    }
    svg.into_file()
}

fn draw_one(svg: &mut Drawing, top: f64, times: &[Vec<f64>], runs: &[Run]) {
    // Below a microsecond there is nothing to see.
    let all = || times.iter().flatten().map(|time| time.max(0.001).log10());
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(-3.0, f64::max));
    let bottom = top + HEIGHT;
    for (share, text) in [(1.0, "100 %"), (0.5, "50 %"), (0.0, "0 %")] {
        let y = bottom - share * HEIGHT;
        svg.path(text, RULE, [(MARGIN as f64, y), (WIDTH as f64 - 10.0, y)]);
        svg.label(MARGIN - 4, y + 4.0, Anchor::End, TEXT, text);
    }
    if low > high {
        return svg.label(WIDTH / 2, top + HEIGHT / 2.0, Anchor::Middle, TEXT, "no connections");
    }
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let scale = (WIDTH - 10 - MARGIN) as f64 / (high - low);
    let x = |time: f64| MARGIN as f64 + (time.max(0.001).log10() - low) * scale;
    for decade in low as i32..=high as i32 {
        let at = x(10f64.powi(decade)).round() as i64;
        svg.upright(at, (top, bottom), RULE, "", "");
        svg.label(at, bottom + 14.0, Anchor::Middle, TEXT, &milliseconds(decade));
    }
    for ((times, run), color) in times.iter().zip(runs).zip(COLORS.iter().cycle()) {
        let mut times = times.clone();
        times.sort_by(f64::total_cmp);
        let share = |count: usize| bottom - count as f64 / times.len() as f64 * HEIGHT;
        // A step for each connection.
        let steps = times.iter().enumerate();
        let steps = steps.flat_map(|(at, time)| [(x(*time), share(at)), (x(*time), share(at + 1))]);
        if !times.is_empty() {
            svg.path(&run.name, color, steps);
        }
    }
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
