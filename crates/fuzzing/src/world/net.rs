//! The sockets of the engine, simulated by buffers.

use std::sync::Arc;

use config::ServerTls;
use engine::ids::{ClientId, Micros, PoolId, ServerId};
use engine::settings::Target;
use engine::shell::{Check, ConsoleLogin, Event, Io, TlsStart, Wanted};
use wire::scram::ChannelEnd;
use wire::startup::CancelKey;

use super::shared::{Shared, Transport};
use crate::postgres::Postgres;
use crate::rng::Rng;

/// An application's end of its connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The slot of the client; `None` once the engine has closed it.
    pub(crate) id: Option<ClientId>,
    /// Bytes from the client that are still in the kernel.
    pub(super) unread: Vec<u8>,
    /// True if the engine has stopped reading and not resumed it.
    pub(super) blocked: bool,
    /// Bytes sent to the client.
    pub(crate) got: Vec<u8>,
}

/// PostgreSQL's end of a connection.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) place: Place,
    pub(super) connected: bool,
    pub(super) mind: Mind,
    /// Bytes for the server that it has not read.
    pub(super) inbox: Vec<u8>,
    /// Bytes of the server that the engine has not read.
    pub(super) unread: Vec<u8>,
    pub(super) left: bool,
}

/// The source of a server's replies.
#[derive(Debug)]
pub(crate) enum Mind {
    Model(Box<Postgres>),
    /// These bytes, sent at the first request, and nothing after them.
    Script(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Table(ServerId),
    Detached(PoolId, Transport),
    Closed,
}

#[derive(Debug)]
pub(crate) struct Net {
    pub(super) now: Micros,
    pub(crate) clients: Vec<Client>,
    pub(super) servers: Vec<Server>,
    /// Cancel requests that are being forwarded. They have no effect, since the models finish every
    /// query at once.
    pub(super) cancels: Vec<u64>,
    pub(crate) consoles: usize,
    detached: u64,
    rng: Rng,
}

impl Default for Net {
    fn default() -> Self {
        let (clients, servers, cancels) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            now: 1_000_000,
            clients,
            servers,
            cancels,
            consoles: 0,
            detached: 0,
            rng: Rng::new(1),
        }
    }
}

impl Net {
    fn client(&mut self, id: ClientId) -> &mut Client {
        self.clients.iter_mut().find(|end| end.id == Some(id)).expect("the client is open")
    }

    fn server(&mut self, id: ServerId) -> &mut Server {
        let mut servers = self.servers.iter_mut();
        servers.find(|end| end.place == Place::Table(id)).expect("the server is open")
    }
}

impl Io<Shared> for Net {
    fn now(&self) -> Micros {
        self.now
    }

    fn send_client(&mut self, client: ClientId, bytes: &[u8]) {
        self.client(client).got.extend_from_slice(bytes);
    }

    fn send_server(&mut self, server: ServerId, bytes: &[u8]) -> bool {
        self.server(server).inbox.extend_from_slice(bytes);
        true
    }

    fn server_flushed(&self, _: ServerId) -> bool {
        true
    }

    fn client_unsent(&self, _: ClientId) -> usize {
        0
    }

    fn close_client(&mut self, client: ClientId) {
        self.client(client).id = None;
    }

    fn close_server(&mut self, server: ServerId) {
        self.server(server).place = Place::Closed;
    }

    fn connect(&mut self, server: ServerId, _: &Target, _: &Arc<ServerTls>, _: Option<&str>) {
        self.servers.push(Server {
            place: Place::Table(server),
            connected: false,
            mind: Mind::Script(Vec::new()),
            inbox: Vec::new(),
            unread: Vec::new(),
            left: false,
        });
    }

    fn ask_password(&mut self, _: ServerId, _: u64, _: Wanted) {}

    fn send_cancel(&mut self, cancel: u64, _: ServerId, _: &[u8]) {
        self.cancels.push(cancel);
    }

    fn forward_cancel(&mut self, cancel: u64, _: u32, _: &Target, _: &[u8]) {
        self.cancels.push(cancel);
    }

    fn resume_client(&mut self, client: ClientId) {
        self.client(client).blocked = false;
    }

    fn detach_server(&mut self, server: ServerId, pool: PoolId) -> Transport {
        self.detached += 1;
        let transport = self.detached;
        self.server(server).place = Place::Detached(pool, transport);
        transport
    }

    fn attach_server(&mut self, server: ServerId, transport: Transport) {
        let mut servers = self.servers.iter_mut();
        let end =
            servers.find(|end| matches!(end.place, Place::Detached(_, own) if own == transport));
        end.expect("the server is detached").place = Place::Table(server);
    }

    /// Returns false, since there is one worker.
    fn take_news(&mut self, _: ServerId) -> bool {
        false
    }

    fn start_tls(&mut self, client: ClientId, _: TlsStart, _: Micros) {
        self.client(client).id = None;
    }

    fn hand_to_console(&mut self, client: ClientId, _: ConsoleLogin) {
        self.client(client).id = None;
        self.consoles += 1;
    }

    fn cancel_console(&mut self, _: &CancelKey) {}

    fn check(&mut self, _: ClientId, _: u64, _: Check) {}

    fn server_end(&self, _: ServerId) -> ChannelEnd {
        ChannelEnd::Plain
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = (self.rng.next() >> 56) as u8;
        }
    }

    fn client_origin(&self, _client: ClientId) -> String {
        "fuzz".to_owned()
    }

    fn client_place(&self, _client: ClientId) -> String {
        "10.0.0.7 5000".to_owned()
    }

    fn event(&mut self, _: Event<'_>) {}
}
