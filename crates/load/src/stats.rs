//! The counts and measurements of a run. Each thread has its own, which are added up at the end.
//! During the run, other threads can read a few sums.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::Histogram;

/// Number, sum, sum of squares and maximum of a measurement in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    squares: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn record(&mut self, us: u64) {
        let us = us as f64;
        self.count += 1;
        self.sum += us;
        self.squares += us * us;
        self.max = self.max.max(us);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.max = self.max.max(other.max);
    }

    /// Returns the mean in milliseconds; 0 without measurements.
    pub(crate) fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 / 1000.0 }
    }

    /// Returns the standard deviation in milliseconds.
    pub(crate) fn deviation_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.sum / self.count as f64;
        (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt() / 1000.0
    }
}

/// The figures of one thread, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) done: u64,
    /// Serialization failures and deadlocks.
    pub(crate) failed: u64,
    pub(crate) latency: Spread,
    pub(crate) lag: Spread,
    pub(crate) histogram: Histogram,
    /// The time for a login.
    pub(crate) connecting: Spread,
    pub(crate) aborted: u64,
    /// The fewest and the most transactions of a client, including failed ones.
    pub(crate) of_clients: Option<(u64, u64)>,
}

impl Stats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.latency.add(&other.latency);
        self.lag.add(&other.lag);
        self.histogram.add(&other.histogram);
        self.connecting.add(&other.connecting);
        self.aborted += other.aborted;
        if let Some((fewest, most)) = other.of_clients {
            self.add_client(fewest);
            self.add_client(most);
        }
    }

    /// Records the number of transactions of one client.
    pub(crate) fn add_client(&mut self, transactions: u64) {
        let (fewest, most) = self.of_clients.unwrap_or((transactions, transactions));
        self.of_clients = Some((fewest.min(transactions), most.max(transactions)));
    }
}

/// The sums of one thread for progress reports.
#[derive(Debug, Default)]
pub(crate) struct Published([AtomicU64; 6]);

impl Published {
    pub(crate) fn store(&self, stats: &Stats) {
        let numbers = [
            stats.done,
            stats.failed,
            stats.latency.count,
            stats.latency.sum.to_bits(),
            stats.latency.squares.to_bits(),
            stats.lag.sum.to_bits(),
        ];
        for (place, number) in self.0.iter().zip(numbers) {
            place.store(number, Ordering::Relaxed);
        }
    }

    /// Returns the last stored sums, which may be of slightly different times.
    pub(crate) fn load(&self) -> Moment {
        let number = |at: usize| self.0[at].load(Ordering::Relaxed);
        let real = |at: usize| f64::from_bits(number(at));
        Moment {
            done: number(0),
            failed: number(1),
            latency: Spread { count: number(2), sum: real(3), squares: real(4), max: 0.0 },
            lag_us: real(5),
        }
    }
}

/// Sums up to a moment, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) latency: Spread,
    pub(crate) lag_us: f64,
}

impl Moment {
    pub(crate) fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.latency.add(&other.latency);
        self.lag_us += other.lag_us;
    }

    /// Returns the difference to an earlier moment.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let latency = Spread {
            count: self.latency.count.saturating_sub(earlier.latency.count),
            sum: self.latency.sum - earlier.latency.sum,
            squares: self.latency.squares - earlier.latency.squares,
            max: 0.0,
        };
        Self {
            done: self.done.saturating_sub(earlier.done),
            failed: self.failed.saturating_sub(earlier.failed),
            latency,
            lag_us: self.lag_us - earlier.lag_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_knows_its_mean_and_deviation() {
        let mut spread = Spread::default();
        for us in [1_000, 3_000] {
            spread.record(us);
        }
        assert_eq!((spread.mean_ms(), spread.deviation_ms(), spread.max), (2.0, 1.0, 3_000.0));
        assert_eq!(Spread::default().mean_ms(), 0.0);
        let mut twice = spread;
        twice.add(&spread);
        assert_eq!((twice.count, twice.mean_ms(), twice.deviation_ms()), (4, 2.0, 1.0));
    }

    #[test]
    fn the_clients_with_fewest_and_most_are_found_over_all_threads() {
        let of_thread = |counts: &[u64]| {
            let mut stats = Stats::default();
            counts.iter().for_each(|count| stats.add_client(*count));
            stats
        };
        let mut all = of_thread(&[]);
        assert_eq!(all.of_clients, None);
        all.add(&of_thread(&[5, 9]));
        all.add(&of_thread(&[7, 3, 4]));
        assert_eq!(all.of_clients, Some((3, 9)));
    }

    #[test]
    fn sums_between_two_moments_are_their_difference() {
        let published = Published::default();
        let mut stats = Stats { done: 5, ..Stats::default() };
        stats.latency.record(1_000);
        published.store(&stats);
        let earlier = published.load();
        stats.done = 8;
        stats.failed = 1;
        stats.latency.record(3_000);
        published.store(&stats);
        let since = published.load().since(&earlier);
        assert_eq!((since.done, since.failed, since.latency.mean_ms()), (3, 1, 3.0));
    }
}
