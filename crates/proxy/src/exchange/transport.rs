//! The connection to a server, apart from the state of its socket.

use net::sys::Address;

/// The other end of a server's socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSocket {
    pub(crate) address: Address,
    /// The name it was reached by, which its certificate is for.
    pub(crate) host: Option<String>,
    /// How it is secured, in words; empty if it is not.
    pub(crate) tls: String,
}
