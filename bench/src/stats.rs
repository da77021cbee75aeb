//! The arithmetic of the benchmark, median and range, and the file of all measurements.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use load::Summary;
use serde_json::Value;

/// Writes a document, and creates its folder.
pub(crate) fn write_json(path: &Path, document: &Value) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(document)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Returns the middle value, or the mean of the two in the middle. Returns `None` if there are no
/// values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values.to_vec()).map(|values| values.median)
}

/// Returns the smallest and the largest value. Returns `None` if there are no values.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    Summary::of(values.to_vec()).map(|values| (values.minimum, values.maximum))
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
}
