//! Transactions per second against a real PostgreSQL, three bars for each row of `real`. Rows
//! differ by orders of magnitude, so the longest bar of each row has the whole width.

use anyhow::Result;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use super::canvas::{SIDES, picture};
use super::{figures, labels, rows, text};
use crate::stats::median;

const LEFT: i32 = 190;
const WIDTH: i32 = 440;
const BAR: i32 = 13;
const TOP: i32 = 92;

/// Draws the picture. Returns `None` if none of its rows was measured.
pub(super) fn draw(real: &Value) -> Result<Option<String>> {
    // At a fixed rate all sides have the same throughput, and seed 001 has a picture of its own.
    // The fleet rows are not about throughput, and a copy is not comparable with other
    // transactions.
    let others = ["latency-", "seed001-", "fleet-", "copy-"];
    let is_shown = |row: &&Value| !others.iter().any(|other| text(row, "row").starts_with(other));
    let rows: Vec<_> = rows(real)?.iter().filter(is_shown).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let height = BAR * 3 + 12;
    let bottom = TOP + height * rows.len() as i32;
    picture((760, (bottom + 16) as u32), "Transactions a second", text(real, "how"), |canvas| {
        canvas.legend((24, 68), &labels(real))?;
        for (at, row) in rows.iter().enumerate() {
            let tps = SIDES.map(|(side, _)| median(&figures(&row[side], |one| &one["tps"])));
            let most = tps.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
            let top = TOP + height * at as i32;
            canvas.text((LEFT - 12, top + BAR * 3 / 2), text(row, "row"), 13, HPos::Right)?;
            for (line, (value, (_, color))) in tps.iter().zip(SIDES).enumerate() {
                let Some(value) = value else { continue };
                let (y, end) =
                    (top + BAR * line as i32, LEFT + (value / most * f64::from(WIDTH)) as i32);
                canvas.bar((LEFT, y + 1), (end, y + BAR - 1), color)?;
                canvas.text((end + 6, y + BAR / 2), &format!("{value:.0}"), 11, HPos::Left)?;
            }
        }
        Ok(())
    })
    .map(Some)
}
