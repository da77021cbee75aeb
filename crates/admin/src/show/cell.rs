//! One value of a row, and the type of a column, as text and in PostgreSQL's binary formats.

use std::borrow::Cow;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Int4,
    Int8,
    Numeric,
    Bytea,
}

impl Kind {
    /// Returns PostgreSQL's name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Numeric => "numeric",
            Self::Bytea => "bytea",
        }
    }

    pub(crate) fn oid(self) -> u32 {
        match self {
            Self::Text => 25,
            Self::Int4 => 23,
            Self::Int8 => 20,
            Self::Numeric => 1700,
            Self::Bytea => 17,
        }
    }

    /// Returns `pg_type.typlen`.
    pub(crate) fn len(self) -> i16 {
        match self {
            Self::Text | Self::Numeric | Self::Bytea => -1,
            Self::Int4 => 4,
            Self::Int8 => 8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Number(u64),
}

impl Cell<'_> {
    /// Returns the value as text. A number that is too large for its type is printed as the largest
    /// possible one: clients would refuse the whole result otherwise.
    fn to_text(&self, kind: Kind) -> Option<Cow<'_, str>> {
        match (self, kind) {
            (Self::Null, _) => None,
            (Self::Text(text), _) => Some(Cow::Borrowed(text)),
            (Self::Number(n), Kind::Int4) => Some(n.min(&(i32::MAX as u64)).to_string().into()),
            (Self::Number(n), Kind::Int8) => Some(n.min(&(i64::MAX as u64)).to_string().into()),
            (Self::Number(n), Kind::Text | Kind::Numeric | Kind::Bytea) => {
                Some(n.to_string().into())
            }
        }
    }
}

impl Cell<'_> {
    /// Returns the bytes for the text format.
    pub(crate) fn to_text_bytes(&self, kind: Kind) -> Option<Cow<'_, [u8]>> {
        self.to_text(kind).map(|text| match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// Returns the bytes for the binary format, as in PostgreSQL's functions `int4send`,
    /// `int8send`, `numeric_send`.
    pub(crate) fn to_binary(&self, kind: Kind) -> Option<Cow<'_, [u8]>> {
        let bytes = match (self, kind) {
            (Self::Number(n), Kind::Int4) => {
                i32::try_from(*n).unwrap_or(i32::MAX).to_be_bytes().to_vec()
            }
            (Self::Number(n), Kind::Int8) => {
                i64::try_from(*n).unwrap_or(i64::MAX).to_be_bytes().to_vec()
            }
            (Self::Number(n), Kind::Numeric) => numeric(*n),
            (Self::Null | Self::Text(_) | Self::Number(_), _) => {
                return self.to_text_bytes(kind);
            }
        };
        Some(bytes.into())
    }
}

/// Returns the number of base-10,000 digits, the weight of the first one, sign, scale, and the
/// digits.
fn numeric(mut n: u64) -> Vec<u8> {
    let mut digits = Vec::new();
    while n > 0 {
        digits.push((n % 10_000) as u16);
        n /= 10_000;
    }
    let weight = digits.len().saturating_sub(1) as u16;
    let count = digits.len() as u16;
    digits.extend([0, 0, weight, count]);
    digits.iter().rev().flat_map(|digit| digit.to_be_bytes()).collect()
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Cell<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Cell<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Cell<'_> {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Cell<'_> {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Number(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_leave_the_range_of_their_type() {
        let text = |n: u64, kind| Cell::from(n).to_text(kind).unwrap().into_owned();
        assert_eq!(text(2_147_483_647, Kind::Int4), "2147483647");
        assert_eq!(text(2_147_483_648, Kind::Int4), "2147483647");
        assert_eq!(text(u64::MAX, Kind::Int8), "9223372036854775807");
        assert_eq!(text(u64::MAX, Kind::Numeric), "18446744073709551615");
    }

    #[test]
    fn numbers_have_the_binary_form_of_their_type() {
        let binary = |n: u64, kind| Cell::from(n).to_binary(kind).unwrap().into_owned();
        assert_eq!(binary(258, Kind::Int4), [0, 0, 1, 2]);
        assert_eq!(binary(u64::MAX, Kind::Int4), [0x7f, 255, 255, 255]);
        assert_eq!(binary(258, Kind::Int8), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(binary(258, Kind::Text), b"258");
        assert_eq!(binary(0, Kind::Numeric), [0; 8]);
        assert_eq!(binary(20_003, Kind::Numeric), [0, 2, 0, 1, 0, 0, 0, 0, 0, 2, 0, 3]);
    }

    #[test]
    fn nothing_is_null_and_an_empty_text_is_not() {
        assert_eq!(Cell::from(None::<u32>).to_text(Kind::Int4), None);
        assert_eq!(Cell::from("").to_text(Kind::Text).as_deref(), Some(""));
        assert_eq!(Cell::from(true).to_text(Kind::Int4).as_deref(), Some("1"));
    }
}
