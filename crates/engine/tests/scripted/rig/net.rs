//! The sockets of all workers, as queues: the bytes that peers have sent and that Weir has not
//! read, and the bytes that Weir has sent.

use std::collections::VecDeque;
use std::sync::Arc;

use config::ServerTls;
use engine::ids::{ClientId, Micros, PoolId, ServerId};
use engine::settings::Target;
use engine::shell::{Attending, Check, Closing, ConsoleLogin, Event, Guest, Io, TlsStart, Wanted};
use engine::timings::Connection;
use wire::error_fields::ErrorFields;
use wire::scram::ChannelEnd;
use wire::startup::CancelKey;

use super::shared::Shared;

/// Identifies the socket of a server that is in no table: the number of earlier detachments.
pub(crate) type Transport = u64;

/// An application's end of its connection.
#[derive(Debug, Default)]
pub(crate) struct ClientEnd {
    pub(crate) worker: usize,
    /// Its slot; None after the engine has closed it.
    pub(crate) id: Option<ClientId>,
    /// Bytes of the client that are still in the kernel.
    pub(crate) unread: VecDeque<u8>,
    pub(crate) left: bool,
    /// There is an event, but nothing to read.
    pub(crate) poked: bool,
    /// The engine has stopped reading it, and has not resumed it.
    pub(crate) blocked: bool,
    /// It takes no bytes. They are kept back, and their sender is not read.
    pub(crate) slow: bool,
    /// Bytes that the client has received.
    pub(crate) got: Vec<u8>,
}

/// PostgreSQL's end of a connection.
#[derive(Debug)]
pub(crate) struct ServerEnd {
    /// The worker that watches its socket.
    pub(crate) worker: usize,
    pub(crate) place: Place,
    pub(crate) connected: bool,
    pub(crate) unread: VecDeque<u8>,
    pub(crate) left: bool,
    /// There is an event, but nothing to read.
    pub(crate) poked: bool,
    /// It came from another worker with unread bytes.
    pub(crate) news: bool,
    /// The bytes that were sent to it wait half-way.
    pub(crate) stuck: bool,
    /// Its socket is broken, which Weir does not know yet.
    pub(crate) broken: bool,
    pub(crate) got: Vec<u8>,
    pub(crate) target: String,
    /// The startup packet, if the rig has done the login.
    pub(crate) startup: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Table(ServerId),
    Detached(PoolId, Transport),
    Closed,
}

/// A cancel request on its way to PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CancelCall {
    pub(crate) worker: usize,
    pub(crate) cancel: u64,
    /// The number of its server.
    pub(crate) server: usize,
    pub(crate) packet: Vec<u8>,
}

/// The orders that the engines have given to the lobbies.
#[derive(Debug, Default)]
pub(crate) struct FakeLobby {
    pub(crate) expected: Vec<Attending>,
    /// Serial numbers of servers that were asked to leave, and of closed ones.
    pub(crate) asked: Vec<u64>,
    pub(crate) closed: Vec<u64>,
    pub(crate) guests: usize,
    /// The reasons for which all clients were disconnected.
    pub(crate) closings: Vec<String>,
    /// The errors with which the clients that wait were disconnected.
    pub(crate) refusals: Vec<String>,
    /// The process of PostgreSQL that is another system user's.
    pub(crate) foreign: Option<u32>,
}

/// A server's question for its password.
#[derive(Clone, Debug)]
pub(crate) struct PasswordQuestion {
    pub(crate) worker: usize,
    pub(crate) server: ServerId,
    pub(crate) serial: u64,
    pub(crate) wanted: Wanted,
}

