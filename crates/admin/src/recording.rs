//! The content of the flight recorder, as plain copies.

use engine::ids::Micros;
use engine::journal::Entry;
use engine::recorder::Track;
use engine::settings::PoolKey;
use engine::timings::Connection;
use engine::transactions::Transaction;

/// The flight recorder at one moment.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The moment by the pooler's clock.
    pub now: Micros,
    /// The moment in seconds since 1970.
    pub wall: i64,
    pub tracks: Vec<Track>,
    pub events: Vec<Entry>,
    /// The transactions with the keys of their pools.
    pub transactions: Vec<(PoolKey, Transaction)>,
    /// Only for SHOW TIMINGS.
    pub connections: Vec<Connection>,
}

impl Recording {
    /// Returns seconds since 1970 of an earlier moment by the pooler's clock.
    pub(crate) fn epoch(&self, at: Micros) -> i64 {
        self.wall.saturating_sub_unsigned(self.now.saturating_sub(at) / 1_000_000)
    }
}
