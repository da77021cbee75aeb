//! Reads `weir.toml`: the same keys as `pgbouncer.ini`, global keys at the top, and one table for
//! each database, user and peer.
//!
//! A value may be a TOML value (a number, `true`, a list), or the text that `pgbouncer.ini` would
//! have. The parser of the key's type reads both.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::build::{Builder, Position, Report, Setting, unaliased};
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::key::{Key, Keyed};
use crate::reason::Reason;
use crate::source::Source;
use crate::table::{Cluster, Database, Global, Peer, UserSettings};
use crate::units;
use crate::value::{Kind, ValueError};
use crate::variables::Lookup;

const SECTIONS: [&str; 4] = ["databases", "users", "peers", "clusters"];

impl Config {
    /// Reads the text of a `weir.toml`; `file` is its name in messages. `auth_file` is not read.
    ///
    /// # Errors
    /// Every mistake in the text; if it is not TOML, the parser's reason.
    pub fn parse_toml(text: &str, file: &str) -> Result<Self, ConfigError> {
        Self::parse_toml_in(text, file, None)
    }

    /// Does the same, and replaces variables.
    pub(crate) fn parse_toml_in(
        text: &str,
        file: &str,
        variables: Option<Lookup>,
    ) -> Result<Self, ConfigError> {
        let builder = Builder::new(Source::Toml).with_variables(variables);
        let mut reader = Reader { builder, text, file: Arc::from(file) };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let line = error.span().map_or(0, |span| reader.line(span.start));
            let key = reader.key_of(line);
            let reason = match key.filter(|_| reader.lacks_quotes(line)) {
                Some(key) => Reason::TomlWithoutQuotes(key.to_owned()),
                None => Reason::Toml(error.message().replace('\n', ", ")),
            };
            let position = reader.position(line, "", "");
            reader.builder.report.error(&position, key.unwrap_or_default(), reason);
        }
        if errors.is_empty() {
            reader.read(table.get_ref());
        }
        // The table is sorted by name; people read files from top to bottom.
        reader.builder.report.mistakes.sort_by_key(|mistake| mistake.line);
        reader.builder.finish()
    }
}

struct Reader<'a> {
    builder: Builder,
    text: &'a str,
    file: Arc<str>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let line = self.line(key.span().start);
            let name: &str = key.get_ref();
            match value.get_ref() {
                DeValue::Table(entries) if SECTIONS.contains(&name) => self.section(name, entries),
                DeValue::Table(_) => {
                    let position = self.position(line, name, "");
                    let reason = Reason::UnknownSection(name.to_owned());
                    self.builder.report.unknown(&position, "", reason, name, SECTIONS.into_iter());
                }
                value if SECTIONS.contains(&name) => {
                    let (section, found) = (name.to_owned(), article(value));
                    let reason = Reason::ExpectedTables { section, found };
                    self.builder.report.error(&self.position(line, name, ""), "", reason);
                }
                value => self.global(line, name, value),
            }
        }
    }

    fn global(&mut self, line: usize, name: &str, value: &DeValue<'_>) {
        let position = self.position(line, "", "");
        let key = Global::row(name).map(|row| &row.key);
        if let Some(text) = text(value, key, name, &position, &mut self.builder.report) {
            self.builder.global(&position, name, &text);
        }
    }

    fn section(&mut self, section: &str, entries: &DeTable<'_>) {
        let mut in_order: Vec<_> = entries.iter().collect();
        in_order.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in in_order {
            let position = self.position(self.line(name.span().start), section, name.get_ref());
            let DeValue::Table(table) = value.get_ref() else {
                let reason = Reason::ExpectedTable {
                    section: section.to_owned(),
                    name: name.get_ref().to_string(),
                    found: article(value.get_ref()),
                };
                self.builder.report.error(&position, "", reason);
                continue;
            };
            match section {
                "databases" => {
                    let settings = self.settings::<Database>(&position, table);
                    self.builder.database(&position, &settings);
                }
                "users" => {
                    let settings = self.settings::<UserSettings>(&position, table);
                    self.builder.user(&position, &settings);
                }
                "clusters" => {
                    let settings = self.settings::<Cluster>(&position, table);
                    self.builder.cluster(&position, &settings);
                }
                _ => {
                    let settings = self.settings::<Peer>(&position, table);
                    self.builder.peer(&position, &settings);
                }
            }
        }
    }

    fn settings<T: Keyed>(&mut self, position: &Position, table: &DeTable<'_>) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (key, value) in table {
            let line = self.line(key.span().start);
            let name = key.get_ref().to_string();
            let key = T::row(unaliased(&name)).map(|row| &row.key);
            let report = &mut self.builder.report;
            if let Some(text) = text(value.get_ref(), key, &name, &position.at(line), report) {
                settings.push(Setting { key: name, text, line });
            }
        }
        settings
    }

    /// Returns the key of a line with a key and a value.
    fn key_of(&self, line: usize) -> Option<&'a str> {
        let (key, _) = self.line_text(line)?.split_once('=')?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        Some(key.trim()).filter(|key| !key.is_empty() && key.bytes().all(is_part))
    }

    /// Is the value of the line a text without the quotes that TOML asks for?
    fn lacks_quotes(&self, line: usize) -> bool {
        let value = self.line_text(line).and_then(|text| text.split_once('='));
        let value = value.map_or("", |(_, value)| value.trim());
        let word = value.split([' ', '\t', '#']).next().unwrap_or_default();
        word.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '/')
            && !["true", "false"].contains(&word)
            && word.parse::<f64>().is_err()
            && !value.contains(['"', '\''])
    }

    fn line_text(&self, line: usize) -> Option<&'a str> {
        self.text.lines().nth(line.checked_sub(1)?)
    }

    fn position(&self, line: usize, section: &str, entry: &str) -> Position {
        Position::new(&self.file, line, section, entry)
    }

    /// Returns the line of a byte of the text, counted from 1.
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }
}

/// Returns the text that `value` would have in `pgbouncer.ini`; `None` if it was reported as a
/// mistake.
///
/// The text of an unknown key does not matter, since the key is reported later.
fn text(
    value: &DeValue<'_>,
    key: Option<&Key>,
    name: &str,
    position: &Position,
    report: &mut Report,
) -> Option<String> {
    let Some(key) = key else { return Some(String::new()) };
    if let DeValue::String(written) = value {
        match units::number(written, key.kind, key.unit) {
            Some(Ok(number)) => return Some(number),
            Some(Err(expected)) => {
                report.error(position, name, key.refuse(written, expected));
                return None;
            }
            None => {}
        }
    }
    let text = native(value, key.kind);
    if text.is_none() {
        report.error(position, name, key.refuse(&article(value), ValueError::Kind(key.kind)));
    }
    text
}

fn native(value: &DeValue<'_>, kind: Kind) -> Option<String> {
    match (kind, value) {
        (_, DeValue::String(text)) => Some(text.to_string()),
        (
            Kind::Integer | Kind::Numbers | Kind::Seconds | Kind::Switch,
            DeValue::Integer(number),
        ) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(number.to_string())
        }
        (Kind::Seconds, DeValue::Float(number)) => Some(number.as_str().to_owned()),
        (Kind::Switch, DeValue::Boolean(on)) => Some(u8::from(*on).to_string()),
        (Kind::List, DeValue::Array(items)) => {
            let item = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
            items.iter().map(item).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

fn article(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(on) => on.to_string(),
        other => other.type_str().to_owned(),
    }
}
