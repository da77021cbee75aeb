//! Draws a call tree as SVG without a script. Callers are below the functions that they call. A
//! frame is as wide as its share of the samples; a tooltip shows its whole name and share.

use std::fmt::Write as _;

use super::{Frame, Node, Owner};

const WIDTH: f64 = 1_200.0;
const MARGIN: f64 = 10.0;
const HEIGHT: f64 = 16.0;
/// Pixels above the frames, for the title and the legend.
const HEAD: f64 = 60.0;
/// Pixels. Narrower frames and their callees are left out. This is 0.2 % of the samples.
const NARROWEST: f64 = 2.36;
/// The average width of a letter, in pixels.
const LETTER: f64 = 6.2;
/// A shorter part of a name is not shown, since it would mean nothing.
const LETTERS_MIN: usize = 3;

pub(crate) fn draw(tree: &Node, title: &str) -> String {
    let bottom = HEAD + HEIGHT * tree.depth() as f64;
    let (width, height) = (WIDTH, bottom + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"17\">{}</text>\n",
        escaped(title)
    );
    let mut x = MARGIN;
    for owner in [Owner::Program, Owner::Library, Owner::Kernel] {
        let text = format!("{} {:.0} %", owner.title(), 100.0 * tree.share(owner));
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"44\" font-size=\"12\">{text}</text>",
            owner.color(),
            x + 18.0
        );
        x += 150.0;
    }
    let mut picture = Picture { svg, all: tree.samples.max(1) as f64 };
    picture.callees(tree, MARGIN, bottom - HEIGHT);
    picture.svg.push_str("</svg>\n");
    picture.svg
}

struct Picture {
    svg: String,
    all: f64,
}

impl Picture {
    fn callees(&mut self, node: &Node, mut x: f64, y: f64) {
        for (frame, callee) in &node.callees {
            let share = callee.samples as f64 / self.all;
            let width = share * (WIDTH - 2.0 * MARGIN);
            if width >= NARROWEST {
                self.frame(frame, share, (x, y), width);
                self.callees(callee, x, y - HEIGHT);
            }
            x += width;
        }
    }

    fn frame(&mut self, frame: &Frame, share: f64, (x, y): (f64, f64), width: f64) {
        let _ = write!(
            self.svg,
            "<g><title>{} {:.1} %</title>\
             <rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            escaped(&frame.name),
            100.0 * share,
            width - 0.5,
            HEIGHT - 1.0,
            frame.owner.color()
        );
        if let Some(text) = fitting(&frame.name, width) {
            let (x, y, text) = (x + 3.0, y + 11.5, escaped(&text));
            let _ = write!(self.svg, "<text x=\"{x:.1}\" y=\"{y}\">{text}</text>");
        }
        self.svg.push_str("</g>\n");
    }
}

impl Owner {
    fn title(self) -> &'static str {
        match self {
            Self::Program => "the pooler",
            Self::Library => "its libraries",
            Self::Kernel => "kernel",
        }
    }

    fn color(self) -> &'static str {
        match self {
            Self::Program => "#8fbce0",
            Self::Library => "#b5d6a7",
            Self::Kernel => "#f0c38e",
        }
    }
}

/// Returns `name`, or the part after its last `::`, or the beginning of that part, whichever fits
/// into `width`.
fn fitting(name: &str, width: f64) -> Option<String> {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    let last = name.rsplit("::").next().unwrap_or(name);
    let text = if name.chars().count() <= room { name } else { last };
    if text.chars().count() <= room {
        return Some(text.to_owned());
    }
    let cut = || text.chars().take(room - 1).chain(['…']).collect();
    (room > LETTERS_MIN).then(cut)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
