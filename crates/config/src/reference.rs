//! Tables of the generated references, such as `docs/config.md`. A row that is too long keeps the
//! first sentence of its text. The other sentences become a note below the table.

use std::fmt::Write;

/// Limits of a row and of a line, in columns. `scripts/tidy.py` checks them.
const ROW_COLUMNS_MAX: usize = 160;
const COLUMNS_MAX: usize = 100;

/// A table in Markdown. Its first column is a name, its last column a text of sentences.
#[derive(Debug)]
pub struct Table {
    rows: String,
    notes: String,
}

impl Table {
    /// Begins a table with these columns.
    pub fn new(columns: &[&str]) -> Self {
        let head = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
        Self { rows: head, notes: String::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, name: &str, cells: &[&str], text: &str) {
        let begin = [&[&*format!("`{name}`")][..], cells].concat().join(" | ");
        let columns = begin.chars().count() + text.chars().count() + "|  |  |".len();
        let (text, rest) = match text.split_once(". ") {
            Some((first, rest)) if columns > ROW_COLUMNS_MAX => (format!("{first}."), Some(rest)),
            _ => (text.to_owned(), None),
        };
        let _ = writeln!(self.rows, "| {begin} | {text} |");
        if let Some(rest) = rest {
            let note = wrapped(&format!("* `{name}`: {rest}"));
            let _ = writeln!(self.notes, "{}", note.replace('\n', "\n  "));
        }
    }

    /// Returns the table with its notes.
    pub fn finish(self) -> String {
        match self.notes.is_empty() {
            true => self.rows,
            false => format!("{}\n{}", self.rows, self.notes),
        }
    }
}

/// Breaks a text into lines of at most 100 columns, with room for the indent of a list.
pub fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS_MAX - 2 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_row_keeps_its_first_sentence() {
        let mut table = Table::new(&["key", "meaning"]);
        table.row("short", &[], "One. Two.");
        let rest = "word ".repeat(30);
        table.row("long", &[], &format!("One. Two {rest}end."));
        let text = table.finish();
        assert!(
            text.starts_with("| key | meaning |\n|---|---|\n| `short` | One. Two. |\n"),
            "{text}"
        );
        assert!(text.contains("| `long` | One. |\n\n* `long`: Two word"), "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
        assert!(text.contains("\n  word ") && text.ends_with(" end.\n"), "{text}");
    }
}
