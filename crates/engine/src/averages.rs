//! Averages over the last completed `stats_period`: two samples of all counters, no clock.

use std::collections::HashMap;

use crate::ids::PoolId;
use crate::stats::Stats;

/// Every pool's counters at one moment.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// Microseconds.
    at: u64,
    pools: HashMap<PoolId, Stats>,
}

/// The samples at both ends of the last completed period. Whoever owns it feeds it once a period.
#[derive(Clone, Debug, Default)]
pub struct Averages {
    older: Sample,
    newer: Sample,
}

impl Averages {
    /// `now`, in microseconds of any steady clock, is when counting began.
    pub fn new(now: u64) -> Self {
        let start = Sample { at: now, pools: HashMap::new() };
        Self { older: start.clone(), newer: start }
    }

    /// A period ends at `now`: the totals of each pool. A pool that is
    /// named more than once, say by several workers, is summed up.
    pub fn record(&mut self, now: u64, totals: impl IntoIterator<Item = (PoolId, Stats)>) {
        let mut sample = Sample { at: now, pools: HashMap::new() };
        for (pool, stats) in totals {
            *sample.pools.entry(pool).or_default() += stats;
        }
        self.older = std::mem::replace(&mut self.newer, sample);
    }

    /// The averages over some pools together: counts and bytes per second; microseconds per
    /// transaction, per query, and (waiting) per assignment of a server. Zero before the first
    /// period ended.
    pub fn of(&self, pools: impl IntoIterator<Item = PoolId>) -> Stats {
        let mut counted = Stats::default();
        for pool in pools {
            let end = self.newer.pools.get(&pool).copied().unwrap_or_default();
            let start = self.older.pools.get(&pool).copied().unwrap_or_default();
            counted += end - start;
        }
        counted.average(self.newer.at.saturating_sub(self.older.at))
    }

    /// The averages over all pools, as the log's line of statistics has them.
    pub fn total(&self) -> Stats {
        self.of(self.newer.pools.keys().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn stats(queries: u64, query_time: u64) -> Stats {
        Stats {
            queries,
            query_time,
            assignments: queries,
            wait_time: 7 * queries,
            ..Stats::default()
        }
    }

    #[test]
    fn nothing_is_averaged_before_a_period_has_ended() {
        let averages = Averages::new(5 * SECOND);
        assert_eq!(averages.of([PoolId(1)]), Stats::default());
        assert_eq!(averages.total(), Stats::default());
    }

    #[test]
    fn counts_are_per_second_and_times_per_occasion() {
        let mut averages = Averages::new(0);
        averages.record(10 * SECOND, [(PoolId(1), stats(100, 5_000))]);
        let first = averages.of([PoolId(1)]);
        assert_eq!((first.queries, first.query_time, first.wait_time), (10, 50, 7));
        averages.record(20 * SECOND, [(PoolId(1), stats(120, 5_100))]);
        let second = averages.of([PoolId(1)]);
        assert_eq!((second.queries, second.query_time), (2, 5));
    }

    #[test]
    fn an_idle_period_averages_to_zero() {
        let mut averages = Averages::new(0);
        averages.record(SECOND, [(PoolId(1), stats(100, 5_000))]);
        averages.record(2 * SECOND, [(PoolId(1), stats(100, 5_000))]);
        assert_eq!(averages.total(), Stats::default());
    }

    #[test]
    fn pools_are_averaged_together_and_those_of_several_workers_summed() {
        let mut averages = Averages::new(0);
        averages.record(
            SECOND,
            [(PoolId(1), stats(4, 40)), (PoolId(1), stats(6, 60)), (PoolId(2), stats(10, 300))],
        );
        assert_eq!(averages.of([PoolId(1)]).queries, 10);
        let both = averages.of([PoolId(1), PoolId(2)]);
        assert_eq!((both.queries, both.query_time), (20, 20));
        assert_eq!(averages.total(), both);
    }

    #[test]
    fn a_pool_that_began_anew_or_went_away_counts_for_nothing() {
        let mut averages = Averages::new(0);
        averages.record(SECOND, [(PoolId(1), stats(100, 1_000)), (PoolId(2), stats(1, 1))]);
        averages.record(2 * SECOND, [(PoolId(1), stats(3, 30))]);
        assert_eq!(averages.total(), Stats::default());
        assert_eq!(averages.of([PoolId(2)]), Stats::default());
    }

    #[test]
    fn a_clock_that_stands_still_divides_nothing_by_zero() {
        let mut averages = Averages::new(SECOND);
        averages.record(SECOND, [(PoolId(1), stats(u64::MAX / 7, u64::MAX))]);
        assert_eq!(averages.total().queries, 0);
    }
}
