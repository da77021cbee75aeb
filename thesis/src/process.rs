//! The memory and the processor time of a process, as Linux reports them.

use std::fs;

/// Returns the private memory of processes in MB, in total. Those that have ended count as nothing.
pub(crate) fn private_mb(pids: &[u32]) -> f64 {
    total_mb(pids, "RssAnon:")
}

/// Returns the page tables of processes in MB, in total.
pub(crate) fn page_tables_mb(pids: &[u32]) -> f64 {
    total_mb(pids, "VmPTE:")
}

/// Returns the processor time of processes in seconds, in total, with all their threads.
pub(crate) fn cpu_seconds(pids: &[u32]) -> f64 {
    let tasks = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let nanoseconds = |task: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.flatten().flatten().filter_map(nanoseconds).sum::<u64>() as f64 / 1e9
}

fn total_mb(pids: &[u32], field: &str) -> f64 {
    let kib: u64 = pids.iter().filter_map(|pid| kib(*pid, field)).sum();
    kib as f64 / 1024.0
}

/// Returns a field of `/proc/PID/status`.
fn kib(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}
