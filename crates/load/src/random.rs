//! Random numbers for scripts: one generator per client. They protect nothing. They must be cheap, and
//! a seed must always give the same numbers.

/// SplitMix64 (Steele, Lea and Flood, 2014): one addition and two multiplications per number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns each of the `count` numbers from `low` on with equal probability.
    pub(crate) fn uniform(&mut self, low: i64, count: i64) -> i64 {
        let offset = (u128::from(self.next()) * count as u128) >> 64;
        low + offset as i64
    }

    /// Returns the time until the next event of a Poisson process with this mean.
    pub(crate) fn wait(&mut self, mean: f64) -> f64 {
        let above_zero = 1.0 - (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -above_zero.ln() * mean
    }
}

/// Returns the count of the numbers from `low` to `high`.
///
/// # Errors
/// When there are none, or the count does not fit 64 bits.
pub(crate) fn range(low: i64, high: i64) -> Result<i64, String> {
    if low > high {
        return Err("empty range given to random".to_owned());
    }
    let count = high.checked_sub(low).and_then(|width| width.checked_add(1));
    count.ok_or_else(|| "random range is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = || {
            let mut random = Random::new(42);
            (0..5).map(|_| random.uniform(1, 1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert_ne!(draw()[0], draw()[1]);
    }

    #[test]
    fn uniform_numbers_are_equally_frequent() {
        let (mut random, mut counts) = (Random::new(7), [0; 10]);
        for _ in 0..20_000 {
            counts[usize::try_from(random.uniform(1, 10) - 1).unwrap()] += 1;
        }
        assert!(counts.iter().all(|&count| (1_800..2_200).contains(&count)), "{counts:?}");
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(range(5, 5), Ok(1));
        assert!(range(2, 1).is_err());
        assert!(range(i64::MIN, i64::MAX).is_err());
    }
}
