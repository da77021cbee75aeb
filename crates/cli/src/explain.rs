//! The commands that only print: a configuration as a `weir.toml`, and the meaning of a key.

use std::{
    fmt::Display,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use config::Config;

/// Prints a text that ends with a newline.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe (`weir help | head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written.map(|()| ExitCode::SUCCESS).context("standard output"),
    }
}

/// `weir convert FILE`: prints the same configuration as a `weir.toml`. Variables, and the names of
/// passwords' files, stay as they are written. stderr names the lines that cannot be converted.
pub(crate) fn convert(file: &Path) -> anyhow::Result<ExitCode> {
    let config = match Config::load_as_written(file) {
        Ok(config) => config,
        Err(mistakes) => return mistaken(&mistakes),
    };
    let origin = file.display().to_string().replace(char::is_control, "?");
    let comments = Config::comments(file).with_context(|| origin.clone())?;
    for dropped in &comments.dropped {
        let _ = writeln!(io::stderr(), "{}", dropped.replace(char::is_control, "?"));
    }
    let text = config::to_toml(&config, &comments);
    print(&format!("# Made from {origin} by `weir convert`.\n\n{text}"))
}

/// Prints why a file cannot be used.
pub(crate) fn mistaken(mistakes: &dyn Display) -> anyhow::Result<ExitCode> {
    let _ = writeln!(io::stderr(), "{mistakes}");
    Ok(ExitCode::FAILURE)
}

/// `weir help TOPIC`: prints the meaning of a key or of a command of the console.
///
/// # Errors
/// When there is neither.
pub(crate) fn topic(topic: &str) -> anyhow::Result<ExitCode> {
    match config::help(topic) {
        Ok(text) => print(&text),
        Err(unknown) => print(&admin::help(topic).ok_or(unknown)?),
    }
}
