//! Numbers that identify things. A `ClientId` or `ServerId` is a slot of one worker's table and
//! means nothing on another worker. A `PoolId` means the same pool everywhere in the process.

use std::time::Duration;

/// Microseconds of a monotonic clock. Zero is some moment before the process started to serve.
pub type Micros = u64;

pub(crate) fn micros(time: Duration) -> Micros {
    time.as_micros() as Micros
}

/// Has this limit passed? A limit of 0 never passes.
pub(crate) fn over(limit: Micros, since: Micros, now: Micros) -> bool {
    limit > 0 && now.saturating_sub(since) > limit
}

/// One data-plane thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// An application's connection, by its slot in its worker's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A connection to PostgreSQL, by its slot in its present worker's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// A (database, user) pool, numbered in the order of creation over the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// The database and user that a client has named.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    pub database: String,
    pub user: String,
}

/// A PostgreSQL instance of a cluster, by its number in the configuration.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct NodeId(pub u16);

/// A client in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub client: ClientId,
    /// The pool whose server it waits for.
    pub pool: PoolId,
    /// Position in the queue over all workers; also distinguishes the present wait from earlier
    /// ones.
    pub ticket: u64,
    pub since: Micros,
}

/// A client that waits for the trial of its pool's lobby, or for the answer of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    pub client: ClientId,
    pub serial: u64,
    pub pool: PoolId,
}

impl Waiter {
    /// Returns a waiter that has a server at once and is in no queue.
    pub fn served(client: ClientId, pool: PoolId, since: Micros) -> Self {
        Self { client, pool, ticket: 0, since }
    }
}
