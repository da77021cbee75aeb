//! Message frames of protocol version 3, as the clients of the benchmark read them.
//!
//! This does not use Weir's `wire` crate, on purpose: with the pooler's own framing, the clients would
//! share its mistakes and not notice them.

use anyhow::{Result, ensure};

/// The maximum length of a message body, in bytes. A longer one means that the framing has been
/// lost.
const BODY_BYTES_MAX: usize = 1 << 24;

/// One typed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) tag: u8,
    pub(crate) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the first whole message in `bytes` and its length there, or `None` if it is
    /// incomplete.
    pub(crate) fn split(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let Some((head, rest)) = bytes.split_at_checked(5) else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        ensure!(length >= 4, "message {:?} with length {length}", head[0] as char);
        ensure!(length <= BODY_BYTES_MAX, "message {:?} of {length} bytes", head[0] as char);
        Ok(rest.get(..length - 4).map(|body| (Self { tag: head[0], body }, length + 1)))
    }

    /// Returns the text of an ErrorResponse or NoticeResponse: severity, SQLSTATE and message.
    pub(crate) fn error_text(&self) -> String {
        let field = |wanted: u8| {
            self.body
                .split(|&byte| byte == 0)
                .find(|field| field.first() == Some(&wanted))
                .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
                .unwrap_or_default()
        };
        format!("{} {} {}", field(b'S'), field(b'C'), field(b'M'))
    }
}

/// Appends a message whose body is the concatenation of `parts`.
pub(crate) fn put(out: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    out.push(tag);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_split_off_only_when_whole() {
        let mut bytes = Vec::new();
        put(&mut bytes, b'C', &[b"SELECT 1\0"]);
        let whole = bytes.len();
        put(&mut bytes, b'Z', &[b"I"]);
        for cut in 0..whole {
            assert_eq!(Frame::split(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let (frame, length) = Frame::split(&bytes).unwrap().unwrap();
        assert_eq!((frame.tag, frame.body, length), (b'C', &b"SELECT 1\0"[..], whole));
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(Frame::split(b"Z\0\0\0\x03").is_err());
        assert!(Frame::split(b"Z\x7f\0\0\0").is_err());
    }

    #[test]
    fn the_text_of_an_error_names_its_code() {
        let frame = Frame { tag: b'E', body: b"SERROR\0C26000\0Mno such thing\0\0" };
        assert_eq!(frame.error_text(), "ERROR 26000 no such thing");
    }
}
