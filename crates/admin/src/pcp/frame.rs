//! A message of PCP: a code, the length of the rest as four bytes that count themselves, and a body.

/// Lengths that a client may send, in bytes. Pgpool-II refuses longer ones, too.
const LEN: std::ops::RangeInclusive<usize> = 4..=259;
const HEADER_LEN: usize = 5;

/// The longest text of an error, in bytes. The tools have room for 1,023 with all fields.
const ERROR_LEN_MAX: usize = 800;

/// The first field of a complete answer.
pub(super) const DONE: &str = "CommandComplete";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) code: u8,
    pub(super) body: Vec<u8>,
}

impl Frame {
    /// Takes the first message, if all of it is there.
    ///
    /// # Errors
    /// When its length is none that a client may send.
    pub(super) fn take(received: &mut Vec<u8>) -> Result<Option<Self>, &'static str> {
        let Some((header, rest)) = received.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let [code, len @ ..] = *header;
        let len = u32::from_be_bytes(len) as usize;
        if !LEN.contains(&len) {
            return Err("invalid message length");
        }
        let Some(body) = rest.get(..len + 1 - HEADER_LEN) else { return Ok(None) };
        let frame = Self { code, body: body.to_vec() };
        received.drain(..len + 1);
        Ok(Some(frame))
    }
}

/// An answer that is being written.
pub(super) struct Answer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Answer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, code: u8) -> Self {
        let start = out.len();
        out.extend([code, 0, 0, 0, 0]);
        Self { out, start }
    }

    /// Adds a text, which a zero byte ends.
    pub(super) fn text(self, text: &str) -> Self {
        self.out.extend(text.bytes().filter(|byte| *byte != 0));
        self.out.push(0);
        self
    }

    /// Adds a text that is cut if it is longer than `len_max` bytes.
    pub(super) fn cut(self, text: &str, len_max: usize) -> Self {
        self.text(&text[..text.floor_char_boundary(len_max)])
    }

    pub(super) fn number(self, number: impl ToString) -> Self {
        self.text(&number.to_string())
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    pub(super) fn end(self) {
        let len = (self.out.len() - self.start - 1) as u32;
        self.out[self.start + 1..self.start + HEADER_LEN].copy_from_slice(&len.to_be_bytes());
    }
}

/// Appends the answer that has no facts.
pub(super) fn done(out: &mut Vec<u8>, code: u8) {
    Answer::new(out, code).text(DONE).end();
}

/// Appends an error. The text begins in lower case: the tools take a capital S, M or D at the start of a
/// text for the next field.
pub(super) fn error(out: &mut Vec<u8>, severity: &str, what: &str) {
    let what = &what[..what.floor_char_boundary(ERROR_LEN_MAX)];
    let first = what.chars().next().unwrap_or('?');
    let rest = what.strip_prefix(first).unwrap_or_default();
    let what = format!("{}{rest}", first.to_lowercase());
    let answer = Answer::new(out, b'E').bytes(b"S").text(severity).bytes(b"C").text("XX000");
    answer.bytes(b"M").text(&what).bytes(b"\0").end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_are_taken_one_by_one() {
        let mut received = b"M\0\0\0\x04R\0\0\0\x07a\0".to_vec();
        let frame = Frame { code: b'M', body: Vec::new() };
        assert_eq!(Frame::take(&mut received), Ok(Some(frame)));
        assert_eq!(Frame::take(&mut received), Ok(None));
        received.push(b'b');
        let frame = Frame { code: b'R', body: b"a\0b".to_vec() };
        assert_eq!(Frame::take(&mut received), Ok(Some(frame)));
        assert!(received.is_empty());
    }

    #[test]
    fn other_lengths_are_refused_before_the_body_comes() {
        for (len, is_valid) in [(0_u32, false), (3, false), (4, true), (259, true), (260, false)] {
            let mut received = b"I".to_vec();
            received.extend(len.to_be_bytes());
            assert_eq!(Frame::take(&mut received).is_ok(), is_valid, "{len}");
        }
        assert!(Frame::take(&mut b"I\xff\xff\xff\xff".to_vec()).is_err());
    }

    #[test]
    fn an_errors_text_begins_in_lower_case_and_is_bounded() {
        let mut out = Vec::new();
        error(&mut out, "ERROR", "Standby not known");
        assert_eq!(out, b"E\0\0\0\x26SERROR\0CXX000\0Mstandby not known\0\0");
        out.clear();
        error(&mut out, "ERROR", &"\u{e4}".repeat(1_000));
        assert!(out.len() < 850, "{}", out.len());
        out.clear();
        error(&mut out, "FATAL", "");
        assert_eq!(out, b"E\0\0\0\x16SFATAL\0CXX000\0M?\0\0");
    }
}
