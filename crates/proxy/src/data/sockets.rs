//! All sockets of one worker, and the engine's calls for them.
//!
//! The engine names connections by slot, the kernel by descriptor. The state of a socket is indexed
//! by slot, and the table maps descriptors to slots. Nothing here calls the engine: results become
//! outcomes, which the worker reports.
//!
//! * `io.rs`: the engine's calls ([`engine::shell::Io`])
//! * `connect.rs`: opening servers; `connecting.rs`: one that is being opened
//! * `cancel.rs`: delivering cancel requests; `request.rs`: one of them
//! * `flow.rs`: unsent output, suspended reading
//! * `departing.rs`: servers that were told to end
//! * `goodbye.rs`: unsent output of a client that has left
//! * `rest.rs`: streams that are not watched for a moment
//! * `events.rs`: what goes to the log
//! * `handover.rs`: sockets that come from another process, or go to one

mod cancel;
mod connect;
mod connecting;
mod departing;
mod events;
pub(crate) mod flow;
mod goodbye;
mod handover;
mod io;
mod request;
pub(crate) mod rest;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    os::fd::RawFd,
    sync::{Arc, atomic::AtomicBool},
};

use config::{Config, Global};
use engine::cancel::CancelEnd;
use engine::ids::{ClientId, Micros, PoolId, ServerId, WorkerId};

use self::{
    connecting::Connecting,
    departing::Departures,
    request::{Cancel, Queued},
};
use crate::{
    data::{
        conn::{Conn, LOGGING_IN, Lingering, QUEUED, READABLE},
        table::{Kind, Table, Token},
    },
    exchange::{
        peer::Peer,
        reports::pointer,
        shared::Shared,
        transport::{Remote, ServerSocket},
    },
};
use net::{
    random::Reserve,
    sys::{Address, Epoll, epoll, process, socket},
    tls::Tls,
};

/// An event that the engine is told when it has returned.
#[derive(Debug)]
pub(crate) enum Outcome {
    ClientLost(Token),
    ServerLost(Token),
    ServerConnected {
        server: ServerId,
        ticket: u64,
    },
    /// It is connected, with TLS if that was agreed.
    ServerReady {
        server: ServerId,
        ticket: u64,
    },
    ConnectFailed {
        server: ServerId,
        ticket: u64,
        reason: &'static str,
    },
    CancelDone(u64, CancelEnd),
}

#[derive(Debug)]
pub(crate) struct Sockets {
    worker: WorkerId,
    shared: Arc<Shared>,
    config: Arc<Config>,
    pub(crate) now: Micros,
    pub(crate) table: Table,
    clients: Vec<Conn>,
    /// The peers of the clients, by slot.
    peers: Vec<Peer>,
    servers: Vec<Conn>,
    /// The other ends of the servers' sockets, by slot; None while there is no socket.
    remotes: Vec<Option<Box<Remote>>>,
    /// Servers that are not connected yet, by slot.
    connecting: HashMap<u32, Connecting>,
    next_ticket: u64,
    cancels: HashMap<RawFd, Cancel>,
    /// Cancel requests to servers with TLS, by number: was the request sent?
    secured_cancels: HashMap<u64, Arc<AtomicBool>>,
    /// Database and user of the next cancel request to be sent.
    cancel_name: Option<(String, String)>,
    /// The slot and the address of the server whose connection attempts have failed last.
    unreached: Option<(u32, Address)>,
    /// Cancel requests for peers whose addresses are being looked up, by ticket.
    forwards: HashMap<u64, Cancel>,
    /// Cancel requests that wait because too many to their peers are under way.
    queued: VecDeque<Queued>,
    lingering: HashMap<RawFd, Lingering>,
    /// Servers whose backends were told to end.
    departures: Departures,
    /// Sockets to be read without an event.
    pub(crate) ready: VecDeque<Token>,
    /// Clients that are logging in and have sent something: see [`Sockets::next_login`].
    pub(crate) logins: VecDeque<Token>,
    /// Servers that are not watched until the next turn.
    resting: Vec<Token>,
    pub(crate) outcomes: VecDeque<Outcome>,
    /// Descriptors that are closed after this batch of events. Otherwise a new connection could get
    /// a descriptor that an old event refers to.
    closing: Vec<RawFd>,
    random: Reserve,
}

impl Sockets {
    pub(crate) fn new(worker: WorkerId, shared: Arc<Shared>, config: Arc<Config>) -> Self {
        Self {
            worker,
            shared,
            config,
            now: 0,
            table: Table::default(),
            clients: Vec::new(),
            peers: Vec::new(),
            servers: Vec::new(),
            remotes: Vec::new(),
            connecting: HashMap::new(),
            next_ticket: 1,
            cancels: HashMap::new(),
            secured_cancels: HashMap::new(),
            cancel_name: None,
            unreached: None,
            forwards: HashMap::new(),
            queued: VecDeque::new(),
            lingering: HashMap::new(),
            departures: Departures::default(),
            ready: VecDeque::new(),
            logins: VecDeque::new(),
            resting: Vec::new(),
            outcomes: VecDeque::new(),
            closing: Vec::new(),
            random: Reserve::new(),
        }
    }

