//! The PostgreSQL protocol, version 3, as bytes: framing, borrowed views of messages, builders and
//! the password exchanges. Also the header that a proxy may send before it.
//!
//! This crate is pure. It opens no socket, reads no clock and draws no random number: salts and
//! nonces are arguments. It knows nothing of pools, users or configuration.
//!
//! Invariant: no byte from the network can make it panic. Every decoder returns an error for
//! invalid input, and the lints below keep possible panics out of the source.
//!
//! The words *frontend* and *backend* name the direction of a message, as the protocol chapter
//! of PostgreSQL's manual uses them: a frontend message travels towards PostgreSQL.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod backend;
pub mod cancel_key;
pub mod error_fields;
pub mod frame;
pub mod frontend;
pub mod md5;
pub mod messages;
pub mod proxy_header;
pub mod reader;
pub mod scram;
pub mod secret;
pub mod sqlstate;
pub mod startup;
mod writer;

pub use error_fields::ErrorFields;
pub use frame::{FrameError, HEADER_LEN, Header, bad_header};
pub use messages::MessageError;
pub use reader::Reader;
pub use secret::Secret;
