//! A request under way to a server, and the part of a message that has come so far.

use std::sync::Arc;

use super::texts::{HEAD_LEN_MAX, Text};

/// A server's present request, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Serial number of the client.
    pub(super) client: u64,
    /// The first text, unless that only begins or ends a transaction.
    pub(super) text: Option<Arc<Text>>,
    /// Bytes from the client, and from the server.
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) half: Option<Half>,
}

impl Request {
    pub(super) fn begin(&mut self, client: u64) {
        *self = Self { client, ..Self::default() };
    }

    pub(super) fn note(&mut self, text: Arc<Text>) {
        if self.text.as_ref().is_none_or(|first| first.is_control && !text.is_control) {
            self.text = Some(text);
        }
    }

    /// Takes the next bytes of a message. Returns it if it is whole now.
    pub(super) fn go_on(&mut self, bytes: &[u8]) -> Option<Half> {
        let half = self.half.as_mut()?;
        half.take(bytes);
        self.half.take_if(|half| half.missing == 0)
    }
}

/// A message that has come in part.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) code: u8,
    /// No more of it than is looked at.
    pub(super) body: Vec<u8>,
    missing: usize,
}

/// A message may have a name before its text.
const BODY_LEN_MAX: usize = HEAD_LEN_MAX + 1_024;

impl Half {
    pub(super) fn new(code: u8, body: &[u8], missing: usize) -> Self {
        let mut half = Self { code, body: Vec::new(), missing: missing + body.len() };
        half.take(body);
        half
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = BODY_LEN_MAX - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.missing = self.missing.saturating_sub(bytes.len());
    }
}
