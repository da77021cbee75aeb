//! One value of a row, and the type of a column.

use std::borrow::Cow;

/// The type of a column. Everything is sent as text, whatever its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Int4,
    Int8,
    Numeric,
}

impl Kind {
    /// PostgreSQL's name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Numeric => "numeric",
        }
    }

    pub(crate) fn oid(self) -> u32 {
        match self {
            Self::Text => 25,
            Self::Int4 => 23,
            Self::Int8 => 20,
            Self::Numeric => 1700,
        }
    }

    /// `pg_type.typlen`.
    pub(crate) fn len(self) -> i16 {
        match self {
            Self::Text | Self::Numeric => -1,
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
    /// As it is sent. A number that its type cannot hold is printed as the largest that fits:
    /// clients would refuse the whole result otherwise.
    pub(crate) fn to_text(&self, kind: Kind) -> Option<Cow<'_, str>> {
        match (self, kind) {
            (Self::Null, _) => None,
            (Self::Text(text), _) => Some(Cow::Borrowed(text)),
            (Self::Number(n), Kind::Int4) => Some(n.min(&(i32::MAX as u64)).to_string().into()),
            (Self::Number(n), Kind::Int8) => Some(n.min(&(i64::MAX as u64)).to_string().into()),
            (Self::Number(n), Kind::Text | Kind::Numeric) => Some(n.to_string().into()),
        }
    }
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
    fn nothing_is_null_and_an_empty_text_is_not() {
        assert_eq!(Cell::from(None::<u32>).to_text(Kind::Int4), None);
        assert_eq!(Cell::from("").to_text(Kind::Text).as_deref(), Some(""));
        assert_eq!(Cell::from(true).to_text(Kind::Int4).as_deref(), Some("1"));
    }
}
