//! Normalises a password before it is hashed (RFC 4013), with PostgreSQL's exceptions. If the two
//! ends did it differently, a password with accents would not match.

use std::borrow::Cow;

/// Returns the password in normal form. As in PostgreSQL, these are left unchanged: ASCII, invalid
/// UTF-8, and passwords that the rules forbid or reduce to nothing.
pub(super) fn saslprep(password: &[u8]) -> Cow<'_, [u8]> {
    if password.is_ascii() {
        return Cow::Borrowed(password);
    }
    let prepared = str::from_utf8(password).ok().and_then(|text| stringprep::saslprep(text).ok());
    match prepared {
        Some(text) if !text.is_empty() => Cow::Owned(text.into_owned().into_bytes()),
        _ => Cow::Borrowed(password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(password: &[u8], expected: &[u8]) {
        assert_eq!(&*saslprep(password), expected);
    }

    #[test]
    fn ascii_is_left_alone() {
        check(b"", b"");
        check(b"secret", b"secret");
        check(b"a\x07b\x7f", b"a\x07b\x7f");
    }

    #[test]
    fn text_is_normalized() {
        check("I\u{ad}X".as_bytes(), b"IX");
        check("\u{aa}".as_bytes(), b"a");
        check("\u{2168}".as_bytes(), b"IX");
        check("a\u{a0}b".as_bytes(), b"a b");
        check("e\u{301}".as_bytes(), "é".as_bytes());
    }

    #[test]
    fn passwords_that_cannot_be_normalized_are_unchanged() {
        for raw in ["\u{7}é", "\u{627}1", "\u{ad}", "\u{e000}"] {
            check(raw.as_bytes(), raw.as_bytes());
        }
        check(b"\xffabc", b"\xffabc");
    }
}
