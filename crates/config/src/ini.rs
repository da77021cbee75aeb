//! Reads `pgbouncer.ini` as PgBouncer does.
//!
//! There are four kinds of lines: `[section]`, `key = value`, `%include FILE`, and comments, which
//! begin with `;` or `#`. Within a line these characters have no meaning. A value is the rest of
//! its line without surrounding blanks: no quotes, no escapes, no continuation. An unusual key is
//! put in single quotes. PgBouncer stops at the first mistake; this parser reports all of them.

mod comments;

pub use comments::Comments;

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::build::{Builder, Position, Setting, unaliased};
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::connstr::{self, End};
use crate::error::in_words;
use crate::key::Keyed as _;
use crate::reason::Reason;
use crate::source::Source;
use crate::table::{Cluster, Database, UserSettings};
use crate::value::Kind;
use crate::variables::Lookup;

/// Maximal number of included files; a file that is named twice counts twice.
const INCLUDES_MAX: u32 = 1000;
/// Maximal depth of included files.
const INCLUDE_DEPTH_MAX: usize = 10;
const SECTIONS: [&str; 5] = ["pgbouncer", "databases", "users", "peers", "clusters"];

/// Returns the content of a file named by `%include`.
pub(crate) type Include<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

impl Config {
    /// Reads the text of a `pgbouncer.ini`. `file` is its name in messages, and `include` returns
    /// the content of included files. `auth_file` is not read.
    ///
    /// # Errors
    /// Every mistake in the text and its included files.
    pub fn parse_ini(text: &str, file: &str, include: Include<'_>) -> Result<Self, ConfigError> {
        Self::parse_ini_in(text, file, include, None)
    }

    /// Does the same, and replaces variables in Weir's own keys.
    pub(crate) fn parse_ini_in(
        text: &str,
        file: &str,
        include: Include<'_>,
        variables: Option<Lookup>,
    ) -> Result<Self, ConfigError> {
        let builder = Builder::new(Source::Ini).with_variables(variables);
        let mut reader = Reader { builder, include, included: 0, section: None };
        let file = Arc::from(file);
        let main_seen = reader.read(text, &file, 0);
        if !main_seen {
            let position = Position::new(&file, 0, "", "");
            reader.builder.report.error(&position, "", Reason::NoMainSection);
        }
        reader.builder.finish()
    }
}

/// Returns what is wrong with the pairs of an entry, with advice on what people write most often. The
/// text may have a password, so it is not repeated.
fn syntax_error(what: &'static str, text: &str) -> Reason {
    let advice = match text {
        url if url.contains("://") => {
            "a URL has no place here, write host=… port=… dbname=… user=… password=…"
        }
        quoted if quoted.contains('\'') => {
            "a value in single quotes ends with one, and a quote within is doubled, as in 'it''s'"
        }
        _ => return Reason::SyntaxIn(what),
    };
    Reason::SyntaxAdvised { what, advice }
}

struct Reader<'a> {
    builder: Builder,
    include: Include<'a>,
    /// Files included so far.
    included: u32,
    /// The section of the last header; included files continue it.
    section: Option<String>,
}

