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

/// Why a transaction failed, so that its client continued with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Serialization,
    Deadlock,
}

/// The counts of one script, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) done: u64,
    pub(crate) skipped: u64,
    pub(crate) retried: u64,
    pub(crate) retries: u64,
    pub(crate) serialization: u64,
    pub(crate) deadlock: u64,
    /// Above the latency limit.
    pub(crate) late: u64,
    pub(crate) latency: Spread,
    pub(crate) lag: Spread,
}

impl Counts {
    pub(crate) fn failed(&self) -> u64 {
        self.serialization + self.deadlock
    }

    /// Returns the number of all transactions that began or should have begun.
    pub(crate) fn total(&self) -> u64 {
        self.done + self.skipped + self.failed()
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Serialization => self.serialization += 1,
            Failure::Deadlock => self.deadlock += 1,
        }
    }

    fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.retries += other.retries;
        self.serialization += other.serialization;
        self.deadlock += other.deadlock;
        self.late += other.late;
        self.latency.add(&other.latency);
        self.lag.add(&other.lag);
    }
}

/// The measurements of one command of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandCounts {
    pub(crate) latency: Spread,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptStats {
    pub(crate) counts: Counts,
    pub(crate) histogram: Histogram,
    pub(crate) commands: Vec<CommandCounts>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) scripts: Vec<ScriptStats>,
    /// The time for a login.
    pub(crate) connecting: Spread,
    pub(crate) aborted: u64,
    /// The fewest and the most transactions of a client, including skipped and failed ones.
    pub(crate) of_clients: Option<(u64, u64)>,
}

impl Stats {
    /// Returns statistics for scripts with these numbers of commands.
    pub(crate) fn new(commands: impl Iterator<Item = usize>) -> Self {
        let script = |count| ScriptStats {
            commands: vec![CommandCounts::default(); count],
            ..ScriptStats::default()
        };
        Self { scripts: commands.map(script).collect(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (own, more) in self.scripts.iter_mut().zip(&other.scripts) {
            own.counts.add(&more.counts);
            own.histogram.add(&more.histogram);
            for (own, more) in own.commands.iter_mut().zip(&more.commands) {
                own.latency.add(&more.latency);
                own.retries += more.retries;
                own.failures += more.failures;
            }
        }
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

    /// Returns the sum over all scripts.
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        for script in &self.scripts {
            total.add(&script.counts);
        }
        total
    }

    pub(crate) fn histogram(&self) -> Histogram {
        let mut all = Histogram::new();
        for script in &self.scripts {
            all.add(&script.histogram);
        }
        all
    }
}

/// The sums of one thread for progress reports.
#[derive(Debug, Default)]
pub(crate) struct Published([AtomicU64; 9]);

impl Published {
    pub(crate) fn store(&self, counts: &Counts) {
        let numbers = [
            counts.done,
            counts.failed(),
            counts.skipped,
            counts.retried,
            counts.retries,
            counts.latency.count,
            counts.latency.sum.to_bits(),
            counts.latency.squares.to_bits(),
            counts.lag.sum.to_bits(),
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
            skipped: number(2),
            retried: number(3),
            retries: number(4),
            latency: Spread { count: number(5), sum: real(6), squares: real(7), max: 0.0 },
            lag_us: real(8),
        }
    }
}

/// Sums up to a moment, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) retried: u64,
    pub(crate) retries: u64,
    pub(crate) latency: Spread,
    pub(crate) lag_us: f64,
}

impl Moment {
    pub(crate) fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.retries += other.retries;
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
            skipped: self.skipped.saturating_sub(earlier.skipped),
            retried: self.retried.saturating_sub(earlier.retried),
            retries: self.retries.saturating_sub(earlier.retries),
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
        let mut counts = Counts { done: 5, ..Counts::default() };
        counts.latency.record(1_000);
        published.store(&counts);
        let earlier = published.load();
        counts.done = 8;
        counts.serialization = 1;
        counts.latency.record(3_000);
        published.store(&counts);
        let since = published.load().since(&earlier);
        assert_eq!((since.done, since.failed, since.latency.mean_ms()), (3, 1, 3.0));
    }
}
