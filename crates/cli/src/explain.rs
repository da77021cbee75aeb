//! The commands that only print: a configuration as it was understood, the same in the other format,
//! and a key's meaning.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
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
        Err(mistakes) => complain(&mistakes),
    }
}

/// `weir convert FILE [OUTPUT]`: the `weir.toml` that means the same. A file gets it readable for its
/// owner only, since there may be passwords in it, and is never written over.
///
/// # Errors
/// When `output` is there already or cannot be written.
pub(crate) fn convert(file: &Path, output: Option<&Path>) -> anyhow::Result<ExitCode> {
    let text = match Config::read(file) {
        Ok(config) => config::to_toml(&config),
        Err(mistakes) => return complain(&mistakes),
    };
    let Some(output) = output else { return print(&text) };
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(output);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map(|()| ExitCode::SUCCESS)
        .with_context(|| output.display().to_string())
}

fn complain(mistakes: &config::ConfigError) -> anyhow::Result<ExitCode> {
    let _ = writeln!(io::stderr(), "{mistakes}");
    Ok(ExitCode::FAILURE)
}

/// `weir help KEY`.
///
/// # Errors
/// When there is no such key.
pub(crate) fn key(key: &str) -> anyhow::Result<ExitCode> {
    print(&config::help(key).map_err(anyhow::Error::msg)?)
}
