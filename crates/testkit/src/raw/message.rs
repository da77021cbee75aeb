//! Messages of a server: one message, an error, or the whole reply to a simple query.

use std::fmt;

/// One message from the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The type byte.
    pub tag: u8,
    /// The bytes after the length field.
    pub body: Vec<u8>,
}

impl Message {
    /// The severity, SQLSTATE and text of an ErrorResponse or NoticeResponse.
    pub fn error(&self) -> Option<ServerError> {
        matches!(self.tag, b'E' | b'N').then(|| ServerError { fields: self.fields() })
    }

    /// Values of a DataRow as text, `None` for NULL.
    pub fn row(&self) -> Vec<Option<String>> {
        let mut body = Reader(&self.body);
        (0..body.u16())
            .map(|_| {
                let length = usize::try_from(body.i32()).ok()?;
                Some(String::from_utf8_lossy(body.take(length)).into_owned())
            })
            .collect()
    }

    /// Column names of a RowDescription.
    pub fn columns(&self) -> Vec<String> {
        let mut body = Reader(&self.body);
        (0..body.u16())
            .map(|_| {
                let name = body.text();
                body.take(18);
                name
            })
            .collect()
    }

    /// Type OIDs of a RowDescription's columns.
    pub fn column_types(&self) -> Vec<u32> {
        let mut body = Reader(&self.body);
        (0..body.u16())
            .map(|_| {
                body.text();
                body.take(6);
                let oid = body.i32().cast_unsigned();
                body.take(8);
                oid
            })
            .collect()
    }

    /// The text of a CommandComplete, or the first text of a ParameterStatus.
    pub fn text(&self) -> String {
        Reader(&self.body).text()
    }

    /// Key and value of a ParameterStatus.
    pub fn parameter(&self) -> (String, String) {
        let mut body = Reader(&self.body);
        (body.text(), body.text())
    }

    fn fields(&self) -> Vec<(char, String)> {
        let mut body = Reader(&self.body);
        let mut fields = Vec::new();
        loop {
            match body.take(1) {
                [] | [0] => return fields,
                tag => fields.push((char::from(tag[0]), body.text())),
            }
        }
    }

    fn name(&self) -> &'static str {
        match self.tag {
            b'1' => "ParseComplete",
            b'2' => "BindComplete",
            b'3' => "CloseComplete",
            b'A' => "NotificationResponse",
            b'C' => "CommandComplete",
            b'D' => "DataRow",
            b'E' => "ErrorResponse",
            b'G' => "CopyInResponse",
            b'H' => "CopyOutResponse",
            b'I' => "EmptyQueryResponse",
            b'K' => "BackendKeyData",
            b'N' => "NoticeResponse",
            b'R' => "Authentication",
            b'S' => "ParameterStatus",
            b'T' => "RowDescription",
            b'V' => "FunctionCallResponse",
            b'Z' => "ReadyForQuery",
            b'c' => "CopyDone",
            b'd' => "CopyData",
            b'n' => "NoData",
            b's' => "PortalSuspended",
            b't' => "ParameterDescription",
            b'v' => "NegotiateProtocolVersion",
            _ => "unknown",
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self.tag {
            b'D' => write!(f, "{name}{:?}", self.row()),
            b'E' | b'N' => write!(f, "{name}{:?}", self.fields()),
            b'T' => write!(f, "{name}{:?}", self.columns()),
            b'S' => write!(f, "{name}{:?}", self.parameter()),
            b'C' => write!(f, "{name}({})", self.text()),
            _ => write!(f, "{name}({})", self.body.escape_ascii()),
        }
    }
}

/// The fields of an ErrorResponse or NoticeResponse.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerError {
    /// Field types and their texts in the order they came.
    pub fields: Vec<(char, String)>,
}

impl ServerError {
    /// Returns the error for a connection that was closed without a message.
    pub fn closed() -> Self {
        Self { fields: vec![('M', "connection closed".to_owned())] }
    }

    /// Field `S`: `ERROR`, `FATAL`, `NOTICE`, …
    pub fn severity(&self) -> &str {
        self.field('S')
    }

    /// Field `C`: the SQLSTATE.
    pub fn code(&self) -> &str {
        self.field('C')
    }

    /// Field `M`: the text.
    pub fn message(&self) -> &str {
        self.field('M')
    }

    /// Any field, empty when it is missing.
    pub fn field(&self, tag: char) -> &str {
        self.fields.iter().find(|(t, _)| *t == tag).map_or("", |(_, text)| text)
    }

    /// Returns the three fields that every error has, for one comparison in a test.
    pub fn summary(&self) -> (&str, &str, &str) {
        (self.severity(), self.code(), self.message())
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity(), self.code(), self.message())
    }
}

/// The whole reply to a simple query, up to ReadyForQuery.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Column names of the last result.
    pub columns: Vec<String>,
    /// Rows of all results.
    pub rows: Vec<Vec<Option<String>>>,
    /// Command tags in order.
    pub tags: Vec<String>,
    /// Texts of the notices in order.
    pub notices: Vec<String>,
    /// The error, if one ended the query.
    pub error: Option<ServerError>,
    /// Transaction status: `b'I'`, `b'T'` or `b'E'`.
    pub status: u8,
}

impl Outcome {
    /// Returns what these messages tell.
    pub fn collect(messages: &[Message]) -> Self {
        let mut outcome = Self::default();
        for message in messages {
            match message.tag {
                b'T' => outcome.columns = message.columns(),
                b'D' => outcome.rows.push(message.row()),
                b'C' => outcome.tags.push(message.text()),
                b'N' => outcome.notices.push(message.fields_text()),
                b'E' => outcome.error = message.error(),
                b'Z' => outcome.status = message.body.first().copied().unwrap_or_default(),
                _ => {}
            }
        }
        outcome
    }
}

impl Message {
    fn fields_text(&self) -> String {
        self.error().map(|notice| notice.message().to_owned()).unwrap_or_default()
    }
}

/// Reads a message body; missing fields read as empty or zero.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(length.min(self.0.len()));
        self.0 = tail;
        head
    }

    fn text(&mut self) -> String {
        let length = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(self.take(length)).into_owned();
        self.take(1);
        text
    }

    fn u16(&mut self) -> u16 {
        self.take(2).try_into().map_or(0, u16::from_be_bytes)
    }

    fn i32(&mut self) -> i32 {
        self.take(4).try_into().map_or(0, i32::from_be_bytes)
    }
}
