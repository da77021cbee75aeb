//! Cancel: cancel requests, and calls of `pg_cancel_backend` and `pg_terminate_backend`.
//!
//! The client to be cancelled may belong to another worker, so the parts of this machine exchange
//! mail. They send cancel requests to servers, and close clients that others terminate.

mod ahead;
pub(crate) mod keys;
pub mod outcome;
mod requests;
mod signal;
pub mod signaling;

pub use outcome::{CancelEnd, CancelOutcome};
