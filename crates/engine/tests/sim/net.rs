//! The sockets between clients, workers and servers, with small kernel buffers. [`SimIo`] is the
//! engine's access to them, and follows the shell's contract (`shell.rs` of the engine).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use config::ServerTls;
use engine::auth::Password;
use engine::ids::{ClientId, Micros, PoolId, ServerId};
use engine::settings::Target;
use engine::shell::{Check, ConsoleLogin, Event, Io, Issued, Mail, TlsStart, Wanted};
use engine::timings::Connection;
use wire::scram::ChannelEnd;
use wire::startup::CancelKey;

use crate::backend::Backend;
use crate::bus::Bus;
use crate::exchange::{SimExchange, Transport};
use crate::reference::{messages, show_all};
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::setup::PASSWORD;
use crate::timings::Timings;

/// The number of bytes that a worker's shell reads at once.
pub(crate) const READ_LEN_MAX: usize = 4096;

/// One direction of a socket.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) data: VecDeque<u8>,
    pub(crate) capacity: usize,
    /// The writer has closed its side.
    pub(crate) ended: bool,
    /// The reader is gone, and written bytes are lost.
    pub(crate) broken: bool,
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(crate) fn room(&self) -> usize {
        if self.broken { usize::MAX } else { self.capacity.saturating_sub(self.data.len()) }
    }

    /// Writes as much as there is room for, and returns how much that was.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        if !self.broken {
            self.data.extend(&bytes[..taken]);
        }
        taken
    }

    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.data.len());
        self.data.drain(..count).collect()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.data.is_empty() && self.ended
    }
}

/// A client's socket, as the worker that has it sees it.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    pub(crate) worker: usize,
    /// None: the engine has closed it. Pending bytes are still sent.
    pub(crate) slot: Option<ClientId>,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    pub(crate) pending: Vec<u8>,
    /// There may be something to read.
    pub(crate) latch: bool,
    /// The engine has stopped reading it, and will say when to resume.
    pub(crate) blocked: bool,
    /// A reason for disconnecting it has occurred.
    pub(crate) excused: bool,
    /// It asked for a database that is still disabled.
    pub(crate) barred: bool,
}

impl ClientSocket {
    /// Does the kernel still lack some of the bytes?
    pub(crate) fn is_stuck(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// The place of a server's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Table(usize, ServerId),
    /// Parked, or in the mail.
    Detached {
        home: usize,
        pool: PoolId,
    },
    Closed,
}

#[derive(Debug)]
pub(crate) struct ServerSocket {
    pub(crate) place: Place,
    pub(crate) connecting: bool,
    pub(crate) opened_at: u64,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    pub(crate) pending: Vec<u8>,
    pub(crate) latch: bool,
    /// It came from another worker with unread bytes.
    pub(crate) news: bool,
    /// It ended while it had no client.
    pub(crate) died_idle: bool,
    /// It does nothing before this moment.
    pub(crate) stalled_until: u64,
    pub(crate) backend: Backend,
    /// The moment at which its sleep ends.
    pub(crate) wakes_at: Option<u64>,
}

impl ServerSocket {
    pub(crate) fn is_stuck(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Has the server answered everything that was sent to it, and has Weir read all of it?
    pub(crate) fn is_answered(&self) -> bool {
        let is_sent = self.pending.is_empty() && self.up.data.is_empty();
        is_sent && self.backend.is_at_rest() && self.backend.is_told() && self.down.data.is_empty()
    }
}

/// A cancel request on its way.
#[derive(Debug)]
pub(crate) struct CancelSocket {
    pub(crate) worker: usize,
    pub(crate) cancel: u64,
    pub(crate) packet: Vec<u8>,
    pub(crate) delivered: bool,
    /// The engine was told that it is over.
    pub(crate) finished: bool,
    pub(crate) due: u64,
}

/// Makes the server process behind a new connection.
pub(crate) type Factory = Box<dyn FnMut(&Target, &mut Rng) -> Backend>;

/// Limit of resumes of clients in one action of the world.
const RESUMED_MAX: u32 = 100_000;

pub(crate) struct Net {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) clients: Vec<ClientSocket>,
    pub(crate) servers: Vec<ServerSocket>,
    pub(crate) cancels: Vec<CancelSocket>,
    /// The passwords that a program will have printed at a moment, and the workers that wait for them.
    pub(crate) passwords: Vec<(u64, usize, Mail<Transport>)>,
    /// The number of the last one.
    pub(crate) last_password: u64,
    /// Servers that have asked for a password and are not connected yet.
    pub(crate) without_socket: HashSet<(usize, u32)>,
    /// By worker: slot to index.
    pub(crate) client_slots: Vec<HashMap<u32, usize>>,
    pub(crate) server_slots: Vec<HashMap<u32, usize>>,
    pub(crate) factory: Factory,
    pub(crate) bus: Bus,
    pub(crate) capacities: &'static [usize],
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) complaints: Vec<String>,
    /// Clients that the engine has just thrown out, and why.
    pub(crate) thrown_out: Vec<(usize, String)>,
    pub(crate) disabled: HashSet<&'static str>,
    pub(crate) trace: bool,
    /// Number of resumes of clients since the world last acted.
    pub(crate) resumed: u32,
    pub(crate) timings: Timings,
}

