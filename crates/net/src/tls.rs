//! TLS, to clients and to servers.
//!
//! * `context.rs`: the configuration, ready for use
//! * `session.rs`: the state of one connection
//! * `verify.rs`, `certificate.rs`: checks of the other end, with the crate `x509`
//! * `stream.rs`: a TLS connection for code that reads and writes streams (the console)

mod certificate;
mod ciphers;
mod context;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod verify;

pub use self::{
    certificate::PeerNames,
    context::{ForClients, ForServers, PROTOCOL},
    session::{Progress, Standing},
    verify::{ServerVerifier, reason, system_anchors},
};
pub use self::{
    context::{TlsContexts, TlsError},
    session::Tls,
    stream::TlsStream,
};
