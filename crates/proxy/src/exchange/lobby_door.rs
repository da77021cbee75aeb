//! The requests of workers to the thread of the lobbies (`lobby`), and what it tells them.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{self, Receiver, Sender},
    },
};

use engine::{
    ids::{ClientId, PoolId, WorkerId},
    shell::{Attending, Closing, Guest},
};
use tokio::sync::mpsc::UnboundedSender;
use wire::startup::CancelKey;

use super::{hub::lock, peer::Peer, reports::ClientInfo};
use net::sys::EventFd;

#[derive(Debug)]
pub(crate) enum LobbyRequest {
    /// This server's backend will come.
    Expect(Attending),
    /// The backend of the server with this serial number is to leave.
    AskToLeave(u64),
    /// The server with this serial number is closed.
    BackendClosed(u64),
    Guest(Arriving),
    /// Disconnect all clients of this pool.
    Close {
        pool: PoolId,
        when: Closing,
        why: String,
    },
    Cancel {
        key: CancelKey,
        requester: (WorkerId, ClientId, u64),
    },
    /// Tell of all clients.
    Report(UnboundedSender<LobbyReport>),
    /// Weir ends.
    End,
}

/// All lobbies at one moment.
#[derive(Debug, Default)]
pub(crate) struct LobbyReport {
    pub(crate) clients: Vec<ClientInfo>,
    /// The transactions of each pool so far.
    pub(crate) transactions: Vec<(PoolId, u64)>,
}

/// A client that is handed to a lobby.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) guest: Guest,
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
    /// Clients in all lobbies, and on their way there.
    guests: AtomicU32,
    /// A process of another system user has come.
    pub(crate) foreign: AtomicBool,
}

impl LobbyDoor {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, requests) = mpsc::channel();
        Ok(Self {
            sender,
            requests: Mutex::new(Some(requests)),
            wake: EventFd::new()?,
            is_open: AtomicBool::new(false),
            guests: AtomicU32::new(0),
            foreign: AtomicBool::new(false),
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

    pub(crate) fn send(&self, request: LobbyRequest) {
        if let LobbyRequest::Guest(_) = request {
            self.guests.fetch_add(1, Ordering::AcqRel);
        }
        // Without the thread Weir is ending.
        if self.sender.send(request).is_ok() {
            self.wake.notify();
        }
    }

    pub(crate) fn guest_left(&self) {
        self.guests.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn guests(&self) -> u32 {
        self.guests.load(Ordering::Acquire)
    }
}
