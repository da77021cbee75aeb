//! The names of prepared statements that a client's messages use.

use std::collections::VecDeque;
use std::sync::Arc;

/// The names that a client's latest Binds and Describes have used, with the serial numbers of these
/// messages. All without a reply are included. When an error arrives, the client may have dropped the
/// name, or have several for the statement.
#[derive(Debug, Default)]
pub struct NamesUsed {
    used: VecDeque<(u64, Arc<[u8]>)>,
}

impl NamesUsed {
    /// Notes that message `serial` uses this name. Messages before `first` have been answered.
    pub(crate) fn note(&mut self, serial: u64, name: Arc<[u8]>, first: u64) {
        while self.used.front().is_some_and(|(serial, _)| *serial < first) {
            self.used.pop_front();
        }
        self.used.push_back((serial, name));
    }

    /// Returns the client's name of the statement that message `serial` uses.
    pub(crate) fn of(&self, serial: u64) -> Option<&[u8]> {
        let at = self.used.binary_search_by_key(&serial, |(serial, _)| *serial).ok()?;
        self.used.get(at).map(|(_, name)| &**name)
    }
}
