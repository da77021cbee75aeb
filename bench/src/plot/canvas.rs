//! A white picture with a title, and functions that draw on it. Coordinates are pixels.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) const BLACK_SOFT: RGBColor = RGBColor(60, 60, 60);
const LINE: RGBColor = RGBColor(215, 215, 215);
const FONT: &str = "sans-serif";

/// Direct, PgBouncer, Weir.
pub(super) const SIDES: [(&str, RGBColor); 3] = [
    ("direct", RGBColor(150, 150, 150)),
    ("pgbouncer", RGBColor(214, 133, 52)),
    ("weir", RGBColor(33, 113, 181)),
];

pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

/// Draws a picture of this size and returns it as SVG.
pub(super) fn picture(
    size: (u32, u32),
    title: &str,
    below: &str,
    draw: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let canvas = Canvas { area };
        canvas.text((16, 22), title, 17, HPos::Left)?;
        canvas.text((16, 44), below, 12, HPos::Left)?;
        draw(&canvas)?;
        canvas.area.present().map_err(failed)?;
    }
    Ok(svg)
}

impl Canvas<'_> {
    /// Draws text that is vertically centered at `at`.
    pub(super) fn text(&self, at: (i32, i32), text: &str, size: u32, to: HPos) -> Result<()> {
        let style = TextStyle::from((FONT, size).into_font())
            .color(&BLACK_SOFT)
            .pos(Pos::new(to, VPos::Center));
        self.area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
    }

    pub(super) fn grid(&self, from: (i32, i32), to: (i32, i32)) -> Result<()> {
        self.line(from, to, LINE, 1)
    }

    pub(super) fn line(
        &self,
        from: (i32, i32),
        to: (i32, i32),
        color: RGBColor,
        width: u32,
    ) -> Result<()> {
        self.area.draw(&PathElement::new([from, to], color.stroke_width(width))).map_err(failed)
    }

    pub(super) fn dot(&self, at: (i32, i32), color: RGBColor) -> Result<()> {
        self.area.draw(&Circle::new(at, 5, color.filled())).map_err(failed)
    }

    pub(super) fn bar(&self, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Result<()> {
        self.area.draw(&Rectangle::new([from, to], color.filled())).map_err(failed)
    }

    /// Draws the legend in one line, from the given point on: the color and label of each side.
    pub(super) fn legend(&self, (mut x, y): (i32, i32), labels: &[String; 3]) -> Result<()> {
        for (label, (_, color)) in labels.iter().zip(SIDES) {
            self.dot((x, y), color)?;
            self.text((x + 12, y), label, 13, HPos::Left)?;
            x += 34 + 8 * label.chars().count() as i32;
        }
        Ok(())
    }
}