impl Reader<'_> {
    /// Reads one file. Returns true if it, or a file that it includes, has a `[pgbouncer]` section.
    fn read(&mut self, text: &str, file: &Arc<str>, depth: usize) -> bool {
        let mut main_seen = false;
        let mut cursor = Cursor::new(text);
        while let Some(line) = cursor.line() {
            let section = self.section.clone().unwrap_or_default();
            let position = Position::new(file, line.number, &section, "");
            match line.content {
                Content::Section(name) => {
                    main_seen |= name == "pgbouncer";
                    self.section(&position, name);
                }
                Content::Include(name) => main_seen |= self.include(&position, name, depth),
                Content::Pair(key, value) => self.pair(&position, &key, value),
                Content::Error => {
                    self.builder.report.error(&position, "", Reason::Syntax);
                }
            }
        }
        main_seen
    }

    fn section(&mut self, position: &Position, name: &str) {
        if name == "pgbouncer" {
            self.builder.reset_global(position);
        } else if !SECTIONS.contains(&name) {
            let reason = Reason::UnknownSection(name.to_owned());
            self.builder.report.unknown(position, "", reason, name, SECTIONS.into_iter());
        }
        self.section = Some(name.to_owned());
    }

    fn include(&mut self, position: &Position, name: &str, depth: usize) -> bool {
        if depth >= INCLUDE_DEPTH_MAX {
            let reason = Reason::IncludedTooDeep { max: INCLUDE_DEPTH_MAX };
            self.builder.report.error(position, "", reason);
            return false;
        }
        self.included = self.included.saturating_add(1);
        if self.included > INCLUDES_MAX {
            if self.included == INCLUDES_MAX + 1 {
                let reason = Reason::TooManyIncluded { max: INCLUDES_MAX };
                self.builder.report.error(position, "", reason);
            }
            return false;
        }
        match (self.include)(Path::new(name)) {
            Ok(text) => self.read(&text, &Arc::from(name), depth + 1),
            Err(error) => {
                let reason = Reason::NotLoaded { file: name.to_owned(), why: in_words(&error) };
                self.builder.report.error(position, "", reason);
                false
            }
        }
    }

    fn pair(&mut self, position: &Position, key: &str, value: &str) {
        match self.section.as_deref() {
            Some("pgbouncer") => self.global(position, key, value),
            Some("databases") => {
                let (position, settings) = self.entry(position, key, value, "connection string");
                self.builder.database(&position, &settings);
            }
            Some("users") => {
                let (position, settings) = self.entry(position, key, value, "user settings");
                self.builder.user(&position, &settings);
            }
            Some("peers") => {
                let (position, settings) = self.entry(position, key, value, "connection string");
                self.builder.peer(&position, &settings);
            }
            Some("clusters") => {
                let (position, settings) = self.entry(position, key, value, "cluster settings");
                self.builder.cluster(&position, &settings);
            }
            // The header of an unknown section was reported; its keys would only repeat that.
            Some(_) => {}
            None => {
                let reason = Reason::OutsideOfSections(key.to_owned());
                self.builder.report.error(position, key, reason);
            }
        }
    }

    fn global(&mut self, position: &Position, key: &str, value: &str) {
        let mistakes = self.builder.report.mistakes.len();
        self.builder.global(position, key, value);
        if !value.contains(" ;") {
            return;
        }
        let report = &mut self.builder.report;
        match report.mistakes.get_mut(mistakes) {
            Some(mistake) => {
                mistake.reason = Reason::CommentInValue(Box::new(mistake.reason.clone()));
            }
            None => report.warnings.push(position.mistake(key, Reason::CommentTaken)),
        }
    }

    fn entry(
        &mut self,
        position: &Position,
        name: &str,
        value: &str,
        what: &'static str,
    ) -> (Position, Vec<Setting>) {
        let position = Position { entry: name.to_owned(), ..position.clone() };
        let (mut pairs, end) = connstr::pairs(value);
        if end == End::SyntaxError {
            self.builder.report.error(&position, "", syntax_error(what, value));
        }
        let mut has_comment = end == End::Comment;
        for (key, text) in &mut pairs {
            if is_number(key)
                && let Some(number) = connstr::number_before_comment(text)
            {
                *text = number.to_owned();
                has_comment = true;
            }
        }
        if has_comment {
            self.builder.report.warn(&position, Reason::CommentBehind(what));
        }
        let setting = |(key, text)| Setting { key, text, line: position.line };
        let settings: Vec<_> = pairs.into_iter().map(setting).collect();
        let settings = self.without_rests_of_secrets(&position, settings);
        (position, settings)
    }

    /// Removes unknown keys after a secret from the messages: they may be the rest of a secret with
    /// a blank and without quotes.
    fn without_rests_of_secrets(
        &mut self,
        position: &Position,
        settings: Vec<Setting>,
    ) -> Vec<Setting> {
        let row = |setting: &Setting| {
            let database = Database::row(unaliased(&setting.key)).map(|row| &row.key);
            database.or_else(|| Cluster::row(&setting.key).map(|row| &row.key))
        };
        let Some(secret) = settings.iter().position(|one| row(one).is_some_and(|key| key.secret))
        else {
            return settings;
        };
        let is_rest = |at: usize, one: &Setting| at > secret && row(one).is_none();
        let all = settings.into_iter().enumerate();
        let (rests, settings): (Vec<_>, Vec<_>) = all.partition(|(at, one)| is_rest(*at, one));
        if !rests.is_empty() {
            self.builder.report.error(position, "", Reason::BehindPassword);
        }
        settings.into_iter().map(|(_, one)| one).collect()
    }
}

