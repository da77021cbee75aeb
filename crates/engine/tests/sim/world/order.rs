//! First come, first served. A waiting client is not passed by a later client of the same worker. A
//! later client of another worker may pass it only within the patience between workers.

use std::collections::BTreeMap;

use engine::ids::{Micros, PoolId, Waiter, WorkerId};
use engine::pool::CROSS_WORKER_PATIENCE;

use super::World;

/// The queues after the last step.
#[derive(Default)]
pub(super) struct Queues {
    waiting: BTreeMap<(PoolId, u64), (WorkerId, Waiter)>,
    /// When each ticket was first seen, or when its client began to wait, if that was earlier: in the
    /// process before. A client that gets its place back after losing a server has its old ticket.
    seen: BTreeMap<(PoolId, u64), Micros>,
}

impl World {
    /// A client that left a queue in this step, and has a server or is about to get one, was
    /// served.
    pub(super) fn check_order(&mut self) -> Result<(), String> {
        let mut waiting = BTreeMap::new();
        for pool in &self.shared.borrow().pools {
            for (worker, waiter) in pool.waiters() {
                let key = (pool.id, waiter.ticket);
                self.queues.seen.entry(key).or_insert(self.net.now.min(waiter.since));
                waiting.insert(key, (worker, waiter));
            }
        }
        let before = std::mem::replace(&mut self.queues.waiting, waiting);
        let left = |key: &&(PoolId, u64)| !self.queues.waiting.contains_key(key);
        let served = before.keys().filter(left).filter(|key| self.has_server(before[*key]));
        for key in served {
            let stayed = |other: &&(PoolId, u64)| other.0 == key.0 && !left(other);
            for other in before.keys().filter(stayed) {
                let (since, earlier) = (self.queues.seen[key], self.queues.seen[other]);
                let is_late = match before[key].0 == before[other].0 {
                    true => key.1 > other.1,
                    false => since > earlier + CROSS_WORKER_PATIENCE,
                };
                if is_late {
                    return Err(format!(
                        "{:?}, waiting since {since}, was served before {:?}, waiting since {earlier}",
                        before[key], before[other]
                    ));
                }
            }
        }
        Ok(())
    }

    fn has_server(&self, (worker, waiter): (WorkerId, Waiter)) -> bool {
        let (at, client) = (usize::from(worker.0), waiter.client);
        let is_there = self.net.client_slots[at].contains_key(&client.0);
        let has_one = is_there && self.engines[at].look().server_of(client).is_some();
        has_one || self.shared.borrow().is_on_its_way(at, client.0)
    }
}