impl Net {
    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>9} {}", self.now, line());
        }
    }

    pub(crate) fn harms(&mut self, with: Sabotage, once_in: usize) -> bool {
        self.sabotage == Some(with) && self.rng.once_in(once_in)
    }

    pub(crate) fn new_pipe(&mut self) -> Pipe {
        Pipe::new(self.rng.pick(self.capacities))
    }

    /// The kernel takes as many of the kept bytes as it can.
    pub(crate) fn flush_client(&mut self, at: usize) {
        let socket = &mut self.clients[at];
        let taken = socket.down.write(&socket.pending);
        socket.pending.drain(..taken);
        if socket.pending.is_empty() && socket.slot.is_none() {
            socket.down.ended = true;
        }
    }

    pub(crate) fn flush_server(&mut self, at: usize) {
        let socket = &mut self.servers[at];
        let taken = socket.up.write(&socket.pending);
        socket.pending.drain(..taken);
    }

    /// Two processes change places behind their sockets.
    fn swap_with_parked(&mut self, at: usize) {
        let Some(Place::Detached { pool, .. }) = self.servers.get(at).map(|socket| socket.place)
        else {
            return;
        };
        let quiet = |socket: &ServerSocket| socket.down.data.is_empty() && !socket.down.ended;
        let other = (0..self.servers.len()).find(|other| {
            let socket = &self.servers[*other];
            let same = matches!(socket.place, Place::Detached { pool: its, .. } if its == pool);
            *other != at && same && quiet(socket)
        });
        if let Some(other) = other.filter(|_| quiet(&self.servers[at])) {
            let (low, high) = (at.min(other), at.max(other));
            let (head, tail) = self.servers.split_at_mut(high);
            std::mem::swap(&mut head[low].backend, &mut tail[0].backend);
        }
    }

    /// Sockets of servers that the pooler has not closed.
    pub(crate) fn open_servers(&self) -> usize {
        self.servers.iter().filter(|socket| socket.place != Place::Closed).count()
    }
}

/// One worker's sockets.
pub(crate) struct SimIo<'a> {
    pub(crate) net: &'a mut Net,
    pub(crate) worker: usize,
}

impl SimIo<'_> {
    fn client_at(&self, client: ClientId) -> Option<usize> {
        self.net.client_slots[self.worker].get(&client.0).copied()
    }

    fn server_at(&self, server: ServerId) -> Option<usize> {
        self.net.server_slots[self.worker].get(&server.0).copied()
    }

    fn complain(&mut self, what: String) {
        self.net.complaints.push(what);
    }
}

