//! The output of `weir convert`: a configuration as a `weir.toml` with the same meaning, with the
//! comments of the `pgbouncer.ini`. Keys stand in the order of the file. Unset keys stay unset, unless
//! the default of a `weir.toml` differs. Secrets are written as they are in the source file.

use std::fmt::Write;

use crate::config::Config;
use crate::ini::Comments;
use crate::key::{Key, Keyed, Row};
use crate::source::Source;
use crate::value::Kind;
use crate::variables::escaped;

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// This key names the file for a reload, which is another one now.
const NOT_CONVERTED: &str = "conffile";

/// Returns the text of a `weir.toml` with the same meaning.
pub fn to_toml(config: &Config, comments: &Comments) -> String {
    let mut writer = Writer { text: String::new(), source: config.source };
    writer.comment(&comments.first);
    let mut written = Vec::new();
    for item in comments.of_section("pgbouncer") {
        writer.comment(&item.comments);
        writer.key(&config.global, &item.name, &mut written);
    }
    writer.rest(&config.global, &written);
    let databases = config.databases.values().chain(&config.fallback);
    let databases: Vec<_> = databases.map(|one| (one.name.clone(), &**one)).collect();
    writer.tables("databases", &databases, comments);
    let users: Vec<_> = config.users.iter().map(|(name, one)| (name.clone(), one)).collect();
    writer.tables("users", &users, comments);
    let peers: Vec<_> = config.peers.iter().map(|(id, one)| (id.to_string(), one)).collect();
    writer.tables("peers", &peers, comments);
    let clusters: Vec<_> = config.clusters.iter().map(|(name, one)| (name.clone(), one)).collect();
    writer.tables("clusters", &clusters, comments);
    if !comments.last.is_empty() {
        writer.empty_line();
        writer.comment(&comments.last);
    }
    writer.text
}

/// The text of a `weir.toml`, and the form of the file that it is made from.
struct Writer {
    text: String,
    source: Source,
}

impl Writer {
    /// Writes the tables of a section: first those of the file, in its order.
    fn tables<T: Keyed>(&mut self, section: &str, all: &[(String, &T)], comments: &Comments) {
        let index = |name: &str| comments.of_section(section).position(|item| item.name == name);
        let mut all: Vec<_> =
            all.iter().map(|(name, target)| (index(name), name, *target)).collect();
        all.sort_by_key(|(index, ..)| index.unwrap_or(usize::MAX));
        let mut items = comments.of_section(section);
        for (index, name, target) in all {
            let mut keys: &[String] = &[];
            if index.is_some() {
                // Comments of the section, and of entries that are gone, are kept.
                for item in items.by_ref() {
                    if !item.comments.is_empty() {
                        self.empty_line();
                    }
                    self.comment(&item.comments);
                    if item.name == *name {
                        keys = &item.keys;
                        break;
                    }
                }
            }
            self.table(section, name, target, keys);
        }
        items.for_each(|item| self.comment(&item.comments));
    }

    fn table<T: Keyed>(&mut self, section: &str, name: &str, target: &T, keys: &[String]) {
        let is_commented = self.text.lines().next_back().is_some_and(|line| line.starts_with('#'));
        if !is_commented {
            self.empty_line();
        }
        let _ = writeln!(self.text, "{}", table_heading(section, name));
        let mut written = Vec::new();
        keys.iter().for_each(|name| self.key(target, name, &mut written));
        self.rest(target, &written);
    }

    /// Writes a key of the file, even if it has its default.
    fn key<T: Keyed>(&mut self, target: &T, name: &str, written: &mut Vec<&'static str>) {
        let row = T::row(name).filter(|row| row.key.name != NOT_CONVERTED);
        if let Some(row) = row.filter(|row| !written.contains(&row.key.name)) {
            self.pair(target, row);
            written.push(row.key.name);
        }
    }

    /// Writes the other keys that have not the default of a `weir.toml`.
    fn rest<T: Keyed>(&mut self, target: &T, written: &[&str]) {
        let is_left =
            |row: &&Row<T>| row.key.name != NOT_CONVERTED && !written.contains(&row.key.name);
        target.changed(Source::Toml).filter(is_left).for_each(|row| self.pair(target, row));
    }

    fn pair<T: Keyed>(&mut self, target: &T, row: &Row<T>) {
        // A key that is unset and has a default cannot be written, and cannot come out of a file.
        if let Some(mut value) = (row.exact)(target) {
            // In a `pgbouncer.ini`, PgBouncer's keys have no variables.
            if self.source == Source::Ini && row.key.is_pgbouncers() {
                value = escaped(&value);
            }
            let _ = writeln!(self.text, "{} = {}", row.key.name, native(&row.key, &value));
        }
    }

    fn comment(&mut self, lines: &[String]) {
        for line in lines {
            match line.as_str() {
                "" => self.empty_line(),
                line => {
                    let _ = writeln!(self.text, "{line}");
                }
            }
        }
    }

    /// Writes an empty line, unless one is there or nothing is.
    fn empty_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }
}

/// Returns the value in TOML's own form if that gives the same text again, else as a string.
fn native(key: &Key, value: &str) -> String {
    let is_octal =
        key.default_in(Source::Toml).is_some_and(|text| text.len() > 1 && text.starts_with('0'));
    match (key.kind, value.parse::<u32>()) {
        (Kind::Integer, Ok(number)) if is_octal => format!("{number:#o}"),
        (Kind::Integer | Kind::Numbers | Kind::Seconds, Ok(number)) => number.to_string(),
        (Kind::Switch, _) => (value != "0").to_string(),
        (Kind::List, _) => {
            let items = value.split(',').map(|item| quoted(item.trim()));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        (Kind::Text | Kind::Integer | Kind::Numbers | Kind::Seconds | Kind::Choice(_), _) => {
            quoted(value)
        }
    }
}

/// Returns the line that begins a table of TOML.
#[must_use]
pub fn table_heading(section: &str, name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(is_bare) {
        true => format!("[{section}.{name}]"),
        false => format!("[{section}.{}]", quoted(name)),
    }
}

/// Returns a text as a basic string of TOML.
#[must_use]
pub fn quoted(value: &str) -> String {
    let mut text = "\"".to_owned();
    for c in value.chars() {
        let _ = match c {
            '"' | '\\' => write!(text, "\\{c}"),
            c if c.is_control() => write!(text, "\\u{:04X}", u32::from(c)),
            c => write!(text, "{c}"),
        };
    }
    text.push('"');
    text
}
