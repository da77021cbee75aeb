//! Counts of the entries that are owed.

use super::{Entry, Expect, Undo, Verb};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Of these the server has got nothing.
    pub(super) made_up: usize,
    /// Completed by ReadyForQuery.
    pub(super) ends: usize,
    pub(super) copy_ends: usize,
    /// Messages of ours that have nothing to do with any client.
    pub(super) internal: usize,
    /// What is kept to undo them, in bytes.
    pub(super) bytes: usize,
}

impl Tally {
    #[inline]
    pub(super) fn add(&mut self, entry: &Entry) {
        self.made_up += usize::from(entry.synthesized().is_some());
        self.ends += usize::from(entry.ends_batch());
        self.copy_ends += usize::from(entry.expect == Expect::CopyEnd);
        self.internal += usize::from(entry.verb == Verb::Internal);
        self.bytes += entry.undo.as_deref().map_or(0, Undo::bytes);
    }

    #[inline]
    pub(super) fn remove(&mut self, entry: &Entry) {
        self.made_up -= usize::from(entry.synthesized().is_some());
        self.ends -= usize::from(entry.ends_batch());
        self.copy_ends -= usize::from(entry.expect == Expect::CopyEnd);
        self.internal -= usize::from(entry.verb == Verb::Internal);
        self.bytes -= entry.undo.as_deref().map_or(0, Undo::bytes);
    }

    /// Is there, among `count` entries, a message of the extended protocol that the server gets?
    pub(super) fn opens(&self, count: usize) -> bool {
        count > self.made_up + self.ends + self.copy_ends
    }
}
