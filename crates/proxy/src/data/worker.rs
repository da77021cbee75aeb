//! The loop of a data-plane thread. Events of epoll go to the engine, and the follow-up work is
//! done within the same batch.
//!
//! An ordinary transaction makes four socket calls, and its share of one `epoll_wait` and one clock
//! read. It makes no allocation, no `epoll_ctl` and no message to another thread.
//!
//! * `read.rs`: reading clients and servers, and outcomes for the engine
//! * `accept.rs`: new clients
//! * `mail.rs`: requests of other threads
//! * `suspend.rs`: SUSPEND, when nothing is read
//! * `handover.rs`: an online restart, in the old and in the new process

mod accept;
mod handover;
mod mail;
mod read;
mod suspend;

use std::{collections::VecDeque, mem, sync::Arc, sync::atomic::Ordering};

use config::Config;
use engine::{
    Drain, Engine, Exported, Imported,
    ids::{ClientId, Micros, ServerId, WorkerId},
};

use crate::{
    data::{
        conn::{CONNECTING, LOGGING_IN, READABLE},
        sockets::{Sockets, rest::REST},
        table::{Kind, Token},
    },
    exchange::{
        mail::{ShellExchange, ShellMail},
        shared::Shared,
        transport::Transport,
    },
    fatal,
};
use net::{
    sys::{Events, epoll},
    tls::Progress,
};

/// The interval of checks of the timeouts.
const TICK: Micros = 200_000;
/// Maximal number of events per batch. A closed descriptor stays unused until the batch ends.
const EVENTS_MAX: usize = 256;
/// The number of logging-in clients that are read before others get their turn. A login takes as
/// long as several transactions, and thousands may come at once.
pub(crate) const LOGINS_MAX: usize = 4;
/// After this many messages of one connection, others get their turn.
pub(crate) const MESSAGES_IN_TURN: u64 = 1_024;
/// The bytes to read from a client whose last read held more messages than that: this many of the
/// shortest messages fit.
pub(crate) const CROWDED_READ: usize = MESSAGES_IN_TURN as usize * wire::HEADER_LEN;
/// Reads of one connection per turn, if `sbuf_loopcnt` sets no limit.
const READS_IN_TURN: u32 = 16;
/// The receive buffer. Only connections that fill its small part use all of it.
const BUFFER_LEN: usize = 64 * 1024;
/// The part for ordinary reads, which stays in the processor's cache.
const SMALL_READ: usize = 16 * 1024;

/// The connections that are not read at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    None,
    /// SUSPEND: connections between two messages.
    Suspended,
    /// Another process is about to take over: clients that can stop now.
    Freezing,
    /// Another process has taken over: the same, except for clients that cannot move.
    Leaving,
    /// The exported connections may belong to another process: nothing is read.
    Still,
}

#[derive(Debug)]
pub(crate) struct Worker {
    id: WorkerId,
    shared: Arc<Shared>,
    engine: Engine<ShellExchange>,
    sockets: Sockets,
    buffer: Box<[u8]>,
    /// The decrypted content of TLS records.
    progress: Progress,
    events: Events,
    /// Mail from the mailbox; kept for its capacity.
    mail: VecDeque<ShellMail>,
    has_mail: bool,
    next_tick: Micros,
    /// Set when descriptors have run out; accepting continues at the next tick.
    accepting_paused: bool,
    next_complaint: Micros,
    drain: Option<Drain>,
    hold: Hold,
    /// The connections that another process may take over.
    exported: Exported,
    /// Events of parked servers that came while nothing was read.
    missed: Vec<Token>,
    /// Mail that came meanwhile. It may concern connections of another process.
    postponed: Vec<ShellMail>,
    /// Connections from another process, not served yet.
    imported: Imported,
    stopped: bool,
}

impl Worker {
    pub(crate) fn new(id: WorkerId, shared: Arc<Shared>, config: Arc<Config>) -> Self {
        let exchange = ShellExchange::new(Arc::clone(&shared.hub));
        let mut worker = Self {
            id,
            engine: Engine::new(id, Arc::clone(&config), exchange, shared.seed),
            sockets: Sockets::new(id, Arc::clone(&shared), config),
            buffer: vec![0; BUFFER_LEN].into(),
            progress: Progress::default(),
            events: Events::with_room(EVENTS_MAX),
            mail: VecDeque::new(),
            has_mail: true,
            next_tick: 0,
            accepting_paused: false,
            next_complaint: 0,
            drain: None,
            hold: Hold::None,
            exported: Exported::default(),
            missed: Vec::new(),
            postponed: Vec::new(),
            imported: Imported::default(),
            stopped: false,
            shared,
        };
        worker.sockets.now = worker.shared.clock.now();
        worker
    }

    /// Watches the mailbox and the listening sockets.
    ///
    /// # Errors
    /// When the kernel has no resources for it.
    pub(crate) fn watch(&mut self) -> std::io::Result<()> {
        let wake = self.shared.hub.mailbox(self.id).waker().fd();
        let token = self.sockets.table.register(wake, Kind::Wake);
        let interest = epoll::READABLE | epoll::EDGE;
        self.shared.epoll(self.id).add(wake, interest, token.to_u64())?;
        self.watch_listeners()
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) {
        self.begin_imported();
        while !self.stopped {
            let (timeout, clock) = (self.timeout_ms(), self.shared.clock);
            if let Err(reason) = self.turn(timeout, || clock.now()) {
                // Ending only this worker would silently lose its clients and later mail.
                fatal!("worker {} cannot wait for events: {reason}", self.id.0);
                std::process::abort();
            }
        }
        self.sockets.close_all();
    }

