//! The kernel's figures about a running process: CPU time, waiting time, context switches, memory,
//! children.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Sub;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::sys;

/// The line of `status` with the context switches of a thread that waited.
const VOLUNTARY: &str = "voluntary_ctxt_switches:";

/// CPU time, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// Time on a core, user and system together.
    pub(crate) run_ns: u64,
    /// Time in which it was ready to run but waited for a core that other work used.
    pub(crate) wait_ns: u64,
}

impl CpuTime {
    /// Parses a thread's `schedstat`. It counts nanoseconds, unlike `/proc/PID/stat`, which counts
    /// clock ticks.
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

/// The CPU time and sleeps of each thread of a process, since the thread was started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Threads(BTreeMap<u32, Thread>);

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    cpu: CpuTime,
    /// Voluntary context switches: the thread waited for an event or a lock.
    sleeps: u64,
}

/// The CPU time and sleeps of a process between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The CPU time of all its threads together.
    pub(crate) cpu: CpuTime,
    /// The CPU time of the thread that ran most, in nanoseconds.
    pub(crate) busiest_ns: u64,
    /// Voluntary context switches of all threads.
    pub(crate) sleeps: u64,
}

impl Threads {
    /// Reads the threads of `pid`. Threads that have ended are not included.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let mut threads = Self::default();
        for (id, folder) in tasks(pid)? {
            let Some(schedstat) = read_task(&folder.join("schedstat"))? else { continue };
            let Some(status) = read_task(&folder.join("status"))? else { continue };
            let cpu = CpuTime::parse(&schedstat).with_context(|| format!("schedstat of {id}"))?;
            let sleeps = field(&status, VOLUNTARY);
            let sleeps = sleeps.with_context(|| format!("status of {id}"))?;
            threads.0.insert(id, Thread { cpu, sleeps });
        }
        Ok(threads)
    }

    /// Returns the difference to an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Usage {
        let mut usage = Usage::default();
        for (id, now) in &self.0 {
            let before = earlier.0.get(id).copied().unwrap_or_default();
            let cpu = now.cpu - before.cpu;
            usage.cpu.run_ns += cpu.run_ns;
            usage.cpu.wait_ns += cpu.wait_ns;
            usage.busiest_ns = usage.busiest_ns.max(cpu.run_ns);
            usage.sleeps += now.sleeps.saturating_sub(before.sleeps);
        }
        usage
    }
}

/// Returns the ids of the threads of a process whose names begin with `prefix`, sorted by name.
pub(crate) fn threads_named(pid: u32, prefix: &str) -> Result<Vec<u32>> {
    let mut found = BTreeMap::new();
    for (id, folder) in tasks(pid)? {
        let name = read_task(&folder.join("comm"))?.unwrap_or_default();
        if name.starts_with(prefix) {
            found.insert(name, id);
        }
    }
    Ok(found.into_values().collect())
}

fn tasks(pid: u32) -> Result<Vec<(u32, PathBuf)>> {
    let directory = format!("/proc/{pid}/task");
    let mut tasks = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.clone())? {
        let entry = entry?;
        let id =
            entry.file_name().to_string_lossy().parse().context("a thread without a number")?;
        tasks.push((id, entry.path()));
    }
    Ok(tasks)
}

/// Reads a file of a thread. Returns `None` if the thread has ended since it was listed.
fn read_task(path: &Path) -> Result<Option<String>> {
    let has_ended =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
    match fs::read_to_string(path) {
        Err(error) if has_ended(&error) => Ok(None),
        other => other.map(Some).with_context(|| path.display().to_string()),
    }
}

/// Returns the number in the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the resident memory in bytes. `smaps_rollup` is exact. The cheaper `statm` may be off by
/// 64 pages per thread, which is more than a thousand idle clients use.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    bytes(&format!("/proc/{pid}/smaps_rollup"), "Rss:")
}

/// Returns the size of the page tables of a process, in bytes.
pub(crate) fn page_table_bytes(pid: u32) -> Result<u64> {
    bytes(&format!("/proc/{pid}/status"), "VmPTE:")
}

/// Returns the figure in the line that begins with `name`, which is in KiB.
fn bytes(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let kib = field(&text, name).with_context(|| format!("no {name} in {path}"))?;
    Ok(kib * 1024)
}

