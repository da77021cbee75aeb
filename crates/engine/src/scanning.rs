//! A text that is passed on before all of it has come (`pool_mode = auto`): what it may leave in its
//! session is found out on the way, and known when its last byte goes to the server. Of the text
//! itself no more than its beginning is kept, unless it is to be sent once more.

use sql::{Scanner, Seen};

/// Names of settings are looked for in so many bytes of it, and its fingerprint is made of them.
pub const HEAD_LEN_MAX: usize = 4_096;

#[derive(Debug)]
pub struct Scanning {
    scanner: Scanner,
    /// Reads it with strings of the other kind, if nobody knows of which kind they will be.
    otherwise: Option<Scanner>,
    head: Vec<u8>,
    /// What follows in the message is no text.
    is_over: bool,
    /// Serial number of the Parse of an unnamed statement that it stands in; 0 in a Query.
    pub parse: u64,
    /// That message as far as it has come, if it is to be remembered.
    pub message: Option<Vec<u8>>,
}

impl Scanning {
    /// `standard_strings`: see [`sql::scan`]; None if that is not known.
    pub fn new(standard_strings: Option<bool>, parse: u64) -> Self {
        Self {
            scanner: Scanner::new(standard_strings.unwrap_or(true)),
            otherwise: standard_strings.is_none().then(|| Scanner::new(false)),
            head: Vec::new(),
            is_over: false,
            parse,
            message: None,
        }
    }

    /// The next bytes of its message. The text ends with a NUL.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(message) = &mut self.message {
            message.extend_from_slice(bytes);
        }
        if self.is_over {
            return;
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        self.is_over = end.is_some();
        let text = &bytes[..end.unwrap_or(bytes.len())];
        self.scanner.feed(text);
        if let Some(otherwise) = &mut self.otherwise {
            otherwise.feed(text);
        }
        let room = HEAD_LEN_MAX - self.head.len();
        self.head.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// What was seen, and the beginning of the text.
    pub fn finish(self) -> (Seen, Vec<u8>) {
        let seen = self.scanner.finish();
        let seen = self.otherwise.map_or(seen, |otherwise| seen | otherwise.finish());
        (seen, self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Signs;

    fn seen(pieces: &[&[u8]]) -> (Signs, Vec<u8>) {
        seen_with(Some(true), pieces)
    }

    fn seen_with(standard_strings: Option<bool>, pieces: &[&[u8]]) -> (Signs, Vec<u8>) {
        let mut scanning = Scanning::new(standard_strings, 0);
        pieces.iter().for_each(|piece| scanning.feed(piece));
        let (seen, head) = scanning.finish();
        (seen.signs, head)
    }

    #[test]
    fn where_a_text_is_cut_makes_no_difference() {
        let text = b"SELECT 'x'; SET a.b = 1\0";
        let whole = seen(&[text]);
        assert_eq!(whole, (Signs::SETTINGS, b"SELECT 'x'; SET a.b = 1".to_vec()));
        for at in 0..text.len() {
            assert_eq!(seen(&[&text[..at], &text[at..]]), whole, "{at}");
        }
        // The types of parameters, and nothing of the text.
        assert_eq!(seen(&[b"SELECT 1\0", b"SET a = 1"]).0, Signs::NONE);
    }

    #[test]
    fn where_it_is_not_known_what_a_backslash_is_both_are_thought_of() {
        for text in [
            &b"SELECT 'a\\'', set_config('a.x', '1', false) --'"[..],
            b"SELECT '\\'; SET a.x = '1'",
        ] {
            let signs = |standard| seen_with(standard, &[text]).0;
            let (one, other) = (signs(Some(true)), signs(Some(false)));
            assert!(one.intersects(Signs::SETTINGS) != other.intersects(Signs::SETTINGS));
            assert_eq!(signs(None), one | other);
        }
    }

    #[test]
    fn no_more_than_the_beginning_is_kept() {
        let piece = vec![b' '; 3_000];
        let (signs, head) = seen(&[&piece, &piece, &piece, b"LOAD 'x'\0"]);
        assert_eq!((signs, head.len()), (Signs::LOAD, HEAD_LEN_MAX));
    }
}
