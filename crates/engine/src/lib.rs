//! The heart of Weir: clients, servers, pools and queues as state machines.
//!
//! Bytes and the time go in; calls on the [`shell::Io`] and [`shell::Exchange`] given along come
//! out. There is no socket, no clock, no lock and no thread in here, so the same code runs in the
//! proxy's workers and in the seeded simulator.
//!
//! An [`Engine`] is one worker's share: its clients, and the servers linked to them. What all
//! workers share (pools with their parked servers and queues) is reached through the exchange.
//!
//! Each folder is one machine, and the file beside it says what the machine may touch:
//!
//! | folder | machine |
//! |---|---|
//! | `engine` | the tables, the events of the shell, the queue of work |
//! | `login` | a client up to "logged in" |
//! | `lifecycle` | a server is opened, linked, prepared, released, placed, closed |
//! | `relay` | messages between a client and its server |
//! | `session` | what only auto mode needs |
//! | `admission` | pools, limits, queues |
//! | `notify` | LISTEN for many clients by one connection |
//! | `cancel` | cancel requests and signals |
//! | `handover` | online restart |
//! | `operator` | orders and reports |
//!
//! Read in this order: [`pool`], [`ledger`], [`client`], [`server`], then `engine.rs` and the
//! folders.

#![forbid(unsafe_code)]

mod admission;
pub mod cancel;
pub mod client;
pub mod encoding;
mod engine;
mod handover;
pub mod ids;
mod lifecycle;
mod login;
mod notify;
mod operator;
mod relay;
pub mod server;
mod session;
pub mod settings;
pub mod shell;
pub mod values;
pub mod vars;

pub use admission::{limits, pool, shares, switches};
pub use engine::{Drain, Engine};
pub use handover::{Ceded, Exported, ExportedClient, ImportTables, Imported, records};
pub use lifecycle::replication;
pub use login::{LOGIN_GRACE, auth, guesses, server_secret};
pub use operator::inspect::server_row;
pub use operator::{averages, report, stats};
pub use relay::{interner, ledger, parse_context, prepared};
pub use session::{pins, state_report};
