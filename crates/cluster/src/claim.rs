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
//! Servers that run at the same time are noted before one of them is the primary
//! ([`Claim::beside`]), because the copy may be restarted before Weir has chosen.

use std::collections::BTreeSet;

use crate::Micros;
use crate::fact::{Lsn, Role, Sample};

/// A server that accepts writes, since it was first seen as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// See [`Sample::started`].
    pub(crate) started: u64,
    /// Its first known start. A restart with more WAL keeps it.
    origin: u64,
    /// The origins of the servers that ran at the same time.
    beside: BTreeSet<u64>,
    system: u64,
    timeline: u32,
    /// The end of its WAL when it was first seen, and now.
    first: Lsn,
    wal: Lsn,
    /// When the question for its first answer was sent, and when the answer had arrived.
    first_asked_at: Micros,
    pub(crate) since: Micros,
    /// When the question for its last answer was sent, and when the answer had arrived. The server
    /// has certainly run from `since` to `asked_at`.
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
        let place = (sample.system, sample.timeline);
        let mut before = before.filter(|own| (own.system, own.timeline) == place);
        if let Some(own) = before.take_if(|own| own.started == sample.started) {
            let seen_at = if own.asked_at == asked_at { own.seen_at } else { now };
            return Some(Self { wal: sample.wal, asked_at, seen_at, ..own });
        }
        let restarted = before.filter(|own| own.wal <= sample.wal);
        Some(Self {
            started: sample.started,
            origin: restarted.as_ref().map_or(sample.started, |own| own.origin),
            system: sample.system,
            timeline: sample.timeline,
            first: sample.wal,
            wal: sample.wal,
            first_asked_at: asked_at,
            since: now,
            asked_at,
            seen_at: now,
            is_copy: was_standby || restarted.as_ref().is_some_and(|own| own.is_copy),
            beside: restarted.map(|own| own.beside).unwrap_or_default(),
        })
    }

    /// Takes over what was seen of the same server at another node.
    pub(crate) fn unite(&mut self, other: &Self) {
        if self.started == other.started && self.is_of(other) {
            self.first = self.first.min(other.first);
            self.origin = self.origin.min(other.origin);
            self.beside.extend(&other.beside);
            self.is_copy |= other.is_copy;
        }
    }

    /// Notes the other server if both have run at one time.
    pub(crate) fn meet(&mut self, other: &Self) {
        let is_another = self.started != other.started && self.is_of(other);
        if is_another && self.since <= other.asked_at && other.since <= self.asked_at {
            self.beside.insert(other.origin);
        }
    }

    /// Are both on one timeline of one system?
    fn is_of(&self, other: &Self) -> bool {
        (self.system, self.timeline) == (other.system, other.timeline)
    }

    /// The server is the primary, so it is no copy.
    pub(crate) fn accept(&mut self) {
        self.is_copy = false;
    }

    /// Compares it with the last primary, which is another server if both have run at one time, or if
    /// it had more WAL before an answer of this one, or less behind it. `primary`: its claim, if it is
    /// at a node. `written`: the end of its WAL. `since`: when its first answer had arrived.
    pub(crate) fn compare(&mut self, primary: Option<&Self>, written: Lsn, since: Micros) {
        let is_beside = |primary: &Self| self.beside.contains(&primary.origin);
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
