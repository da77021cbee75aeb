//! What all clients of the load generator share: what they are to do and what they have done.

use std::time::{Duration, Instant};

use load::Histogram;

use crate::auth::Credentials;
use crate::flood::Pattern;

/// What a client does once it is logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// One small select after another.
    Query(Protocol),
    /// One large result after another.
    Bulk { row_bytes: usize, total_bytes: u64 },
    /// Leave, to log in anew.
    Login,
    /// So many messages, without waiting for an answer.
    Flood { pattern: Pattern, messages: u64 },
}

/// How a small select is sent; the names are pgbench's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Simple,
    /// Parsed each time, unnamed.
    Extended,
    /// Parsed once, named.
    Prepared,
}

/// What clients have in their sessions, and how many of them are at work at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sessions {
    /// Each client sets three settings, once; those of a group to the same values. 0 = nothing is
    /// set.
    pub(crate) groups: usize,
    /// Whose turn is next is drawn by lot. 0 = all clients work all the time.
    pub(crate) at_work: usize,
}

/// The shared state of all clients of one run.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) work: Work,
    pub(crate) sessions: Sessions,
    pub(crate) credentials: Credentials,
    /// A client that has its answer asks anew.
    pub(crate) running: bool,
    /// Connected and not yet ready for work.
    pub(crate) logging_in: usize,
    /// Ready for work, or at it.
    pub(crate) ready: usize,
    /// Answers complete and right, of either kind of query.
    pub(crate) transactions: u64,
    /// Sessions from connect to the pooler's closing them.
    pub(crate) logins: u64,
    /// Handshakes that took up an earlier TLS session.
    pub(crate) resumed: u64,
    /// Bytes of large results, and of what answers floods.
    pub(crate) bytes: u64,
    pub(crate) latency: Histogram,
    /// So many more clients are to be at work.
    pub(crate) turns: usize,
    /// Clients that have begun to set something.
    setters: usize,
    numbers: u32,
    lot: u64,
}

impl Traffic {
    pub(crate) fn new(work: Work, credentials: Credentials) -> Self {
        Self {
            work,
            sessions: Sessions::default(),
            credentials,
            running: false,
            logging_in: 0,
            ready: 0,
            transactions: 0,
            logins: 0,
            resumed: 0,
            bytes: 0,
            latency: Histogram::new(),
            turns: 0,
            setters: 0,
            numbers: 0,
            lot: 1,
        }
    }

    /// A number of nine digits that no other query of this run has in flight: a client that gets
    /// another's answer notices.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.numbers = (self.numbers + 1) % 900_000_000;
        100_000_000 + self.numbers
    }

    /// Which group the next client belongs to, if clients set anything.
    pub(crate) fn next_group(&mut self) -> Option<usize> {
        self.setters += 1;
        (self.setters - 1).checked_rem(self.sessions.groups)
    }

    /// A number below `count`, the same ones in each run.
    pub(crate) fn draw(&mut self, count: usize) -> usize {
        self.lot ^= self.lot << 13;
        self.lot ^= self.lot >> 7;
        self.lot ^= self.lot << 17;
        (self.lot % count.max(1) as u64) as usize
    }

    pub(crate) fn count_transaction(&mut self, asked: Instant) -> Duration {
        let latency = asked.elapsed();
        self.transactions += 1;
        self.latency.record(latency);
        latency
    }

    /// Grows with anything that gets done.
    pub(crate) fn progress(&self) -> u64 {
        self.transactions + self.logins + self.bytes + self.ready as u64
    }
}
