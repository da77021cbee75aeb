//! A cursor over the body of one message.
//!
//! It never panics and never reads past the end. If the body is too short, a method returns `None`
//! and leaves the cursor in place.

use std::ffi::CStr;

/// Reads the protocol's primitive types, big-endian, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Returns a string up to its NUL, which is consumed but not returned.
    #[inline]
    pub fn cstr(&mut self) -> Option<&'a [u8]> {
        let string = CStr::from_bytes_until_nul(self.rest).ok()?.to_bytes();
        self.rest = self.rest.get(string.len() + 1..)?;
        Some(string)
    }

    /// Returns the next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Returns all remaining bytes; the reader is empty afterwards.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Returns the number of remaining bytes.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_order() {
        let mut reader =
            Reader::new(b"\x01\xff\xfe\x00\x02\xff\xff\xff\xfd\x00\x00\x00\x04ab\0cdef");
        assert_eq!(reader.u8(), Some(1));
        assert_eq!(reader.i16(), Some(-2));
        assert_eq!(reader.u16(), Some(2));
        assert_eq!(reader.i32(), Some(-3));
        assert_eq!(reader.u32(), Some(4));
        assert_eq!(reader.cstr(), Some(&b"ab"[..]));
        assert_eq!(reader.bytes(1), Some(&b"c"[..]));
        assert_eq!(reader.remaining(), 3);
        assert_eq!(reader.rest(), b"def");
        assert!(reader.is_empty());
    }

    #[test]
    fn a_short_body_gives_none_and_stays() {
        let mut reader = Reader::new(b"abc");
        assert_eq!(reader.u32(), None);
        assert_eq!(reader.i32(), None);
        assert_eq!(reader.cstr(), None);
        assert_eq!(reader.bytes(4), None);
        assert_eq!(reader.bytes(usize::MAX), None);
        assert_eq!(reader.remaining(), 3);
        assert_eq!(reader.bytes(3), Some(&b"abc"[..]));
        assert_eq!(reader.u8(), None);
        assert_eq!(reader.u16(), None);
        assert_eq!(reader.i16(), None);
        assert_eq!(reader.bytes(0), Some(&b""[..]));
    }
}
