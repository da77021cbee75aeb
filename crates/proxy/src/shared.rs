//! What all threads of the pooler hold together besides the pools: the way into each worker, the
//! listeners, the clock, and where the servers' sockets are connected to.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::RawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use config::Config;
use engine::{
    Drain,
    ids::{ClientId, Micros, WorkerId},
    shell::Mail,
};
use tokio::sync::mpsc;

use crate::{
    announced::Arrival,
    controller::WorkerReport,
    exchange::{self, Hub, WorkerExchange},
    listener::Listener,
    mailbox::Wake,
    peer::Peer,
    pooler::ConsoleRequest,
    resolve::Question,
    sys::{Address, Epoll, EventFd},
};

impl Wake for EventFd {
    fn wake(&self) {
        self.notify();
    }
}

pub(crate) type ShellHub = Hub<ShellMail, EventFd>;
pub(crate) type ShellExchange = WorkerExchange<ShellMail, EventFd>;

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum ShellMail {
    /// By another worker's engine.
    Engine(Mail),
    /// A client that another worker accepted.
    Client {
        fd: RawFd,
        peer: Peer,
    },
    /// The addresses of a name that somebody is to connect to; none if it has none. The ticket is
    /// that of the question.
    Resolved {
        ticket: u64,
        addresses: Vec<SocketAddr>,
    },
    /// A host name has left these addresses.
    Moved {
        host: Arc<str>,
        gone: Arc<[IpAddr]>,
    },
    /// Tell about yourself.
    Report(mpsc::UnboundedSender<WorkerReport>),
    /// The configuration was replaced; the pools have its settings already.
    Config(Arc<Config>),
    Drain(Drain),
    /// Pools were closed, opened or renewed.
    Review,
    /// Drop everything of these databases.
    Kill(Arc<[String]>),
    /// Drop this client, if it still is the one with that serial number.
    KillClient {
        client: ClientId,
        serial: u64,
    },
    /// Read nothing and accept nobody from now on, but what is half read.
    Suspend,
    /// Drop whoever has something half read or half sent.
    EndSuspense,
    /// Go on reading.
    Resume,
    /// Close everything and end.
    Stop,
}

impl From<Mail> for ShellMail {
    fn from(mail: Mail) -> Self {
        Self::Engine(mail)
    }
}

/// What a worker asks of the cold thread.
#[derive(Debug)]
pub(crate) enum ColdRequest {
    Resolve(Question),
    /// A proxy is to say who its client is.
    Arrival(Arrival),
    Console(ConsoleRequest),
}

/// Time since a moment before the pooler started; the same for all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Never 0, which the engine takes for "not yet".
    #[inline]
    pub(crate) fn now(self) -> Micros {
        self.0.elapsed().as_micros() as Micros + 1_000_000
    }
}

/// What others may know of a worker without asking it.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Connections of clients it has or is about to get.
    pub(crate) clients: AtomicU32,
    /// While the pooler drains: has it nothing to wait for any more?
    pub(crate) drained: AtomicBool,
    /// While it is suspended: is nothing half read or half sent any more?
    pub(crate) quiet: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) hub: Arc<ShellHub>,
    pub(crate) epolls: Vec<Epoll>,
    pub(crate) gauges: Vec<Gauge>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) clock: Clock,
    /// The end has begun, in one way or the other.
    pub(crate) draining: AtomicBool,
    pub(crate) cold: mpsc::UnboundedSender<ColdRequest>,
    /// Where the servers' sockets are connected to, by descriptor.
    server_addresses: Mutex<HashMap<RawFd, Address>>,
}

impl Shared {
    pub(crate) fn new(
        workers: u16,
        listeners: Vec<Listener>,
        cold: mpsc::UnboundedSender<ColdRequest>,
    ) -> io::Result<Self> {
        let wakers = (0..workers).map(|_| EventFd::new()).collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            hub: Arc::new(Hub::new(wakers)),
            epolls: (0..workers).map(|_| Epoll::new()).collect::<io::Result<_>>()?,
            gauges: (0..workers).map(|_| Gauge::default()).collect(),
            listeners,
            clock: Clock::start(),
            draining: AtomicBool::new(false),
            cold,
            server_addresses: Mutex::default(),
        })
    }

    pub(crate) fn tell_all(&self, mail: impl Fn() -> ShellMail) {
        self.hub.mailboxes().iter().for_each(|mailbox| mailbox.post(mail()));
    }

    pub(crate) fn epoll(&self, worker: WorkerId) -> &Epoll {
        &self.epolls[usize::from(worker.0)]
    }

    pub(crate) fn gauge(&self, worker: WorkerId) -> &Gauge {
        &self.gauges[usize::from(worker.0)]
    }

    /// Which worker is to have a client that `own` accepted: `own`, unless it clearly has more
    /// clients than the least loaded one. Moving every client would cost a wake each.
    pub(crate) fn worker_for_client(&self, own: WorkerId) -> WorkerId {
        let load = |gauge: &Gauge| gauge.clients.load(Ordering::Relaxed);
        let mine = load(self.gauge(own));
        let least = self.gauges.iter().enumerate().min_by_key(|(_, gauge)| load(gauge));
        match least {
            Some((at, gauge)) if mine > load(gauge) + 8 + load(gauge) / 8 => WorkerId(at as u16),
            _ => own,
        }
    }

    pub(crate) fn set_server_address(&self, fd: RawFd, address: Address) {
        exchange::lock(&self.server_addresses).insert(fd, address);
    }

    pub(crate) fn server_address(&self, fd: RawFd) -> Option<Address> {
        exchange::lock(&self.server_addresses).get(&fd).cloned()
    }

    pub(crate) fn forget_server_address(&self, fd: RawFd) {
        exchange::lock(&self.server_addresses).remove(&fd);
    }
}
