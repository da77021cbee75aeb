//! The screen of the demo, and the keys that end it.

use std::io::{self, Write as _};

use anyhow::bail;

use crate::sys;

/// Fails after the user has interrupted the demo. Every loop that waits calls it.
pub(super) fn go_on() -> anyhow::Result<()> {
    if sys::terminated() {
        bail!("interrupted");
    }
    Ok(())
}

/// Prints a line. A failure to print is ignored, because the demo must still remove its cluster.
pub(super) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
