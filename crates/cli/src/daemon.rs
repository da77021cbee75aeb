//! Goes to the background (`-d`).

use std::io::{self, PipeWriter, Write as _};

use anyhow::Context as _;
use proxy::log;

use crate::sys;

/// A process in the background, for which the process that was started still waits.
#[derive(Debug)]
pub(crate) struct Background(PipeWriter);

impl Background {
    /// Detaches from the terminal. The calling process waits until [`Self::release`] is called in its
    /// grandchild, in which this call returns. It then exits with status 0, and with 1 if the grandchild
    /// ends before. The working directory stays, since paths in the configuration may be relative to
    /// it. Standard error stays open if it is the journal, and is pointed at `/dev/null` otherwise.
    ///
    /// Call it before any thread is started.
    pub(crate) fn enter() -> anyhow::Result<Self> {
        let (reader, writer) = io::pipe().context("could not go to the background")?;
        let writer = sys::detach(reader, writer).context("could not go to the background")?;
        if !log::stderr_is_journal() {
            sys::silence_standard_streams().context("could not detach from the terminal")?;
        }
        Ok(Self(writer))
    }

    /// Lets the process exit that was started.
    pub(crate) fn release(mut self) {
        // If it was killed meanwhile, no process waits.
        let _ = self.0.write_all(b"u");
    }
}
