//! The state of one flood: the messages that are still to be sent, and the answers that have
//! arrived.

use anyhow::{Result, ensure};

use crate::frame::{Frame, put};
use crate::pattern::Pattern;

/// The approximate size of a piece of the flood.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Flood {
    pattern: Pattern,
    messages: u64,
    sent: u64,
    /// Messages received in answer.
    answers: u64,
    /// The number in the query that follows the flood. Empty once that query is sent.
    number: String,
    /// The body of the row that answers this query.
    row: Vec<u8>,
    is_last: bool,
}

impl Flood {
    pub(super) fn new(pattern: Pattern, messages: u64, number: u32) -> Self {
        let number = number.to_string();
        let mut row = vec![0, 1, 0, 0, 0, number.len() as u8];
        row.extend_from_slice(number.as_bytes());
        Self { pattern, messages, sent: 0, answers: 0, number, row, is_last: false }
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Appends the next piece of the flood, if any is left.
    pub(super) fn send(&mut self, out: &mut Vec<u8>) {
        while self.sent < self.messages && out.len() < PIECE_BYTES {
            self.pattern.put(self.sent, self.messages, out);
            self.sent += 1;
        }
        if self.sent == self.messages && !self.number.is_empty() {
            put(out, b'S', &[]);
            let number = std::mem::take(&mut self.number);
            put(out, b'Q', &[b"SELECT ", number.as_bytes(), b"\0"]);
        }
    }

    /// Counts the next message. Returns true if it was the last one.
    pub(super) fn handle(&mut self, frame: Frame<'_>) -> Result<bool> {
        if matches!(frame.tag, b'S' | b'N') {
            return Ok(false);
        }
        self.answers += 1;
        self.is_last |= frame.tag == b'D' && frame.body == self.row;
        if !self.is_last || frame.tag != b'Z' {
            return Ok(false);
        }
        // The Sync after the flood has one answer, and the query has four.
        let wanted = self.pattern.answers(self.messages) + 5;
        ensure!(self.answers == wanted, "{} answers, not {wanted}", self.answers);
        Ok(true)
    }
}
