//! What a worker has learnt of a pool's texts (`pool_mode = auto`): the names of settings that
//! PostgreSQL does not list, and functions that were seen to leave nothing behind.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use serde::{Deserialize, Serialize};

use crate::ids::Micros;
use crate::session::sequences::SequenceHabits;
use crate::session::setting_names::is_name;

/// So many names of settings at most, and so many that may be: most are columns of tables. Further ones
/// are asked about only behind texts in which they stand (`setting_names.rs`).
const CUSTOMS_MAX: usize = 256;
pub(crate) const CANDIDATES_MAX: usize = 256;
/// So many sets of functions at most. When there are more they are learnt anew; when more have left
/// something, nobody is trusted any more.
const FUNCTIONS_MAX: usize = 4_096;
/// So many transactions have to leave nothing before functions are trusted: one may leave something
/// in some calls only.
const WATCHED_TIMES: u8 = 8;
/// Then they are asked about once in that time: they may have been replaced by somebody who was not
/// connected through us.
const TRUST: Micros = 60_000_000;

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
pub(crate) struct TextHistory {
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
    /// Behind which texts that may draw one they ask.
    pub sequences: SequenceHabits,
}

/// Names of settings that PostgreSQL does not list, as a worker knows them of a pool and hand them over in an online restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomsRecord {
    /// Index of the pool in what is handed over.
    pub pool: u32,
    /// Servers have such settings.
    pub known: Vec<Vec<u8>>,
    /// They may have: names that stood in texts that set something, and in others.
    pub likely: Vec<Vec<u8>>,
    pub others: Vec<Vec<u8>>,
}

impl TextHistory {
    /// Notes a name that stood in a text which sets something by its own words, or else calls
    /// functions: later ones may set it unseen.
    pub(crate) fn note_custom(&mut self, name: &[u8], sets: bool) {
        debug_assert!(is_name(name), "{name:?}");
        let [likely, others] = &mut self.candidates;
        let is_in = |names: &VecDeque<Box<[u8]>>| names.iter().any(|known| **known == *name);
        if self.customs.contains(name) || is_in(likely) {
            return;
        }
        let candidates = if sets { likely } else { others };
        if is_in(candidates) {
            return;
        }
        if candidates.len() == CANDIDATES_MAX {
            candidates.pop_front();
        }
        candidates.push_back(name.into());
    }

    /// A server has a setting of that name.
    pub(crate) fn learn_custom(&mut self, name: &[u8]) {
        for candidates in &mut self.candidates {
            let at = candidates.iter().position(|one| **one == *name);
            if let Some(at) = at.filter(|_| self.customs.len() < CUSTOMS_MAX) {
                self.customs.extend(candidates.remove(at));
            }
        }
    }

    /// A question about them has failed. If it was for their sake, the next one must not.
    pub(crate) fn forget_candidates(&mut self) {
        self.candidates = Default::default();
    }

    /// Those that a server has shown to be settings.
    pub(crate) fn known_customs(&self) -> impl Iterator<Item = &[u8]> {
        self.customs.iter().map(|name| &**name)
    }

    /// And those that may be.
    pub(crate) fn customs(&self) -> impl Iterator<Item = &[u8]> {
        self.customs.iter().chain(self.candidates.iter().flatten()).map(|name| &**name)
    }

    /// For another process.
    pub(crate) fn customs_record(&self, pool: u32) -> CustomsRecord {
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
    pub(crate) fn recall_customs(&mut self, record: &CustomsRecord) {
        let known =
            record.known.iter().filter(|name| is_name(name)).map(|name| name.as_slice().into());
        let room = CUSTOMS_MAX.saturating_sub(self.customs.len());
        self.customs.extend(known.take(room));
        for (names, sets) in [(&record.likely, true), (&record.others, false)] {
            let names = names.iter().filter(|name| is_name(name));
            names.for_each(|name| self.note_custom(name, sets));
        }
    }

    /// May a text that calls them be run without the question what it has left?
    pub(crate) fn is_harmless(&mut self, called: Called, schema: u64, now: Micros) -> bool {
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
    pub(crate) fn has_left_nothing(&mut self, called: Called, schema: u64, now: Micros) {
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
    pub(crate) fn has_left_something(&mut self, called: Called) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_settings_make_room() {
        let mut history = TextHistory::default();
        history.note_custom(b"app.tenant", true);
        history.learn_custom(b"app.tenant");
        history.note_custom(b"app.other", true);
        history.note_custom(b"t.c", false);
        for number in 0..CANDIDATES_MAX {
            history.note_custom(format!("t.c{number}").as_bytes(), false);
        }
        let names: Vec<_> = history.customs().collect();
        assert_eq!(names.len(), 2 + CANDIDATES_MAX);
        assert!(names.contains(&&b"app.tenant"[..]) && names.contains(&&b"app.other"[..]));
        assert!(!names.contains(&&b"t.c"[..]));
        history.forget_candidates();
        assert_eq!(history.customs().collect::<Vec<_>>(), [b"app.tenant"]);
    }

    fn called(names: u64, here: u64) -> Called {
        Called { names, here }
    }

    #[test]
    fn functions_are_trusted_after_a_while_and_for_a_while() {
        let mut history = TextHistory::default();
        let seven = called(7, 70);
        for _ in 1..WATCHED_TIMES {
            history.has_left_nothing(seven, 0, 0);
            assert!(!history.is_harmless(seven, 0, 0));
        }
        history.has_left_nothing(seven, 0, 0);
        assert!(
            history.is_harmless(seven, 0, TRUST - 1) && !history.is_harmless(called(7, 71), 0, 0)
        );
        assert!(!history.is_harmless(seven, 0, TRUST));
        history.has_left_nothing(seven, 0, TRUST);
        assert!(history.is_harmless(seven, 0, TRUST));
        assert!(!history.is_harmless(seven, 1, TRUST), "the schema has changed");
        assert!(!history.is_harmless(seven, 0, TRUST), "that is over");
    }

    #[test]
    fn what_has_once_left_something_is_always_asked_about() {
        let mut history = TextHistory::default();
        history.has_left_something(called(7, 70));
        for schema in 0..2 {
            for _ in 0..2 * WATCHED_TIMES {
                history.has_left_nothing(called(7, 71), schema, 0);
            }
            assert!(!history.is_harmless(called(7, 71), schema, 0));
        }
    }

    #[test]
    fn what_is_not_known_to_be_the_same_is_not_trusted() {
        let mut history = TextHistory::default();
        for _ in 0..2 * WATCHED_TIMES {
            history.has_left_nothing(called(7, 0), 0, 0);
        }
        assert!(!history.is_harmless(called(7, 0), 0, 0));
    }
}
