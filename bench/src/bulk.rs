//! The large result: numbered rows of one size. The canned server produces them with [`Rows`], and
//! the load generator checks them byte for byte with the same code.

use anyhow::{Result, ensure};

/// The size of one large result, in bytes.
pub(crate) const TOTAL_BYTES: u64 = 100_000_000;
/// Message tag, message length, column count and column length.
const HEADER_BYTES: usize = 11;
const DIGITS: usize = 10;

/// A position in the endless stream of DataRow messages whose only column is a row number in ten
/// digits, filled up with `x`.
#[derive(Debug)]
pub(crate) struct Rows {
    /// The row at the position, as a whole message.
    row: Vec<u8>,
    /// Bytes of `row` that have been produced or checked.
    offset: usize,
    rows_left: u64,
}

impl Rows {
    /// Creates a stream of as many rows as make up `total_bytes`, at least one. `row_bytes` counts
    /// the whole message.
    pub(crate) fn new(row_bytes: usize, total_bytes: u64) -> Self {
        let row_bytes = row_bytes.max(HEADER_BYTES + DIGITS);
        let column_bytes = row_bytes - HEADER_BYTES;
        let mut row = Vec::with_capacity(row_bytes);
        row.push(b'D');
        row.extend_from_slice(&(row_bytes as u32 - 1).to_be_bytes());
        row.extend_from_slice(&1u16.to_be_bytes());
        row.extend_from_slice(&(column_bytes as u32).to_be_bytes());
        row.extend_from_slice(&[b'0'; DIGITS]);
        row.resize(row_bytes, b'x');
        Self { row, offset: 0, rows_left: Self::count(row_bytes, total_bytes) }
    }

    /// Returns the number of rows that [`Rows::new`] makes of the same arguments.
    pub(crate) fn count(row_bytes: usize, total_bytes: u64) -> u64 {
        (total_bytes / row_bytes.max(HEADER_BYTES + DIGITS) as u64).max(1)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rows_left == 0
    }

    /// Appends whole rows until `out` has at least `bytes` or the rows are used up.
    pub(crate) fn produce(&mut self, out: &mut Vec<u8>, bytes: usize) {
        while !self.is_done() && out.len() < bytes {
            out.extend_from_slice(&self.row);
            self.next_row();
        }
    }

    /// Checks `bytes` against the stream and returns how many of them belong to it: all, unless
    /// the last row ends before they do.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> Result<usize> {
        let length = bytes.len();
        while !self.is_done() && !bytes.is_empty() {
            let wanted = &self.row[self.offset..];
            let count = wanted.len().min(bytes.len());
            ensure!(wanted[..count] == bytes[..count], "row of the large result is not as sent");
            bytes = &bytes[count..];
            self.offset += count;
            if self.offset == self.row.len() {
                self.offset = 0;
                self.next_row();
            }
        }
        Ok(length - bytes.len())
    }

    fn next_row(&mut self) {
        self.rows_left -= 1;
        for digit in self.row[HEADER_BYTES..HEADER_BYTES + DIGITS].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;

    #[test]
    fn rows_are_numbered_messages_of_the_given_size() {
        let mut out = Vec::new();
        Rows::new(100, 1_150).produce(&mut out, usize::MAX);
        assert_eq!(out.len(), 1_100);
        let (last, _) = Frame::split(&out[1_000..]).unwrap().unwrap();
        assert_eq!(&last.body[6..16], b"0000000010");
    }

    #[test]
    fn a_result_checks_at_every_split() {
        let mut out = Vec::new();
        Rows::new(30, 90).produce(&mut out, usize::MAX);
        out.extend_from_slice(b"tail");
        for cut in 0..out.len() {
            let mut rows = Rows::new(30, 90);
            let first = rows.check(&out[..cut]).unwrap();
            assert_eq!(first, cut.min(90));
            assert_eq!(first + rows.check(&out[first..]).unwrap(), 90);
            assert!(rows.is_done());
        }
    }

    #[test]
    fn a_changed_byte_or_a_lost_row_is_noticed() {
        let mut out = Vec::new();
        Rows::new(40, 400).produce(&mut out, usize::MAX);
        let lost = [&out[..40], &out[80..]].concat();
        assert!(Rows::new(40, 400).check(&lost).is_err());
        out[200] ^= 1;
        assert!(Rows::new(40, 400).check(&out).is_err());
    }
}
