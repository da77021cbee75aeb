//! Recognises a text that only cancels or terminates one backend.
//!
//! Unlike [`scan`](crate::scan()), it is strict: PostgreSQL runs a text of any other form
//! unchanged.

use std::borrow::Cow;

use crate::identifier::identifier;
use crate::lexer::{Kind, Lexer};

/// The call of `pg_cancel_backend` or `pg_terminate_backend` that is the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalCall<'a> {
    /// It is `pg_terminate_backend`.
    pub terminates: bool,
    pub process: Process,
    /// The process id is cast to an integer.
    pub casts: bool,
    /// The name of the one column that the text returns.
    pub column: Cow<'a, [u8]>,
}

/// The backend to signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    Id(u32),
    /// The first parameter, and there is no other one.
    Parameter,
}

/// Reads `SELECT [pg_catalog.]f(argument[::int] [, timeout]) [AS name] [;]`, where the argument is a
/// number, a string of digits or `$1`.
pub fn signal_call(text: &[u8]) -> Option<SignalCall<'_>> {
    let mut tokens = Tokens { text, at: 0, lexer: Lexer::new(true), is_over: false };
    tokens.word(b"select")?;
    let mut name = tokens.name()?;
    let mut next = tokens.next();
    if &*name == b"pg_catalog" && is_symbol(next, b'.') {
        name = tokens.name()?;
        next = tokens.next();
    }
    let terminates = match &*name {
        b"pg_cancel_backend" => false,
        b"pg_terminate_backend" => true,
        _ => return None,
    };
    if !is_symbol(next, b'(') {
        return None;
    }
    let process = process(tokens.next()?)?;
    let mut next = tokens.next();
    let casts = is_symbol(next, b':');
    if casts {
        tokens.cast_type()?;
        next = tokens.next();
    }
    if terminates && is_symbol(next, b',') {
        let (Kind::Number, [b'0'..=b'9', ..]) = tokens.next()? else { return None };
        next = tokens.next();
    }
    if !is_symbol(next, b')') {
        return None;
    }
    let mut column = name;
    next = tokens.next();
    if let Some((Kind::Word, word)) = next {
        if !word.eq_ignore_ascii_case(b"as") {
            return None;
        }
        column = tokens.name()?;
        next = tokens.next();
    }
    if is_symbol(next, b';') {
        next = tokens.next();
    }
    let is_whole = next.is_none() && tokens.lexer.is_certain();
    is_whole.then_some(SignalCall { terminates, process, casts, column })
}

type Found<'a> = (Kind, &'a [u8]);

/// A text, token by token.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    lexer: Lexer,
    is_over: bool,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<Found<'a>> {
        if self.is_over {
            return None;
        }
        let token = self.lexer.next(self.text, &mut self.at).or_else(|| {
            self.is_over = true;
            // White space ends the last token.
            self.lexer.next(b"\n", &mut 0)
        })?;
        let written = self.text.get(token.start..token.end.min(self.text.len()))?;
        Some((token.kind, written))
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let (kind, written) = self.next()?;
        (kind == Kind::Word && written.eq_ignore_ascii_case(word)).then_some(())
    }

    /// Returns an identifier, as the server reads it.
    fn name(&mut self) -> Option<Cow<'a, [u8]>> {
        let (kind, written) = self.next()?;
        matches!(kind, Kind::Word | Kind::Quoted).then(|| identifier(written))
    }

    /// Reads the rest of `::int`, after the first colon.
    fn cast_type(&mut self) -> Option<()> {
        const INTEGERS: [&[u8]; 3] = [b"int", b"integer", b"int4"];
        let before = self.at;
        let is_cast = is_symbol(self.next(), b':') && self.at == before + 1;
        let (kind, written) = self.next()?;
        let is_integer = INTEGERS.iter().any(|name| written.eq_ignore_ascii_case(name));
        (is_cast && kind == Kind::Word && is_integer).then_some(())
    }
}

fn is_symbol(found: Option<Found<'_>>, symbol: u8) -> bool {
    found.is_some_and(|(kind, _)| kind == Kind::Symbol(symbol))
}

