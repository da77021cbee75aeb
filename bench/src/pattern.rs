//! The message patterns of floods. Each of them once took a pooler quadratic time.

use crate::frame::put;

/// A pattern of messages that a flood repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    Sync,
    /// Parse of a new name, then its Close.
    ParseClose,
    /// Parse of new names for the first half, then the Close of each.
    ParseThenClose,
    /// A COPY that fails, then the CopyFail that PostgreSQL ignores.
    CopyFail,
    /// EXECUTE of a missing statement by the extended protocol: Parse, Bind, Execute, Sync.
    Execute,
    /// Bind of a missing statement, Sync.
    MissingBind,
    /// Describe of a missing statement, Sync.
    MissingDescribe,
    EmptyQuery,
    FailingQuery,
    FunctionCall,
}

pub(crate) const PATTERNS: [Pattern; 10] = [
    Pattern::Sync,
    Pattern::ParseClose,
    Pattern::ParseThenClose,
    Pattern::CopyFail,
    Pattern::Execute,
    Pattern::MissingBind,
    Pattern::MissingDescribe,
    Pattern::EmptyQuery,
    Pattern::FailingQuery,
    Pattern::FunctionCall,
];

impl Pattern {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sync => "flood-sync",
            Self::ParseClose => "flood-parse-close",
            Self::ParseThenClose => "flood-parse-then-close",
            Self::CopyFail => "flood-copy-fail",
            Self::Execute => "flood-execute",
            Self::MissingBind => "flood-bind",
            Self::MissingDescribe => "flood-describe",
            Self::EmptyQuery => "flood-empty",
            Self::FailingQuery => "flood-failing",
            Self::FunctionCall => "flood-function",
        }
    }

    /// Appends message `n` of `count`.
    pub(crate) fn put(self, n: u64, count: u64, out: &mut Vec<u8>) {
        let is_odd = n % 2 == 1;
        match self {
            Self::Sync => put(out, b'S', &[]),
            Self::ParseClose if is_odd => put_close(n / 2, out),
            Self::ParseClose => put_parse(n / 2, out),
            Self::ParseThenClose if n < count / 2 => put_parse(n, out),
            Self::ParseThenClose => put_close(n - count / 2, out),
            Self::CopyFail if is_odd => put(out, b'f', &[b"no\0"]),
            Self::CopyFail => put(out, b'Q', &[b"COPY nowhere FROM STDIN\0"]),
            Self::Execute => match n % 4 {
                0 => put(out, b'P', &[b"\0EXECUTE a\0\0\0"]),
                1 => put(out, b'B', &[&[0; 8]]),
                2 => put(out, b'E', &[&[0; 5]]),
                _ => put(out, b'S', &[]),
            },
            Self::MissingBind | Self::MissingDescribe if is_odd => put(out, b'S', &[]),
            Self::MissingBind => put(out, b'B', &[b"\0nothing\0\0\0\0\0\0\0"]),
            Self::MissingDescribe => put(out, b'D', &[b"Snothing\0"]),
            Self::EmptyQuery => put(out, b'Q', &[b"\0"]),
            Self::FailingQuery => put(out, b'Q', &[b"x\0"]),
            Self::FunctionCall => put(out, b'F', &[&[0; 10]]),
        }
    }

    /// Returns the number of messages that answer `count` messages of this pattern.
    pub(crate) fn answers(self, count: u64) -> u64 {
        match self {
            Self::Sync
            | Self::ParseClose
            | Self::ParseThenClose
            | Self::CopyFail
            | Self::Execute
            | Self::MissingBind
            | Self::MissingDescribe => count,
            Self::EmptyQuery | Self::FailingQuery | Self::FunctionCall => 2 * count,
        }
    }
}

fn put_parse(n: u64, out: &mut Vec<u8>) {
    put(out, b'P', &[format!("s{n}\0SELECT 1\0\0\0").as_bytes()]);
}

fn put_close(n: u64, out: &mut Vec<u8>) {
    put(out, b'C', &[format!("Ss{n}\0").as_bytes()]);
}
