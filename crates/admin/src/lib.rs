//! The operator's view of a running Weir: the console, which is the virtual database
//! `pgbouncer`, with the commands, columns and texts of PgBouncer's.
//!
//! Each SHOW is one table definition under `show`: names, types and meaning of its columns and how
//! a [`Snapshot`] becomes rows. The console's answers and `docs/admin.md` both come from there.
//!
//! This crate knows nothing of workers and sockets of the data plane. It is handed a stream that
//! is logged in already, copies of what there is to show ([`Snapshot`]), and what it may ask for
//! ([`Control`]).

#![forbid(unsafe_code)]

mod command;
mod console;
mod control;
mod docs;
mod message;
mod reply;
mod show;
mod snapshot;

pub use crate::console::{Console, Login};
pub use crate::control::{Boxed, Control, Order, Shutdown};
pub use crate::docs::markdown;
pub use crate::snapshot::{
    Address, Buffers, Cancel, ClientRow, ClientState, Connection, DnsHost, DnsZone, Listener,
    Memory, Pin, PoolRow, ServerRow, ServerState, Snapshot,
};

/// Names of the virtual database of the console.
pub const DATABASES: [&str; 2] = [NAME, "weir"];

/// The name of the console's database, user and pool in its own tables.
const NAME: &str = "pgbouncer";
