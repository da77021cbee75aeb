//! The reply to a client's statement, up to ReadyForQuery: its error, and the success of its Parse.

use wire::{ErrorFields, messages::ReadyForQuery};

use crate::login::server_error;

/// A server's error, as far as it matters here.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) text: String,
    /// A serialization failure or a deadlock: the client continues with its next transaction.
    pub(super) is_passing: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The number of the statement whose ParseComplete is awaited; the unnamed one has none.
    pub(super) parse: Option<usize>,
    pub(super) error: Option<Refusal>,
    /// The transaction status of the last ReadyForQuery; 0 before the first.
    pub(super) status: u8,
}

impl Reply {
    /// Reads one message. Returns true if it was the last one.
    ///
    /// # Errors
    /// When it cannot be part of a reply to a script.
    pub(super) fn handle(
        &mut self,
        code: u8,
        body: &[u8],
        prepared: &mut [bool],
    ) -> Result<bool, String> {
        match code {
            b'Z' => {
                let ready = ReadyForQuery::decode(body).map_err(|error| error.to_string())?;
                self.status = ready.status;
                self.parse = None;
                return Ok(true);
            }
            b'E' => self.refuse(body)?,
            b'1' => {
                if let Some(known) = self.parse.take().and_then(|number| prepared.get_mut(number)) {
                    *known = true;
                }
            }
            b'C' | b'I' | b'T' | b'D' | b'2' | b'3' | b'n' | b's' | b't' | b'N' | b'S' | b'A'
            | b'H' | b'd' | b'c' => {}
            b'G' => return Err("COPY is not supported in scripts".to_owned()),
            other => return Err(format!("message {:?} within a reply", char::from(other))),
        }
        Ok(false)
    }

    fn refuse(&mut self, body: &[u8]) -> Result<(), String> {
        let fields = ErrorFields::decode(body).map_err(|error| error.to_string())?;
        if fields.ends_session() {
            return Err(server_error(body));
        }
        let is_passing = matches!(fields.sqlstate(), b"40001" | b"40P01");
        self.error = Some(Refusal { text: server_error(body), is_passing });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_errors_pass_and_others_end_the_client() {
        let mut reply = Reply::default();
        let error = b"SERROR\0VERROR\0C40001\0Mno\0\0";
        assert_eq!(reply.handle(b'E', error, &mut []), Ok(false));
        assert_eq!(reply.handle(b'Z', b"E", &mut []), Ok(true));
        let refusal = reply.error.unwrap();
        assert_eq!((refusal.text.as_str(), refusal.is_passing), ("ERROR:  no", true));
        assert!(Reply::default().handle(b'E', b"SFATAL\0C57P01\0Mend\0\0", &mut []).is_err());
        assert!(Reply::default().handle(b'G', b"", &mut []).is_err());
    }

    #[test]
    fn a_statement_is_prepared_once_its_parse_is_answered() {
        let mut prepared = [false; 3];
        let mut reply = Reply { parse: Some(1), ..Reply::default() };
        assert_eq!(reply.handle(b'1', b"", &mut prepared), Ok(false));
        assert_eq!(reply.handle(b'Z', b"I", &mut prepared), Ok(true));
        reply.parse = Some(2);
        assert_eq!(reply.handle(b'E', b"SERROR\0C42601\0Mno\0\0", &mut prepared), Ok(false));
        assert_eq!(reply.handle(b'Z', b"I", &mut prepared), Ok(true));
        assert_eq!(prepared, [false, true, false]);
    }
}
