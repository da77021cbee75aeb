//! The log: lines in PgBouncer's shape, `YYYY-MM-DD HH:MM:SS.mmm TZ [PID] LEVEL message`, or JSON.
//!
//! In systemd's journal, a line on stderr has the journal's priority.
//!
//! Each line goes to stderr, the log file and syslog, as configured, with a single `write`, so
//! lines of threads never mix. Lines from before the configuration are kept, and written to the
//! file and to syslog later if these are configured. A level that is off costs one relaxed load,
//! and its message is not formatted. This is not a tracing framework: no targets, no spans, no
//! background thread.
//!
//! ```ignore
//! use proxy::{log, warning};
//! log::init(true, 0);
//! log!("listening on {address}");
//! warning!(of about, "pooler error: {reason}");
//! ```

mod about;
mod json;
mod level;
mod line;
mod stream;
mod syslog;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    fs::{self, OpenOptions},
    io, mem,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use config::{Global, LogFormat, in_words};
use libc::O_NONBLOCK;
use net::sys::process;

pub use self::{about::About, level::Level, stream::stderr_is_journal};
use self::{
    line::Line,
    stream::{LogFile, Stderr, Stream},
    syslog::Syslog,
};

/// Why the log file could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("Cannot open logfile: '{0}': {1}")]
pub struct LogFileError(String, String);

/// Maximal number of lines kept until the configuration is known.
const EARLY_MAX: usize = 1000;

/// A line from before the configuration was known.
struct Early {
    level: Level,
    second: i64,
    text: String,
    /// The position of the message in the text.
    message: usize,
    /// The line in JSON.
    json: String,
}

struct Sinks {
    stderr: bool,
    file: Option<Stream<LogFile>>,
    syslog: Option<Syslog>,
    /// Lines are kept until this is set.
    configured: bool,
    /// Verbosity from the command line; the configuration may raise it, but not lower it.
    verbose_min: u8,
    /// Verbosity from the configuration.
    verbose: u8,
}

impl Sinks {
    /// Writes to everything but stderr.
    fn record(&self, line: Line<'_>) {
        if let Some(file) = &self.file {
            file.write(line.level, line.text);
        }
        if let Some(syslog) = &self.syslog {
            syslog.write(line.level, line.second, line.message);
        }
    }

    fn set_level(&self) {
        let level = Level::from_verbosity(self.verbose.max(self.verbose_min));
        LEVEL_MAX.store(level as u8, Ordering::Relaxed);
    }
}

static LEVEL_MAX: AtomicU8 = AtomicU8::new(Level::Log as u8);
static IS_JSON: AtomicBool = AtomicBool::new(false);
static SINKS: RwLock<Sinks> = RwLock::new(Sinks {
    stderr: true,
    file: None,
    syslog: None,
    configured: false,
    verbose_min: 0,
    verbose: 0,
});
static STDERR: Stream<Stderr> = Stream::new(Stderr);
static EARLY: Mutex<Vec<Early>> = Mutex::new(Vec::new());

/// Applies the command line: whether stderr is written to (not with `-q` or `-d`), and the number
/// of `-v`. Before this call, lines go to stderr at the default level.
pub fn init(stderr: bool, verbose: u8) {
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    sinks.stderr = stderr;
    sinks.verbose_min = verbose;
    sinks.set_level();
}

/// Applies `log_format` before the rest of the configuration.
pub fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Applies the configuration: `log_format`, `logfile`, `verbose` and the keys of syslog. Call it at start and on
/// every reload, since it reopens the file. So a rotated file is released.
///
/// # Errors
/// When the file cannot be opened for appending. Lines then continue to the old file, if any; all
/// else takes effect.
pub fn configure(global: &Global) -> Result<(), LogFileError> {
    set_format(global.log_format);
    let opened = open(&global.logfile);
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.map(|file| sinks.file = file);
    sinks.syslog =
        global.syslog.then(|| Syslog::new(&global.syslog_ident, &global.syslog_facility));
    sinks.verbose = u8::try_from(global.verbose).unwrap_or(u8::MAX);
    sinks.set_level();
    sinks.configured = true;
    for early in mem::take(&mut *EARLY.lock().unwrap_or_else(PoisonError::into_inner)) {
        let Early { level, second, text, message, json } = &early;
        let (level, second) = (*level, *second);
        let (text, message) = match global.log_format {
            LogFormat::Pgbouncer => (text, text[*message..].trim_end()),
            LogFormat::Json => (json, json.trim_end()),
        };
        sinks.record(Line { level, second, text, message });
    }
    opened
}