/// Returns the ids of the running children of a process.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    text.split_whitespace().map(|child| Ok(child.parse()?)).collect()
}

/// Returns a process and all that it has started, directly or through others.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(pid) = family.get(at) {
        // A process may have ended since it was listed.
        family.extend(children(*pid).unwrap_or_default());
        at += 1;
    }
    family
}

/// Returns the CPU time of a process and of all that it has started, in seconds. Processes that
/// have ended are included if their parents have waited for them.
pub(crate) fn family_cpu_s(pid: u32) -> Result<f64> {
    let stats = family(pid).into_iter().filter_map(|pid| {
        // A process may have ended since it was listed.
        fs::read_to_string(format!("/proc/{pid}/stat")).ok()
    });
    let ticks = stats.map(|stat| parse_ticks(&stat).context("an unknown form of /proc/PID/stat"));
    let ticks: u64 = ticks.sum::<Result<u64>>()?;
    Ok(ticks as f64 / sys::clock_ticks_per_second()?)
}

/// Parses user and system time of a process and of its children that have ended.
fn parse_ticks(stat: &str) -> Option<u64> {
    // The name of the program may contain anything.
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields: Vec<_> = behind_name.split_whitespace().skip(11).take(4).collect();
    if fields.len() < 4 {
        return None;
    }
    fields.into_iter().map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_user_and_system_time_of_a_process_and_its_ended_children() {
        let stat = "7 (a ) 1 2) S 1 7 7 0 -1 4194560 99 98 97 96 10 20 300 4000 20 0 1 0 5";
        assert_eq!(parse_ticks(stat), Some(4_330));
        assert_eq!(parse_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn the_time_of_a_family_includes_a_child_that_has_ended() {
        let pid = std::process::id();
        let before = family_cpu_s(pid).unwrap();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let busy = std::process::Command::new("sh").args(["-c", work]).status().unwrap();
        assert!(busy.success());
        assert!(family_cpu_s(pid).unwrap() > before);
        assert_eq!(family(pid)[0], pid);
    }

    #[test]
    fn schedstat_gives_run_and_wait() {
        let time = CpuTime::parse("1200 34 5\n").unwrap();
        assert_eq!(time, CpuTime { run_ns: 1_200, wait_ns: 34 });
        assert_eq!(CpuTime::parse("12"), None);
    }

    #[test]
    fn only_voluntary_switches_are_sleeps() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(field(status, VOLUNTARY), Some(12));
        assert_eq!(field("nonvoluntary_ctxt_switches:\t7\n", VOLUNTARY), None);
        assert_eq!(field("55-77 ---p [rollup]\nRss:   8 kB\nPss: 4 kB\n", "Rss:"), Some(8));
    }

    #[test]
    fn usage_is_the_sum_of_all_threads_and_the_most_of_one() {
        let threads = |figures: &[(u32, u64)]| {
            let thread = |run_ns| Thread { cpu: CpuTime { run_ns, wait_ns: 1 }, sleeps: run_ns };
            Threads(figures.iter().map(|&(id, run_ns)| (id, thread(run_ns))).collect())
        };
        let (before, now) =
            (threads(&[(1, 100), (2, 200)]), threads(&[(1, 170), (2, 230), (3, 5)]));
        let cpu = CpuTime { run_ns: 105, wait_ns: 1 };
        assert_eq!(now.since(&before), Usage { cpu, busiest_ns: 70, sleeps: 105 });
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(Threads::of(pid).unwrap().since(&Threads::default()).cpu.run_ns > 0);
        assert!(resident_bytes(pid).unwrap() > 4_096);
        assert!(page_table_bytes(pid).unwrap() > 0);
        children(pid).unwrap();
        let named = std::thread::Builder::new().name("rig-named-1".to_owned());
        let (ask, answer) = std::sync::mpsc::channel::<()>();
        let thread = named.spawn(move || answer.recv().is_err()).unwrap();
        // A thread takes its name once it runs.
        while threads_named(pid, "rig-named-").unwrap().len() != 1 {
            std::thread::yield_now();
        }
        drop(ask);
        thread.join().unwrap();
    }
}
