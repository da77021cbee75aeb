//! Judges the histories.
//!
//! The last primary has all values of each key in their order. So each act can be compared with that:
//!
//! * An acknowledged write is there once, at the place that its answer has told. A write that was rolled
//!   back is not there, and no read has shown it. A write without an answer is there at most once.
//! * A write that began after another one was acknowledged is behind it.
//! * No request ran on a primary after a later one had answered another request.
//! * A read shows the values up to a place, and at least those that its level promises. A strict read
//!   also shows what any earlier read has shown, whoever wrote it.
//!
//! A read may also show values that are not there at the end. A commit waits for a standby before others
//! see it. If the wait is interrupted (postmaster killed), the other sessions of this primary see the
//! commit, and a failover may take it back. So these values must be writes without an answer, and only
//! reads on that primary and timeline may show them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use testkit::Postgres;

use super::clients::Level;
use super::history::{Act, Key, Outcome, Place, Seen, Term, What};

/// The data of the last primary.
#[derive(Debug, Default)]
pub(super) struct Final {
    pub(super) timeline: u32,
    /// The values of each key in their order, with their numbers.
    pub(super) values: HashMap<Key, Vec<(u64, String)>>,
}

impl Final {
    pub(super) fn read(primary: &Postgres) -> Self {
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        let mut values: HashMap<Key, Vec<(u64, String)>> = HashMap::new();
        for row in primary.sql("postgres", "SELECT id, array_to_string(items, ' ') FROM lists") {
            let key = Key::List(number(&row[0]).expect("an id"));
            values.insert(key, (1..).zip(items(row[1].as_deref().unwrap_or_default())).collect());
        }
        let versions = "SELECT register, number, value FROM versions ORDER BY number";
        for row in primary.sql("postgres", versions) {
            let key = Key::Register(number(&row[0]).expect("an id"));
            let value = row[2].clone().expect("a value");
            values.entry(key).or_default().push((number(&row[1]).expect("a version"), value));
        }
        let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";
        let timeline = primary.sql("postgres", timeline)[0][0].clone().expect("a timeline");
        Self { timeline: u32::from_str_radix(&timeline, 16).expect("eight digits"), values }
    }
}

