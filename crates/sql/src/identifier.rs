//! A name as the server reads it.

use std::borrow::Cow;

use crate::name::LEN_MAX;

/// Returns the name that a text writes as `raw`, perhaps in quotes. A name without quotes is
/// folded; in quotes, `""` becomes `"`. It is cut where PostgreSQL cuts it. Letters beyond ASCII
/// are not folded, as in every database with a multibyte encoding. Not for `U&"…"`.
pub fn identifier(raw: &[u8]) -> Cow<'_, [u8]> {
    let mut name = match raw {
        [b'"', inner @ .., b'"'] => unquoted(inner),
        [b'"', inner @ ..] => unquoted(inner),
        _ if raw.iter().any(u8::is_ascii_uppercase) => Cow::Owned(raw.to_ascii_lowercase()),
        _ => Cow::Borrowed(raw),
    };
    let len = cut(&name);
    match &mut name {
        Cow::Borrowed(name) => *name = name.get(..len).unwrap_or(name),
        Cow::Owned(name) => name.truncate(len),
    }
    name
}

fn unquoted(inner: &[u8]) -> Cow<'_, [u8]> {
    if !inner.contains(&b'"') {
        return Cow::Borrowed(inner);
    }
    let mut name = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        name.push(*byte);
        if *byte == b'"' {
            // The second of the two quotes.
            bytes.next();
        }
    }
    Cow::Owned(name)
}

/// Cuts to 63 bytes, without half a character of UTF-8.
fn cut(name: &[u8]) -> usize {
    if name.len() <= LEN_MAX {
        return name.len();
    }
    let continues = |at: &usize| name.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (LEN_MAX - 3..=LEN_MAX).rev().find(|at| !continues(at)).unwrap_or(LEN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_the_server_reads_them() {
        let long = "a".repeat(70);
        let wide = "\u{e9}".repeat(40);
        for (raw, name) in [
            ("Foo_1$", "foo_1$"),
            ("foo", "foo"),
            ("\"Foo\"", "Foo"),
            ("\"a\"\"b\"", "a\"b"),
            ("\"\"\"\"", "\""),
            ("\u{c9}A", "\u{c9}a"),
            (&long, &long[..63]),
            (&wide, &wide[..62]),
        ] {
            assert_eq!(identifier(raw.as_bytes()), name.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn invalid_names_are_read_without_harm() {
        for raw in [&b""[..], b"\"", b"\"\"", b"\"\"\"", &[0x80; 100], b"\"a\"b\""] {
            let _ = identifier(raw);
        }
    }
}
