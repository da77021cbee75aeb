//! Splits bytes into tokens as PostgreSQL's `scan.l` does, wherever the bytes are cut into pieces.
//!
//! White space and comments are dropped. An operator is returned byte by byte. A number is a run of
//! digits: the `e5` of `1e5` and the `x1f` of `0x1f` are returned as words. PostgreSQL before 15
//! reads most of these the same way, and nothing here depends on them.
//!
//! ```text
//!  Between ─ letter ──► Word ─┬─ after e, b, x, n, u&: a quote ──► strings
//!     │ ▲                     └─ otherwise ──► token
//!     │ └──────────────────────── every token
//!     ├─ '  ──► Plain (until ')
//!     │     or  EscapedString (\ hides a byte) ─ ' ──► EscapedEnd ──► Continued
//!     │            ▲   Continued ─ white space with a line end, then ' ──┘
//!     ├─ "  ──► Quoted ─ " ──► QuotedEnd (a second " goes on)
//!     ├─ $  ──► Dollar ─ tag $ ──► DollarBody (until $tag$)
//!     ├─ -- ──► LineComment
//!     └─ /* ──► BlockComment, nested
//! ```

#[cfg(test)]
mod tests;

use crate::name::{Name, is_word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier without quotes, or a keyword.
    Word,
    /// An identifier in quotes.
    Quoted,
    /// `U&"…"`, whose name is not read.
    Unicode,
    /// A string of any kind, or one part of a string over several lines.
    String,
    /// A number without its letters, or `$1`.
    Number,
    /// Anything else, one byte.
    Symbol(u8),
}

/// `start` and `end` count from the beginning of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Lexer {
    standard_strings: bool,
    state: State,
    /// The last word or quoted identifier, until the next one or a dollar quote begins.
    name: Name,
    /// The position of the piece in the text.
    base: usize,
    /// The position of the token in the text.
    start: usize,
    doubtful: bool,
    /// A string in which backslashes have no effect has one.
    has_backslash: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Word,
    /// After `u&`.
    Ampersand,
    Number,
    Dash,
    Slash,
    LineComment,
    /// `last` is a byte that may be the first half of `*/` or `/*`, else 0.
    BlockComment {
        depth: u32,
        last: u8,
    },
    /// Only a quote ends it.
    Plain,
    /// A backslash escapes the next byte. `last` is the byte before.
    EscapedString {
        last: u8,
    },
    Backslash,
    /// After a quote in such a string: a second quote continues it.
    EscapedEnd,
    /// After a string with backslashes, which continues if a quote follows on a later line. `line`:
    /// a line has ended. `dash`: the byte before was `-`.
    Continued {
        line: bool,
        dash: bool,
    },
    /// A comment after such a string.
    ContinuedComment,
    Quoted {
        escaped: bool,
    },
    QuotedEnd {
        escaped: bool,
    },
    Dollar,
    DollarTag,
    /// `matched` bytes of the closing delimiter have been read.
    DollarBody {
        matched: usize,
    },
    /// In a dollar quote with a tag that is too long to keep: its end cannot be found.
    Lost,
}

impl Lexer {
    pub(crate) const fn new(standard_strings: bool) -> Self {
        Self {
            standard_strings,
            state: State::Between,
            name: Name::new(),
            base: 0,
            start: 0,
            doubtful: false,
            has_backslash: false,
        }
    }

    /// Returns the name of the last token, if that is an identifier or keyword, or a symbol
    /// directly after one.
    #[inline]
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// Has a string had a backslash that would escape a byte with `standard_conforming_strings`
    /// off?
    pub(crate) fn has_backslash(&self) -> bool {
        self.has_backslash
    }

    /// Is the end of a token read so far doubtful? See [`Self::is_certain`].
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Did the text end between tokens, and are all token boundaries certain? Feed a byte of white
    /// space before.
    ///
    /// In some client encodings (SJIS, BIG5, GBK, UHC, GB18030, JOHAB), an ASCII byte after one
    /// above 127 can be half of a character. This matters where it is a backslash that would escape
    /// a quote, and where it would end a name.
    pub(crate) fn is_certain(&self) -> bool {
        !self.doubtful && matches!(self.state, State::Between | State::Continued { .. })
    }

