//! The run of all requirements: its size, and its folder.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// The run of all requirements.
#[derive(Debug)]
pub(crate) struct Run {
    /// Use smaller numbers.
    pub(crate) quick: bool,
    folder: PathBuf,
}

impl Run {
    pub(crate) fn new(quick: bool, folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Self { quick, folder }
    }

    /// Returns a number of repetitions.
    pub(crate) fn count(&self, whole: usize, quick: usize) -> usize {
        if self.quick { quick } else { whole }
    }

    /// Writes a file of the results.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// Tells threads that an activity is over, also when it ends by a panic.
#[derive(Debug)]
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
