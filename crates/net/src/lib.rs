//! Connections: system calls, TLS, and connections that this process opens as a client.
//!
//! * `sys`: system calls behind safe functions
//! * `tls`: contexts, certificates and the state of one TLS connection
//! * `caller`: a connection to a server, with TLS if asked, for the load generator
//! * `random`: random bytes from the system
//!
//! The crate knows nothing of pools, workers or the engine.

pub mod caller;
pub mod random;
pub mod sys;
pub mod tls;

pub use crate::{
    caller::{Caller, CallerTls, Event, Poller, Received, Room, own_user, raise_open_files},
    sys::Address,
    tls::{Tls, TlsContexts, TlsError, TlsStream},
};
