//! Names in a transaction's texts that may be application settings, such as `app.tenant`
//! (`pool_mode = auto`). PostgreSQL does not list these settings, so the probe has to ask for each
//! by name (`probe.rs`).
//!
//! All names are kept until the probe is answered. If there are too many, the client keeps its
//! server: otherwise the next client could see a setting that the probe has missed.

use std::collections::BTreeMap;

use crate::encoding::Letters;

/// Limit of a transaction's names, in bytes. Each name counts `NAME_COST` more.
const COST_MAX: usize = 524_288;
const NAME_COST: usize = 64;
/// Longer words are not kept.
const WORD_LEN_MAX: usize = 4_096;

#[derive(Debug)]
pub struct SettingNames {
    pub letters: Letters,
    /// The names. True if the text itself sets something, false if it calls functions.
    all: BTreeMap<Box<[u8]>, bool>,
    cost: usize,
    /// Names were dropped because there were too many.
    overflows: bool,
    /// A name cannot be written in the probe's query.
    unaskable: bool,
    /// A name that may be a setting was not kept.
    pub incomplete: bool,
}

impl SettingNames {
    /// `letters`: the letters that the probe's query can contain.
    pub fn new(letters: Letters) -> Self {
        let all = BTreeMap::new();
        Self { letters, all, cost: 0, overflows: false, unaskable: false, incomplete: false }
    }

    /// Notes every `word.word` of a text. `sets`: the text sets something by its own words.
    pub fn note(&mut self, text: &[u8], sets: bool) {
        let mut finder = Finder::new(sets);
        finder.feed(text, self);
        finder.finish(self);
        self.settle(sets);
    }

    /// Adds the names that were found in a text that came in parts.
    pub fn absorb(&mut self, found: Self, sets: bool) {
        found.all.into_keys().for_each(|name| self.insert(name, sets));
        self.overflows |= found.overflows;
        self.unaskable |= found.unaskable;
        self.settle(sets);
    }

    /// Names in a text that sets something must all be asked for. A function could build any name,
    /// so its text gives only hints.
    fn settle(&mut self, sets: bool) {
        let unaskable = std::mem::take(&mut self.unaskable);
        self.incomplete |= self.overflows || (sets && unaskable);
    }

    /// The names, and whether a text sets something by its own words.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.all.iter().map(|(name, sets)| (&**name, *sets))
    }

    /// Does a text that sets something by its own words have this name?
    pub(crate) fn are_set(&self, name: &[u8]) -> bool {
        self.all.get(name).is_some_and(|sets| *sets)
    }

    /// Adds a word with a dot. A dollar sign may belong to the quotes around a name (`$$a.b$$`).
    fn add(&mut self, word: &[u8], sets: bool) {
        let parts = word.split(|byte| *byte == b'$').filter(|_| word.contains(&b'$'));
        for name in std::iter::once(word).chain(parts).filter(|name| is_name(name)) {
            match self.letters.include(name) {
                Some(true) => self.insert(name.to_ascii_lowercase().into(), sets),
                // PostgreSQL rejects such a text.
                Some(false) => {}
                None => self.unaskable = true,
            }
        }
    }

    fn insert(&mut self, name: Box<[u8]>, sets: bool) {
        if let Some(known) = self.all.get_mut(&name) {
            *known |= sets;
            return;
        }
        let cost = self.cost + name.len() + NAME_COST;
        if cost > COST_MAX {
            self.overflows = true;
            return;
        }
        self.cost = cost;
        self.all.insert(name, sets);
    }
}

/// May a setting have this name? PostgreSQL's rule for names that it does not know: words joined by
/// at least one dot. A word begins with a letter, `_` or a byte above 127. Digits and `$` may
/// follow.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | 0x80..);
    name.contains(&b'.')
        && name.split(|byte| *byte == b'.').all(|part| {
            part.first().is_some_and(is_first)
                && part.iter().all(|byte| is_first(byte) || matches!(byte, b'0'..=b'9' | b'$'))
        })
}

/// Finds words with dots in a text that may come in parts. A name, or each part of it, may be
/// quoted, and may have blanks around its dots.
#[derive(Debug)]
pub(crate) struct Finder {
    /// Are blanks around dots accepted? Only where a text sets something. Elsewhere the ends of
    /// sentences would count as names.
    joins: bool,
    /// The first bytes of the word.
    word: Vec<u8>,
    has_dot: bool,
    /// Blanks follow the word.
    gap: bool,
}

impl Finder {
    pub(crate) fn new(joins: bool) -> Self {
        Self { joins, word: Vec::new(), has_dot: false, gap: false }
    }

