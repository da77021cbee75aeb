//! Relay: messages between a client and its server.
//!
//! `requests` handles the client's messages (`Linked`), `replies` the server's (`Replies`, then
//! `Answered`). The `ledger` knows to whom each reply goes. They change the state of the two
//! connections and of the prepared statements, and return what follows, which `engine/relay.rs` carries
//! out. They choose no server.

pub(crate) mod awaited_reply;
pub(crate) mod batch_end;
pub(crate) mod changes;
pub(crate) mod discarding;
pub(crate) mod ending;
pub mod interner;
pub(crate) mod kept_request;
pub mod ledger;
pub(crate) mod names_used;
pub(crate) mod pace;
pub mod parse_context;
pub mod prepared;
pub(crate) mod repeats;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod resend;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod substitute;
pub(crate) mod text;
pub(crate) mod undo;
pub(crate) mod unnamed;
