//! The data plane: the workers and their sockets. It does not know the cold side.

pub(crate) mod conn;
pub(crate) mod sockets;
pub(crate) mod table;
pub(crate) mod worker;
