//! Mean, median and range.

/// The figures of some times, in their unit.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub mean: f64,
    pub median: f64,
    pub range: f64,
    pub minimum: f64,
    pub maximum: f64,
    pub count: usize,
}

impl Summary {
    /// Returns None without times.
    pub fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let (minimum, maximum) = (*times.first()?, *times.last()?);
        let (count, middle) = (times.len(), times.len() / 2);
        let median = match count % 2 {
            0 => f64::midpoint(times[middle - 1], times[middle]),
            _ => times[middle],
        };
        let mean = times.iter().sum::<f64>() / count as f64;
        Some(Self { mean, median, range: maximum - minimum, minimum, maximum, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        let median = |times: &[f64]| Summary::of(times.to_vec()).map(|times| times.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_range_has_both_ends() {
        let times = Summary::of(vec![2.0, -1.0, 5.0]).expect("there are some");
        assert_eq!((times.minimum, times.maximum, times.range), (-1.0, 5.0, 6.0));
        assert_eq!((times.mean, times.count), (2.0, 3));
    }
}
