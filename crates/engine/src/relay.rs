//! Relay: messages between a client and its server.
//!
//! `requests` handles the client's messages, `replies` the server's. The `ledger` says whose each
//! reply is. They change what is known of the two connections, and of the prepared statements. They
//! choose no server.

pub mod interner;
pub(crate) mod kept_request;
pub mod ledger;
pub mod parse_context;
pub mod prepared;
mod replies;
pub(crate) mod requests;
pub(crate) mod resend;
pub(crate) mod stream;
pub(crate) mod substitute;
pub(crate) mod undo;