/// Splits the text of a list.
pub(super) fn items(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns all faults, in words.
pub(super) fn faults(acts: &[Act], last: &Final) -> Vec<String> {
    let mut judge = Judge::new(acts, last);
    judge.check_numbers();
    judge.check_writes();
    judge.check_order();
    judge.check_terms();
    judge.check_reads();
    judge.check_lost_values();
    judge.faults
}

struct Judge<'a> {
    acts: &'a [Act],
    last: &'a Final,
    /// The writes, by their values.
    writes: HashMap<&'a str, &'a Act>,
    /// The first place of each value at the end.
    places: HashMap<&'a str, (Key, u64)>,
    counts: HashMap<&'a str, usize>,
    /// The values that a read has shown, and that are not there at the end.
    lost: Vec<(&'a str, &'a Act)>,
    faults: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(acts: &'a [Act], last: &'a Final) -> Self {
        let mut places = HashMap::new();
        let mut counts: HashMap<_, usize> = HashMap::new();
        for (key, values) in &last.values {
            for (number, value) in values {
                places.entry(value.as_str()).or_insert((*key, *number));
                *counts.entry(value.as_str()).or_default() += 1;
            }
        }
        let writes = acts.iter().filter_map(|act| match &act.what {
            What::Write { value, .. } => Some((value.as_str(), act)),
            What::Read { .. } => None,
        });
        let (lost, faults) = (Vec::new(), Vec::new());
        Self { acts, last, writes: writes.collect(), places, counts, lost, faults }
    }

    fn fault(&mut self, words: String) {
        self.faults.push(words);
    }

    /// Returns the values of a key at the end.
    fn values(&self, key: Key) -> &'a [(u64, String)] {
        self.last.values.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns the write of a value to this key.
    fn write_of(&self, key: Key, value: &str) -> Option<&'a Act> {
        self.writes.get(value).copied().filter(|write| key_of(write) == key)
    }

    /// Each value at the end was written to its key, and they are counted without a gap.
    fn check_numbers(&mut self) {
        for (key, values) in &self.last.values {
            for (expected, (number, value)) in (1..).zip(values) {
                if *number != expected {
                    self.fault(format!("a gap: {value} has number {number} of {key:?}"));
                }
                if self.write_of(*key, value).is_none() {
                    self.fault(format!("nobody has written {value} to {key:?}"));
                }
            }
        }
    }

    fn check_writes(&mut self) {
        for act in self.acts {
            let What::Write { key, value, outcome } = &act.what else { continue };
            let count = self.counts.get(value.as_str()).copied().unwrap_or_default();
            match (outcome, count) {
                (Outcome::Acknowledged(done), 1) => {
                    let place = self.places[value.as_str()];
                    if place != (*key, done.number) {
                        self.fault(format!("is at another place, {place:?}: {act:?}"));
                    }
                }
                (Outcome::RolledBack, 0) | (Outcome::Unknown(_), 0 | 1) => {}
                (Outcome::Acknowledged(_), 0) => self.fault(format!("lost: {act:?}")),
                (Outcome::RolledBack, 1) => {
                    self.fault(format!("was rolled back, and is there: {act:?}"));
                }
                (_, count) => self.fault(format!("is there {count} times: {act:?}")),
            }
        }
    }

    /// A write that began after another one was acknowledged is behind it.
    fn check_order(&mut self) {
        for (key, values) in &self.last.values {
            // The first end of the acknowledged writes behind this place.
            let mut earliest: Option<&Act> = None;
            for (_, value) in values.iter().rev() {
                let Some(write) = self.write_of(*key, value) else { continue };
                if let Some(earlier) = earliest.filter(|earlier| earlier.end < write.begin) {
                    self.fault(format!("is before an earlier write, {earlier:?}: {write:?}"));
                }
                if write.what.is_acknowledged_write()
                    && earliest.is_none_or(|earlier| write.end < earlier.end)
                {
                    earliest = Some(write);
                }
            }
        }
    }

    /// A later timeline begins when the earlier one has ended: no request may begin on the earlier one
    /// after one on the later one was answered. A timeline belongs to one node.
    fn check_terms(&mut self) {
        let mut firsts: BTreeMap<u32, (Duration, &Act, &Term)> = BTreeMap::new();
        for act in self.acts {
            let Some(term) = act.what.term() else { continue };
            let first = firsts.entry(term.timeline).or_insert((act.end, act, term));
            if act.end < first.0 {
                *first = (act.end, act, term);
            }
        }
        for act in self.acts {
            let Some(term) = act.what.term() else { continue };
            let (_, other, owner) = firsts[&term.timeline];
            if owner.node != term.node {
                self.fault(format!("two nodes have its timeline: {act:?}, {other:?}"));
            }
            if term.timeline > self.last.timeline {
                self.fault(format!("is of a timeline that is gone: {act:?}"));
            }
            let later = firsts.range(term.timeline + 1..);
            let answered = later.map(|(_, first)| first).find(|first| first.0 < act.begin);
            if let Some((_, first, _)) = answered {
                self.fault(format!("two nodes were used: {act:?} after {first:?}"));
            }
        }
    }

    fn check_reads(&mut self) {
        let mut writes: HashMap<Key, Vec<&Act>> = HashMap::new();
        for act in self.acts {
            if let What::Write { key, value, .. } = &act.what
                && self.places.contains_key(value.as_str())
            {
                writes.entry(*key).or_default().push(act);
            }
        }
        let mut shown: HashMap<Key, Vec<(&Act, u64)>> = HashMap::new();
        for read in self.acts {
            let What::Read { key, seen, place } = &read.what else { continue };
            let kept = match seen {
                Seen::All(values) => self.check_list(read, *key, values, place),
                Seen::Last(number, value) => self.check_register(read, *key, *number, value),
            };
            for write in writes.get(key).into_iter().flatten() {
                let What::Write { value, .. } = &write.what else { continue };
                if must_show(read, write) && self.places[value.as_str()].1 > kept {
                    self.fault(format!("stale: {read:?} lacks {write:?}"));
                }
            }
            shown.entry(*key).or_default().push((read, kept));
        }
        shown.into_values().for_each(|reads| self.check_strict(reads));
    }

    /// A strict read shows at least as many values as each read of the same key that ended before it
    /// began. `reads`: those of one key, each with the number of its values.
    fn check_strict(&mut self, mut reads: Vec<(&Act, u64)>) {
        reads.sort_by_key(|(read, _)| read.end);
        // The read that shows most of those up to this place.
        let most: Vec<(&Act, u64)> = reads
            .iter()
            .scan((reads[0].0, 0), |most, &(read, kept)| {
                if kept > most.1 {
                    *most = (read, kept);
                }
                Some(*most)
            })
            .collect();
        for (read, kept) in &reads {
            let earlier = reads.partition_point(|(other, _)| other.end < read.begin);
            let Some((other, before)) = earlier.checked_sub(1).map(|at| most[at]) else { continue };
            if read.level == Level::Strict && *kept < before {
                self.fault(format!("back in time: {read:?} after {other:?}"));
            }
        }
    }

    /// Checks the values of a list. Returns how many of the last ones they are.
    fn check_list(&mut self, read: &'a Act, key: Key, seen: &'a [String], place: &Place) -> u64 {
        let values = self.values(key);
        let is_same = |(own, (_, value)): &(&String, &(u64, String))| *own == value;
        let kept = seen.iter().zip(values).take_while(is_same).count();
        let lost = &seen[kept..];
        for value in seen {
            self.check_seen(read, key, value);
        }
        for (at, value) in lost.iter().enumerate() {
            let is_there = self.places.contains_key(value.as_str());
            if is_there || lost[..at].contains(value) {
                self.fault(format!("another order than {values:?}: {read:?}"));
            } else {
                self.lost.push((value, read));
            }
        }
        // The next value that is kept was written on a later timeline than the lost ones.
        if let Place::Primary(term) = place
            && !lost.is_empty()
            && let Some((_, next)) = values.get(kept)
            && let Some(other) = self.write_of(key, next).and_then(|write| write.what.term())
            && other.timeline <= term.timeline
        {
            self.fault(format!("lost on its own timeline, where {next} is kept: {read:?}"));
        }
        kept as u64
    }

    /// Checks the last value of a register. Returns how many of the last values it is known to follow.
    fn check_register(&mut self, read: &'a Act, key: Key, number: u64, value: &'a str) -> u64 {
        self.check_seen(read, key, value);
        match self.places.get(value) {
            Some(place) if *place == (key, number) => number,
            Some(place) => {
                self.fault(format!("{value} is at another place, {place:?}: {read:?}"));
                number
            }
            None => {
                self.lost.push((value, read));
                number.saturating_sub(1)
            }
        }
    }

    /// A value that a read shows was written to this key, before the read has ended.
    fn check_seen(&mut self, read: &Act, key: Key, value: &str) {
        match self.write_of(key, value) {
            None => self.fault(format!("shows {value}, which nobody has written: {read:?}")),
            Some(write) if write.begin > read.end => {
                self.fault(format!("shows a later write, {write:?}: {read:?}"));
            }
            Some(Act { what: What::Write { outcome: Outcome::RolledBack, .. }, .. }) => {
                self.fault(format!("shows {value}, which was rolled back: {read:?}"));
            }
            Some(_) => {}
        }
    }

    /// A value that is not there at the end was seen on the primary and the timeline of its write alone,
    /// and that timeline has ended.
    fn check_lost_values(&mut self) {
        let mut terms: HashMap<&str, &Term> = HashMap::new();
        for (value, read) in std::mem::take(&mut self.lost) {
            let What::Read { place, .. } = &read.what else { continue };
            let Place::Primary(term) = place else {
                self.fault(format!("a standby shows {value}, which is lost: {read:?}"));
                continue;
            };
            let write = self.writes.get(value).and_then(|write| write.what.term());
            let first = write.unwrap_or_else(|| terms.entry(value).or_insert(term));
            if first != term {
                self.fault(format!("{value} of {first:?} is lost, and was seen later: {read:?}"));
            }
            if term.timeline >= self.last.timeline {
                self.fault(format!("{value} is lost without a failover: {read:?}"));
            }
        }
    }
}

