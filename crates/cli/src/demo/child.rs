//! Runs PostgreSQL's programs, without the caller's libpq settings, and ends them when the demo is
//! interrupted.

use std::{
    env,
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::terminal::go_on;
use crate::sys;

/// The interval at which a waiting demo checks whether it may continue.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// The exit status of a program, and its whole output.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) output: String,
}

impl Finished {
    /// Returns the output of a program that succeeded.
    ///
    /// # Errors
    /// With the last lines of its output, when it failed.
    pub(super) fn success(self, what: &str) -> anyhow::Result<String> {
        if !self.status.success() {
            bail!("{what} failed ({}):\n{}", self.status, last_lines(&self.output));
        }
        Ok(self.output)
    }
}

/// Returns the end of a program's output, which has the reason of a failure.
pub(super) fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Returns a command that runs in `directory`.
pub(super) fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).env("HOME", directory);
    for (name, _) in env::vars_os() {
        // The caller's PGHOST, PGSERVICE, PGOPTIONS and others are meant for another server.
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    // The programs' output is parsed, and shown beside Weir's.
    command.env("LC_ALL", "C").env_remove("LANGUAGE");
    command
}

/// Runs a command to its end, with `input` on its standard input.
///
/// # Errors
/// When it cannot be started, or when the demo is interrupted; the command is then killed.
pub(super) fn run(mut command: Command, input: &str) -> anyhow::Result<Finished> {
    let (mut reader, writer) = io::pipe().context("pipe")?;
    command.stdout(writer.try_clone().context("pipe")?).stderr(writer).stdin(Stdio::piped());
    sys::tie_to_us(&mut command, libc::SIGKILL);
    let mut child = start(&mut command)?;
    // Drops our ends of the pipe with the command; otherwise its end would never be read.
    drop(command);
    let output = thread::spawn(move || {
        let mut output = Vec::new();
        reader.read_to_end(&mut output).map(|_| output)
    });
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading its whole input gives the reason in its output.
        let _ = stdin.write_all(input.as_bytes());
    }
    let status = wait(&mut child)?;
    let Ok(output) = output.join() else { bail!("the output could not be read") };
    let output = String::from_utf8_lossy(&output.context("pipe")?).into_owned();
    Ok(Finished { status, output })
}

pub(super) fn start(command: &mut Command) -> anyhow::Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().with_context(|| format!("could not start {program}"))
}

/// Waits for the end of a program that leads a process group of its own. On an interruption the
/// whole group is killed, so that no process writes into the directory that the demo removes.
fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("waiting for a program")? {
            return Ok(status);
        }
        if let Err(interrupted) = go_on() {
            let _ = sys::kill_group(child);
            let _ = child.wait();
            return Err(interrupted);
        }
        thread::sleep(TICK);
    }
}
