//! The core of Weir: clients, servers, pools and queues as state machines.
//!
//! The shell passes in bytes and the time. The engine calls the given [`shell::Io`] and
//! [`shell::Exchange`]. It has no socket, no clock, no lock and no thread, so the same code runs in
//! the proxy's workers and in the seeded simulator.
//!
//! An [`Engine`] is one worker's share: its clients, and the servers linked to them. The exchange
//! gives access to what all workers share: pools with their parked servers and queues.
//!
//! Each folder has one subject. The file beside it says what its files may touch. A *machine* borrows
//! one client, one server or one pool, and returns what follows. Only the files of `engine` see all
//! connections. They carry out what the machines return.
//!
//! | folder | subject |
//! |---|---|
//! | `engine` | the tables, the events of the shell, the queue of work, what follows from machines |
//! | `login` | a client up to "logged in" |
//! | `lifecycle` | a server is opened, linked to a client, prepared, released, lost |
//! | `relay` | messages between a client and its server |
//! | `routing` | the place of a request: the primary, or a standby |
//! | `session` | what only auto mode needs |
//! | `admission` | pools, limits, queues |
//! | `notify` | LISTEN for many clients by one connection |
//! | `cancel` | cancel requests and signals |
//! | `handover` | online restart |
//! | `operator` | orders and reports |
//! | `watch` | what the texts of clients say, for an operator |
//!
//! Read in this order: [`pool`], [`ledger`], [`client`], [`server`], then `engine.rs` and the
//! folders.

#![forbid(unsafe_code)]
// A new phase must be decided on wherever phases are told apart.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod admission;
pub mod cancel;
pub mod client;
mod context;
pub mod encoding;
mod engine;
mod handover;
pub mod ids;
mod lifecycle;
mod login;
mod notify;
mod operator;
pub mod own_error;
pub mod phase;
mod relay;
pub mod routing;
pub mod server;
mod session;
pub mod settings;
pub mod shell;
mod times;
pub mod values;
pub mod vars;
pub mod watch;

pub use admission::{limits, pool, shares, switches};
pub use engine::Engine;
pub use handover::{Ceded, Exported, ExportedClient, ImportTables, Imported, LobbyLeaver, records};
pub use lifecycle::replication;
pub use login::{LOGIN_GRACE, auth, guesses, server_secret};
pub use operator::inspect::{server_row, server_state};
pub use operator::waits::{Activity, Doing};
pub use operator::{
    averages, facts, failures, figures, histogram, journal, pulse, recorder, report, stats,
    timings, transactions,
};
pub use relay::{interner, ledger, parse_context, prepared};
pub use session::{pins, state_report};
pub use shell::Drain;
