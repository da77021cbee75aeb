//! Walks over the messages that the server has not answered yet.

use super::Ledger;
use super::entry::Entry;

impl Ledger {
    /// Returns the owed entries, the last sent first: the order in which they are undone.
    pub fn last_sent_first(&self) -> impl Iterator<Item = &Entry> {
        self.owed.iter().rev()
    }
}
