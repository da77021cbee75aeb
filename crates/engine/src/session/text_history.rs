//! A worker's experience with a pool's texts (`pool_mode = auto`): names of settings that
//! PostgreSQL does not list, and functions that leave nothing in the session.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use serde::{Deserialize, Serialize};

use crate::ids::Micros;
use crate::session::carried::Carried;
use crate::session::sequences::SequenceHabits;
use crate::session::setting_names::is_name;

/// Limit of known setting names, and of possible ones. Most possible names are columns of tables.
/// The probe asks for further names only after texts that contain them (`setting_names.rs`). If
/// there are further known names, sessions are discarded after functions, and none is trusted.
const CUSTOMS_MAX: usize = 256;
pub(crate) const CANDIDATES_MAX: usize = 256;
/// Limit of sets of functions. When it is reached, all are learnt again. If more than that have
/// left something, no function is trusted any more.
const FUNCTIONS_MAX: usize = 4_096;
/// The number of transactions without effects after which functions are trusted. One is not enough,
/// because a function may leave something in some calls only.
const WATCHED_TIMES: u8 = 8;
/// After this time, trusted functions are probed once again: another client that does not use Weir
/// may have replaced them.
const TRUST: Micros = 60_000_000;

/// The functions that one text calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Digest of their names; 0 if there are none, or if the text may leave something in another
    /// way.
    pub names: u64,
    /// Digest of their names and of the client's parse context; 0 if unknown.
    pub here: u64,
}

/// Experience with the functions of one text.
#[derive(Debug)]
enum Standing {
    /// The number of transactions with them that have left nothing.
    Watched { times: u8 },
    /// Until then Weir assumes that they leave nothing.
    Trusted { until: Micros },
}

#[derive(Debug, Default)]
pub(crate) struct TextHistory {
    /// Names that a server has confirmed as settings.
    customs: BTreeSet<Box<[u8]>>,
    /// Names that no server has confirmed yet, oldest first: names in texts that set something, and
    /// names in texts that call functions. The second kind is frequent and mostly wrong, so it has
    /// its own queue and cannot push out the first kind.
    candidates: [VecDeque<Box<[u8]>>; 2],
    /// Servers have confirmed more names than are kept.
    has_dropped: bool,
    /// Functions that have left something, by name only. They are never trusted, in whatever
    /// schema.
    guilty: HashSet<u64, RandomState>,
    /// All other functions, by name and parse context.
    functions: HashMap<u64, Standing, RandomState>,
    /// The number of schema changes when this was learnt.
    schema: u64,
    /// Has any client of the pool asked for a number of a sequence?
    pub asks_numbers: bool,
    /// For texts that may draw numbers: whether clients ask for them.
    pub sequences: SequenceHabits,
}

/// The setting names of a pool that are handed over in an online restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomsRecord {
    /// Index of the pool in the records.
    pub pool: u32,
    /// Names that servers have confirmed.
    pub known: Vec<Vec<u8>>,
    /// Possible names: those of texts that set something, and others.
    pub likely: Vec<Vec<u8>>,
    pub others: Vec<Vec<u8>>,
    /// Servers have confirmed more names than these.
    pub has_dropped: bool,
}

impl TextHistory {
    /// Notes a name from a text. `sets`: the text itself sets something. Otherwise it calls
    /// functions, and a later call may set this name without naming it.
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

    /// The server has these settings, so their names exist.
    pub(crate) fn learn_customs(&mut self, there: &Carried) {
        for setting in there.all().iter().filter(|setting| setting.name.contains(&b'.')) {
            self.learn_custom(&setting.name);
        }
    }

    /// A server has confirmed this name as a setting.
    pub(crate) fn learn_custom(&mut self, name: &[u8]) {
        let name = name.to_ascii_lowercase();
        if !is_name(&name) || self.customs.contains(&*name) {
            return;
        }
        if self.customs.len() == CUSTOMS_MAX {
            self.has_dropped = true;
            self.functions.clear();
            return;
        }
        for candidates in &mut self.candidates {
            candidates.retain(|one| **one != *name);
        }
        self.customs.insert(name.into());
    }

