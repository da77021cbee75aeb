//! A stream for lines of the log. It may be a pipe whose reader does not read, and a write would
//! block the thread that logs. So such lines are dropped, and their number is logged when the
//! stream accepts lines again.

use std::{
    borrow::Cow,
    env,
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::fs::MetadataExt as _,
    },
    sync::{LazyLock, Mutex, PoisonError, atomic::Ordering},
};

use super::{IS_JSON, level::Level, line};
use net::sys::process;

/// Bytes per write: if a pipe is writable, it accepts this many (pipe(7)).
const PIECE: usize = 4096;

/// The file or pipe that a stream writes to.
pub(super) trait Target {
    fn fd(&self) -> RawFd;
    /// Can a write wait for a reader? Not on a regular file.
    fn may_be_full(&self) -> bool;
    /// Does it read a priority in front of each line?
    fn is_journal(&self) -> bool;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// The standard error output. Other processes may share its file, so its blocking mode is not
/// changed.
pub(super) struct Stderr;

impl Target for Stderr {
    fn fd(&self) -> RawFd {
        libc::STDERR_FILENO
    }

    fn may_be_full(&self) -> bool {
        true
    }

    fn is_journal(&self) -> bool {
        *STDERR_IS_JOURNAL
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write(bytes)
    }
}

/// Is the standard error output a stream of systemd's journal? The environment names that stream
/// (`JOURNAL_STREAM` in systemd.exec(5)).
static STDERR_IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let named = env::var("JOURNAL_STREAM").unwrap_or_default();
    let own = fs::metadata("/proc/self/fd/2");
    own.is_ok_and(|own| named == format!("{}:{}", own.dev(), own.ino()))
});

/// Does the journal receive the standard error output?
#[must_use]
pub fn stderr_is_journal() -> bool {
    *STDERR_IS_JOURNAL
}

/// The log file, which may be a pipe or a device.
pub(super) struct LogFile {
    file: File,
    is_regular: bool,
}

impl LogFile {
    pub(super) fn new(file: File) -> Self {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self { file, is_regular }
    }
}

impl Target for LogFile {
    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn may_be_full(&self) -> bool {
        !self.is_regular
    }

    fn is_journal(&self) -> bool {
        false
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }
}

pub(super) struct Stream<T> {
    target: T,
    /// The number of lines dropped since it was full. The lock is held from checking for room until
    /// the end of the write, so that no other thread takes the room.
    dropped: Mutex<u64>,
}

impl<T: Target> Stream<T> {
    pub(super) const fn new(target: T) -> Self {
        Self { target, dropped: Mutex::new(0) }
    }

    /// Writes a line, or counts it as dropped.
    pub(super) fn write(&self, level: Level, text: &str) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if *dropped > 0 && self.write_whole(Level::Warning, &notice(*dropped)) {
            *dropped = 0;
        }
        if *dropped > 0 || !self.write_whole(level, text) {
            *dropped += 1;
        }
    }

    /// Returns false if there is no room now. An error counts as written.
    fn write_whole(&self, level: Level, text: &str) -> bool {
        let text = match self.target.is_journal() {
            true => Cow::Owned(format!("<{}>{text}", level.priority())),
            false => Cow::Borrowed(text),
        };
        if !self.target.may_be_full() {
            let _ = self.target.write(text.as_bytes());
            return true;
        }
        for piece in text.as_bytes().chunks(PIECE) {
            if !process::is_writable(self.target.fd()) {
                return false;
            }
            match self.target.write(piece) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(_) | Err(_) => {}
            }
        }
        true
    }
}

/// Returns the line that reports dropped lines.
fn notice(dropped: u64) -> String {
    let why = "the log was not read";
    let is_json = IS_JSON.load(Ordering::Relaxed);
    line::compose(
        is_json,
        Level::Warning,
        None,
        format_args!("{dropped} log lines were dropped: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use std::{
        io::{PipeWriter, Read as _},
        os::fd::OwnedFd,
    };

    use super::*;

    fn stream() -> (io::PipeReader, Stream<LogFile>) {
        let (reader, writer): (_, PipeWriter) = io::pipe().unwrap();
        (reader, Stream::new(LogFile::new(File::from(OwnedFd::from(writer)))))
    }

    #[test]
    fn a_pipe_without_a_reading_process_does_not_block() {
        let (mut reader, stream) = stream();
        let line = format!("{}\n", "x".repeat(99));
        for _ in 0..10_000 {
            stream.write(Level::Log, &line);
        }
        let mut some = vec![0; 40_000];
        reader.read_exact(&mut some).unwrap();
        stream.write(Level::Log, "at last\n");
        drop(stream);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let kept = (some.len() + rest.len()) / line.len();
        let told = rest.lines().rev().nth(1).unwrap();
        assert!(told.contains("WARNING") && told.contains("log lines were dropped"), "{told}");
        assert!(rest.ends_with("\nat last\n"), "{kept} lines were kept");
    }

    #[test]
    fn a_pipe_without_a_reader_costs_nothing() {
        let (reader, stream) = stream();
        drop(reader);
        stream.write(Level::Log, "nobody hears it\n");
        assert_eq!(*stream.dropped.lock().unwrap(), 0);
    }
}
