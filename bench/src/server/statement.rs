//! The SQL of the canned server: the kinds of statements that it knows.

/// The body of the RowDescription for pgbench's select: one int4 column named `abalance`.
pub(crate) const ABALANCE_ROW: &[u8] =
    b"\0\x01abalance\0\0\0\x40\x03\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";

/// The body of the RowDescription for the large result: one text column.
pub(crate) const BULK_ROW: &[u8] =
    b"\0\x01filler\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";

/// The settings that poolers set and that PostgreSQL reports when they change.
const REPORTED: [&str; 5] =
    ["application_name", "client_encoding", "DateStyle", "standard_conforming_strings", "TimeZone"];

/// The beginning of a text by which Weir restores settings.
const MARK: &[u8] = b"/*weir ";

/// A statement, which decides its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Statement {
    #[default]
    Empty,
    /// Returns one row with the last number in the text, so that each client can recognize its own
    /// answer, or with its parameter.
    Select {
        number: Vec<u8>,
        has_parameter: bool,
    },
    /// `SELECT bulk ROW_BYTES TOTAL_BYTES`, in a simple query only.
    Bulk {
        row_bytes: usize,
        total_bytes: u64,
    },
    Set {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    Reset {
        name: Vec<u8>,
    },
    /// A SELECT of one or more calls `set_config('name','value',false)`.
    SetConfig {
        settings: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// Fails when it is executed.
    Failure,
    /// Weir's probe of the session. It returns a row for each item of the state.
    Probe,
    /// Returns only a command tag, and may change the transaction status.
    Plain {
        tag: &'static str,
        status: Option<u8>,
    },
}

/// Splits a text at semicolons outside of quotes, and leaves out empty statements.
pub(super) fn split(text: &[u8]) -> Vec<Statement> {
    let mark = text.windows(2).position(|pair| pair == b"*/").filter(|_| text.starts_with(MARK));
    let text = mark.map_or(text, |end| &text[end + 2..]);
    let mut quoted = false;
    text.split(move |&byte| {
        quoted ^= byte == b'\'';
        byte == b';' && !quoted
    })
    .map(<[u8]>::trim_ascii)
    .filter(|statement| !statement.is_empty())
    .map(Statement::of)
    .collect()
}

impl Statement {
    /// Unknown statements count as a select, as poolers' own checks are.
    fn of(text: &[u8]) -> Self {
        let mut words = text.split(|byte| b" \t\r\n='".contains(byte)).filter(|w| !w.is_empty());
        let plain = |tag, status| Self::Plain { tag, status };
        match words.next().unwrap_or_default().to_ascii_uppercase().as_slice() {
            b"BEGIN" => plain("BEGIN", Some(b'T')),
            b"COMMIT" => plain("COMMIT", Some(b'I')),
            b"ROLLBACK" => plain("ROLLBACK", Some(b'I')),
            b"DISCARD" => plain("DISCARD ALL", None),
            b"RESET" => Self::Reset { name: unquoted(&text[5..], b"\"") },
            b"COPY" | b"EXECUTE" | b"X" => Self::Failure,
            b"SET" => Self::set(text),
            b"SELECT" => match words.next().unwrap_or_default() {
                b"bulk" => Self::Bulk {
                    row_bytes: words.next().and_then(number).unwrap_or(100) as usize,
                    total_bytes: words.next().and_then(number).unwrap_or(0),
                },
                b"pg_catalog.concat(kind," => Self::Probe,
                b"pg_catalog.set_config(" => {
                    // Names and values contain no quotes.
                    let mut quoted = text.split(|byte| *byte == b'\'').skip(1).step_by(2);
                    let mut next = || quoted.next().map(<[u8]>::to_vec);
                    let settings = std::iter::from_fn(|| Some((next()?, next()?)));
                    Self::SetConfig { settings: settings.collect() }
                }
                _ => Self::select(text),
            },
            _ => Self::select(text),
        }
    }

    fn select(text: &[u8]) -> Self {
        let has_parameter = text.windows(2).any(|pair| pair == b"$1");
        Self::Select { number: last_number(text).to_vec(), has_parameter }
    }

    /// Parses `SET name = 'value'` or `SET name TO value`.
    fn set(text: &[u8]) -> Self {
        let rest = text[3..].trim_ascii();
        let end = rest.iter().position(|byte| b" =".contains(byte)).unwrap_or(rest.len());
        let (name, value) = rest.split_at(end);
        let value = value.trim_ascii();
        let value =
            value.strip_prefix(b"=").or_else(|| value.strip_prefix(b"TO ")).unwrap_or(value);
        Self::Set { name: name.to_vec(), value: unquoted(value, b"'") }
    }

    /// Returns the body of its RowDescription, if it returns rows.
    pub(super) fn row_description(&self) -> Option<Vec<u8>> {
        match self {
            Self::Select { .. } => Some(ABALANCE_ROW.into()),
            Self::Bulk { .. } => Some(BULK_ROW.into()),
            Self::Probe => Some(columns(&[TEXT])),
            Self::SetConfig { settings } => Some(columns(&vec![BOOL; settings.len()])),
            Self::Empty
            | Self::Set { .. }
            | Self::Reset { .. }
            | Self::Failure
            | Self::Plain { .. } => None,
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

fn unquoted(text: &[u8], quote: &[u8]) -> Vec<u8> {
    let text = text.trim_ascii();
    text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).unwrap_or(text).to_vec()
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn last_number(text: &[u8]) -> &[u8] {
    let Some(last) = text.iter().rposition(u8::is_ascii_digit) else { return b"0" };
    let first = text[..last].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    &text[first..=last]
}

/// Returns the name under which PostgreSQL reports the setting, if it does.
pub(super) fn reported(name: &[u8]) -> Option<&'static str> {
    REPORTED.into_iter().find(|reported| reported.as_bytes().eq_ignore_ascii_case(name))
}
