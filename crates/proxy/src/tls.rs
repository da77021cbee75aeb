//! TLS, to clients and to servers. Handshakes cost a millisecond and wait for the peer: they are
//! made on threads of their own (`handshake.rs`), and a connection comes to its worker with its
//! keys made. There it is one more step between the socket and the engine (`session.rs`).
//!
//! * `context.rs`: what the configuration says, made ready
//! * `verify.rs`, `certificate.rs`: who the other end is, by the judgement of the crate `x509`
//! * `stream.rs`: a secured connection for code that reads and writes streams (the console)

mod certificate;
mod ciphers;
mod context;
pub(crate) mod handshake;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use self::{
    context::ForServers,
    handshake::{Handshakes, Job, SecuredClient, SecuredServer, TlsArrival},
    session::{Progress, Standing},
    verify::{ServerVerifier, reason, system_anchors},
};
pub use self::{
    context::{TlsContexts, TlsError},
    session::Tls,
    stream::TlsStream,
};
