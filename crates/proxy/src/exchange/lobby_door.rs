//! The requests of workers to the thread of the lobbies (`lobby`), and what it tells them.

use std::{
    collections::HashMap,
    io,
    os::fd::{OwnedFd, RawFd},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{self, Receiver, Sender},
    },
};

use engine::{
    LobbyLeaver,
    ids::{ClientId, Micros, PoolId, WorkerId},
    records::{LobbyRecord, WorkerRecords},
    settings::PoolKey,
    shell::{Attending, Closing, Guest},
    stats::Stats,
};
use tokio::sync::mpsc::UnboundedSender;
use wire::{error_fields::ErrorFields, startup::CancelKey};

use super::{hub::lock, peer::Peer, reports::ClientInfo};
use net::sys::EventFd;

#[derive(Debug)]
pub(crate) enum LobbyRequest {
    /// This server's backend will come.
    Expect(Attending),
    /// The records of the server with this serial number, and a copy of its socket. `None`: it cannot
    /// be held for another process.
    Home {
        serial: u64,
        home: Option<Box<Home>>,
    },
    /// The backend of the server with this serial number is to leave.
    AskToLeave(u64),
    /// The server of this pool with this serial number is closed.
    BackendClosed {
        pool: PoolId,
        serial: u64,
    },
    Guest(Arriving),
    /// Disconnect all clients of this pool.
    Close {
        pool: PoolId,
        when: Closing,
        why: String,
    },
    /// Disconnect the clients of this pool that wait for a backend, with this error.
    Refuse {
        pool: PoolId,
        error: Box<ErrorFields>,
    },
    Cancel {
        key: CancelKey,
        requester: (WorkerId, ClientId, u64),
    },
    /// The client that leaves with the server of this serial number is a worker's.
    Departed(u64),
    /// Disconnect the client with this serial number.
    KillClient(u64),
    /// Keep all clients from the backends; those in a transaction when it is over.
    Suspend,
    /// Disconnect the clients that are in a transaction still.
    EndSuspense,
    Resume,
    /// Tell of all clients.
    Report(UnboundedSender<LobbyReport>),
    /// Open no more servers: another process will take over. `settled` tells when none is coming.
    Settle,
    /// Keep still, and tell what can be handed over. `Cede` or `Thaw` follows.
    Export(UnboundedSender<Vec<LobbyExport>>),
    /// The other process has these pools' lobbies. Drop the sender after forgetting them.
    Cede {
        pools: Vec<PoolId>,
        done: UnboundedSender<()>,
    },
    /// The take-over has failed, or no lobby was handed over.
    Thaw,
    /// Weir ends.
    End,
}

/// A server for a lobby, as another process gets it.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) socket: OwnedFd,
    pub(crate) records: WorkerRecords,
}

/// A lobby that another process can take over.
#[derive(Debug)]
pub(crate) struct LobbyExport {
    pub(crate) pool: PoolId,
    pub(crate) key: PoolKey,
    pub(crate) record: LobbyRecord,
    /// The descriptors that the record names, and then the sockets of its guests in their order.
    pub(crate) fds: Vec<RawFd>,
}

/// All lobbies at one moment.
#[derive(Debug, Default)]
pub(crate) struct LobbyReport {
    pub(crate) clients: Vec<ClientInfo>,
    /// The servers in a lobby by serial number.
    pub(crate) servers: HashMap<u64, LobbyServer>,
    /// Counters of pools, which are added to those of the workers.
    pub(crate) stats: Vec<(PoolId, Stats)>,
}

/// A server in a lobby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LobbyServer {
    /// The pointer of the client that it serves or keeps; 0 = none.
    pub(crate) client: u64,
    /// When the client that it keeps came to rest; `None` if it keeps none, or runs a transaction.
    pub(crate) kept_since: Option<Micros>,
    /// Is the state of that client too large for its place?
    pub(crate) is_too_large: bool,
}

/// A client that is handed to a lobby.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) guest: Guest,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
}

/// A client that leaves a lobby with its server.
#[derive(Debug)]
pub(crate) struct Departing {
    pub(crate) leaver: LobbyLeaver,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
}

/// The way to the thread of the lobbies.
#[derive(Debug)]
pub(crate) struct LobbyDoor {
    sender: Sender<LobbyRequest>,
    /// Until the thread takes it.
    requests: Mutex<Option<Receiver<LobbyRequest>>>,
    pub(crate) wake: EventFd,
    /// Is there such a thread?
    is_open: AtomicBool,
    /// Has another process taken over? It has the socket's name.
    is_succeeded: AtomicBool,
    /// Clients in all lobbies, and on their way there.
    guests: AtomicU32,
    /// During SUSPEND: does no transaction run any more?
    pub(crate) quiet: AtomicBool,
    /// Before a take-over: is no server on its way to a lobby?
    pub(crate) settled: AtomicBool,
}

impl LobbyDoor {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, requests) = mpsc::channel();
        Ok(Self {
            sender,
            requests: Mutex::new(Some(requests)),
            wake: EventFd::new()?,
            is_open: AtomicBool::new(false),
            is_succeeded: AtomicBool::new(false),
            guests: AtomicU32::new(0),
            quiet: AtomicBool::new(true),
            settled: AtomicBool::new(true),
        })
    }

    /// Takes the requests, for the thread. Returns `None` if another thread has them.
    pub(crate) fn open(&self) -> Option<Receiver<LobbyRequest>> {
        let requests = lock(&self.requests).take()?;
        self.is_open.store(true, Ordering::Release);
        Some(requests)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Another process gives its own socket the name from now on.
    pub(crate) fn give_up_name(&self) {
        self.is_succeeded.store(true, Ordering::Release);
    }

    pub(crate) fn is_succeeded(&self) -> bool {
        self.is_succeeded.load(Ordering::Acquire)
    }

    pub(crate) fn send(&self, request: LobbyRequest) {
        if let LobbyRequest::Guest(_) = request {
            self.guests.fetch_add(1, Ordering::AcqRel);
        }
        // Without the thread Weir is ending.
        if self.sender.send(request).is_ok() {
            self.wake.notify();
        }
    }

    /// Begins a SUSPEND. It is complete when `quiet` is true.
    pub(crate) fn suspend(&self) {
        self.quiet.store(!self.is_open(), Ordering::Release);
        self.send(LobbyRequest::Suspend);
    }

    /// Prepares a take-over. It can begin when `settled` is true.
    pub(crate) fn settle(&self) {
        self.settled.store(!self.is_open(), Ordering::Release);
        self.send(LobbyRequest::Settle);
    }

    /// Counts a client of another process.
    pub(crate) fn guest_came(&self) {
        self.guests.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn guest_left(&self) {
        self.guests.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn guests(&self) -> u32 {
        self.guests.load(Ordering::Acquire)
    }
}
