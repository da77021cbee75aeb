//! A worker's report about itself, for the console and the metrics. Reports are copies, so other
//! threads never read a running engine.

use std::sync::Arc;

use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId};
use crate::lifecycle::replication::ReplicationKind;
use crate::operator::facts::Facts;
use crate::operator::stats::Stats;
use crate::operator::waits::Doing;
use crate::session::pins::Pinned;
use crate::watch::Watched;

/// One worker at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub now: Micros,
    pub clients: Vec<ClientRow>,
    /// Free slots for clients.
    pub free_clients: usize,
    /// Servers in this worker's table; parked ones are in their pools.
    pub servers: Vec<ServerRow>,
    /// Cancel requests on their way to servers of this worker, and to peers.
    pub cancels: Vec<CancelRow>,
    /// One entry for each pool that this worker knows.
    pub stats: Vec<(PoolId, Stats)>,
    /// The findings of its watch; empty without one.
    pub watched: Watched,
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
    /// Serial number of the client's server; 0 = none.
    pub server: u64,
    pub facts: Facts,
    pub application_name: Vec<u8>,
    pub replication: Option<ReplicationKind>,
    pub reading: Reading,
}

/// A cancel request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRow {
    /// The number by which `Io` knows the request.
    pub id: u64,
    pub to: CancelTarget,
    /// Serial number of the client that waits for the request; 0 = none.
    pub requester: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// A server of this pool.
    Pool(PoolId),
    /// The peer with this number.
    Peer(u32),
}

/// The state of a connection's input between two reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes kept of a message that cannot be processed yet.
    pub held: usize,
    /// Bytes that are missing of a message that is forwarded as it arrives.
    pub remaining: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Connecting or logging in.
    Login,
    /// Parked.
    Idle,
    /// Parked for long enough to be checked before its next use.
    Used,
    /// Answering Weir's own query (a check, a reset, settings).
    Tested,
    /// Linked to a client.
    Active,
    /// Held back until its cancel request is over.
    BeingCanceled,
    /// Listens for the clients of its pool.
    Listening,
    /// Serves clients' sockets itself.
    Attending,
}

#[derive(Clone, Debug)]
pub struct ServerRow {
    /// The server's slot in its worker's table; None if it is parked.
    pub slot: Option<ServerId>,
    pub serial: u64,
    pub pool: PoolId,
    pub state: ServerState,
    pub connected_at: Micros,
    pub request_at: Micros,
    /// Serial number of the server's client; 0 = none.
    pub client: u64,
    pub process_id: u32,
    pub facts: Facts,
    pub application_name: Vec<u8>,
    pub replication: Option<ReplicationKind>,
    pub reading: Reading,
    /// Its client's use of it; none without a client.
    pub doing: Option<Doing>,
    /// Its client keeps it.
    pub pinned: Option<Pinned>,
    /// The server is closed as soon as it is free.
    pub doomed: bool,
}
