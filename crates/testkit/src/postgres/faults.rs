//! Faults of a running server: it is frozen, or its disk is full.

use std::fs;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Postgres;
use crate::guest;
use crate::signal::{send_signal, try_signal};
use crate::wait::eventually;

impl Postgres {
    /// Stops all processes of the server with SIGSTOP, so that nothing answers any more.
    pub fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        self.signal_all("STOP");
    }

    /// Stops only the postmaster with SIGSTOP. Open connections work, and no new one is accepted.
    pub fn freeze_postmaster(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        send_signal(self.postmaster(), "STOP");
    }

    /// Continues a frozen server.
    pub fn thaw(&self) {
        self.signal_all("CONT");
        self.is_frozen.store(false, Ordering::Relaxed);
    }

    /// Limits the length of each file that the server writes, also those of later processes. Beyond
    /// it writes fail, as on a full disk. None: no limit.
    pub fn limit_files(&self, len_max: Option<u64>) {
        let soft = len_max.map_or_else(|| "unlimited".to_owned(), |len| len.to_string());
        // The postmaster first: later processes have its limit.
        for process in std::iter::once(self.postmaster()).chain(self.processes()) {
            let process = process.to_string();
            // Of the same user: root may not do it everywhere.
            let mut command = guest::command("prlimit");
            command.args([&format!("--fsize={soft}:"), "--pid", &process]);
            // It may have ended meanwhile.
            let _ = command.output().expect("prlimit: see scripts/setup");
        }
    }

    /// Sends a signal to the postmaster.
    pub fn signal(&self, signal: &str) {
        if let Some(child) = self.lock().as_mut()
            && let Some(input) = child.stdin.as_mut()
        {
            writeln!(input, "{signal}").expect("the shell reads");
        }
    }

    /// Stops the server, as `pg_ctl stop` does with INT (fast) or TERM (smart), and waits until its
    /// processes have ended. Returns how long that took.
    pub fn stop_by(&self, signal: &str) -> Duration {
        let began = Instant::now();
        self.signal(signal);
        eventually("the server has stopped", Duration::from_secs(60), || {
            (!self.folder.join("data/postmaster.pid").exists()).then_some(())
        });
        let took = began.elapsed();
        self.stop();
        took
    }

    pub(crate) fn signal_all(&self, signal: &str) {
        for process in self.processes() {
            // It may have ended meanwhile.
            let _ = try_signal(process, signal);
        }
    }

    /// Returns the process id of its postmaster.
    pub fn postmaster(&self) -> u32 {
        let file = self.folder.join("data/postmaster.pid");
        let text = fs::read_to_string(file).expect("PostgreSQL runs");
        let line = text.lines().next().and_then(|line| line.parse().ok());
        line.expect("a process id")
    }

    /// Returns the processes of the server. All of them have the data folder as working folder.
    pub fn processes(&self) -> impl Iterator<Item = u32> + use<> {
        let data = self.folder.join("data");
        let all = fs::read_dir("/proc").expect("the list of processes").flatten();
        all.filter_map(move |process| {
            let folder = fs::read_link(process.path().join("cwd")).ok()?;
            let pid = process.file_name().to_str()?.parse().ok()?;
            (folder == data).then_some(pid)
        })
    }
}
