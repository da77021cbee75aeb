//! Random numbers for scripts: one generator per client, and pgbench's distributions. They protect
//! nothing. They must be cheap, and a seed must always give the same numbers.

use std::f64::consts::TAU;

use crate::value::ValueError;

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

    /// Returns a number of at least 0 and less than 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number of more than 0 and at most 1.
    fn unit_above_zero(&mut self) -> f64 {
        1.0 - self.unit()
    }

    /// Returns each number from `low` to `high` with equal probability.
    ///
    /// # Errors
    /// When the range is empty or does not fit 64 bits.
    pub(crate) fn uniform(&mut self, low: i64, high: i64) -> Result<i64, ValueError> {
        let count = range(low, high)?;
        let offset = (u128::from(self.next()) * count as u128) >> 64;
        Ok(low + offset as i64)
    }

    /// Returns numbers in the middle more often: `parameter` is the number of standard deviations
    /// in each half.
    ///
    /// # Errors
    /// As for [`Self::uniform`], and when the parameter is less than 2.
    pub(crate) fn gaussian(
        &mut self,
        low: i64,
        high: i64,
        parameter: f64,
    ) -> Result<i64, ValueError> {
        let count = range(low, high)?;
        if parameter.is_nan() || parameter < 2.0 {
            return Err(ValueError(format!(
                "gaussian parameter must be at least 2.000000 (not {parameter:.6})"
            )));
        }
        // The method of Box and Muller, repeated beyond the cut: once in twenty for the smallest
        // parameter.
        let deviation = loop {
            let radius = (-2.0 * self.unit_above_zero().ln()).sqrt();
            let deviation = radius * (TAU * self.unit()).sin();
            if (-parameter..parameter).contains(&deviation) {
                break deviation;
            }
        };
        let share = (deviation + parameter) / (parameter * 2.0);
        Ok(low + (count as f64 * share) as i64)
    }

    /// Returns the first numbers more often, the more so for a larger parameter.
    ///
    /// # Errors
    /// As for [`Self::uniform`], and when the parameter is not positive.
    pub(crate) fn exponential(
        &mut self,
        low: i64,
        high: i64,
        parameter: f64,
    ) -> Result<i64, ValueError> {
        let count = range(low, high)?;
        if parameter.is_nan() || parameter <= 0.0 {
            return Err(ValueError(format!(
                "exponential parameter must be greater than zero (not {parameter:.6})"
            )));
        }
        let cut = (-parameter).exp();
        let share = -(cut + (1.0 - cut) * self.unit_above_zero()).ln() / parameter;
        Ok(low + ((count as f64 * share) as i64).min(count - 1))
    }

    /// Returns the k-th number in proportion to k to the power of minus `parameter`, by rejection
    /// (Devroye, "Non-Uniform Random Variate Generation", X.6.1).
    ///
    /// # Errors
    /// As for [`Self::uniform`], and when the parameter is outside 1.001 to 1000.
    pub(crate) fn zipfian(
        &mut self,
        low: i64,
        high: i64,
        parameter: f64,
    ) -> Result<i64, ValueError> {
        let count = range(low, high)?;
        if !(1.001..=1000.0).contains(&parameter) {
            return Err(ValueError(format!(
                "zipfian parameter must be in range [1.001, 1000] (not {parameter:.6})"
            )));
        }
        if count == 1 {
            return Ok(low);
        }
        let b = 2f64.powf(parameter - 1.0);
        loop {
            let x = self.unit_above_zero().powf(-1.0 / (parameter - 1.0)).floor();
            let t = (1.0 + 1.0 / x).powf(parameter - 1.0);
            let accepted = self.unit() * x * (t - 1.0) / (b - 1.0) <= t / b;
            if accepted && x <= count as f64 {
                return Ok(low + (x as i64 - 1));
            }
        }
    }

    /// Returns the time until the next event of a Poisson process with this mean.
    pub(crate) fn wait(&mut self, mean: f64) -> f64 {
        -self.unit_above_zero().ln() * mean
    }
}

fn range(low: i64, high: i64) -> Result<i64, ValueError> {
    if low > high {
        return Err(ValueError::new("empty range given to random"));
    }
    let count = high.checked_sub(low).and_then(|width| width.checked_add(1));
    count.ok_or(ValueError::new("random range is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    fn counts(mut draw: impl FnMut(&mut Random) -> i64) -> Vec<usize> {
        let mut random = Random::new(7);
        let mut counts = vec![0; 10];
        for _ in 0..DRAWS {
            counts[usize::try_from(draw(&mut random) - 1).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = || {
            let mut random = Random::new(42);
            (0..5).map(|_| random.uniform(1, 1_000_000).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert_ne!(draw()[0], draw()[1]);
    }

    #[test]
    fn uniform_numbers_are_equally_frequent() {
        let counts = counts(|random| random.uniform(1, 10).unwrap());
        assert!(counts.iter().all(|&count| (1_800..2_200).contains(&count)), "{counts:?}");
    }

    #[test]
    fn gaussian_numbers_crowd_in_the_middle() {
        let counts = counts(|random| random.gaussian(1, 10, 2.5).unwrap());
        assert!(counts[4] > 3_000 && counts[5] > 3_000, "{counts:?}");
        assert!(counts[0] < 1_000 && counts[9] < 1_000, "{counts:?}");
    }

    #[test]
    fn exponential_numbers_fall_off_by_a_constant_factor() {
        let counts = counts(|random| random.exponential(1, 10, 10.0).unwrap());
        // With parameter 10 over 10 numbers, each is e times as rare as the one before.
        let ratio = counts[0] as f64 / counts[1] as f64;
        assert!((2.5..3.0).contains(&ratio), "{counts:?}");
    }

    #[test]
    fn zipfian_numbers_follow_their_power() {
        let counts = counts(|random| random.zipfian(1, 10, 2.0).unwrap());
        assert!((3.6..4.4).contains(&(counts[0] as f64 / counts[1] as f64)), "{counts:?}");
        assert!((7.5..10.5).contains(&(counts[0] as f64 / counts[2] as f64)), "{counts:?}");
    }

    #[test]
    fn ranges_and_parameters_are_checked() {
        let mut random = Random::new(1);
        assert_eq!(random.uniform(5, 5), Ok(5));
        assert!(random.uniform(2, 1).is_err());
        assert!(random.uniform(i64::MIN, i64::MAX).is_err());
        assert!(random.gaussian(1, 2, 1.9).is_err());
        assert!(random.exponential(1, 2, 0.0).is_err());
        assert!(random.zipfian(1, 2, 1.0).is_err());
        assert_eq!(random.zipfian(3, 3, 2.0), Ok(3));
    }
}
