//! Walks over the messages that the server has not answered yet.

use super::Ledger;
use super::entry::Entry;

impl Ledger {
    /// Returns the owed entries, the last sent first: the order in which they are undone.
    pub fn last_sent_first(&self) -> impl Iterator<Item = &Entry> {
        self.owed.iter().rev()
    }

    /// Is the server working on the last request that could have an effect? If a BEGIN before
    /// others were cancelled, PostgreSQL would commit the following statements one by one. Weir's own
    /// messages before the request do not count.
    pub fn works_on_the_last_request(&self) -> bool {
        let ends_request = |entry: &&Entry| entry.ends_batch() && !entry.is_weirs();
        self.is_working() && self.owed.iter().filter(ends_request).count() <= 1
    }
}
