//! The state of a pool at one moment, in a few numbers, for the flight recorder. It costs a look at
//! each server in use and at no idle client.

use std::ops::AddAssign;

use crate::engine::Engine;
use crate::ids::PoolId;
use crate::operator::stats::Stats;
use crate::operator::waits::{Activity, doing};
use crate::shell::Exchange;

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

impl<X: Exchange> Engine<X> {
    /// Returns the pulse of each pool that this worker knows.
    pub fn pulses(&self) -> Vec<(PoolId, Pulse)> {
        let mut pulses: Vec<_> = self
            .pools
            .iter()
            .map(|(id, view)| (id, Pulse { stats: view.stats, ..Pulse::default() }))
            .collect();
        for (_, server) in self.servers.iter() {
            let client = server.client.and_then(|id| self.clients.get(id));
            // Pools are in the order of their numbers.
            let at = pulses.binary_search_by_key(&server.pool.0, |(id, _)| id.0);
            let (Some(client), Ok(at)) = (client.filter(|client| client.is_welcomed()), at) else {
                continue;
            };
            let pulse = &mut pulses[at].1;
            match doing(server, client).activity {
                Activity::Active => pulse.active += 1,
                Activity::IdleInTransaction | Activity::IdleInFailedTransaction => {
                    pulse.in_transaction += 1;
                }
                Activity::Idle => pulse.kept += 1,
            }
        }
        pulses
    }
}
