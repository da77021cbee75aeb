//! Samples of a process's stacks, taken by `perf`. Its own stack is unwound by the program's tables, so
//! that neither frame pointers nor a build of its own are needed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Samples a second: not a divisor of the clock's ticks.
const FREQUENCY: &str = "499";
/// As much of the stack is looked at: 16 KiB.
const UNWIND: &str = "dwarf,16384";

/// How samples are to be taken.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Where perf keeps them.
    pub(crate) file: PathBuf,
    pub(crate) duration: Duration,
}

/// Samples that are being taken.
#[derive(Debug)]
pub(crate) struct Recording {
    perf: Option<Child>,
    file: PathBuf,
}

impl Recorder {
    pub(crate) fn start(&self, pid: u32) -> Result<Recording> {
        let seconds = self.duration.as_secs_f64().to_string();
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-N", "-e", "cpu-clock", "-F", FREQUENCY]);
        perf.args(["--call-graph", UNWIND, "-p", &pid.to_string()]);
        perf.arg("-o").arg(&self.file);
        perf.args(["--", "sleep", &seconds]);
        perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let perf = perf.spawn().context("perf is needed: scripts/setup profile")?;
        Ok(Recording { perf: Some(perf), file: self.file.clone() })
    }

    /// What was recorded, as text: [`super::Node::parse`] reads it. The program has to be where it was.
    pub(crate) fn script(&self) -> Result<String> {
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(&self.file);
        let output = perf.stdin(Stdio::null()).output().context("perf script")?;
        Ok(String::from_utf8_lossy(&checked(output, &self.file)?.stdout).into_owned())
    }
}

impl Recording {
    /// Waits until its time is over.
    pub(crate) fn end(mut self) -> Result<()> {
        let perf = self.perf.take().context("it has ended")?;
        checked(perf.wait_with_output()?, &self.file).map(drop)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(mut perf) = self.perf.take() {
            // It may have ended already; either way it is gone afterwards.
            let _ = perf.kill();
            let _ = perf.wait();
        }
    }
}

fn checked(output: Output, file: &Path) -> Result<Output> {
    let said = String::from_utf8_lossy(&output.stderr);
    let file = file.display();
    ensure!(output.status.success(), "perf, with {file}: {}; as root it may", said.trim());
    Ok(output)
}
