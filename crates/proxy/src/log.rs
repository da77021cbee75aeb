//! The log: lines in PgBouncer's shape, `YYYY-MM-DD HH:MM:SS.mmm TZ [PID] LEVEL message`.
//!
//! A line goes to stderr, to the log file and to syslog, whichever are wanted, each with a single
//! `write`, so lines of different threads never mix. Lines from before the configuration was read
//! are kept, and written to the file and to syslog as soon as it is known that they are wanted. A
//! level that is off costs one relaxed load: its message is not formatted. This is not a tracing
//! framework: no targets, no spans, no background thread.
//!
//! ```ignore
//! use proxy::{log, warning};
//! log::init(true, 0);
//! log!("listening on {address}");
//! warning!("pooler error: {reason}");
//! ```

mod level;
mod line;
mod stream;
mod syslog;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    fs::OpenOptions,
    mem,
    os::unix::fs::OpenOptionsExt as _,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicU8, Ordering},
    },
};

use config::{Global, in_words};
use libc::O_NONBLOCK;

pub use self::level::Level;
use self::{
    line::Line,
    stream::{LogFile, Stderr, Stream},
    syslog::Syslog,
};

/// Why the log file could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("Cannot open logfile: '{0}': {1}")]
pub struct LogFileError(String, String);

/// Lines kept until the configuration is known; more are not to be expected.
const EARLY_MAX: usize = 1000;

/// A line from before the configuration was known.
struct Early {
    level: Level,
    second: i64,
    text: String,
    /// Where in the text the message begins.
    message: usize,
}

struct Sinks {
    stderr: bool,
    file: Option<Stream<LogFile>>,
    syslog: Option<Syslog>,
    /// Before that, lines are kept.
    configured: bool,
    /// Verbosity asked for on the command line; the configuration may raise it, not lower it.
    verbose_min: u8,
    /// Verbosity asked for in the configuration.
    verbose: u8,
}

impl Sinks {
    /// Writes to all but stderr.
    fn record(&self, line: Line<'_>) {
        if let Some(file) = &self.file {
            file.write(line.text);
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

/// Takes over what the command line says: whether stderr is written to (not with `-q` or `-d`),
/// and how many `-v` were given. Before this call lines go to stderr at the default level.
pub fn init(stderr: bool, verbose: u8) {
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    sinks.stderr = stderr;
    sinks.verbose_min = verbose;
    sinks.set_level();
}

/// Takes over what the configuration says: `logfile`, `verbose` and the keys of syslog. To be
/// called at start and on every reload, since it opens the file anew: that is how a rotated file
/// is let go.
///
/// # Errors
/// When the file cannot be opened for appending. Lines then go on to the file there was,
/// if any; all else counts.
pub fn configure(global: &Global) -> Result<(), LogFileError> {
    let opened = open(&global.logfile);
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.map(|file| sinks.file = file);
    sinks.syslog =
        global.syslog.then(|| Syslog::new(&global.syslog_ident, &global.syslog_facility));
    sinks.verbose = u8::try_from(global.verbose).unwrap_or(u8::MAX);
    sinks.set_level();
    sinks.configured = true;
    for early in mem::take(&mut *EARLY.lock().unwrap_or_else(PoisonError::into_inner)) {
        let Early { level, second, text, message } = &early;
        let (level, second) = (*level, *second);
        sinks.record(Line { level, second, text, message: text[*message..].trim_end() });
    }
    opened
}

/// The log file; none if there is to be none.
fn open(path: &str) -> Result<Option<Stream<LogFile>>, LogFileError> {
    if path.is_empty() {
        return Ok(None);
    }
    // A pipe that nobody has open for reading is refused, and no write waits for its reader.
    let opened = OpenOptions::new().append(true).create(true).custom_flags(O_NONBLOCK).open(path);
    opened
        .map(|file| Some(Stream::new(LogFile::new(file))))
        .map_err(|error| LogFileError(path.to_owned(), in_words(&error)))
}

/// Keeps a line until it is known who wants it.
fn keep(line: Line<'_>) {
    let mut early = EARLY.lock().unwrap_or_else(PoisonError::into_inner);
    if early.len() < EARLY_MAX {
        let Line { level, second, text, message } = line;
        let message = text.trim_end().len() - message.len();
        early.push(Early { level, second, text: text.to_owned(), message });
    }
}

/// Whether lines of this level are written at present.
#[inline]
#[must_use]
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL_MAX.load(Ordering::Relaxed)
}

/// Writes one line, whatever the level. The macros call it after asking [`enabled`].
///
/// A sink that cannot be written to is passed over: there is nowhere left to complain. One that is
/// full, such as a pipe that nobody reads, is not waited for: its lines are dropped and counted.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    line::with(level, message, |line| {
        let sinks = SINKS.read().unwrap_or_else(PoisonError::into_inner);
        if sinks.stderr {
            STDERR.write(line.text);
        }
        if sinks.configured {
            sinks.record(*line);
        } else {
            keep(*line);
        }
    });
}

/// A moment, in seconds since 1970, as `YYYY-MM-DD HH:MM:SS ZONE` in local time.
#[must_use]
pub fn local_time(second: i64) -> String {
    line::Stamp::new(second).to_string()
}

/// Writes a line of the given [`Level`], formatting it only when that level is on.
#[macro_export]
macro_rules! log_at {
    ($level:expr, $($message:tt)+) => {{
        let level = $level;
        if $crate::log::enabled(level) {
            $crate::log::write(level, format_args!($($message)+));
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
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Error, $($message)+) };
}

/// Failures that Weir has handled.
#[macro_export]
macro_rules! warning {
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Warning, $($message)+) };
}

/// Events of normal operation.
#[macro_export]
macro_rules! log {
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Log, $($message)+) };
}

/// Detail, shown with `-v`.
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Debug, $($message)+) };
}

/// Detail of every event, shown with `-vv`.
#[macro_export]
macro_rules! noise {
    ($($message:tt)+) => { $crate::log_at!($crate::log::Level::Noise, $($message)+) };
}
