//! The checkpoints of ended connections (`connection_timings`), as the shell keeps them.

use std::collections::HashSet;

use engine::timings::{Choice, Connection, EndedConnections};

#[derive(Debug, Default)]
pub(crate) struct Timings {
    ended: EndedConnections,
    kept: usize,
    /// The serial numbers of clients whose connections have ended.
    clients: HashSet<u64>,
}

impl Timings {
    pub(crate) fn keeping(kept: u32) -> Self {
        let mut timings = Self { kept: kept as usize, ..Self::default() };
        timings.ended.keep(kept);
        timings
    }

    /// A connection has ended now. Returns an error if its row cannot be true.
    pub(crate) fn add(&mut self, connection: Connection, now: u64) -> Result<(), String> {
        let row = format!("{connection:?}");
        if self.kept == 0 {
            return Err(format!("checkpoints were recorded without the key: {row}"));
        }
        if !self.clients.insert(connection.client) {
            return Err(format!("checkpoints of a connection were told twice: {row}"));
        }
        if !is_in_order(&connection) || connection.done_at != now {
            return Err(format!("checkpoints are not in order: {row}"));
        }
        if (connection.choice == Choice::None) != (connection.linked_at == 0) {
            return Err(format!("checkpoints contradict the choice of the server: {row}"));
        }
        self.ended.add(connection);
        let count = self.ended.iter().count();
        if count > self.kept {
            return Err(format!("checkpoints of {count} connections are kept"));
        }
        Ok(())
    }
}

fn is_in_order(row: &Connection) -> bool {
    let logs_in = [row.accepted_at, row.startup_at, row.authenticated_at, row.welcomed_at];
    let is_served = [row.authenticated_at, row.queued_at, row.linked_at, row.applied_at];
    let works = [row.welcomed_at, row.sent_at, row.first_byte_at, row.done_at];
    // The server is prepared before its client's message is sent.
    let is_ready = [row.applied_at, row.sent_at, row.done_at];
    [&logs_in[..], &is_served, &works, &is_ready].into_iter().all(rises)
}

/// Do the times rise, if those are left out that have not come?
fn rises(times: &[u64]) -> bool {
    times.iter().filter(|time| **time != 0).is_sorted()
}
