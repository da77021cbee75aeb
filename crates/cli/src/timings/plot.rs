//! The drawing: for each sum, the share of connections that took at most a time. Times are on a
//! logarithmic axis.

use admin::{Axis, Panel, chart, cumulative};

use super::{Run, intervals::INTERVALS};

/// Draws all sums of all runs.
pub(super) fn draw(runs: &[Run]) -> String {
    let sums = INTERVALS.into_iter().filter(|interval| interval.is_sum());
    let panels: Vec<_> = sums
        .map(|sum| Panel {
            title: format!("{}: {}", sum.name, sum.about),
            across: Axis::Times,
            up: Axis::Shares,
            lines: runs.iter().map(|run| cumulative(&sum.times(&run.rows))).collect(),
        })
        .collect();
    let names: Vec<_> = runs.iter().map(|run| &*run.name).collect();
    chart(&names, &panels)
}
