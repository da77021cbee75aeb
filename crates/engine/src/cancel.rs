//! Cancel: cancel requests, and calls of `pg_cancel_backend` and `pg_terminate_backend`.
//!
//! The client to be cancelled may belong to another worker, so `engine/cancels.rs` exchanges mail
//! about it. It sends cancel requests to servers, and closes clients that others terminate. Here are
//! the rules: each function has one client, one server or both, and returns what follows.

mod ahead;
pub(crate) mod call;
pub(crate) mod client_key;
pub(crate) mod keys;
pub mod outcome;
pub(crate) mod requests;
pub(crate) mod signal;
pub mod signaling;

pub use outcome::{CancelEnd, CancelOutcome};
