//! TLS handshakes: the jobs of the handshake threads and their results.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use engine::{
    auth::Secured,
    ids::{Micros, ServerId, WorkerId},
};
use tokio::sync::{Notify, mpsc};

use super::peer::Peer;
use net::{
    sys::Address,
    tls::{ForServers, Tls},
};

/// Why a server is given up that was connected, but did not finish TLS in time.
pub(crate) const CONNECT_TIMEOUT: &str = "connect timeout";

/// A connection for a handshake, with its time limit (0 = none, as in the configuration).
#[derive(Debug)]
pub(crate) enum Job {
    /// A client that may begin TLS, and the bytes that it has sent since.
    Client { arrival: TlsArrival, limit: Duration },
    /// A server that has sent nothing yet.
    Server {
        fd: OwnedFd,
        to: Far,
        worker: WorkerId,
        server: ServerId,
        ticket: u64,
        limit: Duration,
    },
    /// A cancel request to the address of a server with TLS.
    Cancel {
        address: Address,
        to: Far,
        packet: Vec<u8>,
        worker: WorkerId,
        cancel: u64,
        limit: Duration,
        /// Set when the request is sent.
        sent: Arc<AtomicBool>,
    },
}

/// A server on another machine.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) host: String,
    pub(crate) tls: ForServers,
}

/// A client at the beginning of its handshake.
#[derive(Debug)]
pub(crate) struct TlsArrival {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
    /// The worker that had the client.
    pub(crate) worker: WorkerId,
    /// The bytes that it has sent since TLS began.
    pub(crate) said: Vec<u8>,
    /// The client began TLS without asking.
    pub(crate) is_direct: bool,
    pub(crate) connected_at: Micros,
    /// Counts the client among those that are logging in.
    pub(crate) seat: Arc<()>,
}

/// A client's connection with TLS.
#[derive(Debug)]
pub(crate) struct SecuredClient {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Box<Tls>,
    /// The names in its certificate, and the digest of Weir's certificate.
    pub(crate) secured: Arc<Secured>,
    /// Its first messages, if they came with the end of the handshake.
    pub(crate) said: Vec<u8>,
    /// Counts the client among those that are logging in.
    pub(crate) seat: Arc<()>,
}

/// A server's connection, ready for its startup packet: with TLS, or without if that is allowed.
#[derive(Debug)]
pub(crate) struct SecuredServer {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Option<Box<Tls>>,
}

/// The queues of the handshake threads.
#[derive(Debug)]
pub(crate) struct Handshakes {
    threads: Vec<mpsc::UnboundedSender<Job>>,
    next: AtomicUsize,
    /// Notified when too many clients are logging in.
    crowd: Notify,
}

impl Handshakes {
    /// Returns the queues for the threads. Jobs wait until the threads are started.
    pub(crate) fn new(threads: u16) -> (Self, Vec<mpsc::UnboundedReceiver<Job>>) {
        let (threads, queues) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
        (Self { threads, next: AtomicUsize::new(0), crowd: Notify::new() }, queues)
    }

    /// Queues a job for the next thread in turn.
    pub(crate) fn begin(&self, job: Job) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        // Without its thread Weir is ending, and dropping the connection closes it.
        let _ = self.threads[at].send(job);
    }

    /// Disconnects clients that delay their handshakes.
    pub(crate) fn crowd_out(&self) {
        self.crowd.notify_waiters();
    }

    /// Returns when too many clients are logging in.
    pub(crate) async fn crowded(&self) {
        self.crowd.notified().await;
    }
}
