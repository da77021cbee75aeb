//! The fields of an ErrorResponse or a NoticeResponse: a code byte and a string each, in order.

use std::borrow::Cow;

use crate::messages::error::MessageError;
use crate::reader::Reader;
use crate::writer::cstr;

/// The fields in the order of the message. Their codes are those of the protocol chapter: `S`
/// severity, `C` SQLSTATE, `M` message, `D` detail, `H` hint, `V` untranslated severity and more.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ErrorFields {
    pub fields: Vec<(u8, Vec<u8>)>,
}

impl ErrorFields {
    /// Returns an error of the pooler's own, with the fields S, C and M as in PgBouncer.
    #[must_use]
    pub fn new(severity: &str, sqlstate: &str, message: &str) -> Self {
        Self {
            fields: vec![(b'S', severity.into()), (b'C', sqlstate.into()), (b'M', message.into())],
        }
    }

    /// Reads the body of an ErrorResponse or a NoticeResponse. Fields of unknown codes are kept.
    ///
    /// # Errors
    /// When a field is not terminated, the terminator after the last one is missing, or bytes
    /// follow it.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        const NAME: &str = "ErrorResponse";
        let mut reader = Reader::new(body);
        let mut fields = Vec::new();
        loop {
            match reader.u8() {
                None => return Err(MessageError::new(NAME, "a terminator")),
                Some(0) => break,
                Some(code) => {
                    let value = reader.cstr().ok_or(MessageError::new(NAME, "a field's string"))?;
                    fields.push((code, value.to_vec()));
                }
            }
        }
        MessageError::check_end(&reader, NAME)?;
        Ok(Self { fields })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (code, value) in self.fields.iter().filter(|(code, _)| *code != 0) {
            out.push(*code);
            cstr(out, value);
        }
        out.push(0);
    }

    /// Returns the first field with this code.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| *field == code).map(|(_, value)| value.as_slice())
    }

    /// Replaces the field with this code, or appends it if there is none.
    pub fn replace(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        match self.fields.iter_mut().find(|(field, _)| *field == code) {
            Some((_, old)) => *old = value.into(),
            None => self.fields.push((code, value.into())),
        }
    }

    /// Returns `ERROR`, `FATAL` and so on, possibly in the server's language; empty when it is
    /// missing.
    #[must_use]
    pub fn severity(&self) -> &[u8] {
        self.get(b'S').unwrap_or_default()
    }

    /// Returns the five characters of the SQLSTATE; empty when it is missing.
    #[must_use]
    pub fn sqlstate(&self) -> &[u8] {
        self.get(b'C').unwrap_or_default()
    }

    /// Does this error end the session (FATAL or PANIC, by the untranslated severity)?
    #[must_use]
    pub fn ends_session(&self) -> bool {
        matches!(self.plain_severity(), b"FATAL" | b"PANIC")
    }

    /// Does all of PostgreSQL end with this error?
    #[must_use]
    pub fn is_panic(&self) -> bool {
        self.plain_severity() == b"PANIC"
    }

    /// Returns the severity, which is not translated if the server says it so.
    fn plain_severity(&self) -> &[u8] {
        self.get(b'V').unwrap_or_else(|| self.severity())
    }

    /// Returns the message for a log line; empty when it is missing.
    #[must_use]
    pub fn message(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.get(b'M').unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{HEADER_LEN, backend};

    fn body(fields: &ErrorFields) -> Vec<u8> {
        let mut out = Vec::new();
        backend::error(&mut out, fields);
        out.split_off(HEADER_LEN)
    }

    #[test]
    fn our_own_errors_have_three_fields() {
        let fields = ErrorFields::new("FATAL", "08P01", "no such database: x");
        assert_eq!(body(&fields), b"SFATAL\0C08P01\0Mno such database: x\0\0");
        assert_eq!(fields.severity(), b"FATAL");
        assert_eq!(fields.sqlstate(), b"08P01");
        assert_eq!(fields.message(), "no such database: x");
        assert_eq!(fields.get(b'V'), None);
    }

    #[test]
    fn replace_keeps_the_place_or_appends() {
        let mut fields = ErrorFields::new("ERROR", "42601", "m");
        fields.replace(b'C', *b"26000");
        fields.replace(b'H', "hint");
        assert_eq!(body(&fields), b"SERROR\0C26000\0Mm\0Hhint\0\0");
    }

    #[test]
    fn missing_fields_read_as_empty() {
        let fields = ErrorFields::decode(b"\0").unwrap();
        assert_eq!((fields.severity(), fields.sqlstate()), (&b""[..], &b""[..]));
        assert_eq!(fields.message(), "");
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = body(&ErrorFields::new("ERROR", "42601", "syntax error"));
        for len in 0..whole.len() {
            assert!(ErrorFields::decode(&whole[..len]).is_err(), "{len}");
        }
        assert!(ErrorFields::decode(&[&whole[..], b"x"].concat()).is_err());
    }

    proptest! {
        #[test]
        fn encoded_fields_are_decoded(
            fields in prop::collection::vec((1_u8.., prop::collection::vec(1_u8.., 0..40)), 0..12)
        ) {
            let fields = ErrorFields { fields };
            prop_assert_eq!(ErrorFields::decode(&body(&fields)), Ok(fields));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>) {
            if let Ok(fields) = ErrorFields::decode(&bytes) {
                prop_assert_eq!(body(&fields), bytes);
            }
        }
    }
}
