//! The reply to a client's messages, up to the last expected ReadyForQuery: its error, and the rows
//! to keep.

use std::collections::VecDeque;

use wire::{
    ErrorFields, Reader,
    messages::{DataRow, ReadyForQuery},
};

use crate::{login::server_error, stats::Failure};

/// A server's error, as far as it matters here.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) text: String,
    /// Set if another try may succeed.
    pub(super) failure: Option<Failure>,
}

/// The next expected message, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// ParseComplete of a statement by its number; the unnamed one has none.
    Parse(Option<usize>),
    ReadyForQuery,
}

/// A row that becomes variables: names of columns and their values.
pub(super) type Row = Vec<(String, Option<String>)>;

#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Awaited replies in the order of the requests. After an error the server skips everything
    /// before the next ReadyForQuery.
    pub(super) awaited: VecDeque<Awaited>,
    /// The number of complete results.
    pub(super) results: u32,
    pub(super) error: Option<Refusal>,
    /// The transaction status of the last ReadyForQuery; 0 before the first.
    pub(super) status: u8,
    /// Are rows kept?
    pub(super) keeps: bool,
    columns: Vec<String>,
    /// The number of rows in the present result, and the last row.
    rows: u64,
    row: Row,
    /// The number of rows and the last row of each complete result with columns.
    pub(super) kept: Vec<(u64, Row)>,
}

impl Reply {
    /// Begins a new request.
    pub(super) fn begin(&mut self, keeps: bool) {
        self.results = 0;
        self.error = None;
        self.keeps = keeps;
        self.kept.clear();
        self.rows = 0;
    }

    /// Reads one message. Returns true if it was the last expected one.
    ///
    /// # Errors
    /// When it cannot be part of a reply to a script.
    pub(super) fn handle(
        &mut self,
        code: u8,
        body: &[u8],
        prepared: &mut [bool],
    ) -> Result<bool, String> {
        let malformed = |error: wire::MessageError| error.to_string();
        match code {
            b'Z' => {
                self.status = ReadyForQuery::decode(body).map_err(malformed)?.status;
                while let Some(Awaited::Parse(_)) = self.awaited.pop_front() {}
                return Ok(self.awaited.is_empty());
            }
            b'C' | b'I' => self.complete(),
            b'E' => self.refuse(body)?,
            b'1' => {
                let parse = self.awaited.pop_front_if(|next| matches!(next, Awaited::Parse(_)));
                if let Some(Awaited::Parse(Some(number))) = parse
                    && let Some(known) = prepared.get_mut(number)
                {
                    *known = true;
                }
            }
            b'T' if self.keeps => self.columns = columns(body).ok_or("malformed RowDescription")?,
            b'D' if self.keeps => {
                let row = DataRow::decode(body).map_err(malformed)?;
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let values = row.values().map(|value| value.map(text));
                self.rows += 1;
                self.row = self.columns.iter().cloned().zip(values).collect();
            }
            b'T' | b'D' | b'2' | b'3' | b'n' | b's' | b't' | b'N' | b'S' | b'A' | b'H' | b'd'
            | b'c' => {}
            b'G' => return Err("COPY is not supported in scripts".to_owned()),
            other => return Err(format!("message {:?} within a reply", char::from(other))),
        }
        Ok(false)
    }

    fn complete(&mut self) {
        self.results += 1;
        if self.keeps && !self.columns.is_empty() {
            self.kept.push((self.rows, std::mem::take(&mut self.row)));
            self.columns.clear();
        }
        self.rows = 0;
    }

    fn refuse(&mut self, body: &[u8]) -> Result<(), String> {
        let fields = ErrorFields::decode(body).map_err(|error| error.to_string())?;
        if fields.ends_session() {
            return Err(server_error(body));
        }
        let failure = match fields.sqlstate() {
            b"40001" => Some(Failure::Serialization),
            b"40P01" => Some(Failure::Deadlock),
            _ => None,
        };
        // Later errors in a pipeline are consequences of the first one.
        self.error.get_or_insert_with(|| Refusal { text: server_error(body), failure });
        Ok(())
    }
}

