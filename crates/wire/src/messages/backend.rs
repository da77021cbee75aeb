//! Messages from PostgreSQL. Errors and notices are in [`crate::error_fields`].

use std::fmt;

use super::error::MessageError;
use crate::backend::authentication;
use crate::reader::Reader;

/// The server's request for authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationRequest<'a> {
    /// The client is authenticated.
    Ok,
    Cleartext,
    /// The salt to hash with.
    Md5([u8; 4]),
    Sasl(Mechanisms<'a>),
    SaslContinue(&'a [u8]),
    SaslFinal(&'a [u8]),
    /// A method that is not supported (GSSAPI, SSPI, Kerberos), by its number.
    Unsupported(u32),
}

impl<'a> AuthenticationRequest<'a> {
    /// # Errors
    /// When the method's number or its data are cut short, or bytes follow them.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "AuthenticationRequest";
        let error = |expected| MessageError::new(NAME, expected);
        let mut reader = Reader::new(body);
        let request = match reader.u32().ok_or(error("a method"))? {
            authentication::OK => Self::Ok,
            authentication::CLEARTEXT => Self::Cleartext,
            authentication::MD5 => Self::Md5(reader.array().ok_or(error("a salt"))?),
            authentication::SASL => Self::Sasl(Mechanisms::read(&mut reader)?),
            authentication::SASL_CONTINUE => Self::SaslContinue(reader.rest()),
            authentication::SASL_FINAL => Self::SaslFinal(reader.rest()),
            other => return Ok(Self::Unsupported(other)),
        };
        MessageError::check_end(&reader, NAME)?;
        Ok(request)
    }
}

/// The names of the SASL mechanisms that a server offers, the preferred one first; an iterator.
#[derive(Clone, Copy, Debug)]
pub struct Mechanisms<'a> {
    reader: Reader<'a>,
}

impl<'a> Mechanisms<'a> {
    /// Reads the whole list, so that iterating over it cannot fail.
    fn read(reader: &mut Reader<'a>) -> Result<Self, MessageError> {
        let list = Self { reader: *reader };
        let error = MessageError::new("AuthenticationSASL", "a list of mechanisms");
        while !reader.cstr().ok_or(error)?.is_empty() {}
        Ok(list)
    }

    /// Is this mechanism offered?
    #[must_use]
    pub fn contains(&self, mechanism: &str) -> bool {
        self.into_iter().any(|offered| offered == mechanism.as_bytes())
    }
}

impl<'a> Iterator for Mechanisms<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        self.reader.cstr().filter(|name| !name.is_empty())
    }
}

impl PartialEq for Mechanisms<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.into_iter().eq(*other)
    }
}

impl Eq for Mechanisms<'_> {}

/// The server's reply to a startup packet with a newer protocol or unknown extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateProtocolVersion {
    /// The server continues with 3.`minor`.
    pub minor: u16,
    /// The number of extensions that the server declines.
    pub declined: u32,
}

impl NegotiateProtocolVersion {
    /// The manual documents the minor version only. PostgreSQL sends the whole version.
    ///
    /// # Errors
    /// When a number is missing or the version is not 3.x. The names of the extensions are not
    /// read.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        const NAME: &str = "NegotiateProtocolVersion";
        let mut reader = Reader::new(body);
        let version = reader.u32().filter(|version| version >> 16 == 3);
        let version = version.ok_or(MessageError::new(NAME, "a version 3.x"))?;
        let declined = reader.u32().ok_or(MessageError::new(NAME, "a count of extensions"))?;
        Ok(Self { minor: version as u16, declined })
    }
}

/// A parameter of the server and its present value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterStatus<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> ParameterStatus<'a> {
    /// # Errors
    /// When a string is not terminated or bytes follow the second.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "ParameterStatus";
        let mut reader = Reader::new(body);
        let name = reader.cstr().ok_or(MessageError::new(NAME, "a name"))?;
        let value = reader.cstr().ok_or(MessageError::new(NAME, "a value"))?;
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { name, value })
    }
}

/// A notification of NOTIFY, for each listening client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationResponse<'a> {
    /// Process id of the server that ran the NOTIFY.
    pub pid: u32,
    pub channel: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> NotificationResponse<'a> {
    /// # Errors
    /// When the number is cut, a string is not terminated or bytes follow the second.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "NotificationResponse";
        let mut reader = Reader::new(body);
        let pid = reader.u32().ok_or(MessageError::new(NAME, "a process id"))?;
        let channel = reader.cstr().ok_or(MessageError::new(NAME, "a channel"))?;
        let payload = reader.cstr().ok_or(MessageError::new(NAME, "a payload"))?;
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { pid, channel, payload })
    }
}

