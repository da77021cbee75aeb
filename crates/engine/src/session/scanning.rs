//! Examines a text that is passed on in parts (`pool_mode = auto`). The result is known when its
//! last byte goes to the server. Only the text's beginning is kept, unless the message may have to
//! be sent again.

use sql::{Scanner, Seen};

use crate::encoding::Letters;
use crate::session::setting_names::{Finder, SettingNames};
use crate::watch::texts::NORMALIZED_LEN_MAX;

/// One byte more than the fingerprint of a text covers, to tell whether the text is longer.
pub(crate) const HEAD_LEN_MAX: usize = NORMALIZED_LEN_MAX + 1;
/// A searched word may have this many bytes, and is found even if a cut divides it.
const OVERLAP: usize = 4_096;

#[derive(Debug)]
pub struct Scanning {
    /// One for each meaning of a backslash in a string: see [`sql::scan_either`].
    scanners: [Scanner; 2],
    finder: Finder,
    names: SettingNames,
    head: Vec<u8>,
    /// The last bytes before the next part.
    tail: Vec<u8>,
    /// The words that the search has found so far.
    pub found: Searched,
    /// The text has ended. The rest of the message is not text.
    is_over: bool,
    /// Serial number of the Parse of an unnamed statement that contains the text; 0 for a Query.
    pub parse: u64,
    /// The message so far, if it is to be remembered.
    pub message: Option<Vec<u8>>,
}

/// Facts that a search for words finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// A function of `pin_functions`.
    pub pinned: bool,
    /// A setting that PostgreSQL hides.
    pub hidden: bool,
}

impl Scanning {
    /// `letters`: see [`SettingNames::new`].
    pub fn new(letters: Letters, parse: u64) -> Self {
        Self {
            scanners: [true, false].map(Scanner::new),
            // Accepts blanks around dots: whether the text sets something is known too late.
            finder: Finder::new(true),
            names: SettingNames::new(letters),
            head: Vec::new(),
            tail: Vec::new(),
            found: Searched::default(),
            is_over: false,
            parse,
            message: None,
        }
    }

    /// Examines the next bytes of the message. A NUL ends the text. `search` looks for words in a
    /// part of the text.
    pub fn feed(&mut self, bytes: &[u8], search: impl Fn(&[u8]) -> Searched) {
        if let Some(message) = &mut self.message {
            message.extend_from_slice(bytes);
        }
        if self.is_over {
            return;
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        self.is_over = end.is_some();
        let text = &bytes[..end.unwrap_or(bytes.len())];
        self.scanners.iter_mut().for_each(|scanner| scanner.feed(text));
        self.finder.feed(text, &mut self.names);
        let room = HEAD_LEN_MAX - self.head.len();
        self.head.extend_from_slice(&text[..text.len().min(room)]);
        // First the bytes around the cut, then the new part.
        self.tail.extend_from_slice(&text[..text.len().min(OVERLAP)]);
        for part in [&self.tail[..], text] {
            let found = search(part);
            self.found.pinned |= found.pinned;
            self.found.hidden |= found.hidden;
        }
        if text.len() >= OVERLAP {
            self.tail = text[text.len() - OVERLAP..].to_vec();
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(OVERLAP));
        }
    }

    /// Returns what was seen, the possible names of settings, and the beginning of the text.
    pub fn finish(mut self) -> (Seen, SettingNames, Vec<u8>) {
        self.finder.finish(&mut self.names);
        let [standard, other] = self.scanners.map(Scanner::finish);
        let seen = standard | other;
        (seen, self.names, self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Signs;

    fn seen(pieces: &[&[u8]]) -> (Signs, Vec<u8>) {
        let mut scanning = Scanning::new(Letters::Ascii, 0);
        pieces.iter().for_each(|piece| scanning.feed(piece, |_| Searched::default()));
        let (seen, _, head) = scanning.finish();
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
        // After the text come parameter types, which do not count.
        assert_eq!(seen(&[b"SELECT 1\0", b"SET a = 1"]).0, Signs::NONE);
    }

    #[test]
    fn both_meanings_of_a_backslash_are_thought_of() {
        for text in [
            &b"SELECT 'a\\'', set_config('a.x', '1', false) --'"[..],
            b"SELECT '\\'; SET a.x = '1'",
        ] {
            let signs = [true, false].map(|standard| sql::scan(text, standard).signs);
            assert!(signs[0].intersects(Signs::SETTINGS) != signs[1].intersects(Signs::SETTINGS));
            for at in 0..text.len() {
                let found = seen(&[&text[..at], &text[at..]]).0;
                assert_eq!(found, signs[0] | signs[1], "{at}");
            }
        }
    }

    #[test]
    fn names_are_found_wherever_they_stand() {
        let mut scanning = Scanning::new(Letters::Ascii, 0);
        let blanks = vec![b' '; 9_000];
        for piece in [&blanks[..], b"SET app.x", &blanks, b". y = 1; SET b", b".c = 2\0d.e"] {
            scanning.feed(piece, |_| Searched::default());
        }
        let (_, names, _) = scanning.finish();
        let names: Vec<_> = names.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&b"app.x.y"[..], b"b.c"]);
    }

    #[test]
    fn no_more_than_the_beginning_is_kept() {
        let piece = vec![b' '; 6_000];
        let (signs, head) = seen(&[&piece, &piece, &piece, b"LOAD 'x'\0"]);
        assert_eq!((signs, head.len()), (Signs::LOAD, HEAD_LEN_MAX));
    }

    #[test]
    fn words_are_found_wherever_the_text_is_cut() {
        let text = [&[b' '; 9_000][..], b"pinned()", &[b' '; 5_000]].concat();
        let search = |part: &[u8]| Searched {
            pinned: part.windows(8).any(|part| part == b"pinned()"),
            hidden: false,
        };
        for len in [1, 7, 100, 4_095, 4_096, 4_097, 9_004, 20_000] {
            let mut scanning = Scanning::new(Letters::Ascii, 0);
            text.chunks(len).for_each(|piece| scanning.feed(piece, search));
            assert!(scanning.found.pinned, "{len}");
        }
    }
}
