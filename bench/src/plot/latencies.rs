//! Latencies against a real PostgreSQL: p50, p99 and p99.9 of each side on one logarithmic scale,
//! for the rows with a fixed rate and the one in saturation.

use anyhow::Result;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use super::canvas::{SIDES, picture};
use super::{labels, rows, text};

const LEFT: i32 = 190;
const WIDTH: i32 = 500;
const LINE_HEIGHT: i32 = 18;
const TOP: i32 = 112;
const QUANTILES: [(&str, &str); 3] = [("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p99.9")];
/// The range of the scale, as powers of ten of a millisecond.
const POWERS: std::ops::RangeInclusive<i32> = -1..=3;

/// Draws the picture. Returns `None` if none of its rows was measured.
pub(super) fn draw(real: &Value) -> Result<Option<String>> {
    let is_shown = |row: &&Value| {
        let name = text(row, "row");
        name.starts_with("latency") || name.starts_with("saturation")
    };
    let rows: Vec<_> = rows(real)?.iter().filter(is_shown).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let lines = rows.len() * QUANTILES.len();
    let bottom = TOP + LINE_HEIGHT * lines as i32 + 10 * rows.len() as i32;
    picture((760, (bottom + 16) as u32), "Latency, milliseconds", text(real, "how"), |canvas| {
        canvas.legend((24, 68), &labels(real))?;
        for power in POWERS {
            let x = place(10f64.powi(power));
            canvas.grid((x, TOP - 8), (x, bottom))?;
            canvas.text((x, TOP - 16), &10f64.powi(power).to_string(), 12, HPos::Center)?;
        }
        for (at, row) in rows.iter().enumerate() {
            for (line, (key, title)) in QUANTILES.iter().enumerate() {
                let before = (at * QUANTILES.len() + line) as i32;
                let y = TOP + LINE_HEIGHT * before + 10 * at as i32 + LINE_HEIGHT / 2;
                let name = format!("{} {title}", text(row, "row"));
                canvas.text((LEFT - 12, y), &name, 13, HPos::Right)?;
                for (side, color) in SIDES {
                    if let Some(value) = row["all_rounds"][side][*key].as_f64() {
                        canvas.dot((place(value), y), color)?;
                    }
                }
            }
        }
        Ok(())
    })
    .map(Some)
}

fn place(ms: f64) -> i32 {
    let (from, to) = (f64::from(*POWERS.start()), f64::from(*POWERS.end()));
    let share = (ms.log10().clamp(from, to) - from) / (to - from);
    LEFT + (share * f64::from(WIDTH)) as i32
}