impl Io<SimExchange> for SimIo<'_> {
    fn connection_ended(&mut self, connection: Connection) {
        if let Err(what) = self.net.timings.add(connection, self.net.now) {
            self.complain(what);
        }
    }

    fn now(&self) -> u64 {
        self.net.now
    }

    fn send_client(&mut self, client: ClientId, bytes: &[u8]) {
        let Some(mut at) = self.client_at(client) else {
            return self.complain(format!("bytes for {client:?}, which is free"));
        };
        if self.net.harms(Sabotage::Misdeliver, 60) {
            let open: Vec<usize> = self.net.client_slots[self.worker].values().copied().collect();
            at = open.into_iter().max().unwrap_or(at);
        }
        self.net.log(|| format!("  to client {at}: {}", show_all(bytes)));
        let reorders = self.net.harms(Sabotage::ReorderReplies, 30);
        let first = messages(bytes).next().map_or(0, <[u8]>::len);
        let (first, rest) = bytes.split_at(if reorders { first } else { 0 });
        self.net.clients[at].pending.extend(rest.iter().chain(first));
        self.net.flush_client(at);
    }

    fn send_server(&mut self, server: ServerId, bytes: &[u8]) -> bool {
        let Some(at) = self.server_at(server) else {
            self.complain(format!("bytes for {server:?}, which is free"));
            return true;
        };
        if self.net.servers[at].connecting {
            self.complain(format!("bytes for {server:?}, which is not connected"));
        }
        if self.net.harms(Sabotage::LoseRequest, 100) {
            return true;
        }
        let socket = &self.net.servers[at];
        if socket.up.broken && socket.pending.is_empty() && self.net.rng.once_in(2) {
            self.net.log(|| format!("  nothing goes to server {at} any more"));
            return false;
        }
        self.net.log(|| format!("  to server {at}: {}", show_all(bytes)));
        self.net.servers[at].pending.extend_from_slice(bytes);
        self.net.flush_server(at);
        true
    }

    fn server_flushed(&self, server: ServerId) -> bool {
        self.server_at(server).is_none_or(|at| self.net.servers[at].pending.is_empty())
    }

    fn client_unsent(&self, _: ClientId) -> usize {
        0
    }

    fn close_client(&mut self, client: ClientId) {
        let Some(at) = self.net.client_slots[self.worker].remove(&client.0) else {
            return self.complain(format!("{client:?} closed twice"));
        };
        self.net.log(|| format!("client {at} closed"));
        let socket = &mut self.net.clients[at];
        socket.slot = None;
        socket.up.broken = true;
        self.net.flush_client(at);
    }

    fn close_server(&mut self, server: ServerId) {
        if self.net.without_socket.remove(&(self.worker, server.0)) {
            return;
        }
        let Some(at) = self.net.server_slots[self.worker].remove(&server.0) else {
            return self.complain(format!("{server:?} closed twice"));
        };
        self.net.log(|| format!("server {at} closed"));
        if self.net.harms(Sabotage::KeepSocket, 2) {
            return;
        }
        let socket = &mut self.net.servers[at];
        let ears = &socket.backend.ears;
        if ears.is_listener() {
            self.net.bus.count_loss();
        } else if !ears.channels().is_empty() {
            // Weir may take it from a client that only listens.
            self.net.bus.count_deafened();
        }
        socket.place = Place::Closed;
        socket.pending.clear();
        socket.up.ended = true;
        socket.down.broken = true;
    }

    /// One password in three has ended. PostgreSQL refuses it, and the next one is right.
    fn ask_password(&mut self, server: ServerId, serial: u64, wanted: Wanted) {
        let net = &mut self.net;
        if !net.without_socket.insert((self.worker, server.0)) {
            return self.complain(format!("{server:?} asks for a second password"));
        }
        let has_ended = wanted.refused.is_none() && net.rng.once_in(3);
        let password = Password(if has_ended { "ended".into() } else { PASSWORD.into() });
        net.last_password = net.last_password.max(wanted.refused.map_or(1, |refused| refused + 1));
        let number = net.last_password;
        let issued = Ok(Issued { number, password });
        let due = net.now + net.rng.below(20_000) as u64;
        let mail = Mail::Password { server, serial, issued };
        net.passwords.push((due, self.worker, mail));
    }

    fn connect(&mut self, server: ServerId, target: &Target, _: &Arc<ServerTls>, _: Option<&str>) {
        self.net.without_socket.remove(&(self.worker, server.0));
        let (up, down) = (self.net.new_pipe(), self.net.new_pipe());
        let backend = (self.net.factory)(target, &mut self.net.rng);
        let at = self.net.servers.len();
        self.net.log(|| format!("server {at} connects as {server:?} of worker {}", self.worker));
        self.net.servers.push(ServerSocket {
            place: Place::Table(self.worker, server),
            connecting: true,
            opened_at: self.net.now,
            up,
            down,
            pending: Vec::new(),
            latch: false,
            news: false,
            died_idle: false,
            stalled_until: 0,
            backend,
            wakes_at: None,
        });
        if self.net.server_slots[self.worker].insert(server.0, at).is_some() {
            self.complain(format!("{server:?} was not free"));
        }
    }

    fn send_cancel(&mut self, cancel: u64, _server: ServerId, packet: &[u8]) {
        let hurries = self.net.sabotage == Some(Sabotage::HastyCancel);
        let slow = hurries || self.net.rng.once_in(3);
        let delay = self.net.rng.below(if slow { 30_000 } else { 3_000 });
        let (worker, due) = (self.worker, self.net.now + delay as u64);
        let packet = packet.to_vec();
        let (delivered, finished) = (false, false);
        self.net.cancels.push(CancelSocket { worker, cancel, packet, delivered, finished, due });
    }

    fn forward_cancel(&mut self, cancel: u64, _: u32, _: &Target, _: &[u8]) {
        self.complain(format!("cancel request {cancel} was passed on without peers"));
    }

    fn resume_client(&mut self, client: ClientId) {
        let Some(at) = self.client_at(client) else {
            return self.complain(format!("{client:?} is free and was resumed"));
        };
        self.net.resumed += 1;
        assert!(self.net.resumed < RESUMED_MAX, "an engine does not come to rest");
        if !self.net.harms(Sabotage::DropResume, 10) {
            self.net.clients[at].blocked = false;
        }
    }

    fn detach_server(&mut self, server: ServerId, pool: PoolId) -> Transport {
        let Some(at) = self.net.server_slots[self.worker].remove(&server.0) else {
            self.complain(format!("{server:?} detached without having a slot"));
            return Transport::MAX;
        };
        if !self.net.servers[at].pending.is_empty() {
            self.complain(format!("server {at} detached with bytes unsent"));
        }
        self.net.servers[at].place = Place::Detached { home: self.worker, pool };
        at
    }

    fn attach_server(&mut self, server: ServerId, at: Transport) {
        if self.net.harms(Sabotage::SwapServers, 3) {
            self.net.swap_with_parked(at);
        }
        let Some(Place::Detached { home, .. }) =
            self.net.servers.get(at).map(|socket| socket.place)
        else {
            return self.complain(format!("server {at} attached twice"));
        };
        self.net.servers[at].place = Place::Table(self.worker, server);
        let socket = &mut self.net.servers[at];
        socket.latch = true;
        socket.news = home != self.worker && (socket.down.ended || !socket.down.data.is_empty());
        if self.net.server_slots[self.worker].insert(server.0, at).is_some() {
            self.complain(format!("{server:?} was not free"));
        }
    }

    fn take_news(&mut self, server: ServerId) -> bool {
        let Some(at) = self.server_at(server) else { return false };
        let socket = &mut self.net.servers[at];
        std::mem::take(&mut socket.news) && (socket.down.ended || !socket.down.data.is_empty())
    }

    fn start_tls(&mut self, client: ClientId, _start: TlsStart, _: Micros) {
        self.complain(format!("{client:?} went to a handshake"));
    }

    fn hand_to_console(&mut self, client: ClientId, _login: ConsoleLogin) {
        self.complain(format!("{client:?} went to the console"));
    }

    fn cancel_console(&mut self, _: &CancelKey) {}

    fn check(&mut self, _: ClientId, _: u64, _: Check) {}

    fn server_end(&self, _: ServerId) -> ChannelEnd {
        ChannelEnd::Plain
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.net.rng.fill(bytes);
    }

    fn client_origin(&self, _client: ClientId) -> String {
        "sim".to_owned()
    }

    fn client_place(&self, _client: ClientId) -> String {
        "10.0.0.7 5000".to_owned()
    }

    fn event(&mut self, event: Event<'_>) {
        self.net.log(|| format!("worker {}: {event:?}", self.worker));
        if let Event::ClientClosing { client, reason, error: true, .. } = event
            && let Some(at) = self.client_at(client)
        {
            self.net.thrown_out.push((at, reason.to_owned()));
        }
        if let Event::LoginAttempt { client, name: (database, _), .. } = event
            && let Some(at) = self.client_at(client)
        {
            self.net.clients[at].barred = self.net.disabled.contains(database);
        }
    }
}
