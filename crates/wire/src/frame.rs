//! The five-byte header every regular message begins with: a code and a length.
//!
//! The packets a connection opens with (startup, cancel, SSLRequest) have no code and are read by
//! [`crate::startup`] instead.

use thiserror::Error;

/// Bytes before a message's body: the code and the length.
pub const HEADER_LEN: usize = 5;

/// The number of bytes of an unreadable message that are shown.
const SHOWN_LEN: usize = 8;

/// The bytes of the length field, which counts itself.
const LENGTH_LEN: u32 = 4;

/// The header of a message: its code and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's type, one of the constants in [`crate::frontend`] or [`crate::backend`];
    /// any byte is accepted here.
    pub code: u8,
    /// The whole message in bytes, code and length included; at least [`HEADER_LEN`].
    pub total: usize,
}

/// The header has an impossible length: the peer does not speak the protocol, or the stream was cut
/// at the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("message type 0x{code:02x} declares an impossible length of {length}")]
pub struct FrameError {
    pub code: u8,
    /// The length field as PostgreSQL would read it.
    pub length: i32,
}

/// Returns PgBouncer's text for a message with an impossible or forbidden length: its first bytes.
#[must_use]
pub fn bad_header(bytes: &[u8]) -> String {
    let head = bytes.iter().take(SHOWN_LEN).map(|byte| format!("{byte:02x}"));
    format!("bad packet header: '{}'", head.collect::<String>())
}

impl Header {
    /// Reads the header at the beginning of `bytes`, which may hold less or more than a message.
    ///
    /// `Ok(None)` means that fewer than [`HEADER_LEN`] bytes are there.
    ///
    /// # Errors
    /// When the declared length is below 4 (it counts its own bytes) or above `i32::MAX`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some(&[code, a, b, c, d]) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]);
        // A length below 4 wraps around, so one comparison covers both ends of the range.
        if length.wrapping_sub(LENGTH_LEN) > i32::MAX as u32 - LENGTH_LEN {
            return Err(FrameError { code, length: length as i32 });
        }
        Ok(Some(Self { code, total: length as usize + 1 }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_is_read_whatever_follows_it() {
        let ready = Header { code: b'Z', total: 6 };
        assert_eq!(Header::parse(b"Z\0\0\0\x05I"), Ok(Some(ready)));
        assert_eq!(Header::parse(b"Z\0\0\0\x05"), Ok(Some(ready)));
        assert_eq!(Header::parse(b"Z\0\0\0\x05ID\0\0"), Ok(Some(ready)));
    }

    #[test]
    fn fewer_than_five_bytes_are_no_header_yet() {
        for len in 0..HEADER_LEN {
            assert_eq!(Header::parse(&b"\xff\xff\xff\xff\xff"[..len]), Ok(None));
        }
    }

    #[test]
    fn the_range_of_lengths_ends_where_the_protocol_says() {
        let parse = |length: u32| {
            let [a, b, c, d] = length.to_be_bytes();
            Header::parse(&[b'Q', a, b, c, d])
        };
        let header = |total| Ok(Some(Header { code: b'Q', total }));
        let error = |length| Err(FrameError { code: b'Q', length });
        assert_eq!(parse(0), error(0));
        assert_eq!(parse(3), error(3));
        assert_eq!(parse(4), header(5));
        assert_eq!(parse(5), header(6));
        assert_eq!(parse(i32::MAX as u32), header(0x8000_0000));
        assert_eq!(parse(0x8000_0000), error(i32::MIN));
        assert_eq!(parse(u32::MAX), error(-1));
        assert_eq!(
            parse(u32::MAX).unwrap_err().to_string(),
            "message type 0x51 declares an impossible length of -1"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_sane_header_or_an_error(bytes: Vec<u8>) {
            if let Ok(Some(header)) = Header::parse(&bytes) {
                prop_assert!(header.total >= HEADER_LEN);
                prop_assert_eq!(header.code, bytes[0]);
            }
        }
    }
}