    pub(crate) fn feed(&mut self, text: &[u8], names: &mut SettingNames) {
        for &byte in text {
            match byte {
                b'"' => {}
                b'.' => {
                    self.has_dot = true;
                    self.push(byte);
                }
                _ if byte.is_ascii_whitespace() && self.joins => {
                    self.gap = !self.word.is_empty() && self.word.last() != Some(&b'.');
                }
                b'_' | b'$' | 0x80.. => self.letter(byte, names),
                _ if byte.is_ascii_alphanumeric() => self.letter(byte, names),
                _ => self.end_word(names),
            }
        }
    }

    pub(crate) fn finish(&mut self, names: &mut SettingNames) {
        self.end_word(names);
    }

    fn letter(&mut self, byte: u8, names: &mut SettingNames) {
        if self.gap {
            self.end_word(names);
        }
        self.push(byte);
    }

    fn push(&mut self, byte: u8) {
        self.gap = false;
        // One byte more than the limit shows that the word is too long.
        if self.word.len() <= WORD_LEN_MAX {
            self.word.push(byte);
        }
    }

    fn end_word(&mut self, names: &mut SettingNames) {
        self.gap = false;
        let has_dot = std::mem::take(&mut self.has_dot);
        if has_dot && self.word.len() > WORD_LEN_MAX {
            names.unaskable = true;
        } else if has_dot {
            names.add(&self.word, self.joins);
        }
        self.word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(letters: Letters, text: &[u8], sets: bool) -> (Vec<String>, bool) {
        let mut names = SettingNames::new(letters);
        names.note(text, sets);
        let all = names.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        (all.collect(), names.incomplete)
    }

    fn set(text: &str) -> Vec<String> {
        found(Letters::Ascii, text.as_bytes(), true).0
    }

    #[test]
    fn names_of_an_applications_own_settings_are_found() {
        assert_eq!(set("SET app.Tenant = '7'"), ["app.tenant"]);
        assert_eq!(set("select set_config('a.b.c', x.y, false)"), ["a.b.c", "x.y"]);
        assert_eq!(set("SET \"app\".\"x\" = 1"), ["app.x"]);
        assert_eq!(set("SET app . tenant = '7'"), ["app.tenant"]);
        assert_eq!(set("RESET \"app\"\n.\t\"tenant\" . x"), ["app.tenant.x"]);
        assert_eq!(set("SET work_mem = 1.5; SET a. = .b"), [""; 0]);
        assert_eq!(set("SELECT set_config($$app.x$$, $q$a.y$q$, false)"), ["a.y", "app.x"]);
        assert_eq!(set("SET app.a$1 = $1"), ["app.a", "app.a$1"]);
        let text = b"SELECT mine('The end. Of all.', t.c)";
        assert_eq!(found(Letters::Ascii, text, false), (vec!["t.c".into()], false));
    }

    #[test]
    fn where_a_text_is_cut_makes_no_difference() {
        let text = b"SET \"app\" . tenant = '7'; SET b.c = x";
        for at in 0..=text.len() {
            let mut names = SettingNames::new(Letters::Ascii);
            let mut finder = Finder::new(true);
            finder.feed(&text[..at], &mut names);
            finder.feed(&text[at..], &mut names);
            finder.finish(&mut names);
            let all: Vec<_> = names.iter().map(|(name, _)| name).collect();
            assert_eq!(all, [&b"app.tenant"[..], b"b.c"], "{at}");
        }
    }

    #[test]
    fn only_what_postgresql_takes_for_a_name_is_asked_about() {
        let utf8 = |text: &[u8]| found(Letters::Utf8, text, true);
        assert_eq!(utf8(b"\xef\x65\xe8\x2e\x61"), (vec![], false));
        assert_eq!(utf8("SET \u{e4}.\u{d6} = 1".as_bytes()), (vec!["\u{e4}.\u{d6}".into()], false));
        assert_eq!(found(Letters::Bytes, b"SET a.\xe4 = 1", true).0.len(), 1);
    }

    #[test]
    fn a_name_that_cannot_be_asked_about_is_not_passed_over() {
        let text = "SET a.\u{e4} = 1".as_bytes();
        assert_eq!(found(Letters::Ascii, text, true), (vec![], true));
        // A function may build any name.
        assert_eq!(found(Letters::Ascii, text, false), (vec![], false));
        let long = format!("SET a.{} = 1", "b".repeat(WORD_LEN_MAX));
        assert_eq!(found(Letters::Ascii, long.as_bytes(), true), (vec![], true));
    }

    #[test]
    fn more_names_than_are_kept_are_not_passed_over() {
        let many = |count: usize| (0..count).map(|n| format!("a.b{n} ")).collect::<String>();
        for sets in [true, false] {
            let (all, incomplete) = found(Letters::Ascii, many(5_000).as_bytes(), sets);
            assert_eq!((all.len(), incomplete), (5_000, false));
            let (all, incomplete) = found(Letters::Ascii, many(50_000).as_bytes(), sets);
            assert!(all.len() < 10_000 && incomplete);
        }
    }
}
