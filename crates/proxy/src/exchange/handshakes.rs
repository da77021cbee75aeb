//! Connections on their way to a TLS handshake and back: the jobs of the handshake threads and their
//! results.

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
use net::{sys::Address, tls::Tls};

/// Why a server is given up that is reached, and not secured in its time.
pub(crate) const CONNECT_TIMEOUT: &str = "connect timeout";

/// A connection to be secured, within so much time (0 = without a limit, as in the configuration).
#[derive(Debug)]
pub(crate) enum Job {
    /// A client that was told to begin, and what it has said since.
    Client { arrival: TlsArrival, limit: Duration },
    /// A server that has said nothing yet, by the name it is reached by.
    Server {
        fd: OwnedFd,
        host: String,
        worker: WorkerId,
        server: ServerId,
        ticket: u64,
        limit: Duration,
    },
    /// A cancel request to where a secured server is.
    Cancel {
        address: Address,
        host: String,
        packet: Vec<u8>,
        worker: WorkerId,
        cancel: u64,
        limit: Duration,
        /// Becomes true when the request is sent.
        sent: Arc<AtomicBool>,
    },
}

/// A client at the beginning of its handshake.
#[derive(Debug)]
pub(crate) struct TlsArrival {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
    /// The worker that had the client.
    pub(crate) worker: WorkerId,
    /// The bytes it has sent since it was told to begin.
    pub(crate) said: Vec<u8>,
    /// It was not told: it began by itself.
    pub(crate) is_direct: bool,
    pub(crate) connected_at: Micros,
    /// Its place among those who are logging in.
    pub(crate) seat: Arc<()>,
}

/// A client's connection with TLS.
#[derive(Debug)]
pub(crate) struct SecuredClient {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Box<Tls>,
    /// The names in its certificate, and the certificate of ours that it has seen.
    pub(crate) secured: Arc<Secured>,
    /// Its first words, if they came with the end of the handshake.
    pub(crate) said: Vec<u8>,
    /// Its place among those who are logging in.
    pub(crate) seat: Arc<()>,
}

/// A server's connection, ready for its startup packet: with TLS or, where both agree, without.
#[derive(Debug)]
pub(crate) struct SecuredServer {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Option<Box<Tls>>,
}

/// The threads, and the way to them.
#[derive(Debug)]
pub(crate) struct Handshakes {
    threads: Vec<mpsc::UnboundedSender<Job>>,
    next: AtomicUsize,
    /// Rung when too many are logging in.
    crowd: Notify,
}

impl Handshakes {
    /// Not started yet: jobs wait until the threads are started.
    pub(crate) fn new(threads: u16) -> (Self, Vec<mpsc::UnboundedReceiver<Job>>) {
        let (threads, queues) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
        (Self { threads, next: AtomicUsize::new(0), crowd: Notify::new() }, queues)
    }

    /// To the next thread in turn.
    pub(crate) fn begin(&self, job: Job) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        // Without its thread the pooler is ending, and the connection is closed by being dropped.
        let _ = self.threads[at].send(job);
    }

    /// Clients whose handshakes keep us waiting have to go.
    pub(crate) fn crowd_out(&self) {
        self.crowd.notify_waiters();
    }

    /// Returns when too many are logging in.
    pub(crate) async fn crowded(&self) {
        self.crowd.notified().await;
    }
}
