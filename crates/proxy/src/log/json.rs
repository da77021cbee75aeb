//! A log line as one JSON object (`log_format = json`).

use std::{
    fmt::{self, Write as _},
    process,
};

use super::{about::About, level::Level, line::LINE_BYTES_MAX};

/// Maximal length of a field other than the message, in bytes as written.
const FIELD_BYTES_MAX: usize = 512;

/// Appends the object and a line end. `time` is in RFC 3339's form.
pub(super) fn write(
    out: &mut String,
    time: fmt::Arguments<'_>,
    level: Level,
    about: Option<&About<'_>>,
    message: fmt::Arguments<'_>,
) {
    let _ = write!(out, r#"{{"time":"{time}","level":"{}","pid":{}"#, level.name(), process::id());
    if let Some(about) = about {
        field(out, "connection", FIELD_BYTES_MAX, format_args!("{}", about.connection()));
        for (name, value) in about.fields() {
            field(out, name, FIELD_BYTES_MAX, format_args!("{value}"));
        }
    }
    let left = LINE_BYTES_MAX.saturating_sub(out.len());
    field(out, "message", left, message);
    out.push_str("}\n");
}

fn field(out: &mut String, name: &str, left: usize, value: fmt::Arguments<'_>) {
    let _ = write!(out, r#","{name}":""#);
    // A `Display` that fails only cuts its own field short.
    let _ = Escaped { out, left }.write_fmt(value);
    out.push('"');
}

/// A writer that escapes for a JSON string, and ends after `left` bytes.
struct Escaped<'a> {
    out: &'a mut String,
    left: usize,
}

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            let len = self.out.len();
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                // Also those above U+007F, which JSON allows: some control a terminal.
                c if c.is_control() => write!(self.out, "\\u{:04x}", u32::from(c))?,
                c => self.out.push(c),
            }
            let Some(left) = self.left.checked_sub(self.out.len() - len) else {
                self.out.truncate(len);
                return Err(fmt::Error);
            };
            self.left = left;
        }
        Ok(())
    }
}
