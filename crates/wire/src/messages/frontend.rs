//! Messages towards PostgreSQL.

use std::fmt;

use super::error::MessageError;
use crate::reader::Reader;

/// A statement to prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Empty for the unnamed statement.
    pub name: &'a [u8],
    pub sql: &'a [u8],
    /// The number of parameter types and their OIDs as in the message; the length matches the
    /// number.
    pub types_raw: &'a [u8],
}

impl<'a> Parse<'a> {
    /// # Errors
    /// When a string is not terminated or the list of types is not as long as it says.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let error = |expected| MessageError::new("Parse", expected);
        let mut reader = Reader::new(body);
        let name = reader.cstr().ok_or(error("a statement name"))?;
        let sql = reader.cstr().ok_or(error("a query string"))?;
        let types_raw = reader.rest();
        let types = Reader::new(types_raw).u16().ok_or(error("a count of parameter types"))?;
        if types_raw.len() != 2 + 4 * usize::from(types) {
            return Err(error("as many parameter types as counted"));
        }
        Ok(Self { name, sql, types_raw })
    }
}

/// A request to create a portal from a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Empty for the unnamed portal.
    pub portal: &'a [u8],
    /// Empty for the unnamed statement.
    pub statement: &'a [u8],
    /// Formats, values and result formats, not examined.
    pub rest: &'a [u8],
}

impl<'a> Bind<'a> {
    /// # Errors
    /// When a name is not terminated.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = Reader::new(body);
        let error = |expected| MessageError::new("Bind", expected);
        let portal = reader.cstr().ok_or(error("a portal name"))?;
        let statement = reader.cstr().ok_or(error("a statement name"))?;
        Ok(Self { portal, statement, rest: reader.rest() })
    }
}

/// Returns the portal, the statement and the position of the rest, from the part of a [`Bind`] that
/// has arrived. Returns `None` if the names are incomplete.
#[inline]
#[must_use]
pub fn bind_names(partial_body: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let mut reader = Reader::new(partial_body);
    let portal = reader.cstr()?;
    let statement = reader.cstr()?;
    Some((portal, statement, partial_body.len() - reader.remaining()))
}

/// Returns the values in a Bind's body, or in the first part of one, without NULLs.
pub fn bind_values(partial_body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let rest = bind_names(partial_body).and_then(|(.., at)| partial_body.get(at..));
    values(rest.unwrap_or_default())
}

/// Returns the OID of the function in a FunctionCall's body, or in the first part of one. Returns
/// `None` if it is incomplete.
#[must_use]
pub fn call_function(partial_body: &[u8]) -> Option<u32> {
    Reader::new(partial_body).u32()
}

/// Returns the arguments in a FunctionCall's body, or in the first part of one, without NULLs.
pub fn call_values(partial_body: &[u8]) -> impl Iterator<Item = &[u8]> {
    values(partial_body.get(size_of::<u32>()..).unwrap_or_default())
}

/// Reads from the number of formats on.
fn values(partial: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(partial);
    let formats = reader.u16().unwrap_or_default();
    let mut left = match reader.bytes(2 * usize::from(formats)) {
        Some(_) => reader.u16().unwrap_or_default(),
        None => 0,
    };
    std::iter::from_fn(move || {
        while left > 0 {
            left -= 1;
            let len = reader.i32()?;
            if let Ok(len) = usize::try_from(len) {
                return reader.bytes(len.min(reader.remaining()));
            }
        }
        None
    })
}

/// The first parameter of a Bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstParameter<'a> {
    pub is_binary: bool,
    /// `None` for NULL.
    pub value: Option<&'a [u8]>,
    /// The number of all parameters.
    pub count: u16,
}

/// Returns the first parameter in a Bind's body. Returns `None` if there is none, or the body is
/// malformed before it.
#[must_use]
pub fn first_parameter(body: &[u8]) -> Option<FirstParameter<'_>> {
    let (is_binary, mut reader) = parameters(body)?;
    let count = reader.u16()?;
    let value = match usize::try_from(reader.i32()?) {
        Ok(len) => Some(reader.bytes(len)?),
        Err(_) => None,
    };
    Some(FirstParameter { is_binary, value, count })
}

