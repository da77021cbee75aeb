//! The table of all parameters in `docs/pgpool.md`.

use std::fmt::Write as _;

use crate::table::{Part, Row, rows};

/// The longest line.
const LINE_MAX: usize = 150;

/// Returns the table as Markdown. Parameters with one meaning have one row.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| Pgpool-II | becomes | Weir, or why not |\n|---|---|---|\n");
    let rows: Vec<&Row> = rows().collect();
    let is_same = |one: &Row, other: &Row| {
        (one.part, one.keys, one.why) == (other.part, other.keys, other.why)
    };
    for (at, row) in rows.iter().enumerate() {
        if rows[..at].iter().any(|earlier| is_same(earlier, row)) {
            continue;
        }
        let mut names = String::new();
        for other in rows[at..].iter().filter(|other| is_same(other, row)) {
            let name = format!("`{}`", other.name);
            let rest = row.keys.len() + row.why.len() + 30;
            if !names.is_empty() && names.len() + name.len() + rest > LINE_MAX {
                line(&mut text, &names, row);
                names.clear();
            }
            if !names.is_empty() {
                names += ", ";
            }
            names += &name;
        }
        line(&mut text, &names, row);
    }
    text
}

fn line(text: &mut String, names: &str, row: &Row) {
    let part = match row.part {
        Part::Kept => "kept",
        Part::Changed => "changed",
        Part::Without => "without",
    };
    let keys: Vec<_> = row.keys.split(", ").filter(|it| !it.is_empty()).collect();
    let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
    let separator = if keys.is_empty() || row.why.is_empty() { "" } else { ": " };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| {names} | {part} | {}{separator}{} |", keys.join(", "), row.why);
}
