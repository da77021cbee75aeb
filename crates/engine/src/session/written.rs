//! The text form of a session's state: items with semicolons between them, such as `s:work_mem=64MB`.
//! `extension/README.md` defines it. The library writes it into its reports and into the windows of
//! a lobby, and PostgreSQL into the answer to the probe.

use crate::session::carried::Setting;

/// Returns the letter and the rest of each item with a rest.
pub(crate) fn items(text: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    text.split(|byte| *byte == b';').filter_map(|item| match item {
        [letter, b':', rest @ ..] => Some((*letter, rest)),
        _ => None,
    })
}

/// Reads a setting. PostgreSQL compares names without regard to case; its own names have one spelling.
pub(crate) fn setting_of(pair: &[u8]) -> Option<Setting> {
    let mut setting = pair_of(pair)?;
    if setting.name.contains(&b'.') {
        setting.name.make_ascii_lowercase();
    }
    Some(setting)
}

/// Reads a name and a value.
pub(crate) fn pair_of(pair: &[u8]) -> Option<Setting> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (text(&pair[..at])?, text(&pair[at + 1..])?);
    Some(Setting { name, value })
}

/// Decodes a text. Its bytes contain no zero, since PostgreSQL's texts contain none. The probe's answer
/// has control characters as they are.
pub(crate) fn text(written: &[u8]) -> Option<Box<[u8]>> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' => {
                let (digits, behind) = rest.split_first_chunk::<3>()?;
                let [high, middle, low] = digits.map(|digit| digit.wrapping_sub(b'0'));
                if high > 3 || middle > 7 || low > 7 || digits == b"000" {
                    return None;
                }
                bytes.push(high << 6 | middle << 3 | low);
                rest = behind;
            }
            b'=' | b';' | 0 | 0x80.. => return None,
            plain => bytes.push(plain),
        }
    }
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_dot_have_one_spelling() {
        let name = |pair: &[u8]| String::from_utf8(setting_of(pair).unwrap().name.into()).unwrap();
        assert_eq!(
            (name(b"App.Tenant=A"), name(b"DateStyle=A")),
            ("app.tenant".into(), "DateStyle".into())
        );
    }

    fn decoded(written: &str) -> Option<Vec<u8>> {
        text(written.as_bytes()).map(Vec::from)
    }

    #[test]
    fn texts_are_bytes_written_in_ascii() {
        assert_eq!(decoded("it's\n").unwrap(), b"it's\n");
        assert_eq!(decoded(r"\303\244\134x\075").unwrap(), b"\xc3\xa4\\x=");
        for broken in [r"\", r"\30", r"\8x1", r"\777", r"\000", r"\+12", "=", ";", "\0", "\u{e4}"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_pair_has_one_equals_sign() {
        let pair = pair_of(b"a=\\075").unwrap();
        assert_eq!((&*pair.name, &*pair.value), (&b"a"[..], &b"="[..]));
        assert!(pair_of(b"a").is_none() && pair_of(b"a=b=c").is_none());
    }
}