    /// Runs one turn of the loop. `now` is called after waiting.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        timeout_ms: i32,
        now: impl FnOnce() -> Micros,
    ) -> std::io::Result<()> {
        let epoll = self.shared.epoll(self.id);
        let timeout_ms = if self.sockets.has_resting() {
            if timeout_ms != 0 {
                epoll.wait_finely(REST)?;
            }
            self.sockets.end_rest();
            0
        } else {
            timeout_ms
        };
        epoll.wait(&mut self.events, timeout_ms)?;
        self.sockets.now = now();
        self.handle_batch();
        Ok(())
    }

    fn timeout_ms(&self) -> i32 {
        let has_work = !self.sockets.ready.is_empty() || !self.sockets.logins.is_empty();
        if has_work || self.has_mail {
            return 0;
        }
        let micros = self.next_tick.saturating_sub(self.sockets.now).min(TICK);
        micros.div_ceil(1000) as i32
    }

    fn handle_batch(&mut self) {
        for at in 0..self.events.len() {
            let (token, events) = self.events.at(at);
            self.handle_event(Token::from_u64(token), events);
        }
        // Sockets that are queued meanwhile are read in the next batch.
        for _ in 0..self.sockets.ready.len() {
            match self.sockets.next_ready() {
                Some((token, Kind::Client(at))) => self.read_client(ClientId(at), token),
                Some((token, Kind::Server(at))) => self.read_server(ServerId(at), token),
                _ => break,
            }
        }
        for _ in 0..LOGINS_MAX {
            let Some((token, Kind::Client(at))) = self.sockets.next_login() else { break };
            self.read_client(ClientId(at), token);
        }
        if mem::take(&mut self.has_mail) {
            self.read_mail();
        }
        if self.sockets.now >= self.next_tick {
            self.tick();
        }
        self.sockets.close_discarded();
        if let Some(how) = self.drain {
            self.publish_drained(how);
        }
        if self.hold != Hold::None {
            self.publish_quiet();
        }
    }

    fn handle_event(&mut self, token: Token, events: u32) {
        match self.sockets.table.kind(token) {
            Kind::Free => {}
            Kind::Client(at) => self.client_event(ClientId(at), token, events),
            Kind::Server(at) => self.server_event(ServerId(at), token, events),
            Kind::Parked(_) if self.hold == Hold::Still => self.missed.push(token),
            Kind::Parked(pool) => {
                let is_it = |transport: &Transport| Token::of(transport) == token;
                match self.engine.parked_readable(pool, is_it, &mut self.sockets) {
                    Some(server) => self.server_event(server, token, events),
                    None => self.sockets.forget_parked(token, pool),
                }
            }
            Kind::Cancel => self.sockets.cancel_event(token.fd(), events),
            Kind::Lingering => self.sockets.linger_event(token.fd(), events),
            Kind::Departing => self.sockets.departing_event(token.fd()),
            Kind::Listener(at) => self.accept(at as usize),
            Kind::Wake => self.has_mail = true,
        }
        self.report_outcomes();
    }

    fn client_event(&mut self, client: ClientId, token: Token, events: u32) {
        if events & epoll::WRITABLE != 0 {
            self.sockets.flush(token, Kind::Client(client.0));
        }
        let conn = self.sockets.client(client);
        conn.note_events(events);
        if conn.has(LOGGING_IN) {
            if self.engine.look().is_logging_in(client) {
                return self.sockets.queue_login(client, token);
            }
            conn.flags &= !LOGGING_IN;
        }
        if conn.has(READABLE) {
            self.read_client(client, token);
        }
    }

    fn server_event(&mut self, server: ServerId, token: Token, events: u32) {
        let conn = self.sockets.server(server);
        if conn.has(CONNECTING) {
            if events & (epoll::WRITABLE | epoll::BROKEN) != 0 {
                self.sockets.connect_event(server, token);
            }
            return;
        }
        if events & epoll::WRITABLE != 0 {
            self.sockets.flush(token, Kind::Server(server.0));
        }
        let conn = self.sockets.server(server);
        conn.note_events(events);
        if conn.has(READABLE) {
            self.read_server(server, token);
        }
    }

    fn tick(&mut self) {
        let now = self.sockets.now;
        self.next_tick = now + TICK;
        self.sockets.tick();
        self.report_outcomes();
        if self.hold != Hold::Still {
            self.engine.tick(&mut self.sockets);
        }
        self.report_outcomes();
        if self.hold == Hold::None && mem::take(&mut self.accepting_paused) {
            self.accepting_paused = self.watch_listeners().is_err();
        }
        if cfg!(debug_assertions) {
            self.engine.look().check_invariants();
        }
    }

    /// While Weir shuts down: must this worker still wait for anything?
    fn publish_drained(&self, how: Drain) {
        let gauge = self.shared.gauge(self.id);
        let drained = match how {
            Drain::WaitForServers => self.engine.look().busy_servers() == 0,
            Drain::WaitForClients | Drain::TakenOver => gauge.load.clients() == 0,
        };
        gauge.drained.store(drained, Ordering::Release);
    }
}
