//! A token by its meaning instead of its text.

use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::name::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// No token: the beginning of a statement.
    Start,
    /// An identifier without quotes, keyword or not.
    Word(Keyword),
    /// An identifier in quotes.
    Quoted,
    /// `U&"…"`.
    Unicode,
    /// A string, a number, a parameter.
    Literal,
    Symbol(u8),
}

impl Mark {
    /// `name` is the name of the token, if it is an identifier.
    #[inline]
    pub(crate) fn of(kind: Kind, name: &Name) -> Self {
        match kind {
            Kind::Word => Self::Word(Keyword::of(name.key())),
            Kind::Quoted => Self::Quoted,
            Kind::Unicode => Self::Unicode,
            Kind::String | Kind::Number => Self::Literal,
            Kind::Symbol(sign) => Self::Symbol(sign),
        }
    }

    #[inline]
    pub(crate) const fn is_identifier(self) -> bool {
        matches!(self, Self::Word(_) | Self::Quoted | Self::Unicode)
    }
}
