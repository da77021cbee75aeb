//! Averages over a `stats_period`: two samples of all counters, no clock.
//!
//! The log has the averages of each period when it ends. In between, SHOW has, as in PgBouncer, the
//! averages from the beginning of the last completed period until now ([`Averages::at`]).

use std::collections::HashMap;

use crate::ids::PoolId;
use crate::operator::stats::Stats;

/// The counters of all pools at one moment.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// Microseconds.
    at: u64,
    pools: HashMap<PoolId, Stats>,
}

impl Sample {
    fn new(at: u64, totals: impl IntoIterator<Item = (PoolId, Stats)>) -> Self {
        let mut sample = Self { at, pools: HashMap::new() };
        for (pool, stats) in totals {
            *sample.pools.entry(pool).or_default() += stats;
        }
        sample
    }
}

/// Added to the first period, in microseconds.
const HEAD_START: u64 = 1_000_000;

/// The samples at both ends of the averaged time. The owner calls `record` once a period.
#[derive(Clone, Debug, Default)]
pub struct Averages {
    older: Sample,
    newer: Sample,
}

impl Averages {
    /// Counting begins at `now`, in microseconds of any steady clock.
    pub fn new(now: u64) -> Self {
        let start = |at| Sample { at, pools: HashMap::new() };
        // The head start avoids averages over a very short time.
        Self { older: start(now.saturating_sub(HEAD_START)), newer: start(now) }
    }

    /// Ends a period at `now`, with the totals of each pool. Several entries for one pool, from
    /// several workers, are added up.
    pub fn record(&mut self, now: u64, totals: impl IntoIterator<Item = (PoolId, Stats)>) {
        self.older = std::mem::replace(&mut self.newer, Sample::new(now, totals));
    }

    /// Returns the averages for a moment within a period.
    #[must_use]
    pub fn at(&self, now: u64, totals: impl IntoIterator<Item = (PoolId, Stats)>) -> Self {
        Self { older: self.older.clone(), newer: Sample::new(now, totals) }
    }

    /// Returns the averages over these pools together: counts and bytes per second; microseconds
    /// per transaction, per query, and (waiting) per assignment of a server.
    pub fn of(&self, pools: impl IntoIterator<Item = PoolId>) -> Stats {
        let mut counted = Stats::default();
        for pool in pools {
            let end = self.newer.pools.get(&pool).copied().unwrap_or_default();
            let start = self.older.pools.get(&pool).copied().unwrap_or_default();
            counted += end - start;
        }
        counted.average(self.newer.at.saturating_sub(self.older.at))
    }

    /// Returns the averages over all pools, for the log's line of statistics.
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
    fn a_part_of_a_period_is_averaged_with_the_period_before() {
        let averages = Averages::new(5 * SECOND);
        assert_eq!(averages.total(), Stats::default());
        let look = |averages: &Averages, at, queries| {
            averages.at(at, [(PoolId(1), stats(queries, 0))]).total().queries
        };
        assert_eq!(look(&averages, 5 * SECOND, 7), 7, "a second is added to the first");
        assert_eq!(look(&averages, 8 * SECOND, 8), 2);
        let mut averages = averages;
        averages.record(15 * SECOND, [(PoolId(1), stats(100, 0))]);
        averages.record(25 * SECOND, [(PoolId(1), stats(200, 0))]);
        assert_eq!(look(&averages, 30 * SECOND, 250), 10);
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
    fn a_removed_or_restarted_pool_averages_to_zero() {
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
