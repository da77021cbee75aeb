//! A flood on its way: what of it is still to be sent, and what is still to be answered.

use anyhow::{Result, ensure};

use crate::flood::Pattern;
use crate::frame::{Frame, put};

/// It is made in pieces of about this size.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Flood {
    pattern: Pattern,
    messages: u64,
    sent: u64,
    /// Messages that have come in answer.
    answers: u64,
    /// The number of the query behind it; empty when that is sent.
    number: String,
    /// The body of its row.
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

    /// Appends the next piece of it, if there is one.
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

    /// Counts the next message; true when it was the last.
    pub(super) fn handle(&mut self, frame: Frame<'_>) -> Result<bool> {
        if matches!(frame.tag, b'S' | b'N') {
            return Ok(false);
        }
        self.answers += 1;
        self.is_last |= frame.tag == b'D' && frame.body == self.row;
        if !self.is_last || frame.tag != b'Z' {
            return Ok(false);
        }
        // The Sync behind the flood has one, and the query four.
        let wanted = self.pattern.answers(self.messages) + 5;
        ensure!(self.answers == wanted, "{} answers, not {wanted}", self.answers);
        Ok(true)
    }
}
