//! Signals to processes of a test.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::wait::eventually;

/// For a process that is to stop. A thread that waits for a disk takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a signal to a process, which must exist. Waits for the end of `STOP`: all threads have stopped.
pub fn send_signal(pid: u32, signal: &str) {
    assert!(try_signal(pid, signal), "cannot send SIG{signal} to process {pid}");
    if signal == "STOP" {
        eventually(&format!("process {pid} is stopped"), PATIENCE, || is_stopped(pid));
    }
}

/// Have all threads of a process stopped? Each does so by itself, some time after the signal.
fn is_stopped(pid: u32) -> Option<()> {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let is_running = |thread: &Path| {
        let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with(['T', 'Z']));
        state == Some(false)
    };
    let runs = threads.any(|thread| thread.is_ok_and(|thread| is_running(&thread.path())));
    (!runs).then_some(())
}

/// Does the same to a process that may have ended. The shell has `kill` of its own, while some machines
/// lack the program.
pub(crate) fn try_signal(pid: u32, signal: &str) -> bool {
    let status = Command::new("sh")
        .args(["-c", "kill -s \"$1\" \"$2\"", "kill", signal])
        .arg(pid.to_string())
        .stderr(Stdio::null())
        .status();
    status.expect("there is a shell").success()
}
