//! Handover: clients and servers move to another process (online restart).
//!
//! `records` is the format. `export` makes records of clients and servers, and changes nothing.
//! `import` makes clients and servers of records. `engine/restart.rs` does this with all connections of
//! a worker. Nothing is sent to any connection.

pub(crate) mod export;
pub(crate) mod from_lobby;
pub(crate) mod import;
pub mod records;

pub use export::{Ceded, Exported, ExportedClient};
pub use from_lobby::LobbyLeaver;
pub use import::{ImportTables, Imported};
