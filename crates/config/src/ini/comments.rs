//! The comments of a `pgbouncer.ini`, for `weir convert`: the parser skips them.
//!
//! A comment belongs to the key, the entry or the section that follows it. The comments before the
//! first section are about the whole file.

use std::path::Path;
use std::sync::Arc;

use super::{Content, Cursor, INCLUDE_DEPTH_MAX, INCLUDES_MAX, Include};
use crate::build::unaliased;
use crate::connstr;

/// The comments of a file and its included files, the order of its keys, and the lines that a
/// `weir.toml` does not have.
#[derive(Debug, Default)]
pub struct Comments {
    /// The lines about the whole file, in TOML's form. An empty one is an empty line.
    pub(crate) first: Vec<String>,
    pub(crate) items: Vec<Item>,
    /// Comments after the last key.
    pub(crate) last: Vec<String>,
    /// `FILE:LINE: TEXT` for each line that is left out.
    pub dropped: Vec<String>,
}

/// A section, a key or an entry.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) section: String,
    /// Empty for the section itself, and for a key without effect.
    pub(crate) name: String,
    /// The keys of an entry.
    pub(crate) keys: Vec<String>,
    /// The comments before it.
    pub(crate) comments: Vec<String>,
    position: String,
}

impl Comments {
    /// Reads a text that is a valid `pgbouncer.ini`.
    pub fn of_ini(text: &str, file: &str, include: Include<'_>) -> Self {
        let mut reader = Reader {
            comments: Self::default(),
            include,
            included: 0,
            section: String::new(),
            pending: Vec::new(),
        };
        reader.read(text, &Arc::from(file), 0);
        reader.comments.last = reader.pending;
        reader.comments
    }

    /// Returns those of a `weir.toml`, which is not searched for any.
    pub(crate) fn of_toml(text: &str, file: &str) -> Self {
        let has_any = text.lines().any(|line| line.trim_start().starts_with('#'));
        let dropped = has_any.then(|| format!("{file}: comments of a weir.toml are left out"));
        Self { dropped: dropped.into_iter().collect(), ..Self::default() }
    }

    /// Returns the items of a section, in the order of the file.
    pub(crate) fn of_section<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Item> {
        self.items.iter().filter(move |item| item.section == section)
    }
}

struct Reader<'a> {
    comments: Comments,
    include: Include<'a>,
    included: u32,
    section: String,
    /// Comments that belong to the next item.
    pending: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, text: &str, file: &Arc<str>, depth: usize) {
        let mut cursor = Cursor::new(text);
        loop {
            let line = cursor.line();
            self.pending.extend(cursor.comments.iter().map(|comment| in_toml(comment)));
            let Some(line) = line else { return };
            let position = format!("{file}:{}", line.number);
            match line.content {
                Content::Section(name) => self.section(name, position),
                Content::Include(name) => self.include(name, &position, depth),
                Content::Pair(key, value) => self.pair(key, value, position),
                // The parser has refused the file.
                Content::Error => {}
            }
        }
    }

    fn section(&mut self, name: &str, position: String) {
        if self.section.is_empty() {
            self.comments.first = std::mem::take(&mut self.pending);
        }
        self.section = name.to_owned();
        if name == "pgbouncer" {
            let begun = self.comments.items.iter_mut().filter(|item| item.section == name);
            for item in begun.filter(|item| !item.name.is_empty()) {
                let (key, before) = (std::mem::take(&mut item.name), &item.position);
                let why =
                    format!("{before}: {key} is left out: [pgbouncer] begins again at {position}");
                self.comments.dropped.push(why);
            }
        }
        self.add(String::new(), Vec::new(), position);
    }

    fn include(&mut self, name: &str, position: &str, depth: usize) {
        self.included += 1;
        if depth >= INCLUDE_DEPTH_MAX || self.included > INCLUDES_MAX {
            return;
        }
        let Ok(text) = (self.include)(Path::new(name)) else { return };
        let why = format!("{position}: %include is left out: the keys of {name} are in the output");
        self.comments.dropped.push(why);
        self.read(&text, &Arc::from(name), depth + 1);
    }

    fn pair(&mut self, key: String, value: &str, position: String) {
        if self.section == "pgbouncer" {
            if key == "conffile" {
                let why =
                    format!("{position}: conffile is left out: it names the file for a reload");
                self.comments.dropped.push(why);
            }
            return self.add(key, Vec::new(), position);
        }
        let (pairs, _) = connstr::pairs(value);
        let keys = pairs.into_iter().map(|(key, _)| unaliased(&key).to_owned()).collect();
        self.add(key, keys, position);
    }

    fn add(&mut self, name: String, keys: Vec<String>, position: String) {
        let mut comments = std::mem::take(&mut self.pending);
        let all = &mut self.comments;
        let before = all
            .items
            .iter_mut()
            .find(|item| !name.is_empty() && item.section == self.section && item.name == name);
        if let Some(before) = before {
            let (earlier, later) =
                (std::mem::replace(&mut before.position, position), &before.position);
            all.dropped.push(format!("{earlier}: {name} is left out: it is set again at {later}"));
            before.comments.append(&mut comments);
            before.keys = keys;
            return;
        }
        all.items.push(Item { section: self.section.clone(), name, keys, comments, position });
    }
}

/// Returns a comment as TOML has it. An empty one stands for an empty line.
fn in_toml(comment: &str) -> String {
    let text = comment.trim_end();
    let marks = text.len() - text.trim_start_matches([';', '#']).len();
    let rest = text[marks..].replace(|c: char| c.is_control() && c != '\t', "?");
    format!("{}{rest}", "#".repeat(marks))
}