/// Is it a key of an entry whose value is a number?
fn is_number(key: &str) -> bool {
    let key = unaliased(key);
    let of_database = Database::row(key).map(|row| row.key.kind);
    let kind = of_database.or_else(|| UserSettings::row(key).map(|row| row.key.kind));
    matches!(kind, Some(Kind::Integer | Kind::Numbers))
}

enum Content<'a> {
    Section(&'a str),
    Include(&'a str),
    Pair(String, &'a str),
    Error,
}

struct Line<'a> {
    number: usize,
    content: Content<'a>,
}

struct Cursor<'a> {
    rest: &'a str,
    /// The line on which `rest` begins.
    line: usize,
    /// The comments before the last line that was returned; an empty one stands for empty lines.
    comments: Vec<&'a str>,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1, comments: Vec::new() }
    }

    /// Returns the next line that is not empty or a comment.
    fn line(&mut self) -> Option<Line<'a>> {
        self.comments.clear();
        loop {
            let blank = self.rest.len() - self.rest.trim_start_matches(is_space).len();
            // The first line end is that of the line before.
            if self.take(blank).bytes().filter(|byte| *byte == b'\n').count() > 1 {
                self.comments.push("");
            }
            match self.rest.as_bytes().first()? {
                b';' | b'#' => {
                    let comment = self.take_line();
                    self.comments.push(comment);
                }
                _ => break,
            }
        }
        let number = self.line;
        if let Some(content) = self.header() {
            return Some(Line { number, content });
        }
        let line = self.take_line();
        let content = directive(line).or_else(|| pair(line)).unwrap_or(Content::Error);
        Some(Line { number, content })
    }

    /// Reads `[section]`; the rest of the line is read like a line of its own.
    fn header(&mut self) -> Option<Content<'a>> {
        let line = self.rest.split('\n').next()?;
        let end = line.strip_prefix('[')?.find(']')?;
        let header = self.take(end + 2);
        Some(Content::Section(&header[1..=end]))
    }

    fn take_line(&mut self) -> &'a str {
        self.take(self.rest.find('\n').unwrap_or(self.rest.len()))
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
        taken
    }
}

/// Reads `%include FILE`.
fn directive(line: &str) -> Option<Content<'_>> {
    let rest = line.strip_prefix("%include")?;
    let name = rest.strip_prefix([' ', '\t'])?.trim_matches(is_space);
    (!name.is_empty()).then_some(Content::Include(name))
}

/// Reads `key = value`, or `'unusual key' = value`.
fn pair(line: &str) -> Option<Content<'_>> {
    let (key, rest) = match line.strip_prefix('\'') {
        Some(rest) => quoted(rest)?,
        None => {
            let is_key = |c: char| c.is_ascii_alphanumeric() || "_.-*".contains(c);
            let rest = line.trim_start_matches(is_key);
            (line[..line.len() - rest.len()].to_owned(), rest)
        }
    };
    let value = rest.trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let value = value.trim_start_matches([' ', '\t']).trim_end_matches(is_space);
    (!key.is_empty()).then_some(Content::Pair(key, value))
}

/// Reads a key in single quotes, the first already consumed; a quote within is doubled.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        key.push_str(before);
        rest = after;
        match rest.strip_prefix('\'') {
            Some(after) => {
                key.push('\'');
                rest = after;
            }
            None => return Some((key, rest)),
        }
    }
}

/// C's `isspace`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}
