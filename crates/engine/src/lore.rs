//! What a worker has learnt of a pool's texts (`pool_mode = auto`): the names of settings that
//! PostgreSQL does not list, and functions that were seen to leave nothing behind.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use crate::ids::Micros;
use crate::parcel::CustomsRecord;

/// So many names of settings at most; what is set under further ones stays on its server unseen.
const CUSTOMS_MAX: usize = 256;
/// So many names that may be settings: most are columns of tables. The oldest make room.
const CANDIDATES_MAX: usize = 256;
/// So many sets of functions at most. When there are more they are learnt anew; when more have left
/// something, nobody is trusted any more.
const FUNCTIONS_MAX: usize = 4_096;
/// So many transactions have to leave nothing before functions are trusted: one may leave something
/// in some calls only.
const WATCHED_TIMES: u8 = 8;
/// Then they are asked about once in that time: they may have been replaced by somebody who was not
/// connected through us.
const TRUST: Micros = 60_000_000;
const NAME_LEN_MAX: usize = 128;

/// The functions that are called in one text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// A digest of their names; 0 if there are none, or something else as well that may leave
    /// anything.
    pub names: u64,
    /// And of what these names mean to the client; 0 if that is not known.
    pub here: u64,
}

/// What is known of functions that are called in one text.
#[derive(Debug)]
enum Standing {
    /// So many transactions with them have left nothing.
    Watched { times: u8 },
    /// Until then they are held to leave nothing.
    Trusted { until: Micros },
}

#[derive(Debug, Default)]
pub struct Lore {
    /// Names that a server has shown to be settings.
    customs: BTreeSet<Box<[u8]>>,
    /// And those that no server has (yet), in the order in which they were seen: in texts that
    /// set something by their own words, and in those that call functions. The latter are many and
    /// mostly no settings; they must not make the former go before a server was asked about them.
    candidates: [VecDeque<Box<[u8]>>; 2],
    /// Functions that have left something, by their names alone: whatever they are elsewhere, or
    /// will be.
    guilty: HashSet<u64, RandomState>,
    /// All others, by what they are.
    functions: HashMap<u64, Standing, RandomState>,
    /// How often the schema had changed when that was known.
    schema: u64,
    /// Has anybody asked what was drawn from a sequence?
    pub asks_numbers: bool,
}

impl Lore {
    /// Notes every `word.word` in a text that sets something: it may be a setting of the
    /// application's own, such as `app.tenant`.
    pub fn note_customs(&mut self, text: &[u8], sets: bool) {
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
        let is_name = |byte: &u8| is_part(byte) || *byte == b'.';
        for name in bare(text, sets).split(|byte| !is_name(byte)) {
            let has_parts = name.contains(&b'.') && name.split(|byte| *byte == b'.').all(is_word);
            if has_parts && name.len() <= NAME_LEN_MAX {
                self.note_custom(name.to_ascii_lowercase().into(), sets);
            }
        }
    }

    fn note_custom(&mut self, name: Box<[u8]>, sets: bool) {
        let [likely, others] = &mut self.candidates;
        if self.customs.contains(&name) || likely.contains(&name) {
            return;
        }
        let candidates = if sets { likely } else { others };
        if candidates.contains(&name) {
            return;
        }
        if candidates.len() == CANDIDATES_MAX {
            candidates.pop_front();
        }
        candidates.push_back(name);
    }

    /// A server has a setting of that name.
    pub fn learn_custom(&mut self, name: &[u8]) {
        for candidates in &mut self.candidates {
            let at = candidates.iter().position(|one| **one == *name);
            if let Some(at) = at.filter(|_| self.customs.len() < CUSTOMS_MAX) {
                self.customs.extend(candidates.remove(at));
            }
        }
    }

    pub fn customs(&self) -> impl Iterator<Item = &[u8]> {
        self.customs.iter().chain(self.candidates.iter().flatten()).map(|name| &**name)
    }

    /// For another process.
    pub fn customs_record(&self, pool: u32) -> CustomsRecord {
        let names = |names: &VecDeque<Box<[u8]>>| names.iter().map(|name| name.to_vec()).collect();
        let [likely, others] = &self.candidates;
        CustomsRecord {
            pool,
            known: self.customs.iter().map(|name| name.to_vec()).collect(),
            likely: names(likely),
            others: names(others),
        }
    }

    /// What another process has learnt.
    pub fn recall_customs(&mut self, record: &CustomsRecord) {
        let known = record.known.iter().map(|name| name.as_slice().into());
        let room = CUSTOMS_MAX.saturating_sub(self.customs.len());
        self.customs.extend(known.take(room));
        for (names, sets) in [(&record.likely, true), (&record.others, false)] {
            names.iter().for_each(|name| self.note_custom(name.as_slice().into(), sets));
        }
    }

    /// May a text that calls them be run without the question what it has left?
    pub fn is_harmless(&mut self, called: Called, schema: u64, now: Micros) -> bool {
        self.forget_other_schemas(schema);
        match self.functions.get(&called.here) {
            Some(Standing::Trusted { until }) => now < *until && !self.is_guilty(called),
            Some(Standing::Watched { .. }) | None => false,
        }
    }

    fn is_guilty(&self, called: Called) -> bool {
        self.guilty.len() >= FUNCTIONS_MAX || self.guilty.contains(&called.names)
    }

