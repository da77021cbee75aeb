//! Samples of a process's stacks, taken by `perf` and drawn by `bench/draw.py`. perf unwinds the stacks with the program's unwind
//! tables, so no frame pointers and no special build are needed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Samples per second. Not a divisor of the clock's tick rate.
const FREQUENCY: &str = "499";
/// The unwinding method, and the bytes of the stack that are copied: 16 KiB.
const UNWIND: &str = "dwarf,16384";

/// The settings of a recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The file to which perf writes the samples.
    pub(crate) file: PathBuf,
    pub(crate) duration: Duration,
}

/// A recording that is in progress.
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

    /// Draws the recorded samples of `program`, which must still be at the same path. Frames without a
    /// symbol are named after `label`.
    pub(crate) fn draw(&self, program: &Path, label: &str, title: &str, to: &Path) -> Result<()> {
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(&self.file);
        let output = perf.stdin(Stdio::null()).output().context("perf script")?;
        let stacks = self.file.with_extension("stacks");
        fs::write(&stacks, checked(output, &self.file)?.stdout)?;
        let mut draw = Command::new("python3");
        draw.args(["bench/draw.py", "flame"]).arg(program).args([label, title]).arg(to);
        let status = draw.stdin(File::open(&stacks)?).status().context("python3")?;
        ensure!(status.success(), "bench/draw.py: {status}");
        Ok(())
    }
}

impl Recording {
    /// Waits for the end of the recording.
    pub(crate) fn end(mut self) -> Result<()> {
        let perf = self.perf.take().context("it has ended")?;
        checked(perf.wait_with_output()?, &self.file).map(drop)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(mut perf) = self.perf.take() {
            // It may have ended already; then killing it fails, which does not matter.
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
