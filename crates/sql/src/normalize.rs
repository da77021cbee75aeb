//! The normal form of a text: what texts have in common that differ in their literals only.
//!
//! * A literal or a parameter is `?`; a list of them is `?, ...`.
//! * Words are in lower case, tokens are one space apart or none, comments and the last semicolon
//!   are left out.
//! * The value in SET, and the password in ALTER ROLE and CREATE ROLE, is `?` in any form.
//!
//! Invariant: the normal form has no byte of a literal, whatever the session's
//! `standard_conforming_strings` and the client's encoding are. Where two readings of the text
//! differ, the normal form ends. The same holds where the end of a token is doubtful, and at the
//! first literal of a text that ends within a string, which PostgreSQL refuses.

#[cfg(test)]
mod tests;

use crate::lexer::{Kind, Lexer, Token};

/// Writes the normal form of `text` to `out`, as far as it fits. Returns its length. `is_whole` is
/// false if the text goes on.
pub fn normalize(text: &[u8], is_whole: bool, out: &mut [u8]) -> usize {
    let mut normal = Normal { out, len: 0 };
    let has_backslash = read(text, is_whole, true, &mut normal);
    let len = normal.len;
    if !has_backslash {
        return len;
    }
    let mut other = Same { as_in: out.get(..len).unwrap_or_default(), len: 0 };
    read(text, is_whole, false, &mut other);
    other.len
}

/// Reads the text once. Returns whether the other meaning of a backslash would make a difference.
fn read(text: &[u8], is_whole: bool, standard_strings: bool, to: &mut impl Sink) -> bool {
    let mut lexer = Lexer::new(standard_strings);
    let mut writer = Writer::new(to);
    let mut at = 0;
    while let Some(token) = next(&mut lexer, text, &mut at) {
        if lexer.is_doubtful() || !writer.take(token, text) {
            return lexer.has_backslash();
        }
    }
    // White space ends every token that can end.
    if let Some(token) = next(&mut lexer, b"\n", &mut 0)
        && !lexer.is_doubtful()
    {
        writer.take(token, text);
    }
    if !lexer.is_certain() {
        writer.end_within(is_whole);
    }
    lexer.has_backslash()
}

/// Kept out of line, so that the lexer stays inline where each text of auto mode passes through it.
#[inline(never)]
fn next(lexer: &mut Lexer, piece: &[u8], at: &mut usize) -> Option<Token> {
    lexer.next(piece, at)
}

/// The destination of a normal form.
trait Sink {
    /// Appends bytes. Returns false if no more are of interest.
    fn push(&mut self, bytes: &[u8], lower: bool) -> bool;
    fn len(&self) -> usize;
    fn cut(&mut self, len: usize);
}

struct Normal<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Sink for Normal<'_> {
    fn push(&mut self, bytes: &[u8], lower: bool) -> bool {
        let rest = self.out.get_mut(self.len..).unwrap_or_default();
        let len = bytes.len().min(rest.len());
        if let (Some(to), Some(from)) = (rest.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
            if lower {
                to.make_ascii_lowercase();
            }
        }
        self.len += len;
        len == bytes.len()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// Finds how far another reading is the same.
struct Same<'a> {
    as_in: &'a [u8],
    len: usize,
}

impl Sink for Same<'_> {
    fn push(&mut self, bytes: &[u8], lower: bool) -> bool {
        let rest = self.as_in.get(self.len..).unwrap_or_default();
        let cased = |byte: &u8| if lower { byte.to_ascii_lowercase() } else { *byte };
        let same = rest.iter().zip(bytes).take_while(|(own, byte)| **own == cased(byte)).count();
        self.len += same;
        same == bytes.len()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// The last token that was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Start,
    Word,
    /// `?`, or with `is_list` `?, ...`.
    Literal {
        is_list: bool,
    },
    Symbol(u8),
}

/// The kind of a statement, as far as it decides what is hidden.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Statement {
    /// No word was read yet.
    Begins,
    /// ALTER or CREATE; the next word decides.
    Defines,
    /// ALTER ROLE, CREATE USER and the like.
    Role,
    /// SET: all after `=` or TO is hidden.
    Sets,
    /// The value of SET.
    Value,
    Other,
}

struct Writer<'a, S> {
    to: &'a mut S,
    last: Last,
    /// The end of the last token in the text.
    end: usize,
    /// A comma or a semicolon that is written with the next token: 0 is none.
    pending: u8,
    statement: Statement,
    /// The last word was PASSWORD, in a statement about a role.
    hides: bool,
    first_literal: Option<usize>,
}

impl<'a, S: Sink> Writer<'a, S> {
    fn new(to: &'a mut S) -> Self {
        Self {
            to,
            last: Last::Start,
            end: 0,
            pending: 0,
            statement: Statement::Begins,
            hides: false,
            first_literal: None,
        }
    }

