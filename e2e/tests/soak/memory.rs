//! The memory of the backends that live as long as the soak, and of Weir.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use testkit::memory_file_bytes;

use crate::stage::Stage;

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// The anonymous memory of each backend of the steady database, in KiB, by its process id.
    backends: BTreeMap<u32, u64>,
    weir_kib: u64,
    /// The files in memory that Weir has open: the lobbies.
    shared_kib: u64,
    open_files: usize,
}

impl Sample {
    pub(crate) fn take(stage: &Stage) -> Self {
        let weir = stage.pooler.pid();
        let backends = stage.postgres.backends(&stage.steady).into_iter();
        let open = fs::read_dir(format!("/proc/{weir}/fd")).expect("Weir runs");
        Self {
            backends: backends.filter_map(|pid| Some((pid, anonymous_kib(pid)?))).collect(),
            weir_kib: stage.pooler.resident_kib(),
            shared_kib: memory_file_bytes(weir) / 1024,
            open_files: open.count(),
        }
    }

    /// Returns by how many percent the backends have grown that were there already, or `None` if
    /// none was.
    pub(crate) fn growth_since(&self, first: &Self) -> Option<u64> {
        let both =
            self.backends.iter().filter_map(|(pid, now)| Some((first.backends.get(pid)?, now)));
        let (before, now) = both.fold((0, 0), |(a, b), (before, now)| (a + before, b + now));
        (before > 0).then(|| (now * 100).saturating_sub(before * 100).div_ceil(before))
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum: u64 = self.backends.values().sum();
        let count = self.backends.len();
        write!(f, "backends {count}: {sum} KiB; Weir {} KiB, ", self.weir_kib)?;
        write!(f, "shared {} KiB, {} files", self.shared_kib, self.open_files)
    }
}

/// Returns `None` for a process that has ended.
fn anonymous_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.split_whitespace().next()?.parse().ok()
}
