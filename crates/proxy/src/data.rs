//! The data plane: the workers, their sockets and the listeners.

pub(crate) mod conn;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod schedule;
pub(crate) mod shared;
pub(crate) mod sockets;
#[cfg(feature = "stepped")]
pub(crate) mod stepped;
pub(crate) mod table;
pub(crate) mod worker;
