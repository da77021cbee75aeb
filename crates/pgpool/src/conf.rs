//! Reads the text of a `pgpool.conf`: names and values, quotes, comments, `include`.
//!
//! It accepts what Pgpool-II accepts, and a value without quotes that Pgpool-II would refuse, such as
//! `10.0.0.1`. Names are not checked here.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::table::find;
use crate::values;

/// The maximal depth of files that include others, as in Pgpool-II.
const DEPTH_MAX: usize = 10;
/// A file that includes itself twice would be read 1,024 times.
const FILES_MAX: usize = 100;

/// A parameter that a file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, in lower case.
    pub name: String,
    pub value: String,
    pub place: Place,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<str>,
    /// Counted from 1; 0 is the file as a whole.
    pub line: usize,
}

/// A file that cannot be used: where, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub place: Place,
    pub why: String,
}

impl Broken {
    pub fn new(place: &Place, why: impl Into<String>) -> Self {
        Self { place: place.clone(), why: why.into() }
    }

    /// Returns the same about a file as a whole.
    #[must_use]
    pub fn of_file(file: &str, why: impl Into<String>) -> Self {
        Self { place: Place { file: Arc::from(file), line: 0 }, why: why.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// All settings of a file and the files that it includes. Of several with one name, the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    items: Vec<Setting>,
    /// The place in `items` of the one that counts, by name.
    last: HashMap<String, usize>,
}

/// Returns the name and the text of an included file. It gets the name as it is written, and the name
/// of the file that includes it.
pub type Include<'a> = &'a dyn Fn(&str, &str) -> Result<(String, String), String>;

impl Settings {
    /// Reads the text of `file`.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str, file: &str, include: Include<'_>) -> Result<Self, Broken> {
        let mut settings = Self::default();
        let mut files = 1;
        settings.read(text, &Arc::from(file), include, 0, &mut files)?;
        Ok(settings)
    }

    fn read(
        &mut self,
        text: &str,
        file: &Arc<str>,
        include: Include<'_>,
        depth: usize,
        files: &mut usize,
    ) -> Result<(), Broken> {
        let mut lexer = Lexer { text, position: 0, line: 1 };
        loop {
            lexer.skip(true);
            let place = Place { file: file.clone(), line: lexer.line };
            if lexer.rest().is_empty() {
                return Ok(());
            }
            let Some(name) = lexer.name() else {
                let what = lexer.word();
                return Err(Broken::new(
                    &place,
                    format!("expected NAME = VALUE, found {what:?}; correct the line"),
                ));
            };
            lexer.skip(false);
            if lexer.rest().starts_with('=') {
                lexer.position += 1;
                lexer.skip(false);
            }
            let Some(value) = lexer.value() else {
                let why = format!("the quote of {name} is not closed; add a ' to the line");
                return Err(Broken::new(&place, why));
            };
            if name != "include" {
                self.last.insert(name.clone(), self.items.len());
                self.items.push(Setting { name, value, place });
                continue;
            }
            *files += 1;
            if depth >= DEPTH_MAX || *files > FILES_MAX {
                let why = "too many files include others; remove this include";
                return Err(Broken::new(&place, why));
            }
            let (name, text) = include(&value, file).map_err(|why| {
                let why = format!("cannot read the included file {value:?}: {why}");
                Broken::new(&place, why)
            })?;
            self.read(&text, &Arc::from(name), include, depth + 1, files)?;
        }
    }

    /// Returns the settings that count, in the order of the files.
    pub fn effective(&self) -> impl Iterator<Item = &Setting> {
        let items = self.items.iter().enumerate();
        items.filter(|(at, item)| self.last.get(&item.name) == Some(at)).map(|(_, item)| item)
    }

    /// Returns the setting of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.last.get(name).map(|at| &self.items[*at])
    }

    /// Is a switch on? A value that is no switch counts as off.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name).and_then(values::switch).unwrap_or(false)
    }

    /// Returns the value of a parameter; an empty one counts as not set.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(|item| item.value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>, Broken> {
        self.parsed(name, "on or off", values::switch)
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Broken> {
        self.parsed(name, "a whole number", values::number)
    }

    /// Returns a time in milliseconds. `unit` is that of a number alone.
    pub(crate) fn time(&self, name: &str, unit: u64) -> Result<Option<u64>, Broken> {
        self.parsed(name, "a time such as 10, 500ms, 30s or 5min", |text| values::time(text, unit))
    }

    pub(crate) fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Broken> {
        let Some(item) = self.get(name).filter(|item| !item.value.is_empty()) else {
            return Ok(None);
        };
        let refuse = || {
            let why = format!("{name} is {:?}; expected {expected}", item.value);
            Broken::new(&item.place, why)
        };
        read(&item.value).map(Some).ok_or_else(refuse)
    }
}

/// Is the text that of a `pgpool.conf`? It has no sections, and a line that sets one of the parameters.
#[must_use]
pub fn is_pgpool(text: &str) -> bool {
    let name = |line: &str| {
        let end = line.find(|c: char| c.is_ascii_whitespace() || c == '=').unwrap_or(line.len());
        line.get(..end).map(str::to_ascii_lowercase)
    };
    let mut lines = text.lines().map(str::trim_start);
    !lines.clone().any(|line| line.starts_with('['))
        && lines.any(|line| name(line).is_some_and(|name| find(&name).is_some()))
}

struct Lexer<'a> {
    text: &'a str,
    position: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Skips blanks and comments, and ends of lines as well if `lines` is true.
    fn skip(&mut self, lines: bool) {
        loop {
            match self.rest().as_bytes().first() {
                Some(b' ' | b'\t' | b'\r') => self.position += 1,
                Some(b'#') => self.position += self.rest().find('\n').unwrap_or(self.rest().len()),
                Some(b'\n') if lines => {
                    self.position += 1;
                    self.line += 1;
                }
                _ => return,
            }
        }
    }

    /// Returns a name in lower case.
    fn name(&mut self) -> Option<String> {
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
        let word = self.word();
        let is_name =
            word.starts_with(is_letter) && word.chars().all(|c| is_letter(c) || c.is_ascii_digit());
        if !is_name {
            return None;
        }
        self.position += word.len();
        Some(word.to_ascii_lowercase())
    }

    /// Returns the value at the position; the end of the line is an empty one. `None`: a quote is not
    /// closed.
    fn value(&mut self) -> Option<String> {
        let rest = self.rest();
        if !rest.starts_with('\'') {
            let word = self.word();
            self.position += word.len();
            return Some(word.to_owned());
        }
        let line = rest.split('\n').next().unwrap_or_default();
        let end = closing_quote(line)?;
        self.position += end + 1;
        line.get(1..end).map(str::to_owned)
    }

    /// Returns the text up to a blank, a quote, `=` or a comment.
    fn word(&self) -> &'a str {
        let ends = |c: char| c.is_ascii_whitespace() || matches!(c, '\'' | '=' | '#');
        let rest = self.rest();
        rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default()
    }
}

/// Returns the position of the quote that closes the one at the begin of `line`. A quote behind a
/// backslash closes a value only if no other one does. Backslashes stay in the value, as in Pgpool-II.
fn closing_quote(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let (mut at, mut last) = (1, None);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\'' => return Some(at),
            b'\\' => {
                if bytes.get(at + 1) == Some(&b'\'') {
                    last = Some(at + 1);
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
    last
}
