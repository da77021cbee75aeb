//! A client's view of a conversation.

use wire::error_fields::ErrorFields;
use wire::{HEADER_LEN, Header, backend};

/// All messages to a client, and whether its connection was closed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) got: Vec<u8>,
    pub(crate) closed: bool,
}

impl Seen {
    /// Returns all messages except a last FATAL of the pooler's own (08P01), and the text of that
    /// one.
    pub(crate) fn without_farewell(&self) -> (&[u8], Option<String>) {
        let mut at = 0;
        while let Some((code, body)) = message(&self.got[at..]) {
            let end = at + HEADER_LEN + body.len();
            if end == self.got.len() && code == backend::ERROR {
                let fields = ErrorFields::decode(body).ok();
                let fields = fields
                    .filter(|said| said.severity() == b"FATAL" && said.sqlstate() == b"08P01");
                if let Some(fields) = fields {
                    return (&self.got[..at], Some(fields.message().into_owned()));
                }
            }
            at = end;
        }
        (&self.got, None)
    }

    /// Returns whether the connection ended in the middle of a message.
    pub(crate) fn ends_in_a_message(&self) -> bool {
        let whole: usize = messages(&self.got).map(|(_, body)| HEADER_LEN + body.len()).sum();
        whole < self.got.len()
    }

    /// Returns the messages in a form that does not depend on cuts. It leaves out the bytes of an
    /// unreadable message that an error shows, since their number depends on cuts.
    pub(crate) fn essence(&self) -> (&[u8], Option<String>, bool) {
        let (got, farewell) = self.without_farewell();
        (got, farewell.map(without_shown_bytes), self.closed)
    }
}

/// Returns the reason for the end of a connection without the bytes of an unreadable message.
pub(crate) fn without_shown_bytes(why: String) -> String {
    if why.starts_with(BAD_HEADER) { BAD_HEADER.to_owned() } else { why }
}

const BAD_HEADER: &str = "bad packet header";

/// Returns the first message, if it is complete.
pub(crate) fn message(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let header = Header::parse(bytes).ok()??;
    Some((header.code, bytes.get(HEADER_LEN..header.total)?))
}

/// Returns the complete messages at the beginning.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (code, body) = message(rest)?;
        rest = &rest[HEADER_LEN + body.len()..];
        Some((code, body))
    })
}

/// Prints one message per line.
impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = &self.got[..];
        while let Some((code, body)) = message(rest) {
            write!(f, "\n  {} {}", char::from(code), body.escape_ascii())?;
            rest = &rest[HEADER_LEN + body.len()..];
        }
        if !rest.is_empty() {
            write!(f, "\n  part of a message: {}", rest.escape_ascii())?;
        }
        write!(f, "\n  {}", if self.closed { "closed" } else { "open" })
    }
}
