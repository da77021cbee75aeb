//! Tests of the console's interface: a fixed snapshot, and real messages over an in-memory stream.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

extern crate weir_admin as admin;

mod docs;
mod extended;
mod fixture;
mod pcp;
mod peer;
mod protocol;
mod shows;
