//! The bodies of the fuzz targets: functions of bytes that panic when something is wrong. `fuzz/`
//! passes them to libFuzzer. `tests/corpora.rs` replays known inputs and tries mutations of them on
//! the stable toolchain.
//!
//! Everything depends on the bytes only: no clock, no random number, no file. So a failing input
//! always fails.

#![forbid(unsafe_code)]

mod client_stream;
mod configs;
mod console;
mod cuts;
mod hba;
mod ledger;
mod mutate;
mod pcp;
mod pgpool;
mod postgres;
mod rng;
mod scram;
mod seen;
mod server_stream;
mod sql;
mod startup;
mod state_report;
mod userlist;
mod world;

pub use crate::client_stream::client_stream;
pub use crate::configs::{ini, toml, url};
pub use crate::console::console;
pub use crate::hba::hba;
pub use crate::ledger::ledger;
pub use crate::mutate::mutate;
pub use crate::pcp::pcp;
pub use crate::pgpool::pgpool;
pub use crate::scram::scram;
pub use crate::server_stream::server_stream;
pub use crate::sql::sql;
pub use crate::startup::startup;
pub use crate::state_report::state_report;
pub use crate::userlist::userlist;

/// A target with its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. Each has a folder of this name in `fuzz/corpus`, and possibly one in
/// `fuzz/regressions`.
pub const TARGETS: [Target; 15] = [
    ("client_stream", client_stream),
    ("server_stream", server_stream),
    ("startup", startup),
    ("state_report", state_report),
    ("scram", scram),
    ("ledger", ledger),
    ("ini", ini),
    ("userlist", userlist),
    ("hba", hba),
    ("toml", toml),
    ("url", url),
    ("console", console),
    ("pcp", pcp),
    ("pgpool", pgpool),
    ("sql", sql),
];
