//! The data that workers share: the hub with the pools, and also the listening sockets, the clock
//! and some counters.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicBool},
    time::Instant,
};

use config::SessionSchedule;
use engine::{
    ids::{Micros, WorkerId},
    journal::Journal,
    records::HandoverState,
    timings::EndedConnections,
};
use tokio::sync::mpsc;

use super::{
    handshakes::Handshakes,
    hub::{Hub, lock},
    leases::Leases,
    lines::Lines,
    listener::Listener,
    lobby_door::{LobbyDoor, LobbyRequest},
    mail::{ShellHub, ShellMail},
    outages::Outages,
    peer::Peer,
    requests::ColdRequest,
    schedule::{Load, Schedule},
};
use net::{
    sys::{Epoll, EventFd},
    tls::TlsContexts,
};

/// Time since a moment before Weir started, the same for all threads. A successor continues it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// The time that it showed then. Never 0, which means "not yet" in the engine.
    at: Micros,
}

/// The clock and the seed of a process, new or from its predecessor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    clock: Clock,
    seed: [u8; 32],
}

impl Origin {
    pub(crate) fn new() -> Self {
        let mut seed = [0; 32];
        net::random::fill(&mut seed);
        Self { clock: Clock::starting_at(1_000_000), seed }
    }

    pub(crate) fn of(handover_state: &HandoverState) -> Self {
        Self { clock: Clock::starting_at(handover_state.now), seed: handover_state.seed }
    }
}

impl Clock {
    fn starting_at(at: Micros) -> Self {
        Self { started: Instant::now(), at }
    }

    #[inline]
    pub(crate) fn now(self) -> Micros {
        self.at + self.started.elapsed().as_micros() as Micros
    }
}

/// The state of a worker that other threads read directly.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    pub(crate) load: Load,
    /// During a shutdown: has the worker nothing to wait for any more?
    pub(crate) drained: AtomicBool,
    /// During SUSPEND: is no message half read or half sent any more?
    pub(crate) quiet: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) hub: Arc<ShellHub>,
    pub(crate) epolls: Vec<Epoll>,
    pub(crate) gauges: Vec<Gauge>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) clock: Clock,
    /// A secret of this process, from which keys and salts are derived.
    pub(crate) seed: [u8; 32],
    /// A shutdown of any kind has begun.
    pub(crate) draining: AtomicBool,
    /// Another process takes over, or has taken over.
    pub(crate) is_giving: AtomicBool,
    pub(crate) cold: mpsc::UnboundedSender<ColdRequest>,
    pub(crate) handshakes: Handshakes,
    /// Events for the flight recorder, which are rare. The lock is held for some dozen instructions, and
    /// for a copy when an operator asks.
    pub(crate) journal: Mutex<Journal>,
    /// The last connections that have ended (`connection_timings`). The lock is taken once for each,
    /// and for a copy when an operator asks.
    pub(crate) ended: Mutex<EndedConnections>,
    /// The connections to predecessor and successor.
    pub(crate) lines: Lines,
    /// Each client that is logging in by TCP holds a clone of it.
    logins: Arc<()>,
    schedule: Schedule,
    /// The number of cancel requests under way to each peer.
    forwards: Mutex<HashMap<u32, u32>>,
    tls: RwLock<Arc<TlsContexts>>,
    pub(crate) outages: Outages,
    /// The way to the lobbies of direct pools.
    pub(crate) lobby: LobbyDoor,
    pub(crate) leases: Leases,
}