    // It has several callers, and each of auto mode's texts passes through one of them: left to the
    // compiler, the others cost that one 5 % of a transaction.
    /// Returns the next token that ends in this piece, which is read from `at` on. Returns None
    /// when the piece is used up; then pass the next piece with `at` 0.
    #[inline(always)]
    pub(crate) fn next(&mut self, piece: &[u8], at: &mut usize) -> Option<Token> {
        while let Some(rest @ [byte, ..]) = piece.get(*at..) {
            let here = self.base + *at;
            let (read, kind) = match self.state {
                State::Between => self.between(rest, *byte, here),
                _ => self.within(rest, *byte, here),
            };
            *at += read;
            if let Some(kind) = kind {
                let end = self.base + *at;
                return Some(Token { kind, start: self.start, end });
            }
        }
        self.base += piece.len();
        None
    }

    /// Reads some of `rest`, which begins with `byte` and is not empty. Returns the number of bytes
    /// read and the token that ends there. The number may be 0 if the state has changed.
    #[inline(never)]
    fn within(&mut self, rest: &[u8], byte: u8, here: usize) -> (usize, Option<Kind>) {
        match self.state {
            State::Between => self.between(rest, byte, here),
            State::Word => {
                let letters = self.name.push_word(rest);
                self.word(rest, letters)
            }
            State::Ampersand => self.ampersand(byte),
            State::Number => {
                let digits = run(rest, |byte| byte.is_ascii_digit());
                (digits, self.token_if(digits < rest.len(), Kind::Number))
            }
            State::Dash => match byte {
                b'-' => self.go(1, State::LineComment),
                _ => (0, self.token_if(true, Kind::Symbol(b'-'))),
            },
            State::Slash => match byte {
                b'*' => self.go(1, State::BlockComment { depth: 1, last: 0 }),
                _ => (0, self.token_if(true, Kind::Symbol(b'/'))),
            },
            State::LineComment => self.until(rest, is_line_end, State::Between),
            State::BlockComment { depth, last } => self.block_comment(rest, depth, last),
            State::Plain => {
                let text = run(rest, |byte| byte != b'\'');
                self.has_backslash |= rest.get(..text).is_some_and(|text| text.contains(&b'\\'));
                let ended = text < rest.len();
                (text + usize::from(ended), self.token_if(ended, Kind::String))
            }
            State::EscapedString { last } => self.escaped_string(rest, last),
            State::Backslash => self.go(1, State::EscapedString { last: byte }),
            State::EscapedEnd => match byte {
                b'\'' => self.go(1, State::EscapedString { last: byte }),
                _ => {
                    self.state = State::Continued { line: false, dash: false };
                    (0, Some(Kind::String))
                }
            },
            State::Continued { line, dash } => self.continued(byte, line, dash, here),
            State::ContinuedComment => {
                self.until(rest, is_line_end, State::Continued { line: true, dash: false })
            }
            State::Quoted { escaped } => {
                let text = self.name.push_quoted(rest);
                let ended = text < rest.len();
                self.state = if ended { State::QuotedEnd { escaped } } else { self.state };
                (text + usize::from(ended), None)
            }
            State::QuotedEnd { escaped } => match byte {
                b'"' => {
                    self.name.push_byte(byte);
                    self.go(1, State::Quoted { escaped })
                }
                _ if escaped => (0, self.token_if(true, Kind::Unicode)),
                _ => (0, self.token_if(true, Kind::Quoted)),
            },
            State::Dollar => self.dollar(byte),
            State::DollarTag => self.dollar_tag(rest),
            State::DollarBody { matched } => self.dollar_body(rest, matched),
            State::Lost => (rest.len(), None),
        }
    }

