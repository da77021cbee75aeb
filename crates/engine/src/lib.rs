//! The heart of Weir: clients, servers, pools and queues as state machines.
//!
//! Bytes and the time go in; calls on the [`shell::Io`] and [`shell::Exchange`] given along come
//! out. There is no socket, no clock, no lock and no thread in here, so the same code runs in the
//! proxy's workers and in the seeded simulator.
//!
//! An [`Engine`] is one worker's share: its clients, and the servers linked to them. What all
//! workers share (pools with their parked servers and queues) is reached through the exchange.
//!
//! Read in this order: [`pool`], [`ledger`], [`client`], [`server`], then `engine.rs` and the
//! files beside it.

#![forbid(unsafe_code)]

pub mod auth;
pub mod averages;
pub mod cancel;
pub mod carried;
pub mod client;
pub mod draws;
pub mod encoding;
mod engine;
pub mod guesses;
pub mod ids;
pub mod inquiry;
pub mod interner;
pub mod kept;
pub mod learnt;
pub mod ledger;
pub mod limits;
pub mod listener;
pub mod listening;
pub mod lore;
pub mod parcel;
pub mod pins;
pub mod pool;
pub mod preparation;
pub mod prepared;
pub mod probe;
pub mod realm;
pub mod replication;
pub mod report;
mod resets;
pub mod scanning;
pub mod server;
pub mod session;
pub mod setting_names;
pub mod settings;
pub mod shares;
pub mod shell;
pub mod signaling;
pub mod state_report;
pub mod stats;
pub mod stream;
pub mod switches;
pub mod values;
pub mod vars;

pub use engine::{
    Drain, Engine, Exported, ExportedClient, Imported, LOGIN_GRACE, Shelf, server_row,
};
