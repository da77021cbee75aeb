//! The commands that only print: a configuration as it was understood, the same as a `weir.toml`, and
//! a key's meaning.

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
/// are set in vain.
pub(crate) fn check_config(file: &Path) -> anyhow::Result<ExitCode> {
    of_file(file, config::describe)
}

/// `weir convert FILE`: the same configuration as a `weir.toml`.
pub(crate) fn convert(file: &Path) -> anyhow::Result<ExitCode> {
    of_file(file, |config| {
        let origin = file.display().to_string().replace(char::is_control, "?");
        format!("# Made from {origin} by `weir convert`.\n\n{}", config::to_toml(config))
    })
}

/// Mistakes in the file go to stderr, one a line, and make the exit status 1.
fn of_file(file: &Path, text: impl FnOnce(&Config) -> String) -> anyhow::Result<ExitCode> {
    match Config::load(file) {
        Ok(config) => print(&text(&config)),
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
