//! Walks over the messages that the server has not answered yet.

use super::Ledger;
use super::entry::{Entry, Expect};
use super::input::Input;

/// The client's requests that the server has not answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The number of requests whose ReadyForQuery is owed.
    pub requests: usize,
    pub rest: Rest,
}

/// The messages after the last request whose end was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    None,
    /// A batch without its Sync, of which the server still owes replies.
    Open,
    /// A batch without its Sync, of which the server has answered everything.
    Answered,
    /// A batch that has failed, without its Sync.
    Failed,
}

impl Unanswered {
    pub fn is_nothing(self) -> bool {
        self.requests == 0 && self.rest == Rest::None
    }

    /// Does the client wait for a reply?
    pub fn is_awaited(self) -> bool {
        self.requests > 0 || self.rest == Rest::Open
    }
}

impl Ledger {
    /// Returns what the client has sent and the server has not answered in full.
    pub fn unanswered(&self) -> Unanswered {
        let counts = |entry: &&Entry| !entry.is_weirs() && entry.expect != Expect::CopyEnd;
        let requests = self.owed.iter().filter(counts).filter(|entry| entry.ends_batch()).count();
        let last = self.owed.iter().rev().find(counts);
        let rest = match last {
            _ if self.input == Input::UntilSync => Rest::Failed,
            Some(last) if !last.ends_batch() => Rest::Open,
            None if self.in_batch => Rest::Answered,
            Some(_) | None => Rest::None,
        };
        Unanswered { requests, rest }
    }

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
