//! The claim of a server that it is the primary of its timeline, and what tells a server that has
//! another address now from a copy of it.
//!
//! Nodes are known by what they say. PostgreSQL starts a new timeline with each promotion, so two
//! servers that accept writes on one timeline are one server, or one of them is a copy:
//!
//! * One server has one time of its start, whatever its addresses are.
//! * A server that was restarted has all that it had flushed. A copy has what the server had when it
//!   was copied. It may write more later, so its position counts when it is first seen.
//! * A copy may run beside the primary. A server that was restarted does not.
//! * A server that was in recovery since its start was promoted. It has begun the same timeline a
//!   second time, and is not the primary of the first.
//!
//! A copy that is restarted is still a copy: a server with more WAL at the same node is taken for it.

use crate::Micros;
use crate::fact::{Lsn, Role, Sample};

/// A server that accepts writes, since it was first seen as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// See [`Sample::started`].
    pub(crate) started: u64,
    timeline: u32,
    /// The end of its WAL when it was first seen, and now.
    first: Lsn,
    wal: Lsn,
    /// When the question for its first answer was sent, and when the answer had arrived.
    first_asked_at: Micros,
    pub(crate) since: Micros,
    /// When the question for its last answer was sent, and when the answer had arrived.
    asked_at: Micros,
    seen_at: Micros,
    /// It is certainly not the primary: see [`Claim::compare`], or it was promoted.
    is_copy: bool,
}

/// Why a server is not the primary of its timeline, although it accepts writes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It ran beside the primary, or was promoted.
    Another,
    /// It lacks WAL that the primary was seen to have. It had WAL up to this position.
    Behind(Lsn),
}

impl Claim {
    /// Returns the claim after an answer of the node, whose question was sent at `asked_at`.
    /// `was_standby`: this server was in recovery.
    pub(crate) fn followed(
        before: Option<Self>,
        sample: &Sample,
        was_standby: bool,
        asked_at: Micros,
        now: Micros,
    ) -> Option<Self> {
        if sample.role != Role::Primary {
            return None;
        }
        let before = before.filter(|own| own.timeline == sample.timeline);
        if let Some(own) = before.filter(|own| own.started == sample.started) {
            let seen_at = if own.asked_at == asked_at { own.seen_at } else { now };
            return Some(Self { wal: sample.wal, asked_at, seen_at, ..own });
        }
        let is_restarted_copy = |own: Self| own.is_copy && own.wal <= sample.wal;
        Some(Self {
            started: sample.started,
            timeline: sample.timeline,
            first: sample.wal,
            wal: sample.wal,
            first_asked_at: asked_at,
            since: now,
            asked_at,
            seen_at: now,
            is_copy: was_standby || before.is_some_and(is_restarted_copy),
        })
    }

    /// Takes over what was seen of the same server at another node.
    pub(crate) fn unite(&mut self, other: &Self) {
        if (self.started, self.timeline) == (other.started, other.timeline) {
            self.first = self.first.min(other.first);
            self.is_copy |= other.is_copy;
        }
    }

    /// The server is the primary, so it is no copy.
    pub(crate) fn accept(&mut self) {
        self.is_copy = false;
    }

    /// Compares it with the last primary, which is another server if it has run before and after an
    /// answer of this one, or if it had more WAL before that answer, or less behind it. `primary`: its
    /// claim, if it is at a node. `written`: the end of its WAL. `since`: when its first answer had arrived.
    pub(crate) fn compare(&mut self, primary: Option<&Self>, written: Lsn, since: Micros) {
        let is_beside = |primary: &Self| {
            // The nodes may always be asked at the same time, so its first answer counts, too.
            primary.since <= self.asked_at && self.seen_at <= primary.asked_at
                || primary.since <= self.first_asked_at && self.since <= primary.asked_at
        };
        // The answer to an earlier question may be that of the primary itself before it was restarted.
        let is_behind = since <= self.asked_at && self.is_behind(written);
        // The primary was restarted since, and would have all WAL that this one has had.
        let is_ahead =
            |primary: &Self| self.seen_at <= primary.first_asked_at && primary.is_behind(self.wal);
        self.is_copy |= is_behind || primary.is_some_and(is_beside);
        self.is_copy |= primary.is_some_and(is_ahead);
    }

    /// Returns why this is not the server that was the primary, which had WAL up to `written`.
    pub(crate) fn flaw(&self, written: Lsn) -> Option<Flaw> {
        if self.is_behind(written) {
            return Some(Flaw::Behind(self.first));
        }
        self.is_copy.then_some(Flaw::Another)
    }

    fn is_behind(&self, written: Lsn) -> bool {
        self.first.settled() < written.settled()
    }
}
