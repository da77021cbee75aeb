//! TLS, to clients and to servers.
//!
//! * `context.rs`: what the configuration says, made ready
//! * `session.rs`: the state of one connection
//! * `verify.rs`, `certificate.rs`: who the other end is, by the judgement of the crate `x509`
//! * `stream.rs`: a secured connection for code that reads and writes streams (the console)

mod certificate;
mod ciphers;
mod context;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod verify;

pub use self::{
    context::{ForClients, ForServers, PROTOCOL},
    session::{Progress, Standing},
    verify::{ServerVerifier, reason, system_anchors},
};
pub use self::{
    context::{TlsContexts, TlsError},
    session::Tls,
    stream::TlsStream,
};
