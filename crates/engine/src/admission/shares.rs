//! Weighted fair shares: which pool is next when pools compete for servers under a common limit.
//! A pool's *service* is the time for which it has had servers, times their number, divided by its
//! weight. It grows only while another pool starves for these servers: unused capacity costs a pool
//! nothing. The pool with the least service is next. A server changes its pool only if the other
//! one is behind by a [`TURN`], since a login costs as much as many transactions.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::ids::{Identity, Micros, PoolId};

/// The debt of a pool, in time with one server, from which on a busy pool gives up a server for it.
pub const TURN: Micros = 100_000;
/// The most that a pool can be behind, however long it had to wait.
const DEBT_MAX: Micros = 10 * TURN;
/// Service is counted in fractions of a microsecond. A weight may be a million, and time passes in
/// steps of some microseconds, so rounding errors must not add up.
const PARTS: u128 = 1 << 32;

#[derive(Debug)]
struct Share {
    identity: Arc<Identity>,
    weight: u32,
    seats: u32,
    /// The time with a server in [`PARTS`] of microseconds, divided by the weight.
    service: u128,
}

#[derive(Debug, Default)]
pub struct Shares {
    of: HashMap<PoolId, Share, RandomState>,
    /// The time up to which service has been counted.
    at: Micros,
}

impl Shares {
    /// Returns the time since the last call. If pools competed, [`Shares::serve`] then counts the
    /// service of that time.
    pub fn advance(&mut self, now: Micros) -> Micros {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        passed
    }

    /// Counts service for the pools whose servers other pools wanted (`is_wanted`).
    pub fn serve(&mut self, passed: Micros, is_wanted: impl Fn(&Identity) -> bool) {
        for share in self.of.values_mut().filter(|share| is_wanted(&share.identity)) {
            share.service += by_weight(u128::from(share.seats) * u128::from(passed), share.weight);
        }
    }

    /// Starts the competition of the pool with those for which `is_rival` holds. Old differences
    /// beyond `DEBT_MAX` are forgotten.
    pub fn compete(
        &mut self,
        pool: PoolId,
        identity: &Arc<Identity>,
        weight: u32,
        is_rival: impl Fn(&Identity) -> bool,
    ) {
        self.share(pool, identity).weight = weight.max(1);
        let rivals = || self.of.values().filter(|share| is_rival(&share.identity));
        let most = rivals().map(|share| share.service).max().unwrap_or(0);
        for share in self.of.values_mut().filter(|share| is_rival(&share.identity)) {
            let least = most.saturating_sub(by_weight(DEBT_MAX.into(), share.weight));
            share.service = share.service.max(least);
        }
    }

    pub fn seated(&mut self, pool: PoolId, identity: &Arc<Identity>, weight: u32) {
        let share = self.share(pool, identity);
        share.seats += 1;
        share.weight = weight.max(1);
    }

    fn share(&mut self, pool: PoolId, identity: &Arc<Identity>) -> &mut Share {
        self.of.entry(pool).or_insert_with(|| Share {
            identity: identity.clone(),
            weight: 1,
            seats: 0,
            service: 0,
        })
    }

    pub fn vacated(&mut self, pool: PoolId) {
        if let Some(share) = self.of.get_mut(&pool) {
            share.seats = share.seats.saturating_sub(1);
        }
    }

    pub fn forget(&mut self, pool: PoolId) {
        self.of.remove(&pool);
    }

    /// Returns the pool's service. Only comparisons with other pools are meaningful.
    pub fn service(&self, pool: PoolId) -> u128 {
        self.of.get(&pool).map_or(0, |share| share.service)
    }

    /// Should `pool` give a server up for `rival`? Not if the difference is already decreasing.
    pub fn is_over(&self, pool: PoolId, rival: PoolId) -> bool {
        let (Some(own), Some(other)) = (self.of.get(&pool), self.of.get(&rival)) else {
            return false;
        };
        let product = |seats: u32, weight: u32| u64::from(seats) * u64::from(weight);
        let grows = product(own.seats, other.weight) > product(other.seats, own.weight);
        let ahead = own.service.saturating_sub(other.service);
        grows && ahead * u128::from(other.weight) >= u128::from(TURN) * PARTS
    }
}

