//! Formats one log line: the time, the level, the connection, the message. It writes to no sink.

use std::{
    cell::RefCell,
    ffi::CStr,
    fmt::{self, Write as _},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{about::About, json, level::Level};

/// Maximal length of a line, in bytes. The rest is cut, so a hostile name or an endless error text
/// cannot fill the disk by one line.
pub(super) const LINE_BYTES_MAX: usize = 8192;

/// A line, whole and in parts.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) level: Level,
    /// When it was logged, in seconds since 1970.
    pub(super) second: i64,
    /// The whole line, with its line end.
    pub(super) text: &'a str,
    /// The line for syslog: the connection and the message, or the whole of a JSON object.
    pub(super) message: &'a str,
}

/// A second in local time, as text.
pub(super) struct Stamp {
    second: i64,
    /// `YYYY-MM-DD HH:MM:SS`
    date: String,
    /// The short name of the time zone, such as `CEST`.
    zone: String,
    /// Its distance from UTC, such as `+02:00`.
    offset: String,
}

/// A thread's buffer for a line, kept so that a line seldom allocates. It also caches the last
/// second's local time, which is expensive to compute.
struct Scratch {
    text: String,
    /// The position of the message.
    message: usize,
    stamp: Stamp,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            text: String::new(),
            message: 0,
            stamp: Stamp { second: i64::MIN, date: String::new(), zone: String::new(), offset: String::new() },
        })
    };
}

/// Builds the line, including its line end, and passes it to `write`.
pub(super) fn with(
    is_json: bool,
    level: Level,
    about: Option<&About<'_>>,
    message: fmt::Arguments<'_>,
    write: impl FnOnce(&Line<'_>),
) {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            scratch.build(second, since_epoch.subsec_millis(), (is_json, level, about), message);
            let Scratch { text, message, .. } = &*scratch;
            write(&Line { level, second, text, message: text[*message..].trim_end() });
        }
        // A `Display` that logs while it is being logged loses its line, and nothing else.
        Err(_) => {
            let text = match is_json {
                true => "{\"message\":\"a log line was dropped: another one was being written\"}\n",
                false => "a log line was dropped: another one was being written\n",
            };
            write(&Line { level, second, text, message: text.trim_end() });
        }
    });
}

/// Builds a line while another one is being written.
pub(super) fn compose(
    is_json: bool,
    level: Level,
    about: Option<&About<'_>>,
    message: fmt::Arguments<'_>,
) -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    let mut scratch = Scratch { text: String::new(), message: 0, stamp: Stamp::new(second) };
    scratch.build(second, since_epoch.subsec_millis(), (is_json, level, about), message);
    scratch.text
}

impl Scratch {
    fn build(
        &mut self,
        second: i64,
        millis: u32,
        (is_json, level, about): (bool, Level, Option<&About<'_>>),
        message: fmt::Arguments<'_>,
    ) {
        if self.stamp.second != second {
            self.stamp = Stamp::new(second);
        }
        self.text.clear();
        if is_json {
            self.message = 0;
            let (date, time) = self.stamp.date.split_once(' ').unwrap_or_default();
            let time = format_args!("{date}T{time}.{millis:03}{}", self.stamp.offset);
            return json::write(&mut self.text, time, level, about, message);
        }
        let mut line = Bounded(&mut self.text);
        // A `Display` that fails only cuts its own line short.
        let _ = write!(line, "{}.{millis:03} {} ", self.stamp.date, self.stamp.zone);
        let _ = write!(line, "[{}] {} ", process::id(), level.name());
        let begin = line.0.len();
        if let Some(about) = about {
            let _ = write!(line, "{about} ");
        }
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
        let minutes = tm.tm_gmtoff / 60;
        let sign = if minutes < 0 { '-' } else { '+' };
        let minutes = minutes.abs();
        let offset = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        Self { second, date, zone, offset }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.date, self.zone)
    }
}

/// A writer that keeps a message on one line and within [`LINE_BYTES_MAX`]. A client's name with a
/// line end in it must not forge a line.
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

/// Returns the local time, and the short name of the zone (`CEST`).
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
