//! A text as tokens with whole operators, for the judges that look names up.
//!
//! The lexer returns an operator byte by byte. Here neighbouring bytes become operators again, cut
//! where `scan.l` cuts them: an operator ends with `+` or `-` only if it contains one of
//! ``~ ! @ # % ^ & | ` ?``.

use core::ops::Range;

use crate::lexer::{Kind, Lexer};
use crate::name::Name;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    /// An identifier or keyword without quotes, folded.
    Word(&'a Name),
    /// An identifier in quotes.
    Quoted(&'a Name),
    String,
    /// A number or a parameter.
    Number,
    Operator(&'a [u8]),
    /// Any other byte.
    Symbol(u8),
    /// A name that cannot be read: `U&"…"`, a name of more than 63 bytes, or `u` before an operator
    /// with `&`.
    Unclear,
}

/// The facts known at the end of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// See [`Lexer::is_certain`].
    pub(crate) is_certain: bool,
    /// See [`Lexer::has_backslash`].
    pub(crate) has_backslash: bool,
}

/// Calls `take` for each token and its position, until it returns an error.
pub(crate) fn walk<E>(
    text: &[u8],
    standard_strings: bool,
    mut take: impl FnMut(Part<'_>, Range<usize>) -> Result<(), E>,
) -> Result<Walked, E> {
    let mut lexer = Lexer::new(standard_strings);
    let mut run = 0..0;
    // White space ends the last token.
    for piece in [text, b"\n"] {
        let mut at = 0;
        while let Some(token) = lexer.next(piece, &mut at) {
            let place = token.start..token.end;
            if let Kind::Symbol(sign) = token.kind
                && is_operator(sign)
            {
                if run.end != token.start {
                    operators(text, run, &mut take)?;
                    run = place;
                } else {
                    run.end = token.end;
                }
                continue;
            }
            operators(text, run, &mut take)?;
            // The next operator begins elsewhere.
            run = 0..0;
            let name = lexer.name();
            let part = match token.kind {
                Kind::Word if text.get(token.end - 1) == Some(&b'&') => Part::Unclear,
                Kind::Word | Kind::Quoted if name.is_cut() => Part::Unclear,
                Kind::Word => Part::Word(name),
                Kind::Quoted => Part::Quoted(name),
                Kind::Unicode => Part::Unclear,
                Kind::String => Part::String,
                Kind::Number => Part::Number,
                Kind::Symbol(sign) => Part::Symbol(sign),
            };
            take(part, place)?;
        }
    }
    operators(text, run, &mut take)?;
    Ok(Walked { is_certain: lexer.is_certain(), has_backslash: lexer.has_backslash() })
}

/// Splits a run of operator bytes into operators.
fn operators<E>(
    text: &[u8],
    run: Range<usize>,
    take: &mut impl FnMut(Part<'_>, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut start = run.start;
    while let Some(rest @ [_, ..]) = text.get(start..run.end) {
        let is_special = |byte: &u8| b"~!@#%^&|`?".contains(byte);
        let mut operator = rest;
        while let [before @ .., b'+' | b'-'] = operator {
            if before.is_empty() || before.iter().any(is_special) {
                break;
            }
            operator = before;
        }
        let end = start + operator.len();
        let read = if operator == b"!=" { b"<>" } else { operator };
        take(Part::Operator(read), start..end)?;
        start = end;
    }
    Ok(())
}

const fn is_operator(byte: u8) -> bool {
    matches!(
        byte,
        b'+' | b'-'
            | b'*'
            | b'/'
            | b'<'
            | b'>'
            | b'='
            | b'~'
            | b'!'
            | b'@'
            | b'#'
            | b'%'
            | b'^'
            | b'&'
            | b'|'
            | b'`'
            | b'?'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let done: Result<_, ()> = walk(text.as_bytes(), true, |part, place| {
            parts.push(match part {
                Part::Word(name) | Part::Quoted(name) => show(name.as_bytes()),
                Part::Operator(operator) => show(operator),
                Part::Symbol(sign) => show(&[sign]),
                Part::String | Part::Number => text[place].to_owned(),
                Part::Unclear => "unclear".to_owned(),
            });
            Ok(())
        });
        done.expect("no part is refused");
        parts
    }

    #[test]
    fn operators_are_cut_as_postgresql_cuts_them() {
        for (text, expected) in [
            ("a<-1", &["a", "<", "-", "1"][..]),
            ("a<@-b", &["a", "<@-", "b"]),
            ("a@-+b", &["a", "@-+", "b"]),
            ("a=+-b", &["a", "=", "+", "-", "b"]),
            ("a != b", &["a", "<>", "b"]),
            ("a!==b", &["a", "!==", "b"]),
            ("a || b", &["a", "||", "b"]),
            ("a ||/*c*/| b", &["a", "||", "|", "b"]),
            ("a *--c\n= b", &["a", "*", "=", "b"]),
            ("a ~~* b", &["a", "~~*", "b"]),
            ("count(*)", &["count", "(", "*", ")"]),
            ("a::b", &["a", ":", ":", "b"]),
            ("a->>'x'", &["a", "->>", "'x'"]),
            ("OPERATOR(s.+)", &["operator", "(", "s", ".", "+", ")"]),
            ("1-$1", &["1", "-", "$1"]),
            ("a -", &["a", "-"]),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn names_that_cannot_be_read_are_told() {
        let long = "a".repeat(64);
        assert_eq!(parts("u&b"), ["unclear", "b"]);
        assert_eq!(parts("U&\"b\" u & b"), ["unclear", "u", "&", "b"]);
        assert_eq!(parts(&long), ["unclear"]);
        assert_eq!(parts(&format!("\"{long}\" {}", &long[1..])), ["unclear", &long[1..]]);
    }

    #[test]
    fn the_end_is_certain_or_not() {
        let walked = |text: &str| walk(text.as_bytes(), true, |_, _| Ok::<(), ()>(()));
        assert!(walked("SELECT 1").is_ok_and(|walked| walked.is_certain));
        assert!(walked("SELECT '").is_ok_and(|walked| !walked.is_certain));
        assert!(walked("SELECT '\\'").is_ok_and(|walked| walked.has_backslash));
    }
}
