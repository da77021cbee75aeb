//! Distinguished names in a form in which equal names have equal bytes.

use x509_parser::{
    der_parser::asn1_rs::{Any, Class, Tag},
    x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name},
};

/// A distinguished name in canonical form. Comparisons ignore case, the kind of string, and the
/// number of spaces between words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    pub(crate) fn new(name: &X509Name<'_>) -> Self {
        let mut canonical = Vec::new();
        for part in name.iter_rdn() {
            append(&mut canonical, &part_bytes(part));
        }
        Self(canonical)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Does the name begin with all parts of `base`?
    pub(crate) fn is_within(&self, base: &Self) -> bool {
        self.0.starts_with(&base.0)
    }
}

/// A part is a set: the order of its attributes has no meaning.
fn part_bytes(part: &RelativeDistinguishedName<'_>) -> Vec<u8> {
    let mut attributes: Vec<Vec<u8>> = part.iter().map(attribute_bytes).collect();
    attributes.sort_unstable();
    let mut bytes = Vec::new();
    for attribute in attributes {
        append(&mut bytes, &attribute);
    }
    bytes
}

fn attribute_bytes(attribute: &AttributeTypeAndValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, attribute.attr_type().as_bytes());
    let value = attribute.attr_value();
    match text(value) {
        Some(text) => append(&mut bytes, folded(&text).as_bytes()),
        None => {
            bytes.extend(value.tag().0.to_be_bytes());
            append(&mut bytes, value.data);
        }
    }
    bytes
}

/// Appends a length and the content, so that different names cannot have equal bytes.
fn append(bytes: &mut Vec<u8>, content: &[u8]) {
    bytes.extend((content.len() as u64).to_be_bytes());
    bytes.extend_from_slice(content);
}

/// Returns the value if OpenSSL compares this kind of string as text.
pub(crate) fn text(value: &Any<'_>) -> Option<String> {
    if value.class() != Class::Universal {
        return None;
    }
    let data = value.data;
    match value.tag() {
        Tag::Utf8String => str::from_utf8(data).ok().map(str::to_owned),
        Tag::PrintableString | Tag::T61String | Tag::Ia5String | Tag::VisibleString => {
            Some(data.iter().copied().map(char::from).collect())
        }
        Tag::BmpString => wide::<2>(data),
        Tag::UniversalString => wide::<4>(data),
        _ => None,
    }
}

/// Reads characters of `LEN` bytes each.
fn wide<const LEN: usize>(data: &[u8]) -> Option<String> {
    let (characters, []) = data.as_chunks::<LEN>() else { return None };
    let number = |bytes: &[u8; LEN]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    characters.iter().map(|bytes| char::from_u32(number(bytes))).collect()
}

/// Returns lower-case letters, one space between words, and none around.
fn folded(text: &str) -> String {
    let is_space = |c: char| c.is_ascii_whitespace() || c == '\u{b}';
    let words: Vec<&str> = text.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_case_make_no_difference() {
        assert_eq!(folded("  Weir \t Test\u{b}"), "weir test");
        assert_eq!(folded("ÜBER"), "Über");
    }

    #[test]
    fn wide_characters_are_read_whole_or_not_at_all() {
        assert_eq!(wide::<2>(b"\0a\0b").as_deref(), Some("ab"));
        assert_eq!(wide::<2>(b"\0a\0"), None);
        assert_eq!(wide::<4>(b"\0\x11\0\0"), None);
    }
}
