//! Durations of one kind, counted by powers of two.
//!
//! The powers of two are those of a second, as in Prometheus' native histograms. Recording a duration
//! costs a multiplication, a binary logarithm and an addition. A histogram has no sum: where one is
//! needed, a time in [`Stats`](crate::operator::stats::Stats) is added to at the same place.

use std::ops::{AddAssign, Range};

/// The ticks of a second, as a power of two. A tick is 0.95 µs.
const SECOND: i32 = 20;
/// The bounds that are told, in powers of two of ticks: from 61 µs to 32 s.
const BOUNDS: Range<usize> = 6..26;
/// The number of binary logarithms of a number, so that an index needs no check.
const PLACES: usize = u64::BITS as usize;

/// The number of durations by the binary logarithms of their ticks. Durations are whole microseconds,
/// rounded down. The first place has those of 0 as well.
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
        self.0[(ticks(micros) | 1).ilog2() as usize] += count;
    }

    /// Each bound in seconds, with the number of all durations up to it.
    pub fn up_to(&self) -> impl Iterator<Item = (f64, u64)> {
        BOUNDS.map(|at| (upper_bound(at - 1), self.0[..at].iter().sum()))
    }

    /// The upper bound of the first place in seconds, and the number of durations there.
    pub fn shortest(&self) -> (f64, u64) {
        (upper_bound(0), self.0[0])
    }

    /// The other places that have durations: their upper bounds in seconds, as powers of two, and the
    /// numbers of durations.
    pub fn longer(&self) -> impl Iterator<Item = (i32, u64)> {
        let places = self.0.iter().enumerate().skip(1).filter(|(_, count)| **count > 0);
        places.map(|(at, count)| (exponent(at), *count))
    }

    /// Returns the microseconds that a share of all durations does not exceed: `share` of 1,000. It is
    /// interpolated within a power of two.
    pub fn per_mille(&self, share: u64) -> u64 {
        let rank = (self.count() * share).div_ceil(1_000).max(1);
        let mut before = 0;
        for (at, count) in self.0.iter().enumerate() {
            if before + count >= rank {
                // Durations below 2 ticks are in the first place.
                let low = if at == 0 { 0 } else { 1_u128 << at };
                let width = if at == 0 { 2 } else { low };
                let ticks = low + width * u128::from(rank - before) / u128::from(*count);
                return u64::try_from((ticks * 1_000_000) >> SECOND).unwrap_or(u64::MAX);
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

/// Returns a duration in ticks, rounded down. A duration of more than 97 days counts as one of 97 days.
fn ticks(micros: u64) -> u64 {
    /// The ticks of a microsecond, as a fraction of 2²¹.
    const TICKS: u64 = (1 << (SECOND + 21)) / 1_000_000;
    micros.saturating_mul(TICKS) >> 21
}

/// Returns the upper bound of a place in seconds, as a power of two.
fn exponent(place: usize) -> i32 {
    place as i32 + 1 - SECOND
}

fn upper_bound(place: usize) -> f64 {
    2_f64.powi(exponent(place))
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
    fn a_duration_is_within_every_larger_bound_and_no_other() {
        // The bounds 2⁻⁶ s and 1 s are whole microseconds, and within themselves.
        for micros in [0, 1, 61, 62, 122, 123, 15_625, 15_626, 1_000_000, 1_000_001, u64::MAX] {
            for (bound, count) in of(&[micros]).up_to() {
                assert_eq!(count, u64::from(micros as f64 / 1e6 <= bound), "{micros} and {bound}");
            }
            assert_eq!(of(&[micros]).count(), 1);
        }
    }

    #[test]
    fn the_bounds_are_powers_of_two_from_61_microseconds_to_32_seconds() {
        let bounds: Vec<_> = Histogram::default().up_to().map(|(bound, _)| bound).collect();
        assert_eq!(bounds.len(), 20);
        assert_eq!((bounds[0], bounds[14], bounds[19]), (0.000_061_035_156_25, 1.0, 32.0));
    }

    #[test]
    fn every_place_is_told_once() {
        let histogram = of(&[0, 1, 2, 3, 1_000_000, 1_000_001, 40_000_000]);
        assert_eq!(histogram.shortest(), (2_f64.powi(-19), 2), "0 and 1 µs");
        let longer: Vec<_> = histogram.longer().collect();
        assert_eq!(longer, [(-18, 2), (0, 1), (1, 1), (6, 1)], "up to 3.8 µs, 1 s, 2 s and 64 s");
    }

    #[test]
    fn a_share_is_found_within_a_power_of_two() {
        assert_eq!(Histogram::default().per_mille(990), 0);
        let mut histogram = of(&[5_000]);
        assert_eq!(histogram.per_mille(990), 7_812, "a single one is at the upper bound");
        histogram.record_all(100, 999);
        assert!((121..=122).contains(&histogram.per_mille(990)));
        assert_eq!(histogram.per_mille(1_000), 7_812);
        assert!(of(&[u64::MAX]).per_mille(990) > 97 * 24 * 3_600 * 1_000_000);
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