    #[inline(always)]
    fn between(&mut self, rest: &[u8], byte: u8, here: usize) -> (usize, Option<Kind>) {
        self.start = here;
        match byte {
            _ if is_space(byte) => (1, None),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => {
                let letters = self.name.read_word(rest);
                self.word(rest, letters)
            }
            b'"' => self.quoted(rest),
            b'0'..=b'9' => self.go(1, State::Number),
            b'\'' => self.go(1, self.string()),
            b'$' => self.go(1, State::Dollar),
            b'-' => self.go(1, State::Dash),
            b'/' => self.go(1, State::Slash),
            _ => (1, Some(Kind::Symbol(byte))),
        }
    }

    /// `letters` bytes of `rest` belong to the word, perhaps all.
    #[inline(always)]
    fn word(&mut self, rest: &[u8], letters: usize) -> (usize, Option<Kind>) {
        let Some(next) = rest.get(letters) else { return self.go(letters, State::Word) };
        if matches!(next, b'\'' | b'&') || is_half(*next) {
            return self.odd_word(*next, letters);
        }
        (letters, self.token_if(true, Kind::Word))
    }

    /// Decides whether the character after the word makes it a string, or is part of it.
    #[cold]
    fn odd_word(&mut self, next: u8, letters: usize) -> (usize, Option<Kind>) {
        let state = match (self.name.as_bytes(), next) {
            (b"e", b'\'') => State::EscapedString { last: 0 },
            (b"b" | b"x", b'\'') => State::Plain,
            (b"n", b'\'') => self.string(),
            (b"u", b'&') => State::Ampersand,
            _ => {
                self.doubt_end(next);
                return (letters, self.token_if(true, Kind::Word));
            }
        };
        self.go(letters + 1, state)
    }

    /// Ends a name before this byte, unless that may be half of a character.
    fn doubt_end(&mut self, next: u8) {
        let last = self.name.as_bytes().last();
        let half = self.name.is_cut() || last.is_some_and(|last| *last >= 0x80);
        self.doubtful |= is_half(next) && half;
    }

    /// Reads from the quote on.
    #[inline(always)]
    fn quoted(&mut self, rest: &[u8]) -> (usize, Option<Kind>) {
        let letters = self.name.read_quoted(rest.get(1..).unwrap_or_default());
        match rest.get(letters + 1..) {
            Some([b'"', next, ..]) if *next != b'"' => (letters + 2, Some(Kind::Quoted)),
            Some([b'"', ..]) => self.go(letters + 2, State::QuotedEnd { escaped: false }),
            _ => self.go(letters + 1, State::Quoted { escaped: false }),
        }
    }

    fn ampersand(&mut self, byte: u8) -> (usize, Option<Kind>) {
        match byte {
            b'\'' => self.go(1, State::Plain),
            b'"' => {
                self.name.clear();
                self.go(1, State::Quoted { escaped: true })
            }
            // It was a column named u, and an operator. The operator has no meaning here, so one
            // token is returned for both.
            _ => (0, self.token_if(true, Kind::Word)),
        }
    }

    fn string(&self) -> State {
        match self.standard_strings {
            true => State::Plain,
            false => State::EscapedString { last: 0 },
        }
    }

    fn escaped_string(&mut self, rest: &[u8], last: u8) -> (usize, Option<Kind>) {
        let text = run(rest, |byte| !matches!(byte, b'\'' | b'\\'));
        let before = text.checked_sub(1).and_then(|at| rest.get(at)).copied().unwrap_or(last);
        match rest.get(text) {
            None => self.go(text, State::EscapedString { last: before }),
            Some(b'\\') => {
                self.doubtful |= before >= 0x80;
                self.go(text + 1, State::Backslash)
            }
            Some(_) => self.go(text + 1, State::EscapedEnd),
        }
    }

    fn continued(
        &mut self,
        byte: u8,
        line: bool,
        dash: bool,
        here: usize,
    ) -> (usize, Option<Kind>) {
        match byte {
            b'-' if dash => self.go(1, State::ContinuedComment),
            _ if dash => (0, self.token_if(true, Kind::Symbol(b'-'))),
            b'-' => {
                self.start = here;
                self.go(1, State::Continued { line, dash: true })
            }
            b'\'' if line => {
                self.start = here;
                self.go(1, State::EscapedString { last: 0 })
            }
            _ if is_space(byte) => {
                self.go(1, State::Continued { line: line || is_line_end(byte), dash: false })
            }
            _ => self.go(0, State::Between),
        }
    }