/// Returns the number of parameters in a Bind's body. Returns `None` if the body is malformed
/// before it.
#[must_use]
pub fn parameter_count(body: &[u8]) -> Option<u16> {
    parameters(body)?.1.u16()
}

/// Returns whether the first parameter is binary, and what follows the formats.
fn parameters(body: &[u8]) -> Option<(bool, Reader<'_>)> {
    let (.., rest_at) = bind_names(body)?;
    let mut reader = Reader::new(body.get(rest_at..)?);
    let formats = reader.u16()?;
    // A single format applies to all parameters; without any, all are text.
    let first = Reader::new(reader.bytes(2 * usize::from(formats))?).u16();
    Some((first.is_some_and(|code| code != 0), reader))
}

/// A request to run a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// Empty for the unnamed portal.
    pub portal: &'a [u8],
    /// Maximal number of rows; 0 = all.
    pub rows_max: u32,
}

impl<'a> Execute<'a> {
    /// # Errors
    /// When the name is not terminated, the count is missing, or bytes follow it.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "Execute";
        let mut reader = Reader::new(body);
        let portal = reader.cstr().ok_or(MessageError::new(NAME, "a portal name"))?;
        let rows_max = reader.u32().ok_or(MessageError::new(NAME, "a count of rows"))?;
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { portal, rows_max })
    }
}

/// A Describe or a Close: both name a statement or a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementOrPortal<'a> {
    /// `S` for a statement, `P` for a portal; never anything else.
    pub kind: u8,
    pub name: &'a [u8],
}

impl<'a> StatementOrPortal<'a> {
    /// # Errors
    /// When the kind is neither `S` nor `P`, the name is not terminated, or bytes follow it.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "Describe or Close";
        let mut reader = Reader::new(body);
        let Some(kind @ (b'S' | b'P')) = reader.u8() else {
            return Err(MessageError::new(NAME, "a kind of S or P"));
        };
        let name = reader.cstr().ok_or(MessageError::new(NAME, "a name"))?;
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { kind, name })
    }
}

/// A simple query: one or more statements, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    pub sql: &'a [u8],
}

impl<'a> Query<'a> {
    /// # Errors
    /// When the string is not terminated or bytes follow it.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = Reader::new(body);
        let sql = reader.cstr().ok_or(MessageError::new("Query", "a query string"))?;
        MessageError::check_end(&reader, "Query")?;
        Ok(Self { sql })
    }
}

/// The reply to a request for a password, in cleartext or as an MD5 hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Password<'a> {
    pub password: &'a [u8],
}

impl<'a> Password<'a> {
    /// # Errors
    /// When the string is not terminated or bytes follow it.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = Reader::new(body);
        let password = reader.cstr().ok_or(MessageError::new("PasswordMessage", "a password"))?;
        MessageError::check_end(&reader, "PasswordMessage")?;
        Ok(Self { password })
    }
}

impl fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Password").finish_non_exhaustive()
    }
}

/// The first reply in a SASL exchange. Later ones (SASLResponse) contain only data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SaslInitialResponse<'a> {
    /// The mechanism the client chose among those offered.
    pub mechanism: &'a [u8],
    /// Also empty if the client sent no initial data, which SCRAM does not allow.
    pub data: &'a [u8],
}

impl<'a> SaslInitialResponse<'a> {
    /// # Errors
    /// When the mechanism is not terminated or the data are not as long as they say.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "SASLInitialResponse";
        let error = |expected| MessageError::new(NAME, expected);
        let mut reader = Reader::new(body);
        let mechanism = reader.cstr().ok_or(error("a mechanism"))?;
        let data = match reader.i32().ok_or(error("a length"))? {
            -1 => &[][..],
            len => usize::try_from(len)
                .ok()
                .and_then(|len| reader.bytes(len))
                .ok_or(error("as many bytes of data as declared"))?,
        };
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { mechanism, data })
    }
}

impl fmt::Debug for SaslInitialResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslInitialResponse")
            .field("mechanism", &String::from_utf8_lossy(self.mechanism))
            .finish_non_exhaustive()
    }
}
