//! Messages that Weir sends before a request that it has entered already.

use super::{Entry, Ledger};

impl Ledger {
    /// Enters a message that was sent before all those whose replies are owed.
    pub fn owe_first(&mut self, entry: Entry) {
        let behind = std::mem::take(&mut self.owed);
        self.latest.leave(behind.len());
        (self.requests, self.undo_bytes) = (0, 0);
        self.push(entry);
        behind.into_iter().for_each(|entry| self.push(entry));
    }

    /// Does the server owe replies to messages of Weir's own? A cancel request may hit one of them.
    pub fn owes_weir(&self) -> bool {
        self.latest.is_internal_owed()
    }
}
