//! Judges the histories: no acknowledged write is lost, none is there twice, no write that was rolled
//! back is there, two nodes were never written at once, and each read shows what its level promises.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use testkit::Postgres;

use super::clients::Level;
use super::history::{Act, Outcome, Term, What};

/// The data of the last primary.
#[derive(Debug, Default)]
pub(super) struct Final {
    pub(super) lists: HashMap<u64, Vec<String>>,
    /// Version and value.
    pub(super) registers: HashMap<u64, (u64, String)>,
}

impl Final {
    pub(super) fn read(primary: &Postgres) -> Self {
        let number = |text: &Option<String>| text.as_ref()?.parse::<u64>().ok();
        let lists = primary.sql("postgres", "SELECT id, array_to_string(items, ' ') FROM lists");
        let registers = primary.sql("postgres", "SELECT id, version, value FROM registers");
        Self {
            lists: lists
                .iter()
                .filter_map(|row| Some((number(&row[0])?, items(row[1].as_deref()?))))
                .collect(),
            registers: registers
                .iter()
                .filter_map(|row| Some((number(&row[0])?, (number(&row[1])?, row[2].clone()?))))
                .collect(),
        }
    }
}

/// Splits the text of a list.
pub(super) fn items(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns all faults, in words.
pub(super) fn faults(acts: &[Act], last: &Final) -> Vec<String> {
    let mut faults = Vec::new();
    check_appends(acts, last, &mut faults);
    check_registers(acts, last, &mut faults);
    check_terms(acts, &mut faults);
    check_reads(acts, last, &mut faults);
    faults
}

fn check_appends(acts: &[Act], last: &Final, faults: &mut Vec<String>) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for value in last.lists.values().flatten() {
        *counts.entry(value).or_default() += 1;
    }
    for act in acts {
        let What::Append { value, outcome, .. } = &act.what else { continue };
        match (outcome, counts.get(value.as_str()).copied().unwrap_or_default()) {
            (Outcome::Acknowledged(..), 1)
            | (Outcome::RolledBack, 0)
            | (Outcome::Unknown, 0 | 1) => {}
            (Outcome::Acknowledged(..), 0) => faults.push(format!("lost: {act:?}")),
            (Outcome::RolledBack, 1) => {
                faults.push(format!("was rolled back, and is there: {act:?}"))
            }
            (_, count) => faults.push(format!("is there {count} times: {act:?}")),
        }
    }
}

fn check_registers(acts: &[Act], last: &Final, faults: &mut Vec<String>) {
    let mut known: HashMap<(u64, u64), &str> = HashMap::new();
    for act in acts {
        let What::Write { register, value, outcome } = &act.what else { continue };
        let end = last.registers.get(register);
        let is_last = end.is_some_and(|(_, own)| own == value);
        match outcome {
            Outcome::Acknowledged(version, _) => {
                if let Some(other) = known.insert((*register, *version), value) {
                    faults.push(format!("{other} has the same version: {act:?}"));
                }
                match end {
                    Some((newest, _)) if newest > version => {}
                    Some((newest, _)) if newest == version && is_last => {}
                    Some(_) | None => faults.push(format!("lost: {act:?}, and {end:?} is there")),
                }
            }
            Outcome::RolledBack if is_last => {
                faults.push(format!("was rolled back, and is there: {act:?}"));
            }
            Outcome::RolledBack | Outcome::Unknown => {}
        }
    }
    for act in acts {
        let What::ReadRegister { register, seen: Some((version, value)) } = &act.what else {
            continue;
        };
        let written = known.get(&(*register, *version));
        if written.is_some_and(|written| written != value) {
            faults.push(format!("version {version} was {written:?}: {act:?}"));
        }
    }
}

/// A later timeline begins when the earlier one has ended: no write to the earlier one may begin after
/// a write to the later one was acknowledged. A timeline belongs to one node.
fn check_terms(acts: &[Act], faults: &mut Vec<String>) {
    let mut terms: BTreeMap<&Term, (Duration, &Act)> = BTreeMap::new();
    for act in acts {
        let Some(term) = act.what.term() else { continue };
        let first = terms.entry(term).or_insert((act.end, act));
        if act.end < first.0 {
            *first = (act.end, act);
        }
    }
    for act in acts {
        let Some(term) = act.what.term() else { continue };
        for (other, (acknowledged, first)) in terms.iter().rev() {
            if other.timeline == term.timeline && other.node != term.node {
                faults.push(format!("two nodes have its timeline: {act:?}, {first:?}"));
            }
            if other.timeline > term.timeline && *acknowledged < act.begin {
                faults.push(format!("two nodes were written: {act:?} after {first:?}"));
            }
        }
    }
}

