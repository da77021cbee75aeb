//! Counters of one pool, as PgBouncer counts them (its SHOW STATS). They only grow.

use std::ops::{AddAssign, Sub};

/// Totals since the start of the process; also used for averages, see
/// [`crate::operator::averages::Averages`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of times that a server was given to a client.
    pub assignments: u64,
    pub transactions: u64,
    /// Bursts of messages from an idle client, not statements: a pipeline counts once.
    pub queries: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes from servers.
    pub sent: u64,
    /// Microseconds with an open transaction.
    pub transaction_time: u64,
    /// Microseconds with a query running.
    pub query_time: u64,
    /// Microseconds that clients waited for a server.
    pub wait_time: u64,
    pub client_parses: u64,
    pub server_parses: u64,
    pub binds: u64,
    /// Auto mode: texts that ask for the server's process id, and may keep it.
    pub process_ids: u64,
    /// Clients that have logged in.
    pub logins: u64,
}

impl Stats {
    /// Joins every counter of both by `join`. It names all fields, so that none is forgotten.
    fn zip(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            assignments: join(self.assignments, other.assignments),
            transactions: join(self.transactions, other.transactions),
            queries: join(self.queries, other.queries),
            received: join(self.received, other.received),
            sent: join(self.sent, other.sent),
            transaction_time: join(self.transaction_time, other.transaction_time),
            query_time: join(self.query_time, other.query_time),
            wait_time: join(self.wait_time, other.wait_time),
            client_parses: join(self.client_parses, other.client_parses),
            server_parses: join(self.server_parses, other.server_parses),
            binds: join(self.binds, other.binds),
            process_ids: join(self.process_ids, other.process_ids),
            logins: join(self.logins, other.logins),
        }
    }

    /// Returns rates per second for a period of `micros`, and times per transaction, query or
    /// assignment.
    pub fn average(self, micros: u64) -> Self {
        let per = |amount: u64, times: u64| amount.checked_div(times).unwrap_or(0);
        let rate = |count: u64| {
            let scaled = u128::from(count) * 1_000_000;
            let rate = scaled.checked_div(u128::from(micros)).unwrap_or(0);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self {
            transaction_time: per(self.transaction_time, self.transactions),
            query_time: per(self.query_time, self.queries),
            wait_time: per(self.wait_time, self.assignments),
            ..self.zip(self, |count, _| rate(count))
        }
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        *self = self.zip(other, u64::saturating_add);
    }
}

impl Sub for Stats {
    type Output = Self;

    /// Returns what was counted since `earlier`; zero where a counter was reset.
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }
}
