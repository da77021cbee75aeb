//! The shared state of all clients of the load generator: their work and their figures.

use std::time::{Duration, Instant};

use load::{Histogram, Keyring};

use crate::pattern::Pattern;

/// The work of a client that is logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// One small select after another.
    Query(Protocol),
    /// One large result after another.
    Bulk { row_bytes: usize, total_bytes: u64 },
    /// Leave, to log in again.
    Login,
    /// This many messages, without waiting for answers.
    Flood { pattern: Pattern, messages: u64 },
}

/// The protocol of small selects. The names are pgbench's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Simple,
    /// Parsed each time, as the unnamed statement.
    Extended,
    /// Parsed once, as a named statement.
    Prepared,
}

/// The state of the clients' sessions, and the number of clients at work at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sessions {
    /// Number of groups. Each client sets three settings once, to the values of its group. 0:
    /// nothing is set.
    pub(crate) groups: usize,
    /// Number of clients at work at a time, chosen at random. 0: all clients.
    pub(crate) at_work: usize,
}

/// The user, database and password of all clients of a run.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) keyring: Keyring,
}

impl Credentials {
    /// Of every client of the benchmark, unless the command line says something else.
    pub(crate) const USER: &str = "bench";
    pub(crate) const DATABASE: &str = "bench";
    pub(crate) const PASSWORD: &str = "a password of the benchmark";

    pub(crate) fn new(user: &str, database: &str, password: &str) -> Self {
        let keyring = Keyring::new(user, Some(password));
        Self { user: user.to_owned(), database: database.to_owned(), keyring }
    }

    pub(crate) fn usual() -> Self {
        Self::new(Self::USER, Self::DATABASE, Self::PASSWORD)
    }
}

/// The shared state of all clients of one run.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) work: Work,
    pub(crate) sessions: Sessions,
    pub(crate) credentials: Credentials,
    /// True while a client that has its answer sends its next query.
    pub(crate) running: bool,
    /// Clients that are connected but not yet ready for work.
    pub(crate) logging_in: usize,
    /// Clients that are ready for work, or at work.
    pub(crate) ready: usize,
    /// Complete and right answers, to either kind of query.
    pub(crate) transactions: u64,
    /// Sessions from connect to the end of the connection.
    pub(crate) logins: u64,
    /// Handshakes that resumed an earlier TLS session.
    pub(crate) resumed: u64,
    /// Bytes of large results and of the answers to floods.
    pub(crate) bytes: u64,
    pub(crate) latency: Histogram,
    /// The number of clients that are still to begin work.
    pub(crate) turns: usize,
    /// Clients that have begun to set their settings.
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

    /// Returns a number of nine digits that no other query in flight has, so that a client notices
    /// the answer to another client's query.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.numbers = (self.numbers + 1) % 900_000_000;
        100_000_000 + self.numbers
    }

    /// Returns the group of the next client, if clients set anything.
    pub(crate) fn next_group(&mut self) -> Option<usize> {
        self.setters += 1;
        (self.setters - 1).checked_rem(self.sessions.groups)
    }

    /// Returns a pseudo-random number below `count`. The sequence is the same in each run.
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

    /// Returns a number that grows with any progress.
    pub(crate) fn progress(&self) -> u64 {
        self.transactions + self.logins + self.bytes + self.ready as u64
    }
}
