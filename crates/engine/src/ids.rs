//! Names for things by number. A `ClientId` or `ServerId` is a slot of one worker's table and means
//! nothing on another worker; a `PoolId` means the same pool everywhere in the process.

/// Microseconds of a monotonic clock. Zero is some moment before the process started to serve.
pub type Micros = u64;

/// Has this limit passed? 0 switches it off.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// Who the client said it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    pub database: String,
    pub user: String,
}

/// A client in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub client: ClientId,
    /// Position in the queue over all workers; also tells a client's present wait from a past one.
    pub ticket: u64,
    pub since: Micros,
}
