//! A mistake in a configuration, with its position.

use std::sync::Arc;
use std::{fmt, io};

use crate::reason::Reason;
use crate::suggest;

/// A mistake or a warning, and its position. Line 0 stands for the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as named on the command line or in `%include`; `URL` for a URL; empty where the
    /// reason names it.
    pub file: Arc<str>,
    /// The line, counted from 1; 0 where the mistake has no line.
    pub line: usize,
    /// The section, empty outside of any.
    pub section: String,
    /// The key, `NAME.key` within a database, user or peer; empty where there is none.
    pub key: String,
    pub reason: Reason,
    /// The nearest valid word.
    pub suggestion: Option<String>,
}

impl Mistake {
    /// Returns a mistake in a file without sections.
    pub(crate) fn in_file(file: &Arc<str>, line: usize, reason: Reason) -> Self {
        Self {
            file: Arc::clone(file),
            line,
            section: String::new(),
            key: String::new(),
            reason,
            suggestion: None,
        }
    }
}

/// Returns the system's text for an error, without the number that the standard library appends.
#[must_use]
pub fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error ").next().unwrap_or(&text);
    words.strip_prefix("failed to lookup address information: ").unwrap_or(words).to_owned()
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        if !self.file.is_empty() {
            f.write_str(": ")?;
        }
        write!(f, "{}{}", self.reason, suggest::hint(self.suggestion.as_deref()))
    }
}