/// Must reads of this act show the writes of that one?
fn concerns(read: &Act, write: &Act) -> bool {
    let is_before = write.end < read.begin;
    is_before
        && match read.level {
            Level::Session => read.client == write.client,
            Level::User => write.level == Level::User,
            Level::Strict => true,
        }
}

fn check_reads(acts: &[Act], last: &Final, faults: &mut Vec<String>) {
    let mut appends: HashMap<u64, Vec<&Act>> = HashMap::new();
    let mut writes: HashMap<u64, Vec<&Act>> = HashMap::new();
    for act in acts {
        match &act.what {
            What::Append { list, outcome: Outcome::Acknowledged(..), .. } => {
                appends.entry(*list).or_default().push(act);
            }
            What::Write { register, outcome: Outcome::Acknowledged(..), .. } => {
                writes.entry(*register).or_default().push(act);
            }
            _ => {}
        }
    }
    for read in acts {
        match &read.what {
            What::ReadList { list, seen } => {
                let own = appends.get(list).into_iter().flatten();
                for write in own.filter(|write| concerns(read, write)) {
                    let What::Append { value, .. } = &write.what else { continue };
                    if !seen.contains(value) {
                        faults.push(format!("stale: {read:?} lacks {write:?}"));
                    }
                }
                let end = last.lists.get(list).map_or(&[][..], Vec::as_slice);
                // A value without an acknowledgement may be lost.
                let kept: Vec<_> = seen.iter().filter(|value| end.contains(value)).collect();
                if !end.iter().zip(&kept).all(|(one, other)| one == *other)
                    || kept.len() > end.len()
                {
                    faults.push(format!("another order than {end:?}: {read:?}"));
                }
            }
            What::ReadRegister { register, seen } => {
                let found = seen.as_ref().map_or(0, |(version, _)| *version);
                let own = writes.get(register).into_iter().flatten();
                for write in own.filter(|write| concerns(read, write)) {
                    let What::Write { outcome: Outcome::Acknowledged(version, _), .. } =
                        &write.what
                    else {
                        continue;
                    };
                    if *version > found {
                        faults.push(format!("stale: {read:?} lacks {write:?}"));
                    }
                }
            }
            What::Append { .. } | What::Write { .. } => {}
        }
    }
}

