//! A server that is in no worker's table: it is in its pool, or on its way to a client of another
//! worker.

use crate::server::Server;

/// A server and its connection. The transport `T` belongs to the shell (`shell::Io`). The engine
/// returns it with the server and never looks inside.
#[derive(Debug)]
pub struct Parked<T> {
    pub server: Box<Server>,
    pub transport: T,
}
