//! Durations of one kind, counted by powers of two.
//!
//! Recording one costs a binary logarithm and an addition. A histogram has no sum: where one is
//! needed, a time in [`Stats`](crate::operator::stats::Stats) is added to at the same place.

use std::ops::{AddAssign, Range};

/// The bounds that are told, in powers of two of microseconds: from 64 µs to 33.6 s.
const BOUNDS: Range<usize> = 6..26;
/// The number of binary logarithms of a number, so that an index needs no check.
const PLACES: usize = u64::BITS as usize;

/// The number of durations by their binary logarithms. Durations are whole microseconds, rounded
/// down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram([u64; PLACES]);

impl Histogram {
    #[inline]
    pub fn record(&mut self, micros: u64) {
        self.record_all(micros, 1);
    }

    /// Records `count` durations of the same length.
    #[inline]
    pub fn record_all(&mut self, micros: u64, count: u64) {
        self.0[(micros | 1).ilog2() as usize] += count;
    }

    /// Each bound in microseconds, with the number of all durations below it.
    pub fn below(&self) -> impl Iterator<Item = (u64, u64)> {
        BOUNDS.map(|at| (1 << at, self.0[..at].iter().sum()))
    }

    /// Returns the duration that a share of all durations does not exceed: `share` of 1,000. It is
    /// interpolated within a power of two.
    pub fn per_mille(&self, share: u64) -> u64 {
        let rank = (self.count() * share).div_ceil(1_000).max(1);
        let mut before = 0;
        for (at, count) in self.0.iter().enumerate() {
            if before + count >= rank {
                // Durations below 2 are in the first place.
                let low = if at == 0 { 0 } else { 1_u64 << at };
                let width = u128::from(if at == 0 { 2 } else { low });
                let part = width * u128::from(rank - before) / u128::from(*count);
                return low.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
            }
            before += count;
        }
        0
    }

    /// Returns those that were recorded after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut later = *self;
        for (own, before) in later.0.iter_mut().zip(earlier.0) {
            *own = own.saturating_sub(before);
        }
        later
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; PLACES])
    }
}

impl AddAssign<&Self> for Histogram {
    fn add_assign(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }
}

/// The durations of one pool, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Times from a request for a server to its assignment. Their sum is `Stats::wait_time`.
    pub wait: Histogram,
    /// Their sum is `Stats::query_time`.
    pub query: Histogram,
    /// Their sum is `Stats::transaction_time`.
    pub transaction: Histogram,
    /// Times from opening the socket of a server to the end of its login.
    pub connect: Histogram,
    /// The sum of `connect`, in microseconds.
    pub connect_time: u64,
}

impl AddAssign<&Self> for Durations {
    fn add_assign(&mut self, other: &Self) {
        self.wait += &other.wait;
        self.query += &other.query;
        self.transaction += &other.transaction;
        self.connect += &other.connect;
        self.connect_time += other.connect_time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|micros| histogram.record(*micros));
        histogram
    }

    #[test]
    fn a_duration_is_below_every_larger_bound_and_no_other() {
        for micros in [0, 1, 63, 64, 65, 127, 128, 1_000_000, 33_554_431, 33_554_432, u64::MAX] {
            for (bound, below) in of(&[micros]).below() {
                assert_eq!(below, u64::from(micros < bound), "{micros} and {bound}");
            }
            assert_eq!(of(&[micros]).count(), 1);
        }
    }

    #[test]
    fn the_bounds_are_powers_of_two_from_64_microseconds_to_33_seconds() {
        let bounds: Vec<_> = Histogram::default().below().map(|(bound, _)| bound).collect();
        assert_eq!(bounds.len(), 20);
        assert_eq!((bounds[0], bounds[1], bounds[19]), (64, 128, 33_554_432));
    }

    #[test]
    fn a_share_is_found_within_a_power_of_two() {
        assert_eq!(Histogram::default().per_mille(990), 0);
        let mut histogram = of(&[5_000]);
        assert_eq!(histogram.per_mille(990), 8_192, "a single one is at the upper bound");
        histogram.record_all(100, 999);
        assert!((127..=128).contains(&histogram.per_mille(990)));
        assert_eq!(histogram.per_mille(1_000), 8_192);
        assert_eq!(of(&[u64::MAX]).per_mille(990), u64::MAX);
    }

    #[test]
    fn durations_since_an_earlier_moment_leave_out_those_before() {
        let before = of(&[1, 70]);
        assert_eq!(of(&[1, 70, 70, 1_000]).since(&before), of(&[70, 1_000]));
    }

    #[test]
    fn the_histograms_of_two_workers_are_added() {
        let mut both = of(&[1, 70]);
        both += &of(&[70, 1_000_000_000]);
        assert_eq!(both, of(&[1, 70, 70, 1_000_000_000]));
    }
}