fn columns(body: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(body);
    let count = reader.u16()?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(String::from_utf8_lossy(reader.cstr()?).into_owned());
        // Table, column, type, its length and modifier, format.
        reader.bytes(4 + 2 + 4 + 2 + 4 + 2)?;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaiting<const N: usize>(awaited: [Awaited; N]) -> Reply {
        Reply { awaited: awaited.into(), ..Reply::default() }
    }

    fn description(names: &[&str]) -> Vec<u8> {
        let mut body = (names.len() as u16).to_be_bytes().to_vec();
        for name in names {
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(&[0; 19]);
        }
        body
    }

    #[test]
    fn of_every_result_the_last_row_is_kept() {
        let mut reply = awaiting([Awaited::ReadyForQuery]);
        reply.begin(true);
        let mut prepared = [];
        let mut take = |code, body: &[u8]| reply.handle(code, body, &mut prepared).unwrap();
        assert!(!take(b'T', &description(&["a", "b"])));
        for value in [b"1", b"2"] {
            assert!(!take(b'D', &[&[0, 2, 0, 0, 0, 1], &value[..], &[255; 4]].concat()));
        }
        assert!(!take(b'C', b"SELECT 2\0"));
        assert!(!take(b'C', b"SET\0"));
        assert!(take(b'Z', b"T"));
        let row = vec![("a".to_owned(), Some("2".to_owned())), ("b".to_owned(), None)];
        assert_eq!(reply.kept, [(2, row)]);
        assert_eq!((reply.results, reply.status), (2, b'T'));
    }

    #[test]
    fn the_first_error_counts_and_some_are_worth_another_try() {
        let mut reply = awaiting([Awaited::ReadyForQuery; 2]);
        let error = b"SERROR\0VERROR\0C40001\0Mno\0\0";
        assert_eq!(reply.handle(b'E', error, &mut []), Ok(false));
        assert_eq!(reply.handle(b'Z', b"E", &mut []), Ok(false));
        assert_eq!(reply.handle(b'E', b"SERROR\0C25P02\0Mlater\0\0", &mut []), Ok(false));
        assert_eq!(reply.handle(b'Z', b"E", &mut []), Ok(true));
        let refusal = reply.error.unwrap();
        assert_eq!(refusal.text, "ERROR:  no");
        assert_eq!(refusal.failure, Some(Failure::Serialization));
        assert!(Reply::default().handle(b'E', b"SFATAL\0C57P01\0Mend\0\0", &mut []).is_err());
        assert!(Reply::default().handle(b'G', b"", &mut []).is_err());
    }

    #[test]
    fn a_statement_is_prepared_once_its_parse_is_answered() {
        let parse = |number| Awaited::Parse(Some(number));
        let mut reply = awaiting([parse(1), parse(2), Awaited::ReadyForQuery]);
        let mut prepared = [false; 3];
        assert_eq!(reply.handle(b'1', b"", &mut prepared), Ok(false));
        assert_eq!(reply.handle(b'Z', b"I", &mut prepared), Ok(true));
        assert_eq!(prepared, [false, true, false]);
    }

    #[test]
    fn a_parse_skipped_after_an_error_does_not_count_as_prepared() {
        let parse = |number| Awaited::Parse(Some(number));
        let ready = Awaited::ReadyForQuery;
        let mut reply =
            awaiting([parse(0), parse(1), ready, Awaited::Parse(None), parse(2), ready]);
        let mut prepared = [false; 3];
        let mut take = |code, body: &[u8]| reply.handle(code, body, &mut prepared).unwrap();
        assert!(!take(b'1', b""));
        assert!(!take(b'E', b"SERROR\0VERROR\0C40001\0Mno\0\0"));
        assert!(!take(b'Z', b"I"));
        assert!(!take(b'1', b"") && !take(b'1', b""));
        assert!(take(b'Z', b"I"));
        assert_eq!(prepared, [true, false, true]);
    }
}