    fn block_comment(&mut self, rest: &[u8], depth: u32, last: u8) -> (usize, Option<Kind>) {
        let Some(byte) = rest.first() else { return (0, None) };
        match (last, *byte) {
            (b'*', b'/') if depth == 1 => self.go(1, State::Between),
            (b'*', b'/') => self.go(1, State::BlockComment { depth: depth - 1, last: 0 }),
            (b'/', b'*') => {
                self.go(1, State::BlockComment { depth: depth.saturating_add(1), last: 0 })
            }
            (_, b'*' | b'/') => self.go(1, State::BlockComment { depth, last: *byte }),
            _ => {
                let text = run(rest, |byte| !matches!(byte, b'*' | b'/'));
                self.go(text, State::BlockComment { depth, last: 0 })
            }
        }
    }

    fn dollar(&mut self, byte: u8) -> (usize, Option<Kind>) {
        match byte {
            b'0'..=b'9' => self.go(1, State::Number),
            b'$' => {
                self.name.clear();
                self.go(1, State::DollarBody { matched: 0 })
            }
            _ if is_word(byte) => {
                self.name.clear();
                self.go(0, State::DollarTag)
            }
            _ => (0, self.token_if(true, Kind::Symbol(b'$'))),
        }
    }

    fn dollar_tag(&mut self, rest: &[u8]) -> (usize, Option<Kind>) {
        let letters = self.name.push_tag(rest);
        match rest.get(letters) {
            None => (letters, None),
            Some(b'$') if self.name.is_cut() => self.go(letters + 1, State::Lost),
            Some(b'$') => self.go(letters + 1, State::DollarBody { matched: 0 }),
            // A dollar that begins nothing: PostgreSQL refuses the text.
            Some(next) => {
                self.doubt_end(*next);
                self.name.fold();
                self.start += 1;
                (letters, self.token_if(true, Kind::Word))
            }
        }
    }

    fn dollar_body(&mut self, rest: &[u8], matched: usize) -> (usize, Option<Kind>) {
        let Some(byte) = rest.first() else { return (0, None) };
        let tag = self.name.as_bytes();
        match matched.checked_sub(1) {
            None => {
                let text = run(rest, |byte| byte != b'$');
                let found = text < rest.len();
                self.go(text + usize::from(found), State::DollarBody { matched: found.into() })
            }
            Some(place) if place == tag.len() && *byte == b'$' => {
                (1, self.token_if(true, Kind::String))
            }
            Some(place) if tag.get(place) == Some(byte) => {
                self.go(1, State::DollarBody { matched: matched + 1 })
            }
            // A dollar may begin the delimiter; the tag contains none.
            Some(_) => self.go(1, State::DollarBody { matched: usize::from(*byte == b'$') }),
        }
    }

    fn until(&mut self, rest: &[u8], ends: fn(u8) -> bool, then: State) -> (usize, Option<Kind>) {
        let text = run(rest, |byte| !ends(byte));
        if text < rest.len() {
            self.state = then;
        }
        (text, None)
    }

    fn go(&mut self, read: usize, state: State) -> (usize, Option<Kind>) {
        self.state = state;
        (read, None)
    }

    fn token_if(&mut self, ended: bool, kind: Kind) -> Option<Kind> {
        if !ended {
            return None;
        }
        self.state = State::Between;
        Some(kind)
    }
}

/// Returns how many bytes at the beginning satisfy `such`.
#[inline]
fn run(bytes: &[u8], such: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !such(*byte)).unwrap_or(bytes.len())
}

#[inline]
fn is_space(byte: u8) -> bool {
    byte == b' ' || matches!(byte, b'\t'..=b'\r')
}

/// Can the byte be the second of a two-byte character, and part of no name otherwise?
#[inline]
fn is_half(byte: u8) -> bool {
    matches!(byte, b'@' | b'['..=b'^' | b'`' | b'{'..=b'~')
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
