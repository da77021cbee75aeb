//! The operator's commands for a change of the primary: `stop_command`, `fence_command` and others.
//!
//! A command is run by `/bin/sh` in a process group of its own. It finds the node that it concerns
//! in its environment. Its output is read to the end, because a server that it starts may keep
//! writing. If the command fails, the error has the last line.

use std::{
    io::{self, Read as _},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use config::Node;
use tokio::task;

use crate::exchange::hub::lock;
use net::sys::process;

/// The interval at which a command is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The time for the last line of a command that has failed.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The number of bytes of its output that are kept.
const OUTPUT_BYTES_MAX: usize = 1_000;

/// Runs a command about `node`, for a change to `new` if that is chosen.
///
/// # Errors
/// When it cannot be started, fails, or takes longer than `limit`: it is killed then.
pub(super) async fn run(
    command: &str,
    cluster: &str,
    node: &Node,
    new: Option<&Node>,
    limit: Duration,
) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null());
    shell.env("WEIR_CLUSTER", cluster);
    let of = |names: [&'static str; 3], node: &Node| {
        let Node { name, host, port, weight: _ } = node;
        names.into_iter().zip([name.clone(), host.to_string(), port.to_string()])
    };
    shell.envs(of(["WEIR_NODE", "WEIR_HOST", "WEIR_PORT"], node));
    if let Some(new) = new {
        shell.envs(of(["WEIR_NEW_NODE", "WEIR_NEW_HOST", "WEIR_NEW_PORT"], new));
    }
    let done = task::spawn_blocking(move || wait_for(shell, limit)).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

fn wait_for(mut shell: Command, limit: Duration) -> Result<(), String> {
    use std::os::unix::process::CommandExt as _;
    let in_words = |error: io::Error| error.to_string();
    let (mut reader, writer) = io::pipe().map_err(in_words)?;
    shell.stdout(writer.try_clone().map_err(in_words)?).stderr(writer).process_group(0);
    let mut child = shell.spawn().map_err(in_words)?;
    // Closes our ends of the pipe, which would keep it open.
    drop(shell);
    let output = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&output);
    let reading = thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(len @ 1..) = reader.read(&mut buffer) {
            let mut kept = lock(&kept);
            kept.extend_from_slice(&buffer[..len]);
            let surplus = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
            kept.drain(..surplus);
        }
    });
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(in_words)? {
            Some(status) => break status,
            None if began.elapsed() >= limit => {
                // An error means that it has ended meanwhile.
                let _ = process::kill_group(child.id());
                let _ = child.wait();
                return Err(format!("it did not end within {} s", limit.as_secs_f64()));
            }
            None => thread::sleep(LOOK),
        }
    };
    if status.success() {
        return Ok(());
    }
    let ended = Instant::now();
    while !reading.is_finished() && ended.elapsed() < LAST_WORDS {
        thread::sleep(LOOK);
    }
    Err(match last_line(&lock(&output)) {
        Some(line) => format!("{status}: {line}"),
        None => status.to_string(),
    })
}

/// Returns the last line with a visible character. An error message cannot have a zero byte, and a
/// terminal obeys other control characters.
fn last_line(output: &[u8]) -> Option<String> {
    let output = String::from_utf8_lossy(output);
    let plain = |line: &str| line.replace(char::is_control, " ").trim().to_owned();
    output.lines().rev().map(plain).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(command: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null());
        shell
    }

    #[test]
    fn a_command_fails_with_its_last_line() {
        let limit = Duration::from_secs(60);
        assert_eq!(wait_for(shell("true"), limit), Ok(()));
        let failed = wait_for(shell("echo first; echo it is broken >&2; exit 3"), limit);
        assert_eq!(failed, Err("exit status: 3: it is broken".to_owned()));
        // The process that is left has the pipe.
        let began = Instant::now();
        let failed = wait_for(shell("sleep 5 & exit 1"), limit);
        assert_eq!(failed, Err("exit status: 1".to_owned()));
        assert!(began.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn the_last_line_has_no_control_character() {
        for (output, expected) in [
            (&b""[..], None),
            (b"\n \n\0\0\n", None),
            (b"one\ntwo", Some("two")),
            (b"one\n\0\0two\r\n\0", Some("two")),
            (b"\x1b[2Jred\xff", Some("[2Jred\u{fffd}")),
        ] {
            assert_eq!(last_line(output).as_deref(), expected, "{output:?}");
        }
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let failed = wait_for(shell("sleep 60"), Duration::from_millis(20));
        assert_eq!(failed, Err("it did not end within 0.02 s".to_owned()));
    }
}
