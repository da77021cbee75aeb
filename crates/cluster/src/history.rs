//! The changes of the primary, for SHOW FAILOVERS.

use std::collections::VecDeque;

use crate::Micros;

/// Entries that are kept; older ones are forgotten.
const ENTRIES_MAX: usize = 100;

/// A time without a primary, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// When the cluster lost its primary, or when Weir began to ask.
    pub began_at: Micros,
    /// When the next primary was known; none while there is none.
    pub ended_at: Option<Micros>,
    /// The lost primary; none at the start.
    pub from: Option<String>,
    pub to: Option<String>,
    /// The timelines of the two.
    pub old_timeline: Option<u32>,
    pub new_timeline: Option<u32>,
    /// Why the primary was given up.
    pub reason: String,
    /// Bytes of WAL that the old primary was known to have, and no standby was known to have
    /// received; none at the start.
    pub at_risk: Option<u64>,
}

/// A primary that is lost.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) node: String,
    pub(crate) timeline: u32,
    pub(crate) at_risk: u64,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Failover>,
}

impl History {
    pub(crate) fn lost(&mut self, from: Option<Lost>, reason: String, now: Micros) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Failover {
            began_at: now,
            ended_at: None,
            old_timeline: from.as_ref().map(|lost| lost.timeline),
            at_risk: from.as_ref().map(|lost| lost.at_risk),
            from: from.map(|lost| lost.node),
            to: None,
            new_timeline: None,
            reason,
        });
    }

    pub(crate) fn found(&mut self, to: &str, timeline: u32, now: Micros) {
        if let Some(last) = self.entries.back_mut().filter(|last| last.ended_at.is_none()) {
            last.ended_at = Some(now);
            last.to = Some(to.to_owned());
            last.new_timeline = Some(timeline);
        }
    }

    /// Returns the entries, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Failover> {
        self.entries.iter()
    }
}
