//! The state of a pool at one moment, in a few numbers, for the flight recorder. It costs a look at
//! each server in use and at no idle client.

use std::ops::AddAssign;

use crate::operator::stats::Stats;
use crate::operator::waits::Activity;

/// The servers that clients have, by their clients' use of them, and the counters of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// A request is under way.
    pub active: u32,
    /// Idle in transaction.
    pub in_transaction: u32,
    /// Idle without a transaction: the client keeps the server.
    pub kept: u32,
    pub stats: Stats,
}

impl AddAssign for Pulse {
    fn add_assign(&mut self, other: Self) {
        self.active += other.active;
        self.in_transaction += other.in_transaction;
        self.kept += other.kept;
        self.stats += other.stats;
    }
}

impl Pulse {
    /// Counts a server that a client has.
    pub(crate) fn count(&mut self, activity: Activity) {
        match activity {
            Activity::Active => self.active += 1,
            Activity::IdleInTransaction | Activity::IdleInFailedTransaction => {
                self.in_transaction += 1;
            }
            Activity::Idle => self.kept += 1,
        }
    }
}