impl Shared {
    pub(crate) fn new(
        (workers, schedule): (u16, SessionSchedule),
        origin: Origin,
        listeners: Vec<Listener>,
        cold: mpsc::UnboundedSender<ColdRequest>,
        tls: TlsContexts,
        handshakes: Handshakes,
    ) -> io::Result<Self> {
        let wakers = (0..workers).map(|_| EventFd::new()).collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            hub: Arc::new(Hub::new(wakers)),
            epolls: (0..workers).map(|_| Epoll::new()).collect::<io::Result<_>>()?,
            gauges: (0..workers).map(|_| Gauge::default()).collect(),
            listeners,
            clock: origin.clock,
            seed: origin.seed,
            draining: AtomicBool::new(false),
            is_giving: AtomicBool::new(false),
            cold,
            handshakes,
            journal: Mutex::default(),
            ended: Mutex::default(),
            lines: Lines::default(),
            logins: Arc::default(),
            schedule: Schedule::new(schedule),
            forwards: Mutex::default(),
            tls: RwLock::new(Arc::new(tls)),
            outages: Outages::default(),
            lobby: LobbyDoor::new()?,
            leases: Leases::default(),
        })
    }

    pub(crate) fn tell_all(&self, mail: impl Fn() -> ShellMail) {
        self.hub.mailboxes().iter().for_each(|mailbox| mailbox.post(mail()));
    }

    /// Ends a SUSPEND.
    pub(crate) fn resume(&self) {
        self.tell_all(|| ShellMail::Resume);
        self.lobby.send(LobbyRequest::Resume);
    }

    pub(crate) fn epoll(&self, worker: WorkerId) -> &Epoll {
        &self.epolls[usize::from(worker.0)]
    }

    pub(crate) fn gauge(&self, worker: WorkerId) -> &Gauge {
        &self.gauges[usize::from(worker.0)]
    }

    /// Returns the worker for a client that `own` has accepted, and counts the client there.
    pub(crate) fn place_client(&self, own: WorkerId) -> WorkerId {
        let worker = self.schedule.place(own, self.loads());
        self.gauge(worker).load.enter(false);
        worker
    }

    /// Returns the worker for a client that `own` had before its handshake, and counts the client
    /// there.
    pub(crate) fn place_secured(&self, own: WorkerId) -> WorkerId {
        let worker = self.schedule.place_secured(own, self.loads());
        self.gauge(worker).load.enter(true);
        worker
    }

    /// Returns the number of clients of all workers.
    pub(crate) fn clients(&self) -> u32 {
        self.loads().map(Load::clients).sum()
    }

    fn loads(&self) -> impl ExactSizeIterator<Item = &Load> {
        self.gauges.iter().map(|gauge| &gauge.load)
    }

    /// May one more cancel request be sent to the peer, with at most `most` under way (0 = any
    /// number)? If so, it is counted until [`Shared::end_forward`].
    pub(crate) fn begin_forward(&self, peer: u32, most: u32) -> bool {
        let mut forwards = lock(&self.forwards);
        let count = forwards.entry(peer).or_default();
        let fits = most == 0 || *count < most;
        *count += u32::from(fits);
        fits
    }

    pub(crate) fn end_forward(&self, peer: u32) {
        let mut forwards = lock(&self.forwards);
        if let Some(count) = forwards.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                forwards.remove(&peer);
            }
        }
    }

    /// Returns a count among the clients that are logging in, until it is dropped. A client of a
    /// unix socket is not counted, so an operator can always log in.
    pub(crate) fn login_seat(&self, peer: &Peer) -> Arc<()> {
        match peer {
            Peer::Unix { .. } => Arc::default(),
            Peer::V4(..) | Peer::V6(_) | Peer::Process(_) | Peer::Unknown => {
                Arc::clone(&self.logins)
            }
        }
    }

    /// Returns the number of clients that are logging in by TCP.
    pub(crate) fn logins(&self) -> usize {
        Arc::strong_count(&self.logins) - 1
    }

    /// Returns the TLS contexts for new connections.
    pub(crate) fn tls(&self) -> Arc<TlsContexts> {
        Arc::clone(&self.tls.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_tls(&self, contexts: TlsContexts) {
        let mut tls = self.tls.write().unwrap_or_else(PoisonError::into_inner);
        *tls = Arc::new(contexts.after(&tls));
    }
}
