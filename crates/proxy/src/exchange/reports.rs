//! A worker's answers to requests for reports.

use std::os::fd::RawFd;

use engine::{
    figures::Figures,
    ids::{ClientId, Micros, PoolId, WorkerId},
    records::WorkerRecords,
    report::{CancelRow, ClientRow, ServerRow},
    server::Server,
    stats::Stats,
    watch::Watched,
};

use super::{peer::Peer, transport::ServerSocket};
use net::sys::{Address, socket};

/// The number of every client in a lobby: it has no slot in a worker's table.
pub(crate) const IN_LOBBY: ClientId = ClientId(u32::MAX);

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
    /// A description of its TLS; empty without TLS.
    pub tls: String,
    /// Unsent output in bytes.
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
    /// The address that it is connected to.
    pub remote: Address,
    pub local: Address,
    /// A description of its TLS; empty without TLS.
    pub tls: String,
    /// Unsent output in bytes.
    pub unsent: usize,
    pub row: ServerRow,
}

impl ServerInfo {
    /// Returns the entry of a server without a client.
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

/// A server whose process may not have more private memory than `limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedServer {
    /// The worker that closes it.
    pub(crate) worker: WorkerId,
    pub(crate) pool: PoolId,
    pub(crate) serial: u64,
    pub(crate) fd: RawFd,
    pub(crate) process: u32,
    /// Bytes.
    pub(crate) limit: u64,
    pub(crate) uses: u64,
    /// Is it parked? Otherwise it has a client, or is in a lobby.
    pub(crate) is_parked: bool,
    pub(crate) is_direct: bool,
}

impl LimitedServer {
    pub(crate) fn new(
        worker: WorkerId,
        fd: RawFd,
        server: &Server,
        limit: u64,
        is_parked: bool,
    ) -> Self {
        let &Server { pool, serial, uses, .. } = server;
        let (process, is_direct) = (server.key.pid, server.is_attending());
        Self { worker, pool, serial, fd, process, limit, uses, is_parked, is_direct }
    }
}

/// A cancel request on its way to a server or a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelInfo {
    /// Is the other side connected, and was the request sent?
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
    pub(crate) watched: Watched,
    /// Free slots for clients.
    pub(crate) free_clients: usize,
    pub(crate) cancels: Vec<CancelInfo>,
}

/// The figures of one worker.
#[derive(Debug)]
pub(crate) struct WorkerFigures {
    pub(crate) figures: Figures,
    pub(crate) cancels: Vec<CancelInfo>,
}

/// The progress of a worker's clients in coming to rest after another process has taken over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// Can a client be handed over now?
    pub(crate) can_move: bool,
    /// Is there a client that can be handed over, sooner or later?
    pub(crate) is_awaited: bool,
}

/// The clients and servers that a worker can hand over to another process.
#[derive(Debug)]
pub(crate) struct WorkerExport {
    pub(crate) worker: WorkerId,
    pub(crate) records: WorkerRecords,
    /// The names of the tracked parameters.
    pub(crate) names: Vec<String>,
    /// In the order of the records: each client's, followed by its server's; then those of parked
    /// servers.
    pub(crate) fds: Vec<RawFd>,
    /// The sockets of servers of direct pools, in the order of the records.
    pub(crate) attending_fds: Vec<RawFd>,
}

/// A descriptor identifies its connection as long as it lasts, on every worker.
pub(crate) fn pointer(fd: RawFd) -> u64 {
    u64::from(fd.max(0).cast_unsigned())
}
