//! Who is next where pools compete for servers under a common limit: weighted fair shares.
//!
//! What a pool has had is its *service*: the time for which it has had servers, each of them
//! counted, divided by its weight. It grows only while somebody starves for want of these servers: what
//! was there for anybody to take is nobody's debt. Whose service is least is next. A server changes its pool
//! only if that pool is behind by a [`TURN`], since a login costs as much as many transactions.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::ids::{Identity, Micros, PoolId};

/// How much time with one server a pool has to be behind before another one gives a server up
/// for which it has work itself.
pub const TURN: Micros = 100_000;
/// No more than this is owed to a pool, however long it had to wait.
const DEBT_MAX: Micros = 10 * TURN;
/// Parts of a microsecond in which service is kept. A weight may be a million and time passes in steps
/// of some microseconds: what division drops of each must not add up to a share.
const PARTS: u128 = 1 << 32;

#[derive(Debug)]
struct Share {
    identity: Arc<Identity>,
    weight: u32,
    seats: u32,
    /// [`PARTS`] of microseconds with a server, by weight.
    service: u128,
}

#[derive(Debug, Default)]
pub struct Shares {
    of: HashMap<PoolId, Share, RandomState>,
    /// Until when service has been counted.
    at: Micros,
}

impl Shares {
    /// How much time has passed since the last call. What was served in it is counted by
    /// [`Shares::serve`], if pools competed.
    pub fn advance(&mut self, now: Micros) -> Micros {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        passed
    }

    /// Pools have had their servers for so long; `is_wanted`: and others wanted them.
    pub fn serve(&mut self, passed: Micros, is_wanted: impl Fn(&Identity) -> bool) {
        for share in self.of.values_mut().filter(|share| is_wanted(&share.identity)) {
            share.service += by_weight(u128::from(share.seats) * u128::from(passed), share.weight);
        }
    }

    /// The pool begins to compete with those for which `is_rival` holds. What they have had
    /// long ago is forgotten.
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

    /// What the pool has had. Only good for being compared with that of others.
    pub fn service(&self, pool: PoolId) -> u128 {
        self.of.get(&pool).map_or(0, |share| share.service)
    }

    /// Is it time for `pool` to give a server up for `rival`? Not if the difference is getting
    /// smaller anyway.
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

/// The service of one of that weight who has had a server for so long.
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

    /// All want what all have.
    fn pass(shares: &mut Shares, now: Micros) {
        let passed = shares.advance(now);
        shares.serve(passed, |_| true);
    }

    /// Plays pools of these weights, all with work without end, for as many seconds in steps of so
    /// many microseconds; one server may change its pool in each step.
    fn play(weights: &[u32], limit: usize, seconds: Micros, step: Micros) -> (Vec<u64>, u64) {
        let mut shares = Shares::default();
        let pools: Vec<_> = (0..weights.len() as u32).map(PoolId).collect();
        for (pool, weight) in pools.iter().zip(weights) {
            shares.compete(*pool, &who(), *weight, |_| true);
        }
        let mut seats = vec![0u64; pools.len()];
        // All of them are the first one's, as if it had come long before the others.
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
    fn everybody_has_a_share_by_weight() {
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

    /// Less passes from one step to the next than what a pool of such weight has to have for a
    /// microsecond of service.
    #[test]
    fn large_weights_lose_nothing_in_short_steps() {
        check(&[500, 1_000], 1, 20, 50);
        check(&[400, 1], 7, 140, 50);
        check(&[1_000_000, 500_000], 1, 20, 50);
    }

    #[test]
    fn what_nobody_else_wanted_is_no_debt() {
        let mut shares = Shares::default();
        shares.seated(A, &who(), 1);
        shares.advance(1_000_000_000);
        shares.compete(B, &who(), 1, |_| true);
        assert!(!shares.is_over(A, B));
        pass(&mut shares, 1_000_000_000 + TURN);
        assert!(shares.is_over(A, B) && !shares.is_over(B, A));
    }

    #[test]
    fn nobody_is_owed_more_than_a_little() {
        let mut shares = Shares::default();
        shares.seated(A, &who(), 1);
        pass(&mut shares, 3_600_000_000);
        shares.compete(B, &who(), 1, |_| true);
        assert_eq!(shares.service(A) - shares.service(B), by_weight(DEBT_MAX.into(), 1));
        // A holder that has had nothing yet gives way to a newcomer just as soon.
        const C: PoolId = PoolId(2);
        shares.seated(C, &who(), 1);
        pass(&mut shares, 3_600_000_000 + 1);
        shares.compete(B, &who(), 1, |_| true);
        assert!(shares.service(C) >= shares.service(B));
    }
}