    pub(crate) fn epoll(&self) -> &Epoll {
        self.shared.epoll(self.worker)
    }

    pub(crate) fn global(&self) -> &Global {
        &self.config.global
    }

    pub(crate) fn set_config(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Adds an accepted client to the engine's slot. Returns false if it cannot be watched.
    pub(crate) fn add_client(
        &mut self,
        client: ClientId,
        fd: RawFd,
        peer: Peer,
        tls: Option<Box<Tls>>,
    ) -> bool {
        let at = client.0 as usize;
        let token = self.table.register(fd, Kind::Client(client.0));
        *slot(&mut self.clients, at) = Conn { tls, ..Conn::new(fd, LOGGING_IN) };
        *slot(&mut self.peers, at) = peer;
        self.epoll().add(fd, epoll::READ, token.to_u64()).is_ok()
    }

    #[inline]
    pub(crate) fn client(&mut self, client: ClientId) -> &mut Conn {
        &mut self.clients[client.0 as usize]
    }

    #[inline]
    pub(crate) fn server(&mut self, server: ServerId) -> &mut Conn {
        &mut self.servers[server.0 as usize]
    }

    pub(crate) fn peer(&self, client: ClientId) -> &Peer {
        &self.peers[client.0 as usize]
    }

    #[inline]
    pub(crate) fn is_client(&self, token: Token, client: ClientId) -> bool {
        self.table.kind(token) == Kind::Client(client.0)
    }

    #[inline]
    pub(crate) fn is_server(&self, token: Token, server: ServerId) -> bool {
        self.table.kind(token) == Kind::Server(server.0)
    }

    /// Returns the address that the server is connected to, if it has a socket.
    pub(crate) fn server_address(&self, server: ServerId) -> Option<&Address> {
        self.servers.get(server.0 as usize).filter(|conn| conn.fd >= 0)?;
        self.remote(server).map(|remote| &remote.address)
    }

    /// Returns the servers whose addresses `fits` selects.
    pub(crate) fn servers_where(&self, fits: impl Fn(Option<&Address>) -> bool) -> Vec<ServerId> {
        let all = (0..self.servers.len() as u32).map(ServerId);
        all.filter(|server| fits(self.server_address(*server))).collect()
    }

    fn remote(&self, server: ServerId) -> Option<&Remote> {
        self.remotes.get(server.0 as usize)?.as_deref()
    }

    #[inline]
    fn set_remote(&mut self, server: ServerId, remote: Option<Box<Remote>>) {
        *slot(&mut self.remotes, server.0 as usize) = remote;
    }

    /// Returns a server's connection as the console shows it.
    pub(crate) fn describe_server(&self, server: ServerId) -> ServerSocket {
        let conn = self.servers.get(server.0 as usize);
        ServerSocket {
            fd: conn.map_or(-1, |conn| conn.fd),
            address: self.server_address(server).cloned().unwrap_or_default(),
            tls: conn.and_then(|conn| conn.tls.as_deref()).map_or_else(String::new, Tls::describe),
        }
    }

    fn client_token(&self, client: ClientId) -> Option<Token> {
        let fd = self.clients.get(client.0 as usize)?.fd;
        (fd >= 0).then(|| self.table.token(fd))
    }

    fn server_token(&self, server: ServerId) -> Option<Token> {
        let fd = self.servers.get(server.0 as usize)?.fd;
        (fd >= 0).then(|| self.table.token(fd))
    }

    /// Returns the socket of a client or a server.
    fn conn(&mut self, kind: Kind) -> Option<&mut Conn> {
        match kind {
            Kind::Client(at) => self.clients.get_mut(at as usize),
            Kind::Server(at) => self.servers.get_mut(at as usize),
            _ => None,
        }
    }

    /// Queues this socket for reading, if there may be something to read.
    pub(crate) fn queue(&mut self, token: Token) {
        let kind = self.table.kind(token);
        if let Some(conn) = self.conn(kind)
            && conn.has(READABLE)
            && !conn.has(QUEUED)
        {
            conn.flags |= QUEUED;
            self.ready.push_back(token);
        }
    }

    /// Queues every connection that may be readable.
    pub(crate) fn queue_all(&mut self) {
        let conns = self.clients.iter().chain(&self.servers);
        let tokens: Vec<_> =
            conns.filter(|conn| conn.fd >= 0).map(|conn| self.table.token(conn.fd)).collect();
        tokens.into_iter().for_each(|token| self.queue(token));
    }

    /// Is there unsent output for the client?
    pub(crate) fn client_has_pending(&self, client: ClientId) -> bool {
        self.clients.get(client.0 as usize).is_some_and(|conn| conn.pending.is_some())
    }

    /// Returns how many bytes for the client are unsent.
    pub(crate) fn client_unsent(&self, client: ClientId) -> usize {
        self.clients.get(client.0 as usize).map_or(0, Conn::pending_len)
    }

    pub(crate) fn server_unsent(&self, server: ServerId) -> usize {
        self.servers.get(server.0 as usize).map_or(0, Conn::pending_len)
    }

    pub(crate) fn server_has_pending(&self, server: ServerId) -> bool {
        self.servers.get(server.0 as usize).is_some_and(|conn| conn.pending.is_some())
    }

    /// Queues a client that is logging in, to be read after the others.
    pub(crate) fn queue_login(&mut self, client: ClientId, token: Token) {
        let conn = self.client(client);
        if !conn.has(QUEUED) {
            conn.flags |= QUEUED;
            self.logins.push_back(token);
        }
    }

    /// Returns the next socket to be read without an event.
    pub(crate) fn next_ready(&mut self) -> Option<(Token, Kind)> {
        self.next_of(|sockets| &mut sockets.ready)
    }

    /// Returns the next client that is logging in and to be read.
    pub(crate) fn next_login(&mut self) -> Option<(Token, Kind)> {
        self.next_of(|sockets| &mut sockets.logins)
    }

    fn next_of(
        &mut self,
        queue: impl Fn(&mut Self) -> &mut VecDeque<Token>,
    ) -> Option<(Token, Kind)> {
        loop {
            let token = queue(self).pop_front()?;
            let kind = self.table.kind(token);
            if let Some(conn) = self.conn(kind) {
                conn.flags &= !QUEUED;
                if conn.has(READABLE) {
                    return Some((token, kind));
                }
            }
        }
    }

    /// Stops watching a parked server, which has left this worker.
    pub(crate) fn forget_parked(&mut self, token: Token, pool: PoolId) {
        if self.table.kind(token) == Kind::Parked(pool) {
            self.table.clear(token.fd());
        }
    }

    /// Ends the use of a descriptor, which is closed after this batch.
    fn discard(&mut self, fd: RawFd) {
        self.table.clear(fd);
        self.closing.push(fd);
    }

    /// Closes the descriptors that were given up in this batch.
    pub(crate) fn close_discarded(&mut self) {
        for fd in self.closing.drain(..) {
            process::close(fd);
        }
    }

    /// Closes everything at the end of the worker. Parked servers belong to the pools.
    pub(crate) fn close_all(&mut self) {
        self.close_discarded();
        for fd in self.table.connections() {
            process::close(fd);
        }
        self.table = Table::default();
    }

    /// Returns the number of a connection in the log and on the console.
    pub(crate) fn client_pointer(&self, client: ClientId) -> u64 {
        pointer(self.clients.get(client.0 as usize).map_or(-1, |conn| conn.fd))
    }

    pub(crate) fn server_pointer(&self, server: ServerId) -> u64 {
        pointer(self.server_fd(server))
    }

    /// Returns -1 if the server has no socket yet.
    pub(crate) fn server_fd(&self, server: ServerId) -> RawFd {
        self.servers.get(server.0 as usize).map_or(-1, |conn| conn.fd)
    }

    /// Describes the client's TLS; empty without TLS.
    pub(crate) fn client_tls(&self, client: ClientId) -> String {
        let tls = self.clients.get(client.0 as usize).and_then(|conn| conn.tls.as_deref());
        tls.map_or_else(String::new, Tls::describe)
    }

    pub(crate) fn client_local_address(&self, client: ClientId) -> Address {
        let fd = self.clients.get(client.0 as usize).map_or(-1, |conn| conn.fd);
        socket::local_address(fd).unwrap_or_default()
    }

    pub(crate) fn client_fd(&self, client: ClientId) -> RawFd {
        self.clients.get(client.0 as usize).map_or(-1, |conn| conn.fd)
    }

    /// Counts a client less for the balance between workers. Its TLS is still there, so it is
    /// counted as when it came.
    fn count_out(&mut self, client: ClientId) {
        let is_secured = self.client(client).tls.is_some();
        self.shared.gauge(self.worker).load.leave(is_secured);
    }
}

/// Returns the entry at `at`, and creates it if needed.
fn slot<T: Default>(all: &mut Vec<T>, at: usize) -> &mut T {
    if at >= all.len() {
        all.resize_with(at + 1, T::default);
    }
    &mut all[at]
}