    /// Writes a token. Returns false if no more are of interest.
    fn take(&mut self, token: Token, text: &[u8]) -> bool {
        let Token { kind, start, end } = token;
        let touches = start == self.end;
        self.end = end;
        let slice = text.get(start..end.min(text.len())).unwrap_or_default();
        let after_literal = matches!(self.last, Last::Literal { .. }) && self.pending == 0;
        match kind {
            Kind::Symbol(b';') => {
                (self.statement, self.hides) = (Statement::Begins, false);
                if self.pending == b';' || self.last == Last::Start {
                    return true;
                }
                let goes_on = self.flush();
                self.pending = b';';
                goes_on
            }
            _ if self.statement == Statement::Value => true,
            // The rest of a number, or of a string over several lines.
            Kind::Word | Kind::Number | Kind::Symbol(b'.') if after_literal && touches => true,
            Kind::String if after_literal => true,
            Kind::String | Kind::Number => self.literal(),
            Kind::Word | Kind::Quoted | Kind::Unicode if self.hides => {
                self.hides = false;
                self.literal()
            }
            Kind::Word => {
                self.read_word(slice);
                self.flush() && self.write(Last::Word, slice, true, touches)
            }
            Kind::Quoted | Kind::Unicode => {
                self.leave_lead();
                self.flush() && self.write(Last::Word, slice, false, touches)
            }
            Kind::Symbol(b',') if after_literal => {
                self.pending = b',';
                true
            }
            Kind::Symbol(symbol) => {
                let goes_on =
                    self.flush() && self.write(Last::Symbol(symbol), &[symbol], false, touches);
                if symbol == b'=' && self.statement == Statement::Sets {
                    return goes_on && self.value();
                }
                goes_on
            }
        }
    }

    fn read_word(&mut self, word: &[u8]) {
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        self.statement = match self.statement {
            Statement::Begins if is("set") => Statement::Sets,
            Statement::Begins if is("alter") || is("create") => Statement::Defines,
            Statement::Defines if is("role") || is("user") || is("group") => Statement::Role,
            Statement::Begins | Statement::Defines => Statement::Other,
            statement => statement,
        };
        self.hides = self.statement == Statement::Role && is("password");
        if self.statement == Statement::Sets && is("to") {
            self.statement = Statement::Value;
        }
    }

    fn leave_lead(&mut self) {
        if matches!(self.statement, Statement::Begins | Statement::Defines) {
            self.statement = Statement::Other;
        }
    }

    fn value(&mut self) -> bool {
        self.statement = Statement::Value;
        self.literal()
    }

    fn literal(&mut self) -> bool {
        self.hides = false;
        self.leave_lead();
        if let (Last::Literal { is_list }, b',') = (self.last, self.pending) {
            self.pending = 0;
            self.last = Last::Literal { is_list: true };
            return is_list || self.to.push(b", ...", false);
        }
        let goes_on = self.flush();
        self.first_literal.get_or_insert(self.to.len());
        goes_on && self.write(Last::Literal { is_list: false }, b"?", false, false)
    }

    /// Writes the comma or semicolon that was put off.
    fn flush(&mut self) -> bool {
        match core::mem::take(&mut self.pending) {
            0 => true,
            symbol => self.write(Last::Symbol(symbol), &[symbol], false, true),
        }
    }

    fn write(&mut self, next: Last, bytes: &[u8], lower: bool, touches: bool) -> bool {
        let goes_on = !self.is_apart(next, touches) || self.to.push(b" ", false);
        let is_to = self.statement == Statement::Value && next == Last::Word;
        self.last = next;
        let goes_on = goes_on && self.to.push(bytes, lower);
        if is_to { goes_on && self.value() } else { goes_on }
    }

    /// Is there a space between the last token and the next one?
    fn is_apart(&self, next: Last, touches: bool) -> bool {
        match (self.last, next) {
            (Last::Start, _) => false,
            (Last::Symbol(b'(' | b'[' | b'.' | b':'), _) => false,
            (_, Last::Symbol(b')' | b']' | b'.' | b',' | b';' | b':')) => false,
            (Last::Word, Last::Symbol(b'(' | b'[')) => false,
            (Last::Symbol(b',' | b';' | b')' | b']'), _) => true,
            (Last::Symbol(_), Last::Symbol(b'(')) => true,
            // An operator is read byte by byte.
            (Last::Symbol(_), Last::Symbol(_)) => !touches,
            _ => true,
        }
    }

    /// The text ends within a token, or must not end here.
    fn end_within(&mut self, is_whole: bool) {
        match self.first_literal {
            Some(at) if is_whole => {
                self.to.cut(at);
                self.to.push(b" ?", false);
            }
            _ if self.statement == Statement::Value => {}
            _ => {
                self.literal();
            }
        }
    }
}
