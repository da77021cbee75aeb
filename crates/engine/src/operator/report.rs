//! What a worker tells about itself when it is asked. The console and the metrics are made of
//! these; they are copies, so nobody outside ever looks into a running engine.

use std::sync::Arc;

use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId};
use crate::lifecycle::replication::ReplicationKind;
use crate::operator::stats::Stats;
use crate::session::pins::Pinned;
use crate::values::Values;

/// One worker at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub now: Micros,
    pub clients: Vec<ClientRow>,
    /// Places for clients that are free at the moment.
    pub free_clients: usize,
    /// Servers in this worker's table; parked ones are found in their pools.
    pub servers: Vec<ServerRow>,
    /// Cancel requests on their way to servers of this worker, and to peers.
    pub cancels: Vec<CancelRow>,
    /// One entry for each pool this worker has met.
    pub stats: Vec<(PoolId, Stats)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// Not logged in yet.
    Login,
    /// Logged in, without a server.
    Idle,
    Waiting,
    /// Linked to a server.
    Active,
    /// A cancel request.
    Canceling,
}

#[derive(Clone, Debug)]
pub struct ClientRow {
    pub id: ClientId,
    pub serial: u64,
    pub identity: Arc<Identity>,
    pub pool: Option<PoolId>,
    pub state: ClientState,
    pub connected_at: Micros,
    pub request_at: Micros,
    /// Serial number of its server; 0 = none.
    pub server: u64,
    /// What a cancel request for it has to name: process id and secret.
    pub key: u64,
    /// Of the parameters that are tracked.
    pub vars: Values,
    pub application_name: Vec<u8>,
    pub prepared_statements: usize,
    pub replication: Option<ReplicationKind>,
    /// Bytes its names of statements take.
    pub statement_bytes: usize,
    pub reading: Reading,
}

/// A cancel request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRow {
    /// Its number, by which `Io` knows it.
    pub id: u64,
    pub to: CancelTarget,
    /// Serial number of the client that waits for it; 0 = none.
    pub requester: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// A server of this pool.
    Pool(PoolId),
    /// The peer of this number.
    Peer(u32),
}

/// Where the bytes that come from a peer stand between two reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes kept, of a message that cannot be dealt with yet.
    pub held: usize,
    /// Bytes still to come of a message that is passed on as it comes.
    pub remaining: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Connecting or logging in.
    Login,
    /// Parked.
    Idle,
    /// Parked for so long that it is checked before its next use.
    Used,
    /// Answering a message of ours (a check, a reset, settings).
    Tested,
    /// Linked to a client.
    Active,
    /// Held back until a cancel request for it is over.
    BeingCanceled,
    /// It listens for the clients of its pool.
    Listening,
}

#[derive(Clone, Debug)]
pub struct ServerRow {
    /// Its slot in its worker's table; none if it is parked.
    pub slot: Option<ServerId>,
    pub serial: u64,
    pub pool: PoolId,
    pub state: ServerState,
    pub connected_at: Micros,
    pub request_at: Micros,
    /// Serial number of its client; 0 = none.
    pub client: u64,
    pub process_id: u32,
    /// What a cancel request for it has to name: process id and secret.
    pub key: u64,
    /// Of the parameters that are tracked.
    pub vars: Values,
    pub application_name: Vec<u8>,
    pub prepared_statements: usize,
    pub replication: Option<ReplicationKind>,
    /// Bytes the list of them takes.
    pub statement_bytes: usize,
    pub reading: Reading,
    /// Its client keeps it.
    pub pinned: Option<Pinned>,
    /// It tells what its session holds: by itself, or when it is asked. None if it is not used in auto
    /// mode.
    pub reports_state: Option<bool>,
    /// It is closed as soon as it is free.
    pub doomed: bool,
}
