//! Scans a whole text, or one that arrives in pieces.

use crate::judge::Judge;
use crate::lexer::Lexer;
use crate::signs::Seen;

/// Returns what a text may leave in the session. `standard_strings` is the session's
/// `standard_conforming_strings`: whether a backslash in `'…'` is an ordinary character.
pub fn scan(text: &[u8], standard_strings: bool) -> Seen {
    let mut scanner = Scanner::new(standard_strings);
    scanner.feed(text);
    scanner.finish()
}

/// Returns what a text may leave in the session, with either meaning of a backslash in `'…'`. An
/// earlier function call may change that meaning without showing it.
pub fn scan_either(text: &[u8]) -> Seen {
    let mut scanner = Scanner::new(true);
    scanner.feed(text);
    let has_backslash = scanner.lexer.has_backslash();
    let seen = scanner.finish();
    if has_backslash { seen | scan(text, false) } else { seen }
}

/// Scans a text that arrives in pieces, wherever it was cut. It remembers no more of the text than
/// one name.
#[derive(Clone, Debug)]
pub struct Scanner {
    lexer: Lexer,
    judge: Judge,
}

impl Scanner {
    pub const fn new(standard_strings: bool) -> Self {
        Self { lexer: Lexer::new(standard_strings), judge: Judge::new() }
    }

    pub fn feed(&mut self, piece: &[u8]) {
        let mut at = 0;
        while let Some(token) = self.lexer.next(piece, &mut at) {
            self.judge.take(token.kind, self.lexer.name());
        }
    }

    pub fn finish(mut self) -> Seen {
        // White space ends every token that can end.
        self.feed(b"\n");
        self.judge.finish(self.lexer.is_certain())
    }
}
