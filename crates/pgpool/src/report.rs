//! The report of a conversion, in three parts.

use std::fmt;

use crate::conf::{Place, Setting, Settings};
use crate::table::{Part, Row, find};
use crate::values;

const UNKNOWN: &str = "no parameter of Pgpool-II 4.3 to 4.7 has this name";

/// The fate of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub part: Part,
    pub name: String,
    pub place: Place,
    /// The keys of Weir in its place.
    pub keys: String,
    pub why: String,
    /// Has it Pgpool-II's default, and nothing of Weir in its place?
    pub is_default: bool,
}

/// The fate of all parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub entries: Vec<Entry>,
    /// Further facts and tasks for the operator.
    pub notes: Vec<String>,
    file: String,
}

/// The fate of a parameter that its value decides, and not its row in the table.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) why: String,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        file: &str,
        verdicts: &[Verdict],
        notes: Vec<String>,
    ) -> Self {
        let entries = settings.effective().map(|item| entry(item, verdicts)).collect();
        Self { entries, notes, file: file.to_owned() }
    }

    /// Returns the entries of a part, of several with one reason the first one, with all their names.
    fn lines(&self, part: Part) -> Vec<String> {
        let entries: Vec<_> =
            self.entries.iter().filter(|it| it.part == part && !it.is_default).collect();
        let is_same =
            |one: &Entry, other: &Entry| (&one.keys, &one.why) == (&other.keys, &other.why);
        let mut lines = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if entries[..at].iter().any(|earlier| is_same(earlier, entry)) {
                continue;
            }
            let same = entries[at..].iter().filter(|other| is_same(other, entry));
            let names: Vec<_> =
                same.map(|it| format!("{} ({})", it.name, self.place(&it.place))).collect();
            let mut line = names.join(", ");
            for (text, before) in [(&entry.keys, " -> "), (&entry.why, ": ")] {
                if !text.is_empty() {
                    line += before;
                    line += &text.replace('`', "");
                }
            }
            lines.push(line);
        }
        lines
    }

    fn place(&self, place: &Place) -> String {
        match *place.file == *self.file {
            true => format!("line {}", place.line),
            false => place.to_string(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("Kept", Part::Kept),
            ("Changed in meaning", Part::Changed),
            ("Without counterpart", Part::Without),
        ];
        for (title, part) in parts {
            writeln!(f, "{title}:")?;
            let lines = self.lines(part);
            if lines.is_empty() {
                writeln!(f, "  nothing")?;
            }
            for line in lines {
                writeln!(f, "  {}", line.replace(char::is_control, "?"))?;
            }
            let defaults: Vec<_> = self.entries.iter().filter(|it| it.is_default).collect();
            if part == Part::Without && !defaults.is_empty() {
                let names: Vec<_> = defaults.iter().map(|it| it.name.as_str()).collect();
                let names = names.join(", ").replace(char::is_control, "?");
                writeln!(f, "  at the default, so nothing is lost: {names}")?;
            }
            writeln!(f)?;
        }
        if !self.notes.is_empty() {
            writeln!(f, "To know and to do:")?;
            for note in &self.notes {
                writeln!(f, "  {}", note.replace('`', "").replace(char::is_control, "?"))?;
            }
        }
        Ok(())
    }
}

fn entry(item: &Setting, verdicts: &[Verdict]) -> Entry {
    let Setting { name, place, .. } = item.clone();
    let Some((row, _)) = find(&name) else {
        let (keys, why) = (String::new(), UNKNOWN.to_owned());
        return Entry { part: Part::Without, name, place, keys, why, is_default: false };
    };
    let verdict = verdicts.iter().rev().find(|verdict| verdict.name == name);
    let part = verdict.map_or(row.part, |verdict| verdict.part);
    let why = verdict.map_or(row.why, |verdict| verdict.why.as_str()).to_owned();
    let keys = if part == Part::Without { String::new() } else { row.keys.to_owned() };
    let is_default = item.value.is_empty() && row.default.is_empty()
        || part == Part::Without && is_default(row, &item.value);
    Entry { part, name, place, keys, why, is_default }
}

fn is_default(row: &Row, value: &str) -> bool {
    let same = |read: &dyn Fn(&str) -> Option<u64>| {
        read(value).is_some_and(|found| read(row.default) == Some(found))
    };
    value.eq_ignore_ascii_case(row.default)
        || same(&|text| values::switch(text).map(u64::from))
        || same(&|text| values::time(text, 1_000))
}
