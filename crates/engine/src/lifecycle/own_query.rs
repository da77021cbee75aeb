//! The queries that Weir runs for no client's sake, as the log names them, and the error that one of
//! Weir's own messages has got.

use wire::error_fields::ErrorFields;

/// A query that Weir runs for no client's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnQuery {
    /// `connect_query`. A failure changes nothing.
    Connect,
    /// `server_check_query`. A failure closes the server.
    Check,
    /// `server_reset_query`. A failure closes the server.
    Reset,
    /// DISCARD ALL and the like, which end the session of a client that has left. A failure closes
    /// the server.
    Forget,
}

/// The error that one of Weir's own messages to a server has got. The step that has sent the message
/// takes it.
#[derive(Debug, Default)]
pub struct OwnError(Option<ErrorFields>);

impl OwnError {
    /// The server has refused a message.
    pub(crate) fn keep(&mut self, error: ErrorFields) {
        self.0 = Some(error);
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<ErrorFields> {
        self.0.take()
    }
}