#[derive(Debug, Default)]
pub(crate) struct Net {
    /// The clock of all workers.
    pub(crate) now: Micros,
    pub(crate) clients: Vec<ClientEnd>,
    pub(crate) servers: Vec<ServerEnd>,
    pub(crate) cancels: Vec<CancelCall>,
    /// Cancel requests passed on: worker, number, target, packet.
    pub(crate) forwards: Vec<(usize, u64, String, Vec<u8>)>,
    pub(crate) consoles: Vec<ConsoleLogin>,
    pub(crate) handshakes: Vec<TlsStart>,
    /// Checks of clients that are not answered yet.
    pub(crate) checks: Vec<(ClientId, u64, Check)>,
    /// Servers that wait for their passwords.
    pub(crate) questions: Vec<PasswordQuestion>,
    /// Servers that have waited for their passwords and are not connected yet.
    without_socket: Vec<(usize, ServerId)>,
    /// The digest of the servers' certificates.
    pub(crate) channel_end: ChannelEnd,
    pub(crate) log: Vec<String>,
    pub(crate) ended: Vec<Connection>,
    pub(crate) lobby: FakeLobby,
    /// The time by which the clock is ahead of an engine's `now` while the engine runs.
    pub(crate) clock_ahead: Micros,
    random: u64,
    detached: u64,
}

impl Net {
    pub(super) fn starting_at(now: Micros) -> Self {
        Self { now, ..Self::default() }
    }

    pub(super) fn is_slow(&self, worker: usize, client: ClientId) -> bool {
        self.clients.iter().any(|end| end.slow && (end.worker, end.id) == (worker, Some(client)))
    }

    pub(crate) fn io(&mut self, worker: usize) -> FakeIo<'_> {
        FakeIo { net: self, worker }
    }
}

/// One worker's view of the net.
pub(crate) struct FakeIo<'a> {
    net: &'a mut Net,
    worker: usize,
}

impl FakeIo<'_> {
    fn client(&mut self, id: ClientId) -> &mut ClientEnd {
        let worker = self.worker;
        let mut ends = self.net.clients.iter_mut();
        ends.find(|end| end.worker == worker && end.id == Some(id)).expect("the client is open")
    }

    fn server_at(&self, id: ServerId) -> usize {
        let mut ends = self.net.servers.iter();
        ends.position(|end| end.worker == self.worker && end.place == Place::Table(id))
            .expect("the server is open")
    }

    fn server(&mut self, id: ServerId) -> &mut ServerEnd {
        let at = self.server_at(id);
        &mut self.net.servers[at]
    }
}

