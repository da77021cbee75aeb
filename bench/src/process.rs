//! What the kernel says of a running process: CPU time, waiting time, memory, children.

use std::fs;
use std::io;
use std::ops::Sub;

use anyhow::{Context, Result};

/// CPU time of all threads of a process since it started, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// On a core, user and system together.
    pub(crate) run_ns: u64,
    /// Ready to run but waiting for a core: what other work on the core took from it.
    pub(crate) wait_ns: u64,
}

impl CpuTime {
    /// Sums `/proc/PID/task/*/schedstat`, which counts nanoseconds where `/proc/PID/stat` counts
    /// clock ticks. A thread that has ended no longer counts.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let directory = format!("/proc/{pid}/task");
        let mut sum = Self::default();
        for thread in fs::read_dir(&directory).with_context(|| directory.clone())? {
            let path = thread?.path().join("schedstat");
            let text = match fs::read_to_string(&path) {
                Err(error) if has_ended(&error) => continue,
                other => other.with_context(|| path.display().to_string())?,
            };
            let thread = Self::parse(&text).with_context(|| path.display().to_string())?;
            sum.run_ns += thread.run_ns;
            sum.wait_ns += thread.wait_ns;
        }
        Ok(sum)
    }

    fn parse(schedstat: &str) -> Option<Self> {
        let mut fields = schedstat.split_whitespace().map(str::parse);
        let run_ns = fields.next()?.ok()?;
        Some(Self { run_ns, wait_ns: fields.next()?.ok()? })
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }
}

/// Whether the thread was listed but has ended since.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Resident memory in bytes. `smaps_rollup` counts pages; the cheaper `statm` may be off by 64
/// pages a thread, which is more than a thousand idle clients.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    parse_resident(&text).with_context(|| format!("no Rss in {path}"))
}

fn parse_resident(smaps: &str) -> Option<u64> {
    let line = smaps.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Memory that the kernel needs for its tables of a process's memory, in bytes.
pub(crate) fn page_table_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    parse_page_tables(&text).with_context(|| format!("no VmPTE in {path}"))
}

fn parse_page_tables(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The processes that a process has started and that have not ended.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    text.split_whitespace().map(|child| Ok(child.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_gives_run_and_wait() {
        let time = CpuTime::parse("1200 34 5\n").unwrap();
        assert_eq!(time, CpuTime { run_ns: 1_200, wait_ns: 34 });
        assert_eq!(
            time - CpuTime { run_ns: 200, wait_ns: 4 },
            CpuTime { run_ns: 1_000, wait_ns: 30 }
        );
        assert_eq!(CpuTime::parse("12"), None);
    }

    #[test]
    fn resident_memory_is_in_kibibytes() {
        assert_eq!(parse_resident("55-77 ---p [rollup]\nRss:   8 kB\nPss: 4 kB\n"), Some(8_192));
        assert_eq!(parse_resident("Pss: 4 kB\n"), None);
    }

    #[test]
    fn page_tables_are_in_kibibytes() {
        assert_eq!(parse_page_tables("VmRSS:\t 12 kB\nVmPTE:\t   60 kB\n"), Some(61_440));
        assert_eq!(parse_page_tables("VmRSS: 12 kB\n"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        assert!(page_table_bytes(std::process::id()).unwrap() > 0);
        children(std::process::id()).unwrap();
        assert!(CpuTime::of(std::process::id()).unwrap().run_ns > 0);
        assert!(resident_bytes(std::process::id()).unwrap() > 4_096);
    }
}
