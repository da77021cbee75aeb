//! Goes to the background (`-d`).

use anyhow::Context as _;

use crate::sys;

/// Detaches from the terminal. The calling process exits with status 0, and the call returns in its
/// grandchild. The working directory stays, since paths in the configuration may be relative to it.
///
/// Call it before any thread is started.
pub(crate) fn go_to_background() -> anyhow::Result<()> {
    sys::detach().context("could not go to the background")?;
    sys::silence_standard_streams().context("could not detach from the terminal")
}
