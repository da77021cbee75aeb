//! Latencies in a log-linear histogram of fixed size: a percentile is exact to 1/128, which is 0.8
//! %.

use std::time::Duration;

/// Sub-buckets per power of two.
const SUB_BITS: u32 = 7;
const SUB: usize = 1 << SUB_BITS;

/// Counts how often each latency was measured, in microseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    #[must_use]
    pub fn new() -> Self {
        Self { counts: vec![0; SUB * (65 - SUB_BITS as usize)], total: 0, max_us: 0 }
    }

    pub fn record(&mut self, latency: Duration) {
        self.record_us(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn record_us(&mut self, latency_us: u64) {
        self.record_times(latency_us, 1);
    }

    /// Records the same latency `count` times.
    pub fn record_times(&mut self, latency_us: u64, count: u64) {
        self.counts[bucket(latency_us)] += count;
        self.total += count;
        self.max_us = self.max_us.max(latency_us);
    }

    /// Returns each non-empty bucket's upper end, in microseconds, and its count.
    /// [`Self::record_times`] makes the same histogram from them.
    pub fn buckets_us(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (bucket_end_us(bucket).min(self.max_us), *count))
    }

    /// Adds the measurements of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Returns the longest latency, exactly; 0 when there are none.
    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// Returns the upper end, in microseconds, of the bucket in which this share (0 to 1) of the
    /// latencies is reached; 0 when there are none.
    #[must_use]
    pub fn percentile_us(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return bucket_end_us(bucket).min(self.max_us);
            }
        }
        0
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    ((shift as usize + 1) << SUB_BITS) + (value >> shift) as usize - SUB
}

fn bucket_end_us(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let start = ((SUB + bucket % SUB) as u64) << shift;
    start + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_at_most_1_percent_wide() {
        let mut previous = 0;
        for value in (0..100_000).chain([1 << 30, 1 << 40, u64::MAX]) {
            let bucket = bucket(value);
            assert!(bucket >= previous, "{value}");
            previous = bucket;
            let end = bucket_end_us(bucket);
            assert!(end >= value && end as f64 <= value as f64 * 1.008, "{value} in {end}");
        }
        Histogram::new().record_us(u64::MAX);
    }

    #[test]
    fn percentiles_count_from_below() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile_us(0.5), 0);
        for us in 1..=100 {
            histogram.record(Duration::from_micros(us));
        }
        assert_eq!(histogram.percentile_us(0.01), 1);
        assert_eq!(histogram.percentile_us(0.5), 50);
        assert_eq!(histogram.percentile_us(0.99), 99);
        assert_eq!(histogram.percentile_us(1.0), 100);
    }

    #[test]
    fn its_buckets_make_the_same_histogram_again() {
        let mut own = Histogram::new();
        for us in (0..3_000).chain([7_001, 7_001, 1 << 30]) {
            own.record_us(us);
        }
        let mut again = Histogram::new();
        own.buckets_us().for_each(|(us, count)| again.record_times(us, count));
        assert_eq!((again.counts, again.total, again.max_us), (own.counts, own.total, own.max_us));
    }

    #[test]
    fn two_histograms_add_up() {
        let (mut one, mut other) = (Histogram::new(), Histogram::new());
        one.record_us(10);
        other.record_us(1_000_001);
        one.add(&other);
        assert_eq!((one.percentile_us(0.5), one.max_us()), (10, 1_000_001));
        assert_eq!(one.percentile_us(1.0), 1_000_001);
    }
}
