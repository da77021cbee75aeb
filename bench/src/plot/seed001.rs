//! The table of seed 001: transactions per second through a pooler, divided by those of a direct
//! connection. It shows the figures of seed 001 beside those of both poolers here.

use anyhow::Result;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use super::canvas::{BLACK_SOFT, SIDES, picture};
use super::{rows, text};

const LEFT: i32 = 150;
const SCALE: i32 = 360;
const BAR: i32 = 13;
const TOP: i32 = 100;
/// Seed 001 gets the grey of the direct connection, which is the unit here and has no bar.
const KEYS: [&str; 3] = ["seed", "pgbouncer", "weir"];
/// The largest ratio that is drawn.
const MOST: f64 = 1.5;

/// Draws the picture. Returns `None` if none of its rows was measured.
pub(super) fn draw(real: &Value) -> Result<Option<String>> {
    let rows: Vec<_> = rows(real)?.iter().filter(|row| row["by_direct"].is_object()).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let height = BAR * 3 + 12;
    let bottom = TOP + height * rows.len() as i32;
    let title = "Transactions a second by those of a direct connection";
    let labels = ["seed 001", text(real, "pgbouncer"), text(real, "weir")].map(str::to_owned);
    picture((760, (bottom + 16) as u32), title, text(real, "how"), |canvas| {
        canvas.legend((24, 68), &labels)?;
        for (at, row) in rows.iter().enumerate() {
            let top = TOP + height * at as i32;
            let name = title_of(text(row, "row"));
            canvas.text((LEFT - 12, top + BAR * 3 / 2), &name, 13, HPos::Right)?;
            for (line, (key, (_, color))) in KEYS.iter().zip(SIDES).enumerate() {
                let Some(ratio) = row["by_direct"][*key].as_f64() else { continue };
                let (y, end) = (top + BAR * line as i32, place(ratio));
                canvas.bar((LEFT, y + 1), (end, y + BAR - 1), color)?;
                canvas.text((end + 6, y + BAR / 2), &format!("{ratio:.2}"), 11, HPos::Left)?;
            }
        }
        canvas.line((place(1.0), TOP - 8), (place(1.0), bottom), BLACK_SOFT, 1)
    })
    .map(Some)
}

fn place(ratio: f64) -> i32 {
    LEFT + (ratio.min(MOST) * f64::from(SCALE)) as i32
}

/// Returns the title of a row such as `seed001-tls-10`.
fn title_of(name: &str) -> String {
    let what = name.strip_prefix("seed001-").unwrap_or(name);
    match what.strip_prefix("tls-") {
        Some(clients) => format!("{clients} clients, TLS"),
        None => format!("{what} clients"),
    }
}
