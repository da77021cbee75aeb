//! A client's text: the one in a Parse message, and the beginning that is kept to identify it.

use wire::HEADER_LEN;
use wire::messages::Parse;

use crate::session::scanning::HEAD_LEN_MAX;
use crate::watch::texts::with_normal_form;

/// Returns the text of a Parse message; empty if the message was not kept.
pub(crate) fn text_of(parse: &[u8]) -> &[u8] {
    let parse = Parse::decode(parse.get(HEADER_LEN..).unwrap_or_default());
    parse.map_or(b"", |parse| parse.sql)
}

/// Puts other bytes into a buffer that keeps its memory. The buffer has room for the longest bytes so
/// far and no more, where a `Vec` may take twice as much.
pub(crate) fn replace(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.reserve_exact(bytes.len());
    buffer.extend_from_slice(bytes);
}

/// The beginning of a text that an operator may want to identify. It keeps its memory.
#[derive(Debug, Default)]
pub struct KeptText(Vec<u8>);

impl KeptText {
    /// Keeps another text. Returns whether there is one.
    pub(crate) fn keep(&mut self, text: &[u8]) -> bool {
        replace(&mut self.0, &text[..text.len().min(HEAD_LEN_MAX)]);
        !text.is_empty()
    }

    /// Returns the fingerprint of its normal form, as SHOW FINGERPRINTS has it.
    pub(crate) fn fingerprint(&self) -> u64 {
        // A text that is cut is longer than the part that counts.
        with_normal_form(&self.0, true, |_, fingerprint| fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_text_takes_no_more_than_the_limit() {
        let mut kept = KeptText::default();
        let text = vec![b'x'; HEAD_LEN_MAX + 1];
        for len in [100, HEAD_LEN_MAX / 2 + 1, 10, HEAD_LEN_MAX - 1, text.len()] {
            assert!(kept.keep(&text[..len]));
            assert_eq!(kept.0.len(), len.min(HEAD_LEN_MAX));
            assert!(kept.0.capacity() <= HEAD_LEN_MAX, "{len}: {}", kept.0.capacity());
        }
    }
}
