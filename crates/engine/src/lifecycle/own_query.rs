//! The queries that Weir runs for no client's sake, as the log names them.

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