/// The cancel key of this server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BackendKeyData<'a> {
    pub pid: u32,
    /// 4 to 256 bytes; 4 in protocol 3.0.
    pub secret: &'a [u8],
}

impl<'a> BackendKeyData<'a> {
    /// # Errors
    /// When the process id is cut short or the secret's length is outside 4 to 256 bytes.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "BackendKeyData";
        let mut reader = Reader::new(body);
        let pid = reader.u32().ok_or(MessageError::new(NAME, "a process id"))?;
        let secret = reader.rest();
        if !(4..=crate::startup::CANCEL_SECRET_LEN_MAX).contains(&secret.len()) {
            return Err(MessageError::new(NAME, "a secret of 4 to 256 bytes"));
        }
        Ok(Self { pid, secret })
    }
}

impl fmt::Debug for BackendKeyData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendKeyData").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// The end of one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandComplete<'a> {
    /// The command's name, for some with the count of rows: `SELECT 1`, `DISCARD ALL`.
    pub tag: &'a [u8],
}

impl<'a> CommandComplete<'a> {
    /// # Errors
    /// When the tag is not terminated or bytes follow it.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = Reader::new(body);
        let tag = reader.cstr().ok_or(MessageError::new("CommandComplete", "a tag"))?;
        MessageError::check_end(&reader, "CommandComplete")?;
        Ok(Self { tag })
    }
}

/// The server is ready for the next query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyForQuery {
    /// `I` idle, `T` in a transaction, `E` in a failed one; never anything else.
    pub status: u8,
}

impl ReadyForQuery {
    /// # Errors
    /// When the body is not exactly one of the three states.
    #[inline]
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        match body {
            &[status @ (b'I' | b'T' | b'E')] => Ok(Self { status }),
            _ => Err(MessageError::new("ReadyForQuery", "a status of I, T or E")),
        }
    }
}

/// The names and types of the columns of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDescription<'a> {
    /// A name and the OID of a type for each column.
    pub columns: Vec<(&'a [u8], u32)>,
}

impl<'a> RowDescription<'a> {
    /// # Errors
    /// When a column is cut short, or bytes follow the last.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "RowDescription";
        /// The OID of the table, and the number of the column in it.
        const TABLE_LEN: usize = 6;
        /// The size of the type, its modifier, and the format of the values.
        const TYPE_LEN: usize = 8;
        let mut reader = Reader::new(body);
        let count = reader.u16().ok_or(MessageError::new(NAME, "a count of columns"))?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let name = reader.cstr().ok_or(MessageError::new(NAME, "a name"))?;
            let type_oid = reader
                .bytes(TABLE_LEN)
                .and_then(|_| reader.u32())
                .filter(|_| reader.bytes(TYPE_LEN).is_some());
            columns.push((name, type_oid.ok_or(MessageError::new(NAME, "a type"))?));
        }
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { columns })
    }
}

/// One row of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRow<'a> {
    columns: u16,
    values: &'a [u8],
}

impl<'a> DataRow<'a> {
    /// # Errors
    /// When the row has fewer values than it counts, a value is cut short, or bytes follow the
    /// last.
    pub fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        const NAME: &str = "DataRow";
        let mut reader = Reader::new(body);
        let columns = reader.u16().ok_or(MessageError::new(NAME, "a count of columns"))?;
        let row = Self { columns, values: reader.rest() };
        let mut values = row.values();
        if values.by_ref().count() != row.len() {
            return Err(MessageError::new(NAME, "as many values as counted"));
        }
        MessageError::check_end(&values.reader, NAME)?;
        Ok(row)
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.columns)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    /// Returns the values in the order of the columns; `None` is the SQL null.
    #[must_use]
    pub fn values(&self) -> Values<'a> {
        Values { left: self.columns, reader: Reader::new(self.values) }
    }
}

/// The iterator of [`DataRow::values`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    left: u16,
    reader: Reader<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match self.reader.i32()? {
            -1 => Some(None),
            len => self.reader.bytes(usize::try_from(len).ok()?).map(Some),
        }
    }
}
