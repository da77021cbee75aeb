//! The `key=value key=value` values of `[databases]`, `[users]` and `[peers]`.
//!
//! Blanks may surround `=`; a value with blanks is put in single quotes, in which a quote is
//! doubled. There are no other escapes and no empty values.
//!
//! A `;` or `#` in the place of a key begins a comment. PgBouncer has no such comments. It starts
//! with them behind the entry `*`, which it reads when a client needs it.

/// The end of the pairs of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Comment,
    SyntaxError,
}

/// Returns the pairs in order, up to a comment or a syntax error.
pub(crate) fn pairs(text: &str) -> (Vec<(String, String)>, End) {
    let mut pairs = Vec::new();
    let mut rest = blanks(text);
    while !rest.is_empty() {
        if rest.starts_with([';', '#']) {
            return (pairs, End::Comment);
        }
        let Some((key, value, next)) = pair(rest) else {
            return (pairs, End::SyntaxError);
        };
        pairs.push((key.to_owned(), value));
        rest = blanks(next);
    }
    (pairs, End::Complete)
}

/// Returns a number without the `;` behind it and the rest of its word, which PgBouncer's `atoi`
/// ignores.
pub(crate) fn number_before_comment(value: &str) -> Option<&str> {
    let (number, _) = value.split_once(';')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

/// Returns one pair and the text after it.
fn pair(text: &str) -> Option<(&str, String, &str)> {
    let end = text.find(|c| c == '=' || is_blank(c))?;
    let (key, rest) = text.split_at(end);
    let rest = blanks(blanks(rest).strip_prefix('=')?);
    let (value, rest) = match rest.strip_prefix('\'') {
        Some(rest) => quoted(rest)?,
        None => {
            let end = rest.find(is_blank).unwrap_or(rest.len());
            (rest[..end].to_owned(), &rest[end..])
        }
    };
    (!key.is_empty() && !value.is_empty()).then_some((key, value, rest))
}

/// Returns the rest of a quoted value and the text after its closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        value.push_str(before);
        match after.strip_prefix('\'') {
            Some(after) => {
                value.push('\'');
                rest = after;
            }
            None => return Some((value, after)),
        }
    }
}

fn blanks(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read() {
        let cases: [(&str, &[(&str, &str)]); 7] = [
            ("", &[]),
            ("   ", &[]),
            ("host=localhost port=5432", &[("host", "localhost"), ("port", "5432")]),
            ("host = localhost\tport=5432 ", &[("host", "localhost"), ("port", "5432")]),
            ("connect_query='SELECT 1'", &[("connect_query", "SELECT 1")]),
            ("password='it''s' user=a", &[("password", "it's"), ("user", "a")]),
            ("password=a=b'c", &[("password", "a=b'c")]),
        ];
        for (text, expected) in cases {
            let (found, end) = pairs(text);
            assert_eq!(end, End::Complete, "{text:?}");
            let found: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn syntax_errors_are_found() {
        let cases = ["host", "host=", "=x", "host='x", "host=''", "host=a port"];
        for text in cases {
            assert_eq!(pairs(text).1, End::SyntaxError, "{text:?}");
        }
    }

    #[test]
    fn comments_end_the_pairs() {
        for text in ["host=a ; the old one", "host=a #old", "host=a ;port=1", "host='a' ;"] {
            let (found, end) = pairs(text);
            assert_eq!((found.len(), end), (1, End::Comment), "{text:?}");
            assert_eq!(found[0], ("host".to_owned(), "a".to_owned()), "{text:?}");
        }
        assert_eq!(pairs("; nothing").1, End::Comment);
        assert_eq!(pairs("password=a;b#c").1, End::Complete);
        let numbers =
            [("5432;", Some("5432")), ("5432;x", Some("5432")), ("5432", None), ("a;", None)];
        for (value, expected) in numbers {
            assert_eq!(number_before_comment(value), expected);
        }
    }
}