    /// Have servers confirmed a name that is not kept? A function may set it without naming it, and
    /// the probe would not ask for it.
    pub(crate) fn has_dropped(&self) -> bool {
        self.has_dropped
    }

    /// A probe with unconfirmed names has failed. The next probe must not fail for the same reason,
    /// so these names are forgotten.
    pub(crate) fn forget_candidates(&mut self) {
        self.candidates = Default::default();
    }

    /// The confirmed names.
    pub(crate) fn known_customs(&self) -> impl Iterator<Item = &[u8]> {
        self.customs.iter().map(|name| &**name)
    }

    /// The unconfirmed names.
    pub(crate) fn customs(&self) -> impl Iterator<Item = &[u8]> {
        self.customs.iter().chain(self.candidates.iter().flatten()).map(|name| &**name)
    }

    /// Returns the record for another process.
    pub(crate) fn customs_record(&self, pool: u32) -> CustomsRecord {
        let names = |names: &VecDeque<Box<[u8]>>| names.iter().map(|name| name.to_vec()).collect();
        let [likely, others] = &self.candidates;
        CustomsRecord {
            pool,
            known: self.customs.iter().map(|name| name.to_vec()).collect(),
            likely: names(likely),
            others: names(others),
            has_dropped: self.has_dropped,
        }
    }

    /// Takes over the record of another process.
    pub(crate) fn recall_customs(&mut self, record: &CustomsRecord) {
        record.known.iter().for_each(|name| self.learn_custom(name));
        for (names, sets) in [(&record.likely, true), (&record.others, false)] {
            let names = names.iter().filter(|name| is_name(name));
            names.for_each(|name| self.note_custom(name, sets));
        }
        self.has_dropped |= record.has_dropped;
    }

    /// May a text with these functions run without a probe?
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

    /// A transaction with these functions was committed and has left nothing.
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

    /// A transaction with these functions has left something.
    pub(crate) fn has_left_something(&mut self, called: Called) {
        if self.guilty.len() < FUNCTIONS_MAX {
            self.guilty.insert(called.names);
        }
    }

    /// After a schema change the functions may have changed, so they are learnt again.
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
        assert!(!history.has_dropped(), "a possible name is only a hint");
        history.forget_candidates();
        assert_eq!(history.customs().collect::<Vec<_>>(), [b"app.tenant"]);
    }

    #[test]
    fn a_confirmed_name_is_kept_or_counts_as_dropped() {
        let mut history = TextHistory::default();
        for number in 0..CUSTOMS_MAX {
            let name = format!("app.n{number}").into_bytes();
            history.note_custom(&name, number % 2 == 0);
            history.learn_custom(&name);
            history.learn_custom(&name.to_ascii_uppercase());
        }
        assert_eq!((history.customs().count(), history.has_dropped()), (CUSTOMS_MAX, false));
        history.learn_custom(b"no name");
        history.note_custom(b"app.other", true);
        assert!(!history.has_dropped());
        history.learn_custom(b"app.other");
        assert!(history.has_dropped());
    }

    #[test]
    fn another_process_knows_that_names_were_dropped() {
        let record = CustomsRecord { has_dropped: true, ..CustomsRecord::default() };
        let mut history = TextHistory::default();
        history.recall_customs(&record);
        assert_eq!(history.customs_record(0), record);

        // Workers may have learnt different names.
        let names = |from: usize| CustomsRecord {
            known: (from..from + 200).map(|number| format!("a.n{number}").into()).collect(),
            ..CustomsRecord::default()
        };
        for (from, count, has_dropped) in [(50, 250, false), (100, CUSTOMS_MAX, true)] {
            let mut history = TextHistory::default();
            history.recall_customs(&names(0));
            history.recall_customs(&names(from));
            assert_eq!((history.customs().count(), history.has_dropped()), (count, has_dropped));
        }
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
    fn functions_that_once_left_something_are_always_probed() {
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
    fn functions_in_an_unknown_context_are_not_trusted() {
        let mut history = TextHistory::default();
        for _ in 0..2 * WATCHED_TIMES {
            history.has_left_nothing(called(7, 0), 0, 0);
        }
        assert!(!history.is_harmless(called(7, 0), 0, 0));
    }
}
