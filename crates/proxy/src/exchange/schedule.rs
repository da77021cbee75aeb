//! Chooses the worker of a new client: `session_schedule`. A client stays with its worker.
//!
//! Every worker accepts clients. Moving a client to another worker costs one piece of mail.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use config::SessionSchedule;
use engine::ids::WorkerId;

use net::random;

/// A client with TLS counts like this many without.
const SECURED_WEIGHT: u32 = 4;

/// The number of clients that a worker has, or is about to get.
#[derive(Debug, Default)]
pub(crate) struct Load {
    plain: AtomicU32,
    secured: AtomicU32,
}

impl Load {
    pub(crate) fn enter(&self, is_secured: bool) {
        self.count(is_secured).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, is_secured: bool) {
        let before = self.count(is_secured).fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a client leaves that has not entered, secured: {is_secured}");
    }

    pub(crate) fn clients(&self) -> u32 {
        self.plain.load(Ordering::Relaxed) + self.secured.load(Ordering::Relaxed)
    }

    fn weight(&self) -> u32 {
        let secured = self.secured.load(Ordering::Relaxed);
        self.plain.load(Ordering::Relaxed) + SECURED_WEIGHT * secured
    }

    fn count(&self, is_secured: bool) -> &AtomicU32 {
        if is_secured { &self.secured } else { &self.plain }
    }
}

#[derive(Debug)]
pub(crate) struct Schedule {
    policy: SessionSchedule,
    /// The number of clients assigned in turn.
    turns: AtomicUsize,
}

impl Schedule {
    pub(crate) fn new(policy: SessionSchedule) -> Self {
        Self { policy, turns: AtomicUsize::new(0) }
    }

    /// Returns the worker of a client that `own` has accepted.
    pub(crate) fn place<'a>(
        &self,
        own: WorkerId,
        loads: impl ExactSizeIterator<Item = &'a Load>,
    ) -> WorkerId {
        match self.policy {
            _ if loads.len() == 1 => own,
            SessionSchedule::RoundRobin => {
                let turn = self.turns.fetch_add(1, Ordering::Relaxed);
                WorkerId((turn % loads.len()) as u16)
            }
            SessionSchedule::Random => {
                let mut lot = [0; 8];
                random::fill(&mut lot);
                WorkerId((u64::from_le_bytes(lot) % loads.len() as u64) as u16)
            }
            SessionSchedule::LoadBalancing => least(own, loads),
        }
    }

    /// Returns the worker of a client that `own` had before its handshake. The client was assigned
    /// in turn then, but only now it is known to have TLS, which is more work.
    pub(crate) fn place_secured<'a>(
        &self,
        own: WorkerId,
        loads: impl ExactSizeIterator<Item = &'a Load>,
    ) -> WorkerId {
        match self.policy {
            SessionSchedule::RoundRobin | SessionSchedule::Random => own,
            SessionSchedule::LoadBalancing => least(own, loads),
        }
    }
}

/// Returns the worker with the smallest load. `own` is preferred if its load is at most one
/// sixteenth higher, because moving a client has a cost.
fn least<'a>(own: WorkerId, loads: impl Iterator<Item = &'a Load>) -> WorkerId {
    let (mut mine, mut smallest) = (0, (own, u32::MAX));
    for (at, load) in loads.enumerate() {
        let (worker, weight) = (WorkerId(at as u16), load.weight());
        if worker == own {
            mine = weight;
        }
        if weight < smallest.1 {
            smallest = (worker, weight);
        }
    }
    let (least, weight) = smallest;
    if mine > weight + weight / 16 { least } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the load of every worker after `clients` clients, of which each `tls`th has TLS.
    /// Worker 0 accepts them all.
    fn dealt_out(policy: SessionSchedule, workers: usize, clients: usize, tls: usize) -> Vec<Load> {
        let loads: Vec<_> = (0..workers).map(|_| Load::default()).collect();
        let schedule = Schedule::new(policy);
        for client in 1..=clients {
            let accepted = schedule.place(WorkerId(0), loads.iter());
            if client % tls == 0 {
                let worker = schedule.place_secured(accepted, loads.iter());
                loads[usize::from(worker.0)].enter(true);
            } else {
                loads[usize::from(accepted.0)].enter(false);
            }
        }
        loads
    }

    #[test]
    fn by_turns_workers_differ_by_one_client_at_most() {
        for workers in 1..=5 {
            for tls in [2, 7, 1_000] {
                let loads = dealt_out(SessionSchedule::RoundRobin, workers, 100, tls);
                let fair = (100 / workers) as u32;
                let counts: Vec<_> = loads.iter().map(Load::clients).collect();
                assert!(counts.iter().all(|&n| n == fair || n == fair + 1), "{counts:?}");
                assert_eq!(counts.iter().sum::<u32>(), 100);
            }
        }
    }

    /// Chi-square with seven degrees of freedom. The average is 7. A fair choice exceeds 65 less
    /// than once in ten thousand million runs.
    #[test]
    fn random_assignment_spreads_clients_evenly() {
        let loads = dealt_out(SessionSchedule::Random, 8, 8_000, 9_000);
        let excess = loads.iter().map(|load| f64::from(load.clients()) - 1_000.0);
        let chi_square: f64 = excess.map(|excess| excess * excess / 1_000.0).sum();
        assert!(chi_square < 65.0, "{loads:?}");
        assert!(chi_square > 0.0, "lots that come out even are no lots: {loads:?}");
    }

    #[test]
    fn by_load_a_client_with_tls_counts_as_four() {
        // Every fourth has TLS: taken in turn, one of four workers would get all of these.
        for tls in [2, 3, 4, 1_000] {
            let loads = dealt_out(SessionSchedule::LoadBalancing, 4, 400, tls);
            let weights: Vec<_> = loads.iter().map(Load::weight).collect();
            let (least, most) = (weights.iter().min().unwrap(), weights.iter().max().unwrap());
            assert!(*most <= least + least / 16 + SECURED_WEIGHT, "{weights:?}");
        }
        let by_turns = dealt_out(SessionSchedule::RoundRobin, 4, 400, 4);
        assert_eq!(by_turns[3].weight(), 4 * by_turns[0].weight());
    }

    #[test]
    fn a_leaving_client_makes_room_on_its_worker() {
        let loads = dealt_out(SessionSchedule::LoadBalancing, 2, 100, 2);
        let schedule = Schedule::new(SessionSchedule::LoadBalancing);
        loads[1].leave(true);
        loads[1].leave(false);
        loads[1].leave(false);
        for _ in 0..10 {
            loads[0].enter(false);
        }
        assert_eq!(schedule.place(WorkerId(0), loads.iter()), WorkerId(1));
        assert_eq!(schedule.place(WorkerId(1), loads.iter()), WorkerId(1));
    }
}
