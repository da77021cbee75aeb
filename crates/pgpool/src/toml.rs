//! Writes a `weir.toml`.

use std::fmt::Write as _;

use config::{escaped, quoted, table_heading};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// The text so far.
#[derive(Debug, Default)]
pub(crate) struct Toml {
    text: String,
}

impl Toml {
    pub(crate) fn comment(&mut self, line: &str) {
        let _ = writeln!(self.text, "# {}", line.replace(char::is_control, "?"));
    }

    pub(crate) fn empty_line(&mut self) {
        self.text.push('\n');
    }

    pub(crate) fn table(&mut self, section: &str, name: &str) {
        let _ = writeln!(self.text, "\n{}", table_heading(section, name));
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.text, "{key} = {}", quoted(&escaped(value)));
    }

    /// Writes a value that TOML has without quotes.
    pub(crate) fn bare(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{key} = {value}");
    }

    pub(crate) fn list<T: AsRef<str>>(&mut self, key: &str, values: &[T]) {
        let items: Vec<_> = values.iter().map(|value| quoted(&escaped(value.as_ref()))).collect();
        let _ = writeln!(self.text, "{key} = [{}]", items.join(", "));
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}
