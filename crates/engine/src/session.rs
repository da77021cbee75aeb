//! Session: everything that only auto mode needs.
//!
//! After a transaction, `verdict` decides what it has left in the server's session: settings that the
//! client carries, or state that pins the server. The other files are plain data: signs of texts, the
//! probe, state reports, pins. It never forwards a client's message.

pub(crate) mod ahead;
pub(crate) mod carried;
mod hearing;
pub(crate) mod holding;
pub(crate) mod left;
pub(crate) mod new_values;
pub(crate) mod on_server;
pub mod pins;
pub(crate) mod probe;
pub(crate) mod resets;
pub(crate) mod scanning;
pub(crate) mod sequences;
pub(crate) mod setting_names;
pub(crate) mod state;
pub mod state_report;
pub(crate) mod text_history;
pub(crate) mod verdict;
pub(crate) mod written;
