//! The latest entry of each kind, so that one comparison tells whether an entry of a kind is owed.
//! Entries are numbered from 1 in order of arrival. Entries that have left have the lowest numbers.

use super::entry::{Entry, Verb};

#[derive(Debug, Default)]
pub(super) struct Latest {
    /// The number of entries that have left.
    gone: u64,
    // Numbers of entries; 0 if there has been none.
    sent: u64,
    end: u64,
    opening: u64,
    internal: u64,
}

impl Latest {
    /// Adds an entry after `owed` others.
    #[inline]
    pub(super) fn enter(&mut self, entry: &Entry, owed: usize) {
        self.note(entry, self.gone + owed as u64 + 1);
    }

    #[inline]
    fn note(&mut self, entry: &Entry, number: u64) {
        if matches!(entry.verb, Verb::Synthesize(_)) {
            return;
        }
        self.sent = number;
        if entry.verb == Verb::Internal {
            self.internal = number;
        }
        if entry.ends_batch() {
            self.end = number;
        } else if entry.opens_batch() {
            self.opening = number;
        }
    }

    /// Removes `count` entries from the front.
    #[inline]
    pub(super) fn leave(&mut self, count: usize) {
        self.gone += count as u64;
    }

    /// The first entry now belongs to Weir.
    pub(super) fn take_over_front(&mut self) {
        self.internal = self.internal.max(self.gone + 1);
    }

    /// Is a reply owed to a message that was sent to the server?
    pub(super) fn is_sent_owed(&self) -> bool {
        self.sent > self.gone
    }

    /// Is a reply owed that ReadyForQuery completes?
    pub(super) fn is_end_owed(&self) -> bool {
        self.end > self.gone
    }

    /// Is a reply owed to a message of the extended protocol that was sent to the server?
    pub(super) fn is_opening_owed(&self) -> bool {
        self.opening > self.gone
    }

    /// Is a reply owed to a message of Weir's that concerns no client?
    pub(super) fn is_internal_owed(&self) -> bool {
        self.internal > self.gone
    }

    /// Does the last message that was sent to the server end its batch?
    pub(super) fn is_end_last(&self) -> bool {
        self.end == self.sent
    }

    /// Does this agree with these entries? For the check of invariants.
    pub(super) fn agrees_with<'a>(&self, owed: impl Iterator<Item = &'a Entry>) -> bool {
        let mut afresh = Self { gone: self.gone, ..Self::default() };
        owed.enumerate().for_each(|(at, entry)| afresh.enter(entry, at));
        let owed = |it: &Self| [it.sent, it.end, it.opening, it.internal].map(|n| n.max(it.gone));
        owed(self) == owed(&afresh)
    }
}
