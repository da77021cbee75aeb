//! Two small helpers of the relay: what is kept of a byte stream between two reads, and the
//! assembly of what goes out of what came in.

use std::ops::Range;

use thin_vec::ThinVec;
use wire::Header;

/// Where a byte stream stands between two reads.
#[derive(Debug, Default)]
pub struct Stream {
    /// Bytes of the current message still to come; they are passed (or dropped) unseen.
    pub remaining: usize,
    /// What becomes of them.
    pub dropping: bool,
    /// The beginning of a message that cannot be dealt with before more of it is there. There rarely is
    /// any, and a client at rest should be small: so it is a pointer, and no more.
    pub held: ThinVec<u8>,
}

impl Stream {
    /// Is the stream between two messages?
    pub fn at_boundary(&self) -> bool {
        self.remaining == 0 && self.held.is_empty()
    }

    /// Does the rest of a message that was begun on the other side still have to follow?
    pub fn is_mid_message(&self) -> bool {
        self.remaining > 0 && !self.dropping
    }

    /// Is what is held enough to go on with: a whole message, or nothing that may become one?
    pub fn holds_message(&self) -> bool {
        match Header::parse(&self.held) {
            Ok(Some(header)) => header.total <= self.held.len(),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// `bytes` were used, but are to be dealt with once more: they come before whatever is held.
    /// The rest of a message that was begun follows them.
    pub fn put_back(&mut self, bytes: &[u8]) {
        let mut held = ThinVec::from(bytes);
        held.append(&mut self.held);
        *self = Self { held, ..Self::default() };
    }

    /// Take the bytes of the message in progress from the front of `input`.
    pub fn take_body(&mut self, input: &[u8]) -> usize {
        let taken = self.remaining.min(input.len());
        self.remaining -= taken;
        taken
    }

    /// What is held and `bytes` as one input; None if nothing is held, and `bytes` are all of it.
    pub fn take_joined(&mut self, bytes: &[u8]) -> Option<ThinVec<u8>> {
        if self.held.is_empty() {
            return None;
        }
        let mut whole = std::mem::take(&mut self.held);
        whole.extend_from_slice(bytes);
        Some(whole)
    }

    /// Keep the unused end of an input for the next time. `joined` is the input, if it was not
    /// the read buffer itself.
    pub fn hold_rest(&mut self, joined: Option<ThinVec<u8>>, input: &[u8], used: usize) {
        debug_assert!(self.held.is_empty(), "bytes held twice");
        match joined {
            Some(whole) if used == 0 => self.held = whole,
            Some(whole) => self.held = whole[used..].into(),
            None => self.held = input[used..].into(),
        }
    }
}

/// Room for output that is kept from one input to the next. The rare long one (a Parse of many
/// megabytes under another name) gives its room back.
const SCRATCH_KEPT_MAX: usize = 1 << 20;

/// Output that mostly is a run of the input. As long as nothing is changed the input itself is
/// sent; from the first change on the parts are gathered in `scratch`.
#[derive(Debug)]
pub(crate) struct Splice<'a> {
    input: &'a [u8],
    scratch: &'a mut Vec<u8>,
    /// The run of input that goes out next.
    run: Range<usize>,
}

impl<'a> Splice<'a> {
    pub(crate) fn new(input: &'a [u8], scratch: &'a mut Vec<u8>) -> Self {
        scratch.clear();
        scratch.shrink_to(SCRATCH_KEPT_MAX);
        Self { input, scratch, run: 0..0 }
    }

    /// `input[from..to]` goes out as it is.
    #[inline]
    pub(crate) fn pass(&mut self, from: usize, to: usize) {
        if from != self.run.end {
            self.gather();
            self.run = from..to;
        } else {
            self.run.end = to;
        }
    }

    /// Something else goes out: append it to the returned buffer.
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

    /// Nothing goes out.
    pub(crate) fn clear(&mut self) {
        self.scratch.clear();
        self.run = 0..0;
    }

    /// Bytes gathered so far.
    pub(crate) fn gathered(&self) -> usize {
        self.scratch.len()
    }

    /// All that goes out.
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
    fn what_is_held_comes_before_what_is_new() {
        let mut stream = Stream::default();
        assert_eq!(stream.take_joined(b"ab"), None);
        stream.hold_rest(None, b"ab", 1);
        assert_eq!(stream.take_joined(b"cd"), Some(ThinVec::from(*b"bcd")));
        assert!(stream.at_boundary());
    }
}