    /// A transaction that called them was committed, and has left nothing.
    pub fn has_left_nothing(&mut self, called: Called, schema: u64, now: Micros) {
        self.forget_other_schemas(schema);
        if called.here == 0 || self.is_guilty(called) {
            return;
        }
        if self.functions.len() >= FUNCTIONS_MAX {
            self.functions.clear();
        }
        let standing = self.functions.entry(called.here).or_insert(Standing::Watched { times: 0 });
        let times = match standing {
            Standing::Watched { times } => *times + 1,
            Standing::Trusted { .. } => WATCHED_TIMES,
        };
        *standing = match times {
            WATCHED_TIMES.. => Standing::Trusted { until: now + TRUST },
            times => Standing::Watched { times },
        };
    }

    /// It has left something.
    pub fn has_left_something(&mut self, called: Called) {
        if self.guilty.len() < FUNCTIONS_MAX {
            self.guilty.insert(called.names);
        }
    }

    /// Functions may not be what they were.
    fn forget_other_schemas(&mut self, schema: u64) {
        if self.schema != schema {
            self.schema = schema;
            self.functions.clear();
        }
    }
}

/// A name may stand in quotes, a part of it at a time, and with blanks round its dots. Other texts than
/// those that set something have dots with blanks at the ends of sentences.
fn bare(text: &[u8], joins: bool) -> Vec<u8> {
    let mut bare = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'"' => {}
            _ if joins && byte.is_ascii_whitespace() && bare.last() == Some(&b'.') => {}
            b'.' if joins => {
                bare.truncate(bare.trim_ascii_end().len());
                bare.push(byte);
            }
            _ => bare.push(byte),
        }
    }
    bare
}

fn is_word(part: &[u8]) -> bool {
    part.first().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customs(text: &str) -> Vec<String> {
        let mut lore = Lore::default();
        lore.note_customs(text.as_bytes(), true);
        lore.customs().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn names_of_an_applications_own_settings_are_found() {
        assert_eq!(customs("SET app.Tenant = '7'"), ["app.tenant"]);
        assert_eq!(customs("select set_config('a.b.c', x.y, false)"), ["a.b.c", "x.y"]);
        assert_eq!(customs("SET \"app\".\"x\" = 1"), ["app.x"]);
        assert_eq!(customs("SET app . tenant = '7'"), ["app.tenant"]);
        assert_eq!(customs("RESET \"app\"\n.\t\"tenant\" . x"), ["app.tenant.x"]);
        assert_eq!(customs("SET work_mem = 1.5; SET a. = .b"), [""; 0]);
        let mut lore = Lore::default();
        lore.note_customs(b"SELECT mine('The end. Of all.', t.c)", false);
        assert_eq!(lore.customs().collect::<Vec<_>>(), [b"t.c"]);
    }

    #[test]
    fn names_that_are_no_settings_make_room() {
        let mut lore = Lore::default();
        lore.note_customs(b"SET app.tenant = '7'", true);
        lore.learn_custom(b"app.tenant");
        lore.note_customs(b"SET app.other = '7'", true);
        lore.note_customs(b"SELECT f(t.c)", false);
        for number in 0..CANDIDATES_MAX {
            lore.note_customs(format!("SELECT f(t.c{number})").as_bytes(), false);
        }
        let names: Vec<_> = lore.customs().collect();
        assert_eq!(names.len(), 2 + CANDIDATES_MAX);
        assert!(names.contains(&&b"app.tenant"[..]) && names.contains(&&b"app.other"[..]));
        assert!(!names.contains(&&b"t.c"[..]));
    }

    fn called(names: u64, here: u64) -> Called {
        Called { names, here }
    }

    #[test]
    fn functions_are_trusted_after_a_while_and_for_a_while() {
        let mut lore = Lore::default();
        let seven = called(7, 70);
        for _ in 1..WATCHED_TIMES {
            lore.has_left_nothing(seven, 0, 0);
            assert!(!lore.is_harmless(seven, 0, 0));
        }
        lore.has_left_nothing(seven, 0, 0);
        assert!(lore.is_harmless(seven, 0, TRUST - 1) && !lore.is_harmless(called(7, 71), 0, 0));
        assert!(!lore.is_harmless(seven, 0, TRUST));
        lore.has_left_nothing(seven, 0, TRUST);
        assert!(lore.is_harmless(seven, 0, TRUST));
        assert!(!lore.is_harmless(seven, 1, TRUST), "the schema has changed");
        assert!(!lore.is_harmless(seven, 0, TRUST), "that is over");
    }

    #[test]
    fn what_has_once_left_something_is_always_asked_about() {
        let mut lore = Lore::default();
        lore.has_left_something(called(7, 70));
        for schema in 0..2 {
            for _ in 0..2 * WATCHED_TIMES {
                lore.has_left_nothing(called(7, 71), schema, 0);
            }
            assert!(!lore.is_harmless(called(7, 71), schema, 0));
        }
    }

    #[test]
    fn what_is_not_known_to_be_the_same_is_not_trusted() {
        let mut lore = Lore::default();
        for _ in 0..2 * WATCHED_TIMES {
            lore.has_left_nothing(called(7, 0), 0, 0);
        }
        assert!(!lore.is_harmless(called(7, 0), 0, 0));
    }
}
