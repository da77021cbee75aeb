//! The lines of the configuration on which keys and databases are written, for messages about
//! mistakes that show only when the value is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Mistake;
use crate::reason::Reason;

type Lines = BTreeMap<String, (Arc<str>, usize)>;

/// File and line of each global key and of each database that was set.
/// Two configurations that differ in nothing else are equal.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    keys: Lines,
    databases: Lines,
}

impl PartialEq for Positions {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Positions {
    /// Returns the line on which the same file has set the key before.
    pub(crate) fn set_key(&mut self, key: &str, file: &Arc<str>, line: usize) -> Option<usize> {
        let (before, first) = self.keys.insert(key.to_owned(), (Arc::clone(file), line))?;
        (before == *file).then_some(first)
    }

    pub(crate) fn set_database(&mut self, name: &str, file: &Arc<str>, line: usize) {
        self.databases.insert(name.to_owned(), (Arc::clone(file), line));
    }

    pub(crate) fn forget_keys(&mut self) {
        self.keys.clear();
    }

    /// Returns a mistake about a global key that is set.
    pub(crate) fn mistake(&self, key: &str, reason: Reason) -> Mistake {
        let (file, line) = self.keys.get(key).cloned().unwrap_or_else(|| (Arc::from(""), 0));
        Mistake { key: key.to_owned(), ..Mistake::in_file(&file, line, reason) }
    }

    /// Returns `FILE:LINE: KEY`, or `KEY` alone for a key that is not set.
    #[must_use]
    pub fn of_key(&self, key: &str) -> String {
        described(&self.keys, key, key)
    }

    /// Returns `FILE:LINE: ` for a text that begins with the key; empty if the position is not known.
    #[must_use]
    pub fn before_key(&self, key: &str) -> String {
        described(&self.keys, key, "")
    }

    /// Returns `FILE:LINE: databases.NAME`, without the position if it is not known.
    #[must_use]
    pub fn of_database(&self, name: &str) -> String {
        described(&self.databases, name, &format!("databases.{name}"))
    }
}

fn described(lines: &Lines, key: &str, text: &str) -> String {
    match lines.get(key) {
        Some((file, line)) if *line > 0 => format!("{file}:{line}: {text}"),
        Some((file, _)) => format!("{file}: {text}"),
        None => text.to_owned(),
    }
}