fn process((kind, written): Found<'_>) -> Option<Process> {
    let digits = match (kind, written) {
        (Kind::Number, b"$1") => return Some(Process::Parameter),
        (Kind::Number, digits) => digits,
        (Kind::String, [b'\'', digits @ .., b'\'']) => digits,
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Process::Id(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(bool, Process, bool, String)> {
        let SignalCall { terminates, process, casts, column } = signal_call(text.as_bytes())?;
        Some((terminates, process, casts, String::from_utf8_lossy(&column).into_owned()))
    }

    #[test]
    fn calls_in_every_form() {
        const ID: Process = Process::Id(1_234_567_890);
        const PARAMETER: Process = Process::Parameter;
        let cancel = "pg_cancel_backend";
        for (text, terminates, process, casts, column) in [
            ("SELECT pg_cancel_backend(1234567890)", false, ID, false, cancel),
            ("select pg_catalog.pg_cancel_backend($1);", false, PARAMETER, false, cancel),
            ("SELECT Pg_Cancel_Backend ( '1234567890' ) ;", false, ID, false, cancel),
            ("select \"pg_cancel_backend\"($1::int)", false, PARAMETER, true, cancel),
            ("select pg_cancel_backend($1::INTEGER) AS pg_1", false, PARAMETER, true, "pg_1"),
            ("select pg_terminate_backend(1234567890, 5000)", true, ID, false, ""),
            ("/* a */ select -- b\npg_terminate_backend($1)", true, PARAMETER, false, ""),
            ("select pg_terminate_backend($1) as \"A\"\"b\"", true, PARAMETER, false, "A\"b"),
            ("select pg_terminate_backend($1) as select", true, PARAMETER, false, "select"),
        ] {
            let column = if column.is_empty() { "pg_terminate_backend" } else { column };
            let expected = (terminates, process, casts, column.to_owned());
            assert_eq!(read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_read() {
        for text in [
            "",
            "SELECT",
            "SELECT 1",
            "SELECT pg_cancel_backend",
            "SELECT pg_cancel_backend()",
            "SELECT pg_cancel_backend(1",
            "SELECT pg_cancel_backend(1))",
            "SELECT pg_cancel_backend(-1)",
            "SELECT pg_cancel_backend(1.5)",
            "SELECT pg_cancel_backend(1e5)",
            "SELECT pg_cancel_backend(1_000)",
            "SELECT pg_cancel_backend(0x10)",
            "SELECT pg_cancel_backend(99999999999)",
            "SELECT pg_cancel_backend('1x')",
            "SELECT pg_cancel_backend('')",
            "SELECT pg_cancel_backend(E'1')",
            "SELECT pg_cancel_backend($2)",
            "SELECT pg_cancel_backend($1::text)",
            "SELECT pg_cancel_backend($1: :int)",
            "SELECT pg_cancel_backend($1, 1)",
            "SELECT pg_terminate_backend($1, $2)",
            "SELECT pg_terminate_backend($1, -1)",
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
            "SELECT pg_cancel_backend(1), 1",
            "SELECT pg_cancel_backend(1) FROM t",
            "SELECT pg_cancel_backend(1) limit",
            "SELECT pg_cancel_backend(1) WHERE false",
            "SELECT pg_cancel_backend(1); SELECT 1",
            "SELECT NOT pg_cancel_backend(1)",
            "SELECT mine.pg_cancel_backend(1)",
            "SELECT pg_catalog.abs(1)",
            "SELECT U&\"pg_cancel_backend\"(1)",
            "SELECT pg_cancel_backend(1) AS U&\"a\"",
            "SELECT pg_cancel_backend(1) AS",
            "SELECT pg_cancel_backend(1) /*",
            "EXPLAIN SELECT pg_cancel_backend(1)",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn no_bytes_do_harm() {
        let text = b"SELECT pg_cancel_backend($1::int) AS \"a\" ;";
        for end in 0..text.len() {
            for byte in [0, b'\'', b'"', b'$', 0xff] {
                let mut cut = text[..end].to_vec();
                cut.push(byte);
                let _ = signal_call(&cut);
            }
        }
    }
}
