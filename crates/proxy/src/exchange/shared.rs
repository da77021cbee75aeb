//! All that workers share: the hub with the pools, and besides it the listeners, the clock and some
//! counters.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicBool},
    time::Instant,
};

use config::SessionSchedule;
use engine::{
    ids::{Micros, WorkerId},
    records::HandoverState,
};
use tokio::sync::mpsc;

use super::{
    handshakes::Handshakes,
    hub::{Hub, lock},
    lines::Lines,
    listener::Listener,
    mail::{ShellHub, ShellMail},
    peer::Peer,
    requests::ColdRequest,
    schedule::{Load, Schedule},
};
use net::{
    sys::{Epoll, EventFd},
    tls::TlsContexts,
};

/// Time since a moment before the pooler started; the same for all threads, and for the process
/// that takes over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// The time it showed then. Never 0, which means "not yet" to the engine.
    at: Micros,
}

/// The clock and the seed of a process: new ones, or those of the process before it.
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

/// The state of a worker that other threads read without asking it.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    pub(crate) load: Load,
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
    /// A secret: what only we can compute is made from it.
    pub(crate) seed: [u8; 32],
    /// The end has begun, in one way or the other.
    pub(crate) draining: AtomicBool,
    pub(crate) cold: mpsc::UnboundedSender<ColdRequest>,
    pub(crate) handshakes: Handshakes,
    /// To the processes before and after this one.
    pub(crate) lines: Lines,
    /// Each client that is logging in by TCP holds a clone of it.
    logins: Arc<()>,
    schedule: Schedule,
    /// Cancel requests under way to each peer.
    forwards: Mutex<HashMap<u32, u32>>,
    tls: RwLock<Arc<TlsContexts>>,
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
            cold,
            handshakes,
            lines: Lines::default(),
            logins: Arc::default(),
            schedule: Schedule::new(schedule),
            forwards: Mutex::default(),
            tls: RwLock::new(Arc::new(tls)),
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

    /// Which worker has a client that `own` has accepted. It is counted there.
    pub(crate) fn place_client(&self, own: WorkerId) -> WorkerId {
        let worker = self.schedule.place(own, self.loads());
        self.gauge(worker).load.enter(false);
        worker
    }

    /// Likewise one whose handshake is made, that `own` had before.
    pub(crate) fn place_secured(&self, own: WorkerId) -> WorkerId {
        let worker = self.schedule.place_secured(own, self.loads());
        self.gauge(worker).load.enter(true);
        worker
    }

    /// All clients, of all workers.
    pub(crate) fn clients(&self) -> u32 {
        self.loads().map(Load::clients).sum()
    }

    fn loads(&self) -> impl ExactSizeIterator<Item = &Load> {
        self.gauges.iter().map(|gauge| &gauge.load)
    }

    /// May one more cancel request be sent to the peer, of which so many may be under way (0 = any
    /// number)? It is counted if so, until [`Shared::end_forward`].
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

    /// A place among those who are logging in, given back by being dropped. A client of a unix
    /// socket takes none: it is how the operator comes in when all are taken.
    pub(crate) fn login_seat(&self, peer: &Peer) -> Arc<()> {
        match peer {
            Peer::Unix { .. } => Arc::default(),
            Peer::V4(..) | Peer::V6(_) | Peer::Process(_) | Peer::Unknown => {
                Arc::clone(&self.logins)
            }
        }
    }

    /// How many are logging in by TCP.
    pub(crate) fn logins(&self) -> usize {
        Arc::strong_count(&self.logins) - 1
    }

    /// The contexts for connections that begin now.
    pub(crate) fn tls(&self) -> Arc<TlsContexts> {
        Arc::clone(&self.tls.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_tls(&self, contexts: TlsContexts) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(contexts);
    }
}
