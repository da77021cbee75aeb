//! The arithmetic of the rig: a latency histogram, medians, spread.

use std::time::Duration;

/// Sub-buckets per power of two: a percentile is right to within 1/32, which is 3 %.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;

/// Latencies in microseconds, log-linear, of fixed size.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; SUB * (64 - SUB_BITS as usize)], total: 0 }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.counts[bucket(latency.as_micros() as u64)] += 1;
        self.total += 1;
    }

    /// The upper end, in microseconds, of the bucket in which the given share (0 to 1) of the
    /// latencies is reached; 0 when there are none.
    pub(crate) fn percentile_us(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return bucket_end_us(bucket);
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
    start + (1 << shift) - 1
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Smallest and largest value; `None` of nothing.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let smallest = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((smallest, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_range_has_both_ends() {
        assert_eq!(range(&[]), None);
        assert_eq!(range(&[2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
    }

    #[test]
    fn buckets_are_in_order_and_at_most_3_percent_wide() {
        let mut previous = 0;
        for value in (0..100_000).chain([1 << 30, 1 << 40]) {
            let bucket = bucket(value);
            assert!(bucket >= previous, "{value}");
            previous = bucket;
            let end = bucket_end_us(bucket);
            assert!(end >= value && end as f64 <= value as f64 * 1.032, "{value} in {end}");
        }
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
        assert!((99..=101).contains(&histogram.percentile_us(0.99)));
    }
}
