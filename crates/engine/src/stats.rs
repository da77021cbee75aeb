//! Counters of one pool on one worker, as PgBouncer counts them (its SHOW STATS). They only grow.

use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Times a server was given to a client.
    pub assignments: u64,
    pub transactions: u64,
    /// Bursts of messages that found the client idle, not statements: a pipeline counts once.
    pub queries: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes from servers.
    pub sent: u64,
    /// Microseconds with a transaction open.
    pub transaction_time: u64,
    /// Microseconds with a query under way.
    pub query_time: u64,
    /// Microseconds clients waited for a server.
    pub wait_time: u64,
    pub client_parses: u64,
    pub server_parses: u64,
    pub binds: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.assignments += other.assignments;
        self.transactions += other.transactions;
        self.queries += other.queries;
        self.received += other.received;
        self.sent += other.sent;
        self.transaction_time += other.transaction_time;
        self.query_time += other.query_time;
        self.wait_time += other.wait_time;
        self.client_parses += other.client_parses;
        self.server_parses += other.server_parses;
        self.binds += other.binds;
    }
}