impl Io<Shared> for FakeIo<'_> {
    fn now(&self) -> Micros {
        self.net.now
    }

    fn clock(&self) -> Micros {
        self.net.now + self.net.clock_ahead
    }

    fn send_client(&mut self, client: ClientId, bytes: &[u8]) {
        self.client(client).got.extend_from_slice(bytes);
    }

    fn send_server(&mut self, server: ServerId, bytes: &[u8]) -> bool {
        let at = self.server_at(server);
        if self.net.servers[at].broken {
            return false;
        }
        self.server(server).got.extend_from_slice(bytes);
        true
    }

    fn server_flushed(&self, server: ServerId) -> bool {
        !self.net.servers[self.server_at(server)].stuck
    }

    fn client_unsent(&self, _: ClientId) -> usize {
        0
    }

    fn peek_client(&mut self, client: ClientId, buffer: &mut [u8]) -> usize {
        let unread = &self.client(client).unread;
        buffer.iter_mut().zip(unread).for_each(|(to, byte)| *to = *byte);
        unread.len().min(buffer.len())
    }

    fn close_client(&mut self, client: ClientId) {
        self.client(client).id = None;
    }

    fn close_server(&mut self, server: ServerId) {
        let own = (self.worker, server);
        self.net.questions.retain(|asked| (asked.worker, asked.server) != own);
        match self.net.without_socket.iter().position(|other| *other == own) {
            Some(at) => drop(self.net.without_socket.remove(at)),
            None => self.server(server).place = Place::Closed,
        }
    }

    fn ask_password(&mut self, server: ServerId, serial: u64, wanted: Wanted) {
        let worker = self.worker;
        self.net.without_socket.push((worker, server));
        self.net.questions.push(PasswordQuestion { worker, server, serial, wanted });
    }

    fn connect(&mut self, server: ServerId, target: &Target, _: &Arc<ServerTls>, _: Option<&str>) {
        let own = (self.worker, server);
        self.net.without_socket.retain(|other| *other != own);
        self.net.servers.push(ServerEnd {
            worker: self.worker,
            place: Place::Table(server),
            connected: false,
            unread: VecDeque::new(),
            left: false,
            poked: false,
            news: false,
            stuck: false,
            broken: false,
            got: Vec::new(),
            target: format!("{target:?}"),
            startup: Vec::new(),
        });
    }

    fn send_cancel(&mut self, cancel: u64, server: ServerId, packet: &[u8]) {
        let (worker, server) = (self.worker, self.server_at(server));
        self.net.cancels.push(CancelCall { worker, cancel, server, packet: packet.to_vec() });
    }

    fn forward_cancel(&mut self, cancel: u64, peer: u32, target: &Target, packet: &[u8]) {
        let target = format!("{peer}: {target:?}");
        self.net.forwards.push((self.worker, cancel, target, packet.to_vec()));
    }

    fn resume_client(&mut self, client: ClientId) {
        self.client(client).blocked = false;
    }

    fn detach_server(&mut self, server: ServerId, pool: PoolId) -> Transport {
        self.net.detached += 1;
        let transport = self.net.detached;
        self.server(server).place = Place::Detached(pool, transport);
        transport
    }

    fn attach_server(&mut self, server: ServerId, transport: Transport) {
        let worker = self.worker;
        let mut ends = self.net.servers.iter_mut();
        let end = ends.find(|end| matches!(end.place, Place::Detached(_, own) if own == transport));
        let end = end.expect("the server is detached");
        end.place = Place::Table(server);
        end.news = end.worker != worker && (end.left || !end.unread.is_empty());
        end.worker = worker;
    }

    fn take_news(&mut self, server: ServerId) -> bool {
        let end = self.server(server);
        std::mem::take(&mut end.news) && (end.left || !end.unread.is_empty())
    }

    fn start_tls(&mut self, client: ClientId, start: TlsStart, _: Micros) {
        self.client(client).id = None;
        self.net.handshakes.push(start);
    }

    fn hand_to_console(&mut self, client: ClientId, login: ConsoleLogin) {
        self.client(client).id = None;
        self.net.consoles.push(login);
    }

    fn cancel_console(&mut self, _: &CancelKey) {}

    fn expect_backend(&mut self, backend: Attending) {
        self.net.lobby.expected.push(backend);
    }

    fn ask_to_leave(&mut self, serial: u64) {
        self.net.lobby.asked.push(serial);
    }

    fn backend_closed(&mut self, _: PoolId, serial: u64) {
        self.net.lobby.closed.push(serial);
    }

    fn runs_as_another_user(&self, process: u32) -> bool {
        self.net.lobby.foreign == Some(process)
    }

    fn hand_to_lobby(&mut self, client: ClientId, _: Guest) -> bool {
        self.client(client).id = None;
        self.net.lobby.guests += 1;
        true
    }

    fn refuse_lobby(&mut self, _: PoolId, error: &ErrorFields) {
        self.net.lobby.refusals.push(error.message().into_owned());
    }

    fn close_lobby(&mut self, _: PoolId, _: Closing, why: &str) {
        self.net.lobby.closings.push(why.to_owned());
    }

    fn check(&mut self, client: ClientId, serial: u64, check: Check) {
        self.net.checks.push((client, serial, check));
    }

    fn server_end(&self, _: ServerId) -> ChannelEnd {
        self.net.channel_end.clone()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.net.random = self.net.random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            *byte = (self.net.random >> 56) as u8;
        }
    }

    fn client_origin(&self, _client: ClientId) -> String {
        "10.0.0.7:5000".to_owned()
    }

    fn client_place(&self, _client: ClientId) -> String {
        "10.0.0.7 5000".to_owned()
    }

    fn connection_ended(&mut self, connection: Connection) {
        self.net.ended.push(connection);
    }

    fn event(&mut self, event: Event<'_>) {
        self.net.log.push(format!("{event:?}"));
    }
}