fn key_of(act: &Act) -> Key {
    match &act.what {
        What::Write { key, .. } | What::Read { key, .. } => *key,
    }
}

/// Must this read show that write, which is there at the end?
fn must_show(read: &Act, write: &Act) -> bool {
    let is_of_session = (read.client, read.session) == (write.client, write.session);
    write.end < read.begin
        && match read.level {
            // A session that got no answer asks whether its write is there.
            Level::Session | Level::SessionWaits => is_of_session,
            Level::User => {
                is_of_session || write.level == Level::User && write.what.is_acknowledged_write()
            }
            Level::Strict => write.what.is_acknowledged_write(),
        }
}

/// Returns the numbers of requests by their outcome.
pub(super) fn counts(acts: &[Act]) -> String {
    let count = |is_it: &dyn Fn(&Act) -> bool| acts.iter().filter(|act| is_it(act)).count();
    let outcome = |act: &Act, is_it: fn(&Outcome) -> bool| match &act.what {
        What::Write { outcome, .. } => is_it(outcome),
        What::Read { .. } => false,
    };
    let acknowledged = count(&|act| act.what.is_acknowledged_write());
    let rolled_back = count(&|act| outcome(act, |one| matches!(one, Outcome::RolledBack)));
    let unknown = count(&|act| outcome(act, |one| matches!(one, Outcome::Unknown(_))));
    let reads = Level::ALL.map(|level| {
        let all = count(&|act| act.level == level && matches!(act.what, What::Read { .. }));
        let on_standbys = count(&|act| act.level == level && act.what.is_standby_read());
        format!("{level:?} {on_standbys} of {all}")
    });
    let reads = reads.join(", ");
    format!(
        "{acknowledged} writes, {rolled_back} rolled back, {unknown} unknown; reads on standbys: {reads}"
    )
}
