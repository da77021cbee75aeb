//! Weir's cost divided by PgBouncer's, one line for each row of `run`: the median and the range of
//! the pairs.

use anyhow::Result;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use super::canvas::{BLACK_SOFT, SIDES, picture};
use super::{figures, rows, text};
use crate::stats::{median, range};

const LEFT: i32 = 180;
const SCALE: i32 = 380;
const LINE_HEIGHT: i32 = 24;
const TOP: i32 = 84;
/// The largest ratio that is drawn.
const MOST: f64 = 1.25;

/// Draws the picture. Returns `None` if no row has figures of both poolers.
pub(super) fn draw(bench: &Value) -> Result<Option<String>> {
    let lines: Vec<(String, Vec<f64>)> = rows(bench)?.iter().flat_map(lines_of).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let bottom = TOP + LINE_HEIGHT * lines.len() as i32;
    let title =
        format!("{} by {}: lower is cheaper", text(bench, "weir"), text(bench, "pgbouncer"));
    let size = (720, (bottom + 20) as u32);
    picture(size, &title, text(bench, "how"), |canvas| {
        for tenth in (0..=12).step_by(2) {
            let x = place(f64::from(tenth) / 10.0);
            canvas.grid((x, TOP - 8), (x, bottom))?;
            canvas.text(
                (x, TOP - 16),
                &format!("{:.1}", f64::from(tenth) / 10.0),
                12,
                HPos::Center,
            )?;
        }
        canvas.line((place(1.0), TOP - 8), (place(1.0), bottom), BLACK_SOFT, 1)?;
        for (at, (name, ratios)) in lines.iter().enumerate() {
            let y = TOP + LINE_HEIGHT * at as i32 + LINE_HEIGHT / 2;
            let (Some(middle), Some((from, to))) = (median(ratios), range(ratios)) else {
                continue;
            };
            canvas.text((LEFT - 12, y), name, 13, HPos::Right)?;
            canvas.line((place(from), y), (place(to), y), SIDES[2].1, 2)?;
            canvas.dot((place(middle), y), SIDES[2].1)?;
            canvas.text((place(MOST) + 12, y), &format!("{middle:.2}"), 13, HPos::Left)?;
        }
        Ok(())
    })
    .map(Some)
}

fn place(ratio: f64) -> i32 {
    LEFT + (ratio.min(MOST) * f64::from(SCALE)) as i32
}

/// Returns one line for each figure of a row. Leaves out the figures that one pooler lacks.
fn lines_of(row: &Value) -> Vec<(String, Vec<f64>)> {
    let parts = row["ratio"].as_array().map_or(0, Vec::len);
    let name = text(row, "row");
    let line = |part: usize| {
        let side = |side: &str| figures(&row[side]["samples"], |one| &one["figures"][part]);
        let pairs = side("pgbouncer").into_iter().zip(side("weir"));
        let ratios: Vec<f64> = pairs.map(|(pgbouncer, weir)| weir / pgbouncer).collect();
        let title = if part == 0 { name.to_owned() } else { format!("{name} ({})", part + 1) };
        (title, ratios)
    };
    (0..parts).map(line).filter(|(_, ratios)| !ratios.is_empty()).collect()
}
