//! The expected answer to a query, message by message.

use anyhow::{Result, bail, ensure};

use crate::bulk::Rows;
use crate::frame::Frame;
use crate::server::{ABALANCE_ROW, BULK_ROW};

/// The part of an answer that is still to come.
#[derive(Debug)]
pub(super) struct Reply {
    /// The tags of the messages to come, in order.
    tags: &'static [u8],
    row_description: &'static [u8],
    /// The body of the one DataRow.
    data_row: Vec<u8>,
    /// The body of CommandComplete.
    complete: String,
    /// The large result that follows its row description.
    rows: Option<Rows>,
}

impl Reply {
    pub(super) fn to_simple(digits: &[u8]) -> Self {
        Self::to_select(b"TDCZ", digits)
    }

    pub(super) fn to_extended(digits: &[u8], with_parse: bool) -> Self {
        Self::to_select(if with_parse { b"12TDCZ" } else { b"2TDCZ" }, digits)
    }

    pub(super) fn to_parse() -> Self {
        Self::to_select(b"1Z", b"")
    }

    /// The answer to three SETs in one string.
    pub(super) fn to_settings() -> Self {
        Self { complete: "SET\0".to_owned(), ..Self::to_select(b"CCCZ", b"") }
    }

    pub(super) fn to_bulk(row_bytes: usize, total_bytes: u64) -> Self {
        Self {
            tags: b"TCZ",
            row_description: BULK_ROW,
            data_row: Vec::new(),
            complete: format!("SELECT {}\0", Rows::count(row_bytes, total_bytes)),
            rows: Some(Rows::new(row_bytes, total_bytes)),
        }
    }

    fn to_select(tags: &'static [u8], digits: &[u8]) -> Self {
        let mut data_row = vec![0, 1, 0, 0, 0, digits.len() as u8];
        data_row.extend_from_slice(digits);
        Self {
            tags,
            row_description: ABALANCE_ROW,
            data_row,
            complete: "SELECT 1\0".to_owned(),
            rows: None,
        }
    }

    /// Returns the rows of a large result, if rows are the next expected messages.
    pub(super) fn rows_in_progress(&mut self) -> Option<&mut Rows> {
        let described = self.tags.first() == Some(&b'C');
        self.rows.as_mut().filter(|rows| described && !rows.is_done())
    }

    /// Checks the next message. Returns true if it was the last one. ParameterStatus and
    /// NoticeResponse may come at any time.
    pub(super) fn handle(&mut self, frame: Frame<'_>) -> Result<bool> {
        if matches!(frame.tag, b'S' | b'N') {
            return Ok(false);
        }
        let Some((&tag, tags)) = self.tags.split_first() else {
            bail!("message {:?} after the end of the answer", frame.tag as char)
        };
        let body = match tag {
            b'T' => self.row_description,
            b'D' => &self.data_row,
            b'C' => self.complete.as_bytes(),
            b'Z' => b"I",
            _ => b"",
        };
        let wanted = Frame { tag, body };
        ensure!(frame == wanted, "wrong answer: got {}, wanted {}", show(frame), show(wanted));
        self.tags = tags;
        Ok(tags.is_empty())
    }
}

fn show(frame: Frame<'_>) -> String {
    format!("{} \"{}\"", frame.tag as char, frame.body.escape_ascii())
}
