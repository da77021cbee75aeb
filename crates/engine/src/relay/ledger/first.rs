//! Messages that Weir sends before a request that it has entered already.

use super::{Entry, Ledger, Reply, Verb};

impl Ledger {
    /// Enters a message that was sent before all those whose replies are owed.
    pub fn owe_first(&mut self, entry: Entry) {
        let behind = self.take_all();
        self.push(entry);
        behind.for_each(|entry| self.push(entry));
    }

    /// Removes and returns the made-up replies that come before the first reply of the server's to the
    /// client. Replies to Weir's own messages may come before them.
    #[cold]
    pub fn take_due(&mut self) -> Vec<Reply> {
        let mut due = Vec::new();
        let mut is_due = true;
        for entry in self.take_all() {
            is_due &= entry.verb == Verb::Internal || entry.synthesized().is_some();
            match entry.synthesized().filter(|_| is_due) {
                Some(reply) => due.push(reply),
                None => self.push(entry),
            }
        }
        due
    }

    /// Removes all entries, and returns them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry> + use<> {
        self.latest.leave(self.owed.len());
        (self.requests, self.undo_bytes) = (0, 0);
        std::mem::take(&mut self.owed).into_iter()
    }

    /// Does the server owe replies to messages of Weir's own? A cancel request may hit one of them.
    pub fn owes_weir(&self) -> bool {
        self.latest.is_internal_owed()
    }
}
