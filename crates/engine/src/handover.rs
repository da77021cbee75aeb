//! Handover: clients and servers move to another process (online restart).
//!
//! `records` is the format. `export` reads the tables and changes nothing. `import` fills the
//! tables of the new process. Nothing is sent to any connection.

pub(crate) mod export;
pub(crate) mod from_lobby;
pub(crate) mod import;
pub mod records;

pub use export::{Ceded, Exported, ExportedClient};
pub use from_lobby::LobbyLeaver;
pub use import::{ImportTables, Imported};
