//! How a password is brought into a normal form before it is hashed (RFC 4013), with the exceptions
//! PostgreSQL makes. Both ends must do it alike, or a password with accents does not match itself.

use std::borrow::Cow;

/// The password in normal form. PostgreSQL leaves a password of ASCII alone, and takes one that
/// is not UTF-8, or that the rules forbid or reduce to nothing, as it is.
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
    fn what_cannot_be_normalized_is_taken_as_it_is() {
        for raw in ["\u{7}é", "\u{627}1", "\u{ad}", "\u{e000}"] {
            check(raw.as_bytes(), raw.as_bytes());
        }
        check(b"\xffabc", b"\xffabc");
    }
}
