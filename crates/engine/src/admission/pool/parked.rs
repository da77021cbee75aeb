//! A server that is in no worker's table: it is in its pool, or on its way to a client of another
//! worker.

use crate::server::Server;

/// A server and its connection. `T`, the transport, belongs to the shell (`shell::Io`): the engine
/// gives it back with the server and never looks inside.
#[derive(Debug)]
pub struct Parked<T> {
    pub server: Box<Server>,
    pub transport: T,
}
