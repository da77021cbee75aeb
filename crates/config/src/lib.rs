//! Weir's configuration: the keys, how their text is read, and the typed result.
//!
//! Every key is defined once, in the tables under `table`; the parser, the structs, `SHOW CONFIG`,
//! `weir help` and `docs/config.md` all come from there. Two file formats are read, PgBouncer's
//! `pgbouncer.ini` and Weir's `weir.toml`, with the same keys in both, and a third source is a
//! single `postgresql://` URL.
//!
//! This crate decides nothing about connections and holds no state: a [`Config`] is plain data,
//! replaced as a whole on reload. Only `load.rs` touches the file system.
//!
//! A secret never appears in `Debug` output.

#![forbid(unsafe_code)]

mod auth_file;
mod auth_query;
mod bounds;
mod build;
mod changes;
mod choice;
mod config;
mod config_error;
mod connstr;
mod convert;
mod data_path;
mod describe;
mod endpoint;
mod environment;
mod error;
pub mod hba;
mod help;
mod host;
mod ini;
mod key;
pub mod ldap;
mod load;
mod manual;
mod network;
mod node;
mod passfile;
mod pattern;
mod pcp_file;
mod peers;
mod positions;
mod program;
pub mod reason;
pub mod reference;
mod server_tls;
mod show;
mod source;
mod spares;
mod suggest;
mod table;
mod toml_file;
mod units;
mod url;
mod value;
mod variables;
mod virtual_address;
mod weight;

/// The version of PgBouncer with the same keys, console and log. Tools derive from it what to
/// expect.
pub const PGBOUNCER_VERSION: &str = "1.25.2";
/// Weir's own version.
pub const WEIR_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the text of SHOW VERSION: `PgBouncer X.Y.Z`. Monitors read numbers from it, and some of them
/// allow nothing behind it.
#[must_use]
pub fn pgbouncer_version() -> String {
    format!("PgBouncer {PGBOUNCER_VERSION}")
}

/// Returns the output of `-V`: a line as in SHOW VERSION, since scripts compare the two, and a line with
/// Weir's own version.
#[must_use]
pub fn version_lines() -> String {
    format!("{}\nWeir {WEIR_VERSION}\n", pgbouncer_version())
}

/// Returns both versions: `PgBouncer X.Y.Z (Weir X.Y.Z)`.
#[must_use]
pub fn version() -> String {
    format!("PgBouncer {PGBOUNCER_VERSION} (Weir {WEIR_VERSION})")
}

/// The user that owns the console, in name only: operators log in with their own names.
pub const CONSOLE_USER: &str = "pgbouncer";

pub use crate::auth_file::AuthFile;
pub use crate::auth_query::needs_no_search_path;
pub use crate::choice::{
    AuthType, Balance, ConsoleColumns, DataPath, ErrorCodes, FailoverKind, LoadBalanceHosts,
    LogFormat, MetricsHistograms, MetricsNames, PcpCompat, PoolMode, ReadAfterWrite, ReadsGo,
    ReuseAfterError, SessionSchedule, SslMode, SwitchoverOvertime, Unsupported, WhenStale,
};
pub use crate::config::{AccessPolicy, Config, HBA_KEPT, LDAP_KEPT};
pub use crate::config_error::ConfigError;
pub use crate::convert::{quoted, table_heading, to_toml};
pub use crate::data_path::Proxied;
pub use crate::describe::describe;
pub use crate::endpoint::{Api, Endpoint, EtcdApi};
pub use crate::environment::PASSFILE;
pub use crate::error::{Mistake, in_words};
pub use crate::help::{UnknownKey, help, markdown};
pub use crate::host::{Host, Ports};
pub use crate::ini::Comments;
pub use crate::key::{Key, Scope};
pub use crate::load::read_file;
pub use crate::manual::manual;
pub use crate::network::Network;
pub use crate::node::Node;
pub use crate::passfile::password_in;
pub use crate::pattern::{Pattern, is_pattern};
pub use crate::pcp_file::{PcpUser, PcpUsers};
pub use crate::positions::Positions;
pub use crate::program::{PasswordCommand, Program};
pub use crate::server_tls::ServerTls;
pub use crate::show::{ConfigRow, show};
pub use crate::source::Source;
pub use crate::spares::Spares;
pub use crate::suggest::nearest;
pub use crate::table::{Cluster, Database, Global, Peer, UserSettings};
pub use crate::value::{Kind, ValueError};
pub use crate::variables::escaped;
pub use crate::virtual_address::VirtualAddress;
pub use crate::weight::Weight;