/// Leaves only standard error. The descriptors of the other sinks stay open: they belong to a process
/// with which this one shares them, and their numbers may get another meaning there.
pub(crate) fn forget_files() {
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    mem::forget((sinks.file.take(), sinks.syslog.take()));
    sinks.configured = true;
}

/// Opens the log file; None if none is configured.
fn open(path: &str) -> Result<Option<Stream<LogFile>>, LogFileError> {
    if path.is_empty() {
        return Ok(None);
    }
    // A pipe without a reader is refused, so no write waits for a reader.
    let opened = OpenOptions::new().append(true).create(true).custom_flags(O_NONBLOCK).open(path);
    opened
        .map(|file| Some(Stream::new(LogFile::new(file))))
        .map_err(|error| LogFileError(path.to_owned(), in_words(&error)))
}

/// Checks that [`configure`] can open the log file, without creating it.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn rehearse(global: &Global) -> Result<(), LogFileError> {
    let path = Path::new(&global.logfile);
    let looked = match fs::metadata(path) {
        _ if global.logfile.is_empty() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).custom_flags(O_NONBLOCK).open(path).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            process::may_create_in(folder.unwrap_or(Path::new(".")))
        }
        Err(error) => Err(error),
    };
    looked.map_err(|error| LogFileError(global.logfile.clone(), in_words(&error)))
}

/// Keeps a line until the configuration is known.
fn keep(line: Line<'_>, json: String) {
    let mut early = EARLY.lock().unwrap_or_else(PoisonError::into_inner);
    if early.len() < EARLY_MAX {
        let Line { level, second, text, message } = line;
        let message = text.trim_end().len() - message.len();
        early.push(Early { level, second, text: text.to_owned(), message, json });
    }
}

/// Are lines of this level written at present?
#[inline]
#[must_use]
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL_MAX.load(Ordering::Relaxed)
}

/// Writes one line of any level. The macros call it after [`enabled`].
///
/// A sink with an error is skipped, since there is no other place to report it. A full sink, such
/// as a pipe without a reader, is not waited for: its lines are dropped and counted.
pub fn write(level: Level, about: Option<&About<'_>>, message: fmt::Arguments<'_>) {
    let is_json = IS_JSON.load(Ordering::Relaxed);
    line::with(is_json, level, about, message, |line| {
        let sinks = SINKS.read().unwrap_or_else(PoisonError::into_inner);
        if sinks.stderr {
            STDERR.write(line.level, line.text);
        }
        if sinks.configured {
            sinks.record(*line);
        } else {
            keep(*line, line::compose(true, level, about, message));
        }
    });
}

/// Returns a time, in seconds since 1970, as `YYYY-MM-DD HH:MM:SS ZONE` in local time.
#[must_use]
pub fn local_time(second: i64) -> String {
    line::Stamp::new(second).to_string()
}

/// Writes a line of the given [`Level`], formatting it only when that level is on. With `of`, the line
/// is about a connection ([`About`]).
#[macro_export]
macro_rules! log_at {
    (of $about:expr, $level:expr, $($message:tt)+) => {{
        let level = $level;
        if $crate::log::enabled(level) {
            $crate::log::write(level, Some(&$about), format_args!($($message)+));
        }
    }};
    ($level:expr, $($message:tt)+) => {{
        let level = $level;
        if $crate::log::enabled(level) {
            $crate::log::write(level, None, format_args!($($message)+));
        }
    }};
}

/// Errors that end the process.
#[macro_export]
macro_rules! fatal {
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Fatal, $($message)+) };
}

/// Failures that need an operator.
#[macro_export]
macro_rules! error {
    (of $about:expr, $($message:tt)+) => {
        $crate::log_at!(of $about, $crate::log::Level::Error, $($message)+)
    };
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Error, $($message)+) };
}

/// Failures that Weir has handled.
#[macro_export]
macro_rules! warning {
    (of $about:expr, $($message:tt)+) => {
        $crate::log_at!(of $about, $crate::log::Level::Warning, $($message)+)
    };
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Warning, $($message)+) };
}

/// Events of normal operation.
#[macro_export]
macro_rules! log {
    (of $about:expr, $($message:tt)+) => {
        $crate::log_at!(of $about, $crate::log::Level::Log, $($message)+)
    };
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Log, $($message)+) };
}

/// Detail, shown with `-v`.
#[macro_export]
macro_rules! debug {
    (of $about:expr, $($message:tt)+) => {
        $crate::log_at!(of $about, $crate::log::Level::Debug, $($message)+)
    };
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Debug, $($message)+) };
}

/// Detail of every event, shown with `-vv`.
#[macro_export]
macro_rules! noise {
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Noise, $($message)+) };
}
