//! The data that threads share, and the messages between them.
//!
//! * `hub.rs`: the pools, each behind its lock, and the limits; `mailbox.rs`: the mail of a worker.
//!   `model.rs` checks these two files.
//! * `shared.rs`: the hub together with the listeners, the clock and some counters
//! * `mail.rs`, `requests.rs`, `handshakes.rs`, `reports.rs`, `late_arrivals.rs`, `lines.rs`: the
//!   messages
//!
//! This room depends neither on the data plane nor on the cold side.

pub(crate) mod handshakes;
pub(crate) mod hub;
pub(crate) mod late_arrivals;
pub(crate) mod leases;
pub(crate) mod lines;
pub(crate) mod listener;
pub(crate) mod lobby_door;
pub(crate) mod mail;
pub(crate) mod mailbox;
#[cfg(test)]
mod model;
pub(crate) mod outages;
pub(crate) mod peer;
pub(crate) mod reports;
pub(crate) mod requests;
pub(crate) mod schedule;
pub(crate) mod shared;
mod sync;
pub(crate) mod transport;
