//! The strings of a text as written, with their quotes. A string with a quote in it, or over
//! several lines, may be returned in parts. A string without an end is not returned, since
//! PostgreSQL refuses the text.

use crate::lexer::{Kind, Lexer};

/// `standard_strings` as for [`scan`](crate::scan()).
pub fn literals(text: &[u8], standard_strings: bool) -> impl Iterator<Item = &[u8]> {
    let mut lexer = Lexer::new(standard_strings);
    let mut at = 0;
    let mut is_over = false;
    core::iter::from_fn(move || {
        while !is_over {
            let token = lexer.next(text, &mut at).or_else(|| {
                is_over = true;
                // White space ends the last token.
                lexer.next(b"\n", &mut 0)
            });
            if let Some(token) = token.filter(|token| token.kind == Kind::String) {
                return text.get(token.start..token.end.min(text.len()));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, standard: bool) -> Vec<String> {
        let all = literals(text.as_bytes(), standard);
        all.map(|one| String::from_utf8_lossy(one).into_owned()).collect()
    }

    #[test]
    fn strings_of_every_kind() {
        assert_eq!(found("SELECT 'a', now() AS \"b'\", 'it''s'", true), ["'a'", "'it'", "'s'"]);
        assert_eq!(found("SELECT E'\\'a' -- 'b'", true), ["E'\\'a'"]);
        assert_eq!(found("SELECT $x$it's$x$, U&'a', $1", true), ["$x$it's$x$", "U&'a'"]);
        assert_eq!(found("SELECT '\\', 'b'", true), ["'\\'", "'b'"]);
        assert_eq!(found("SELECT '\\', '", false), ["'\\', '"]);
        assert_eq!(found("E'a'\n'b'", true), ["E'a'", "'b'"]);
        assert_eq!(found("SELECT 'a", true), [""; 0]);
        assert_eq!(found("", true), [""; 0]);
    }
}
