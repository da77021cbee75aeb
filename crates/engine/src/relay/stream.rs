//! Two small helpers of the relay: the bytes that are kept between two reads, and the output that
//! is assembled from the input.

use std::ops::Range;

use thin_vec::ThinVec;
use wire::Header;

/// The position in a byte stream between two reads.
#[derive(Debug, Default)]
pub struct Stream {
    /// Bytes of the current message that are still to come. They are passed on or dropped unread.
    remaining: usize,
    /// Are these bytes dropped?
    dropping: bool,
    /// The beginning of a message that is kept until more of it arrives. It is rarely used, so it
    /// is a single pointer: an idle client should be small.
    held: ThinVec<u8>,
}

impl Stream {
    /// Returns the number of bytes of the current message that are still to come.
    #[inline(always)]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Are these bytes dropped?
    #[inline(always)]
    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping
    }

    /// A message is handled, of which so many bytes are still to come. `drops`: they are dropped.
    #[inline(always)]
    pub(crate) fn handled(&mut self, remaining: usize, drops: bool) {
        (self.remaining, self.dropping) = (remaining, drops);
    }

    /// The rest of a half-sent message is dropped.
    pub(crate) fn drop_rest(&mut self) {
        self.dropping |= self.remaining > 0;
    }

    /// Returns the beginning of a message that is kept until more of it arrives.
    #[inline]
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Keeps the beginning of a message. No other bytes are held.
    pub(crate) fn hold(&mut self, bytes: ThinVec<u8>) {
        self.held = bytes;
    }

    pub(crate) fn take_held(&mut self) -> ThinVec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Is the stream between two messages?
    pub fn at_boundary(&self) -> bool {
        self.remaining == 0 && self.held.is_empty()
    }

    /// Is the rest of a half-sent message still to come?
    pub fn is_mid_message(&self) -> bool {
        self.remaining > 0 && !self.dropping
    }

    /// Can the held bytes be handled: a whole message, or bytes that can never become one?
    pub fn holds_message(&self) -> bool {
        match Header::parse(&self.held) {
            Ok(Some(header)) => header.total <= self.held.len(),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Puts handled bytes back, so that they are handled again. They come before the held bytes.
    /// The rest of a message that was begun follows them.
    pub fn put_back(&mut self, bytes: &[u8]) {
        let mut held = ThinVec::from(bytes);
        held.append(&mut self.held);
        *self = Self { held, ..Self::default() };
    }

    /// Takes the bytes of the current message from the front of `input`.
    pub fn take_body(&mut self, input: &[u8]) -> usize {
        let taken = self.remaining.min(input.len());
        self.remaining -= taken;
        taken
    }

    /// Joins the held bytes and `bytes`. None if no bytes are held, so that `bytes` is the whole
    /// input.
    pub fn take_joined(&mut self, bytes: &[u8]) -> Option<ThinVec<u8>> {
        if self.held.is_empty() {
            return None;
        }
        let mut whole = std::mem::take(&mut self.held);
        whole.extend_from_slice(bytes);
        Some(whole)
    }

    /// Keeps the unused end of an input for the next read. `joined` is the input, unless it is the
    /// read buffer itself.
    pub fn hold_rest(&mut self, joined: Option<ThinVec<u8>>, input: &[u8], used: usize) {
        debug_assert!(self.held.is_empty(), "bytes held twice");
        match joined {
            Some(mut whole) => {
                whole.drain(..used);
                // A client that sends ahead comes here again and again.
                if whole.len() < whole.capacity() / 4 {
                    whole.shrink_to_fit();
                }
                self.held = whole;
            }
            None => self.held = input[used..].into(),
        }
    }
}

/// Limit of the output buffer that is kept from one input to the next. After a longer output (a
/// renamed Parse of many megabytes), the memory is freed.
const SCRATCH_KEPT_MAX: usize = 1 << 20;

/// Output that is mostly a part of the input. Without a change, the input itself is sent. After the
/// first change, the parts are gathered in `scratch`.
#[derive(Debug)]
pub(crate) struct Splice<'a> {
    input: &'a [u8],
    scratch: &'a mut Vec<u8>,
    /// The part of the input that is sent next.
    run: Range<usize>,
}

impl<'a> Splice<'a> {
    pub(crate) fn new(input: &'a [u8], scratch: &'a mut Vec<u8>) -> Self {
        scratch.clear();
        scratch.shrink_to(SCRATCH_KEPT_MAX);
        Self { input, scratch, run: 0..0 }
    }

    /// Sends `input[from..to]` unchanged.
    #[inline]
    pub(crate) fn pass(&mut self, from: usize, to: usize) {
        if from != self.run.end {
            self.gather();
            self.run = from..to;
        } else {
            self.run.end = to;
        }
    }

    /// Sends something else: the caller appends it to the returned buffer.
    #[inline]
    pub(crate) fn insert(&mut self) -> &mut Vec<u8> {
        self.gather();
        self.scratch
    }

    #[inline]
    fn gather(&mut self) {
        self.scratch.extend_from_slice(&self.input[self.run.clone()]);
        self.run = self.run.end..self.run.end;
    }

    /// Discards the output.
    pub(crate) fn clear(&mut self) {
        self.scratch.clear();
        self.run = 0..0;
    }

    /// Number of bytes gathered so far.
    pub(crate) fn gathered(&self) -> usize {
        self.scratch.len()
    }

    /// Returns the whole output.
    pub(crate) fn finish(&mut self) -> &[u8] {
        if self.scratch.is_empty() {
            return &self.input[self.run.clone()];
        }
        self.gather();
        self.scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_run_is_not_copied() {
        let input = *b"abcdef";
        let mut scratch = Vec::new();
        let mut splice = Splice::new(&input, &mut scratch);
        splice.pass(1, 3);
        splice.pass(3, 5);
        let out = splice.finish();
        assert_eq!(out, b"bcde");
        assert_eq!(out.as_ptr(), input[1..].as_ptr());
    }

    #[test]
    fn insertions_keep_their_place() {
        let mut scratch = Vec::new();
        let mut splice = Splice::new(b"abcdef", &mut scratch);
        splice.pass(0, 2);
        splice.insert().extend_from_slice(b"-");
        splice.pass(4, 6);
        assert_eq!(splice.finish(), b"ab-ef");
        let mut splice = Splice::new(b"abc", &mut scratch);
        splice.insert().push(b'+');
        assert_eq!(splice.finish(), b"+");
    }

    #[test]
    fn the_room_of_a_long_output_is_given_back() {
        let mut scratch = Vec::new();
        Splice::new(b"", &mut scratch).insert().resize(2 * SCRATCH_KEPT_MAX, 0);
        Splice::new(b"", &mut scratch);
        assert!(scratch.capacity() <= SCRATCH_KEPT_MAX);
    }

    #[test]
    fn held_bytes_come_before_new_ones() {
        let mut stream = Stream::default();
        assert_eq!(stream.take_joined(b"ab"), None);
        stream.hold_rest(None, b"ab", 1);
        assert_eq!(stream.take_joined(b"cd"), Some(ThinVec::from(*b"bcd")));
        assert!(stream.at_boundary());
    }
}
