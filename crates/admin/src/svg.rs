//! Drawings of lines in SVG, for pages and files. It knows nothing of what the lines mean.

mod chart;

use std::fmt::Write as _;

pub use self::chart::{Axis, Panel, Points, chart, cumulative};
use crate::incident::escaped;

/// A drawing of a fixed size. Its texts are escaped.
#[derive(Debug)]
pub(crate) struct Drawing(String);

/// The side of a label at which its point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

impl Drawing {
    pub(crate) fn new(width: i64, height: f64) -> Self {
        Self(format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">"))
    }

    /// Draws a line through these points.
    pub(crate) fn path(
        &mut self,
        name: &str,
        color: &str,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{},{y:.1} ", (x * 10.0).round() / 10.0);
        }
        let (path, name) = (path.trim_end(), escaped(name));
        let _ = write!(
            self.0,
            "<polyline fill=\"none\" stroke=\"{color}\" points=\"{path}\"><title>{name}</title>\
             </polyline>"
        );
    }

    /// Draws a vertical line between these heights. `style`: further attributes.
    pub(crate) fn upright(
        &mut self,
        x: i64,
        (y1, y2): (f64, f64),
        color: &str,
        style: &str,
        title: &str,
    ) {
        let title = escaped(title);
        let _ = write!(
            self.0,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"{y1}\" y2=\"{y2:.1}\" stroke=\"{color}\"{style}>\
             <title>{title}</title></line>"
        );
    }

    pub(crate) fn label(&mut self, x: i64, y: f64, anchor: Anchor, color: &str, text: &str) {
        let (anchor, text) = (anchor.word(), escaped(text));
        let _ = write!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>"
        );
    }

    /// Returns the drawing as a file of its own.
    pub(crate) fn into_file(self) -> String {
        const HEAD: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" \
            font-size=\"12\"";
        self.finish().replacen("<svg", HEAD, 1)
    }

    /// Returns the drawing for a page. It ends with a line break.
    pub(crate) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}
