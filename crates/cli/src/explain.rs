//! The commands that only print: a configuration as it was understood, and a key's meaning.

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use config::Config;

/// Prints a text that ends in a line end.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads it has seen enough (`weir help | head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written.map(|()| ExitCode::SUCCESS).context("standard output"),
    }
}

/// `weir check-config FILE`: the configuration as understood, what is odd about it, and which keys
/// are not acted upon yet. Mistakes go to stderr, one a line, and make the exit status 1.
pub(crate) fn check_config(file: &Path) -> anyhow::Result<ExitCode> {
    match Config::load(file) {
        Ok(config) => print(&config::describe(&config)),
        Err(mistakes) => {
            let _ = writeln!(io::stderr(), "{mistakes}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// `weir help KEY`.
///
/// # Errors
/// When there is no such key.
pub(crate) fn key(key: &str) -> anyhow::Result<ExitCode> {
    print(&config::help(key).map_err(anyhow::Error::msg)?)
}
