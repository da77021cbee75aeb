//! The SQL of the canned server: the kinds of statements that it knows, prepared statements and
//! portals.

use std::borrow::Cow;
use std::collections::HashMap;

/// The body of the RowDescription for pgbench's select: one int4 column named `abalance`.
pub(crate) const ABALANCE_ROW: &[u8] =
    b"\0\x01abalance\0\0\0\x40\x03\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";

/// The body of the RowDescription for the large result: one text column.
pub(crate) const BULK_ROW: &[u8] =
    b"\0\x01filler\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";

/// The settings that poolers set and that PostgreSQL reports when they change.
const REPORTED: [&str; 5] =
    ["application_name", "client_encoding", "DateStyle", "standard_conforming_strings", "TimeZone"];

/// The kind of a statement, which decides its answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// Returns one row with the last number in the text, so that each client can recognize its own
    /// answer.
    Select {
        number: &'a [u8],
    },
    /// `SELECT bulk ROW_BYTES TOTAL_BYTES`.
    Bulk {
        row_bytes: usize,
        total_bytes: u64,
    },
    Set {
        name: &'a [u8],
        value: &'a [u8],
    },
    Reset {
        name: &'a [u8],
    },
    /// A SELECT of one or more calls of `set_config`.
    SetConfig {
        calls: &'a [u8],
    },
    /// Fails when it is executed.
    Failure,
    /// Weir's probe of the session. It returns rows of a kind, a name and a value.
    Probe,
    /// Returns only a command tag, and may change the transaction status.
    Plain {
        tag: &'static str,
        status: Option<u8>,
    },
}

impl<'a> Kind<'a> {
    /// Returns the kind of a text. Unknown statements count as a select, as poolers' own checks
    /// are.
    pub(super) fn of(text: &'a [u8]) -> Self {
        let mut words = text.split(|byte| b" \t\r\n='".contains(byte)).filter(|w| !w.is_empty());
        let plain = |tag, status| Self::Plain { tag, status };
        match words.next().unwrap_or_default().to_ascii_uppercase().as_slice() {
            b"BEGIN" => plain("BEGIN", Some(b'T')),
            b"COMMIT" => plain("COMMIT", Some(b'I')),
            b"ROLLBACK" => plain("ROLLBACK", Some(b'I')),
            b"DISCARD" => plain("DISCARD ALL", None),
            b"RESET" => reset(text),
            b"COPY" | b"EXECUTE" | b"X" => Self::Failure,
            b"SET" => set(text),
            b"SELECT" => match words.next().unwrap_or_default() {
                b"bulk" => Self::Bulk {
                    row_bytes: words.next().and_then(number).unwrap_or(100) as usize,
                    total_bytes: words.next().and_then(number).unwrap_or(0),
                },
                b"kind," => Self::Probe,
                b"pg_catalog.set_config(" => Self::SetConfig { calls: text },
                _ => Self::Select { number: last_number(text) },
            },
            _ => Self::Select { number: last_number(text) },
        }
    }

    /// Returns the body of its RowDescription, if it returns rows.
    pub(super) fn row_description(&self) -> Option<Cow<'static, [u8]>> {
        match self {
            Self::Select { .. } => Some(ABALANCE_ROW.into()),
            Self::Bulk { .. } => Some(BULK_ROW.into()),
            Self::Probe => Some(columns(&[TEXT; 3]).into()),
            Self::SetConfig { calls: text } => Some(columns(&vec![BOOL; calls(text).len()]).into()),
            Self::Set { .. } | Self::Reset { .. } | Self::Failure | Self::Plain { .. } => None,
        }
    }
}

/// Type and length of `text` and `bool`.
const TEXT: (u32, i16) = (25, -1);
const BOOL: (u32, i16) = (16, 1);

/// Returns the body of a RowDescription of columns without names.
fn columns(types: &[(u32, i16)]) -> Vec<u8> {
    let mut body = (types.len() as u16).to_be_bytes().to_vec();
    for (oid, length) in types {
        body.extend_from_slice(&[0; 7]);
        body.extend_from_slice(&oid.to_be_bytes());
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(b"\xff\xff\xff\xff\0\0");
    }
    body
}

/// Returns the name and the value in each call `set_config('name','value',false)`. They contain no
/// quotes.
pub(super) fn calls(text: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut quoted = text.split(|byte| *byte == b'\'').skip(1).step_by(2);
    std::iter::from_fn(|| Some((quoted.next()?, quoted.next()?))).collect()
}

/// Parses `SET name = 'value'` or `SET name TO value`.
fn set(text: &[u8]) -> Kind<'_> {
    let rest = text[3..].trim_ascii();
    let end = rest.iter().position(|byte| b" =".contains(byte)).unwrap_or(rest.len());
    let (name, value) = rest.split_at(end);
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"=").or_else(|| value.strip_prefix(b"TO ")).unwrap_or(value);
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"'").and_then(|v| v.strip_suffix(b"'")).unwrap_or(value);
    Kind::Set { name, value }
}

/// Parses `RESET name` or `RESET "name"`.
fn reset(text: &[u8]) -> Kind<'_> {
    let name = text[5..].trim_ascii();
    Kind::Reset {
        name: name.strip_prefix(b"\"").and_then(|n| n.strip_suffix(b"\"")).unwrap_or(name),
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn last_number(text: &[u8]) -> &[u8] {
    let Some(last) = text.iter().rposition(u8::is_ascii_digit) else { return b"0" };
    let first = text[..last].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    &text[first..=last]
}

/// Splits a simple query at semicolons outside of quotes, and leaves out empty statements.
pub(super) fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    text.split(move |&byte| {
        quoted ^= byte == b'\'';
        byte == b';' && !quoted
    })
    .map(<[u8]>::trim_ascii)
    .filter(|statement| !statement.is_empty())
}

/// Returns the name under which PostgreSQL reports the setting, if it does.
pub(super) fn reported(name: &[u8]) -> Option<&'static str> {
    REPORTED.into_iter().find(|reported| reported.as_bytes().eq_ignore_ascii_case(name))
}

pub(super) fn has_parameter(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair == b"$1")
}

/// The prepared statements of a session, including the unnamed one.
#[derive(Debug, Default)]
pub(super) struct Statements(HashMap<Vec<u8>, Vec<u8>>);

impl Statements {
    /// Adds a statement. Returns false if the name is taken; the unnamed statement may always be
    /// replaced.
    pub(super) fn insert(&mut self, name: &[u8], text: &[u8]) -> bool {
        if !name.is_empty() && self.0.contains_key(name) {
            return false;
        }
        self.0.insert(name.to_vec(), text.to_vec());
        true
    }

    pub(super) fn text(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        self.0.remove(name);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A bound statement with its first argument. The canned server needs no other arguments.
#[derive(Debug)]
pub(super) struct Portal {
    text: Vec<u8>,
    argument: Vec<u8>,
}

impl Portal {
    pub(super) fn new(text: &[u8], argument: &[u8]) -> Self {
        Self { text: text.to_vec(), argument: argument.to_vec() }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn kind(&self) -> Kind<'_> {
        match Kind::of(&self.text) {
            Kind::Select { .. } if !self.argument.is_empty() => {
                Kind::Select { number: &self.argument }
            }
            kind => kind,
        }
    }
}
