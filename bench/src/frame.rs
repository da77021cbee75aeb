//! Message frames of protocol version 3, reduced to the needs of a canned peer.
//!
//! This does not use Weir's `wire` crate, on purpose: with the pooler's own framing, the benchmark
//! would share its mistakes and not notice them.

use anyhow::{Result, bail, ensure};

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

/// A reader of a message body: integers and zero-terminated strings.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn string(&mut self) -> Result<&'a [u8]> {
        let Some(end) = self.0.iter().position(|&byte| byte == 0) else {
            bail!("string without its final zero byte")
        };
        let (string, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        Ok(string)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.0.split_at_checked(count) else {
            bail!("message ends {count} bytes before its last field does")
        };
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
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

/// Appends a startup packet of protocol 3.0 with these parameters.
pub(crate) fn put_startup(out: &mut Vec<u8>, parameters: &[(&str, &str)]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(3u32 << 16).to_be_bytes());
    for (name, value) in parameters {
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend_from_slice(value.as_bytes());
        out.push(0);
    }
    out.push(0);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
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

    #[test]
    fn fields_end_where_the_body_does() {
        let mut fields = Fields(b"ab\0\0\x07");
        assert_eq!(fields.string().unwrap(), b"ab");
        assert_eq!(fields.u16().unwrap(), 7);
        assert!(fields.u32().is_err());
    }
}
