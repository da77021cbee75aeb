//! A worker's answers to questions about itself.

use std::os::fd::RawFd;

use engine::{
    ids::{Micros, PoolId, WorkerId},
    records::WorkerRecords,
    report::{CancelRow, ClientRow, ServerRow},
    stats::Stats,
};

use super::{peer::Peer, transport::ServerSocket};
use net::sys::{Address, socket};

/// A client and its socket.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    pub worker: WorkerId,
    /// The number of the connection in the log: `C-0x…`.
    pub pointer: u64,
    /// The pointer of its server; 0 = none.
    pub link: u64,
    pub peer: Peer,
    pub local: Address,
    /// How the connection is secured, in words; empty if it is not.
    pub tls: String,
    /// Bytes that wait to be sent to it.
    pub unsent: usize,
    pub row: ClientRow,
}

/// A server and its socket.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The worker whose epoll watches it.
    pub worker: WorkerId,
    /// The number of the connection in the log: `S-0x…`. 0 while it has no socket.
    pub pointer: u64,
    /// The pointer of its client; 0 = none.
    pub link: u64,
    /// Where it is connected to.
    pub remote: Address,
    pub local: Address,
    /// How the connection is secured, in words; empty if it is not.
    pub tls: String,
    /// Bytes that wait to be sent to it.
    pub unsent: usize,
    pub row: ServerRow,
}

impl ServerInfo {
    /// A server without a client.
    pub(crate) fn new(worker: WorkerId, socket: ServerSocket, row: ServerRow) -> Self {
        let ServerSocket { fd, address, tls } = socket;
        Self {
            worker,
            pointer: pointer(fd),
            link: 0,
            remote: address,
            local: socket::local_address(fd).unwrap_or_default(),
            tls,
            unsent: 0,
            row,
        }
    }
}

/// A cancel request on its way to a server or a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelInfo {
    /// Is the other side connected, and has it been sent the request?
    pub sent: bool,
    pub row: CancelRow,
}

/// One worker's answer.
#[derive(Debug)]
pub(crate) struct WorkerReport {
    pub(crate) worker: WorkerId,
    pub(crate) now: Micros,
    pub(crate) clients: Vec<ClientInfo>,
    pub(crate) servers: Vec<ServerInfo>,
    pub(crate) stats: Vec<(PoolId, Stats)>,
    /// Places for clients that are free at the moment.
    pub(crate) free_clients: usize,
    pub(crate) cancels: Vec<CancelInfo>,
}

/// How far a worker's clients have come to rest, after another process has taken over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// Can a client be given away now?
    pub(crate) can_move: bool,
    /// Is there a client that can be, sooner or later?
    pub(crate) is_awaited: bool,
}

/// The clients and servers that a worker can give away to another process.
#[derive(Debug)]
pub(crate) struct WorkerExport {
    pub(crate) worker: WorkerId,
    pub(crate) records: WorkerRecords,
    /// The parameters that are tracked.
    pub(crate) names: Vec<String>,
    /// In the order of the records: each client's, with its server's behind it; parked servers'.
    pub(crate) fds: Vec<RawFd>,
}

/// A connection's descriptor stands for it as long as it lasts, whichever worker has it.
pub(crate) fn pointer(fd: RawFd) -> u64 {
    u64::from(fd.max(0).cast_unsigned())
}