/// Returns the numbers of requests by their outcome.
pub(super) fn counts(acts: &[Act]) -> String {
    let count = |is_it: &dyn Fn(&What) -> bool| acts.iter().filter(|act| is_it(&act.what)).count();
    let acknowledged = count(&|what| what.term().is_some());
    let rolled_back = count(&|what| {
        matches!(
            what,
            What::Append { outcome: Outcome::RolledBack, .. }
                | What::Write { outcome: Outcome::RolledBack, .. }
        )
    });
    let unknown = count(&|what| {
        matches!(
            what,
            What::Append { outcome: Outcome::Unknown, .. }
                | What::Write { outcome: Outcome::Unknown, .. }
        )
    });
    let reads = acts.len() - acknowledged - rolled_back - unknown;
    format!("{acknowledged} writes, {rolled_back} rolled back, {unknown} unknown; {reads} reads")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(client: usize, begin: u64, what: What) -> Act {
        let level = super::super::LEVELS[client];
        let (begin, end) = (Duration::from_secs(begin), Duration::from_secs(begin + 1));
        Act { client, level, begin, end, what }
    }

    fn term(timeline: u32, node: &str) -> Term {
        Term { timeline, node: node.to_owned() }
    }

    fn append(value: &str, outcome: Outcome<()>) -> What {
        What::Append { list: 1, value: value.to_owned(), outcome }
    }

    fn appended(value: &str, timeline: u32, node: &str) -> What {
        append(value, Outcome::Acknowledged((), term(timeline, node)))
    }

    fn wrote(value: &str, version: u64) -> What {
        let outcome = Outcome::Acknowledged(version, term(1, "a"));
        What::Write { register: 1, value: value.to_owned(), outcome }
    }

    fn read(text: &str) -> What {
        What::ReadList { list: 1, seen: items(text) }
    }

    fn register(version: u64, value: &str) -> What {
        What::ReadRegister { register: 1, seen: Some((version, value.to_owned())) }
    }

    fn last(text: &str, version: u64, value: &str) -> Final {
        let registers = [(1, (version, value.to_owned()))].into();
        Final { lists: [(1, items(text))].into(), registers }
    }

    #[track_caller]
    fn finds(acts: &[Act], last: &Final, expected: &str) {
        let found = faults(acts, last);
        let is_it = |fault: &String| fault.starts_with(expected);
        match expected {
            "" => assert!(found.is_empty(), "{found:?}"),
            _ => assert!(found.len() == 1 && found.iter().all(is_it), "{expected}: {found:?}"),
        }
    }

    #[test]
    fn a_sound_history_has_no_fault() {
        let acts = [
            act(0, 0, appended("x", 1, "a")),
            act(0, 2, read("x")),
            act(1, 2, append("u", Outcome::Unknown)),
            act(1, 4, append("r", Outcome::RolledBack)),
            act(0, 6, wrote("v", 1)),
            act(0, 8, register(1, "v")),
            act(0, 9, appended("y", 2, "b")),
        ];
        finds(&acts, &last("x u y", 2, "w"), "");
        finds(&acts, &last("x y", 1, "v"), "");
    }

    #[test]
    fn each_fault_of_a_write_is_found() {
        let one = [act(0, 0, appended("x", 1, "a"))];
        finds(&one, &last("", 0, ""), "lost");
        finds(&one, &last("x x", 0, ""), "is there 2 times");
        let other = [act(0, 0, append("x", Outcome::RolledBack))];
        finds(&other, &last("x", 0, ""), "was rolled back");
        let unknown = [act(0, 0, append("x", Outcome::Unknown))];
        finds(&unknown, &last("x x", 0, ""), "is there 2 times");
        finds(&[act(0, 0, wrote("v", 2))], &last("", 1, "u"), "lost");
        finds(&[act(0, 0, wrote("v", 2))], &last("", 2, "u"), "lost");
        finds(
            &[act(0, 0, wrote("v", 2)), act(1, 3, wrote("w", 2))],
            &last("", 3, "u"),
            "v has the same",
        );
    }

    #[test]
    fn two_written_nodes_are_found() {
        let acts = |first: u64, second: u64, nodes: [&str; 2]| {
            let [one, other] = nodes;
            [act(0, first, appended("x", 1, one)), act(1, second, appended("y", 2, other))]
        };
        finds(&acts(0, 5, ["a", "b"]), &last("x y", 0, ""), "");
        finds(&acts(6, 4, ["a", "b"]), &last("x y", 0, ""), "two nodes were written");
        let same = [act(0, 0, appended("x", 1, "a")), act(1, 4, appended("y", 1, "b"))];
        assert_eq!(faults(&same, &last("x y", 0, "")).len(), 2, "each is told");
    }

    #[test]
    fn each_level_has_its_own_stale_reads() {
        // Clients 0 and 1 have `session`, 4 and 5 `user`, 6 and 7 `strict`.
        for (writer, reader, is_stale) in
            [(0, 0, true), (1, 0, false), (4, 0, false), (4, 5, true), (0, 5, false), (0, 6, true)]
        {
            let expected = if is_stale { "stale" } else { "" };
            let acts = [act(writer, 0, appended("x", 1, "a")), act(reader, 2, read(""))];
            finds(&acts, &last("x", 0, ""), expected);
            let acts = [act(writer, 0, wrote("v", 2)), act(reader, 2, register(1, "u"))];
            finds(&acts, &last("", 2, "v"), expected);
            // It began before the answer.
            let acts = [act(writer, 1, appended("x", 1, "a")), act(reader, 2, read(""))];
            finds(&acts, &last("x", 0, ""), "");
        }
    }

    #[test]
    fn a_read_shows_the_beginning_of_a_list() {
        finds(&[act(0, 0, read("x y"))], &last("x y z", 0, ""), "");
        finds(&[act(0, 0, read("x lost y"))], &last("x y z", 0, ""), "");
        finds(&[act(0, 0, read("y x"))], &last("x y z", 0, ""), "another order");
        finds(&[act(0, 0, read("x z"))], &last("x y z", 0, ""), "another order");
        let acts = [act(0, 0, wrote("v", 1)), act(0, 2, register(1, "w"))];
        finds(&acts, &last("", 1, "v"), "version 1 was");
    }
}
