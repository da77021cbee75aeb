//! One log line in its bytes: the stamp, the level, the message. It writes nothing anywhere.

use std::{
    cell::RefCell,
    ffi::CStr,
    fmt::{self, Write as _},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use super::level::Level;

/// Longest line written, in bytes. The rest is cut, so that a hostile name or a server's
/// endless error text cannot fill the disk by one line.
const LINE_BYTES_MAX: usize = 8192;

/// A line, whole and in parts.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) level: Level,
    /// When it was logged, since 1970.
    pub(super) second: i64,
    /// All of it, with its line end.
    pub(super) text: &'a str,
    /// The message alone.
    pub(super) message: &'a str,
}

/// A second in local time, in words.
pub(super) struct Stamp {
    second: i64,
    /// `YYYY-MM-DD HH:MM:SS`
    date: String,
    /// The short name of the time zone, such as `CEST`.
    zone: String,
}

/// A thread's line under construction, kept so that a line seldom allocates, and the second it
/// last wrote in, since the local time is dear to compute.
struct Scratch {
    text: String,
    /// Where the message begins.
    message: usize,
    stamp: Stamp,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            text: String::new(),
            message: 0,
            stamp: Stamp { second: i64::MIN, date: String::new(), zone: String::new() },
        })
    };
}

/// Builds the line, line end included, and hands it to `write`.
pub(super) fn with(level: Level, message: fmt::Arguments<'_>, write: impl FnOnce(&Line<'_>)) {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            scratch.build(second, since_epoch.subsec_millis(), level, message);
            let Scratch { text, message, .. } = &*scratch;
            write(&Line { level, second, text, message: text[*message..].trim_end() });
        }
        // A `Display` that logs while it is being logged: its line is lost, nothing else.
        Err(_) => {
            let text = "a line logged within a line was dropped\n";
            write(&Line { level, second, text, message: text.trim_end() });
        }
    });
}

/// Builds a line while another one is being written.
pub(super) fn compose(level: Level, message: fmt::Arguments<'_>) -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    let mut scratch = Scratch { text: String::new(), message: 0, stamp: Stamp::new(second) };
    scratch.build(second, since_epoch.subsec_millis(), level, message);
    scratch.text
}

impl Scratch {
    fn build(&mut self, second: i64, millis: u32, level: Level, message: fmt::Arguments<'_>) {
        if self.stamp.second != second {
            self.stamp = Stamp::new(second);
        }
        self.text.clear();
        let mut line = Bounded(&mut self.text);
        // A `Display` that fails cuts its own line short; the rest of the log goes on.
        let _ = write!(line, "{}.{millis:03} {} ", self.stamp.date, self.stamp.zone);
        let _ = write!(line, "[{}] {} ", process::id(), level.name());
        let begin = line.0.len();
        let _ = line.write_fmt(message);
        self.message = begin;
        self.text.push('\n');
    }
}

impl Stamp {
    pub(super) fn new(second: i64) -> Self {
        let (tm, zone) = local_time(second);
        let date = format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
            tm.tm_year + 1900,
            tm.tm_mon + 1,
            tm.tm_mday,
            tm.tm_hour,
            tm.tm_min,
            tm.tm_sec
        );
        Self { second, date, zone }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.date, self.zone)
    }
}

/// A writer that keeps a message on one line and within [`LINE_BYTES_MAX`]: a client's name with
/// a line end in it must not be able to forge a line of its own.
struct Bounded<'a>(&'a mut String);

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            if self.0.len() + c.len_utf8() >= LINE_BYTES_MAX {
                return Err(fmt::Error);
            }
            self.0.push(if c.is_control() { ' ' } else { c });
        }
        Ok(())
    }
}

/// A moment in local time, and the short name of the zone (`CEST`).
#[expect(unsafe_code, reason = "the C library alone knows the local time zone")]
pub(super) fn local_time(second: i64) -> (libc::tm, String) {
    // SAFETY: every field of `tm` is an integer or a pointer, for which zero is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right type, and `localtime_r` is
    // thread-safe; on failure it leaves `tm` as it was.
    unsafe { libc::localtime_r(&raw const second, &raw mut tm) };
    if tm.tm_zone.is_null() {
        return (tm, String::from("UTC"));
    }
    // SAFETY: not null, so `localtime_r` set it to a string of the C library's zone table, which
    // lives as long as the process.
    let zone = unsafe { CStr::from_ptr(tm.tm_zone) };
    (tm, zone.to_string_lossy().into_owned())
}
