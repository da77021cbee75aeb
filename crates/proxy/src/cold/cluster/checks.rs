//! The questions for a node's state so far, and what its answers say about replication. Only the
//! console and the tools of Pgpool-II show this.

use engine::ids::Micros;

use super::state::{Sender, State};

/// The questions for a node's state so far, for the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    pub total: u64,
    /// The questions without an answer.
    pub failed: u64,
    /// Of the answers, as the two below.
    pub longest: Micros,
    pub shortest: Micros,
    pub sum: Micros,
    pub last_at: Option<Micros>,
    pub success_at: Option<Micros>,
    pub failure_at: Option<Micros>,
}

/// The facts about a node that only the console shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) checks: Checks,
    /// When the verdict about it changed last.
    pub(super) changed_at: Micros,
    /// Its WAL senders, if it was a primary at its last answer.
    senders: Vec<Sender>,
    /// The name of its WAL receiver, if that was running.
    receiver: Option<String>,
}

impl Record {
    pub(super) fn new(now: Micros) -> Self {
        Self { changed_at: now, ..Self::default() }
    }

    /// Counts a question that was sent at `asked_at` and has ended at `now`, with its answer.
    pub(super) fn note(&mut self, state: Option<&State>, asked_at: Micros, now: Micros) {
        let checks = &mut self.checks;
        checks.total += 1;
        checks.last_at = Some(now);
        let Some(state) = state else {
            checks.failed += 1;
            checks.failure_at = Some(now);
            return;
        };
        let time = now.saturating_sub(asked_at);
        let is_first = checks.success_at.is_none();
        checks.shortest = if is_first { time } else { checks.shortest.min(time) };
        checks.longest = checks.longest.max(time);
        checks.sum += time;
        checks.success_at = Some(now);
        self.senders.clone_from(&state.senders);
        self.receiver.clone_from(&state.replication.receiver);
    }

    /// Returns the primary's WAL sender for this standby.
    pub(super) fn sender<'a>(&self, primary: &'a Self) -> Option<&'a Sender> {
        let name = self.receiver.as_ref()?;
        primary.senders.iter().find(|sender| sender.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_their_times_are_counted() {
        let columns = [
            "1",
            "f",
            "000000010000000000000001",
            "0/1",
            "1",
            "",
            "",
            "",
            "",
            "on",
            "x",
            "b\tstreaming\tasync\nc",
            "",
            "",
            "5",
        ];
        let state = State::of(|at| columns.get(at).copied()).expect("a primary's answer");
        let mut primary = Record::new(7);
        primary.note(Some(&state), 10, 30);
        primary.note(None, 40, 90);
        primary.note(Some(&state), 100, 105);
        let expected = Checks {
            total: 3,
            failed: 1,
            longest: 20,
            shortest: 5,
            sum: 25,
            last_at: Some(105),
            success_at: Some(105),
            failure_at: Some(90),
        };
        assert_eq!((primary.checks, primary.changed_at), (expected, 7));
        let standby = |name: &str| Record { receiver: Some(name.to_owned()), ..Record::new(0) };
        let words = |name: &str| {
            let standby = standby(name);
            let sender = standby.sender(&primary)?;
            Some((sender.state.clone(), sender.sync_state.clone()))
        };
        assert_eq!(words("b"), Some(("streaming".to_owned(), "async".to_owned())));
        assert_eq!(words("c"), Some((String::new(), String::new())), "without pg_monitor");
        assert_eq!(words("d"), None);
    }
}