/// Returns the service for having a server for `time` with this weight.
fn by_weight(time: u128, weight: u32) -> u128 {
    time * PARTS / u128::from(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PoolId = PoolId(0);
    const B: PoolId = PoolId(1);

    fn who() -> Arc<Identity> {
        Arc::new(Identity { database: "d".into(), user: "u".into() })
    }

    /// Counts service as if all pools compete for all servers.
    fn pass(shares: &mut Shares, now: Micros) {
        let passed = shares.advance(now);
        shares.serve(passed, |_| true);
    }

    /// Simulates pools of these weights, which always have work, for `seconds` in steps of `step`
    /// microseconds. One server may change its pool in each step.
    fn play(weights: &[u32], limit: usize, seconds: Micros, step: Micros) -> (Vec<u64>, u64) {
        let mut shares = Shares::default();
        let pools: Vec<_> = (0..weights.len() as u32).map(PoolId).collect();
        for (pool, weight) in pools.iter().zip(weights) {
            shares.compete(*pool, &who(), *weight, |_| true);
        }
        let mut seats = vec![0u64; pools.len()];
        // All servers belong to the first pool at the start.
        (0..limit).for_each(|_| shares.seated(A, &who(), weights[0]));
        seats[0] = limit as u64;
        let mut had = vec![0; pools.len()];
        let mut moves = 0;
        for now in (step..=seconds * 1_000_000).step_by(step as usize) {
            pass(&mut shares, now);
            for (had, seats) in had.iter_mut().zip(&seats) {
                *had += seats;
            }
            let next = pools.iter().copied().min_by_key(|pool| shares.service(*pool)).unwrap();
            let giver = pools
                .iter()
                .copied()
                .filter(|pool| seats[pool.0 as usize] > 0 && shares.is_over(*pool, next))
                .max_by_key(|pool| shares.service(*pool));
            if let Some(giver) = giver {
                shares.vacated(giver);
                shares.seated(next, &who(), weights[next.0 as usize]);
                seats[giver.0 as usize] -= 1;
                seats[next.0 as usize] += 1;
                moves += 1;
            }
        }
        (had, moves)
    }

    #[track_caller]
    fn check(weights: &[u32], limit: usize, seconds: Micros, step: Micros) {
        let (had, moves) = play(weights, limit, seconds, step);
        let all: u64 = had.iter().sum();
        let sum: u32 = weights.iter().sum();
        for (had, weight) in had.iter().zip(weights) {
            let fair = all * u64::from(*weight) / u64::from(sum);
            let off = had.abs_diff(fair);
            assert!(off * 20 <= fair, "{weights:?} over {limit}: {had} instead of {fair}");
        }
        let turns = seconds * 1_000_000 / TURN;
        assert!(moves <= 2 * turns, "{weights:?} over {limit}: {moves} moves");
    }

    #[test]
    fn pools_get_shares_by_weight() {
        for (weights, limit) in [
            (&[1, 1][..], 1),
            (&[1, 1], 3),
            (&[2, 1], 1),
            (&[2, 1], 3),
            (&[5, 3, 2], 4),
            (&[10, 10], 3),
            (&[1, 1, 1, 1, 1], 2),
        ] {
            check(weights, limit, 10, 1_000);
        }
    }

    /// One step is shorter than the time that gives a pool of this weight a microsecond of service.
    #[test]
    fn large_weights_lose_nothing_in_short_steps() {
        check(&[500, 1_000], 1, 20, 50);
        check(&[400, 1], 7, 140, 50);
        check(&[1_000_000, 500_000], 1, 20, 50);
    }

    #[test]
    fn unwanted_servers_cost_a_pool_nothing() {
        let mut shares = Shares::default();
        shares.seated(A, &who(), 1);
        shares.advance(1_000_000_000);
        shares.compete(B, &who(), 1, |_| true);
        assert!(!shares.is_over(A, B));
        pass(&mut shares, 1_000_000_000 + TURN);
        assert!(shares.is_over(A, B) && !shares.is_over(B, A));
    }

    #[test]
    fn the_difference_between_pools_is_limited() {
        let mut shares = Shares::default();
        shares.seated(A, &who(), 1);
        pass(&mut shares, 3_600_000_000);
        shares.compete(B, &who(), 1, |_| true);
        assert_eq!(shares.service(A) - shares.service(B), by_weight(DEBT_MAX.into(), 1));
        // A pool without service yet gives way to a new pool just as soon.
        const C: PoolId = PoolId(2);
        shares.seated(C, &who(), 1);
        pass(&mut shares, 3_600_000_000 + 1);
        shares.compete(B, &who(), 1, |_| true);
        assert!(shares.service(C) >= shares.service(B));
    }
}
