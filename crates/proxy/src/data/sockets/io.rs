//! The engine's calls ([`engine::shell::Io`]). To the engine, none of them fails or blocks.

use std::{mem, os::fd::IntoRawFd as _, sync::Arc, time::Duration};

use config::ServerTls;
use engine::{
    ids::{ClientId, Micros, PoolId, ServerId, WorkerId},
    settings::Target,
    shell::{
        Attending, Check, Closing, ConsoleLogin, Event, Guest, Io, OtherProcess, TlsStart, Wanted,
    },
    timings::Connection,
};

use wire::error_fields::ErrorFields;
use wire::scram::ChannelEnd;
use wire::startup::CancelKey;

use super::{Outcome, Sockets, slot};
use crate::{
    data::{
        conn::{Conn, DONE, FAILED, NEWS, READABLE, Sent},
        table::{Kind, Token},
    },
    exchange::{
        handshakes::{Job, TlsArrival},
        hub::lock,
        lobby_door::{Arriving, LobbyRequest},
        mail::ShellExchange,
        peer::Peer,
        requests::{
            ColdRequest, ConsoleConnection, ConsoleRequest, ConsoleSeat, Inquiry, PasswordRequest,
        },
        transport::Transport,
    },
};
use net::sys::{epoll, process, socket};

impl Io<ShellExchange> for Sockets {
    #[inline]
    fn now(&self) -> Micros {
        self.now
    }

    fn clock(&self) -> Micros {
        self.shared.clock.now()
    }

    #[inline]
    fn send_client(&mut self, client: ClientId, bytes: &[u8]) {
        match self.client(client).send(bytes) {
            Sent::Accepted => {}
            Sent::KeptBack => self.watch_writable(Kind::Client(client.0)),
            Sent::Failed => {
                let lost = self.client_token(client).map(Outcome::ClientLost);
                self.outcomes.extend(lost);
            }
        }
    }

    #[inline]
    fn send_server(&mut self, server: ServerId, bytes: &[u8]) -> bool {
        if self.shared.leases.exist() && self.has_lost_lease(server) {
            return false;
        }
        match self.server(server).send(bytes) {
            Sent::Accepted => {}
            Sent::KeptBack => self.watch_writable(Kind::Server(server.0)),
            Sent::Failed => {
                self.read_last_words(server);
                return false;
            }
        }
        true
    }

    fn server_flushed(&self, server: ServerId) -> bool {
        self.servers[server.0 as usize].pending.is_none()
    }

    fn client_address(&self, client: ClientId) -> String {
        self.peer(client).host()
    }

    fn client_unsent(&self, client: ClientId) -> usize {
        self.client_unsent(client)
    }

    fn peek_client(&mut self, client: ClientId, buffer: &mut [u8]) -> usize {
        let conn = self.client(client);
        match conn.tls {
            None => socket::peek(conn.fd, buffer).unwrap_or(0),
            Some(_) => 0,
        }
    }

    fn close_client(&mut self, client: ClientId) {
        self.count_out(client);
        self.client(client).say_tls_is_over();
        let mut conn = mem::take(self.client(client));
        self.peers[client.0 as usize] = Peer::Unknown;
        self.queue(mem::take(&mut conn.stalls));
        match conn.pending.take() {
            Some(pending) if !conn.has(FAILED) => self.linger(conn.fd, pending),
            _ => self.say_goodbye(conn.fd, conn.has(READABLE) && !conn.has(DONE)),
        }
    }

    fn close_server(&mut self, server: ServerId) {
        self.connecting.remove(&server.0);
        // A server may be closed before it has a socket.
        let mut conn = mem::take(slot(&mut self.servers, server.0 as usize));
        self.set_remote(server, None);
        self.queue(conn.stalls);
        if conn.fd >= 0 {
            conn.say_tls_is_over();
            self.discard(conn.fd);
        }
    }

    fn see_server_off(&mut self, server: ServerId) {
        let address = self.server_address(server).cloned();
        match address {
            Some(address) if !self.server_has_pending(server) => {
                let mut conn = mem::take(self.server(server));
                self.set_remote(server, None);
                self.queue(conn.stalls);
                conn.say_tls_is_over();
                self.watch_departure(conn.fd, address);
            }
            Some(_) | None => self.close_server(server),
        }
    }

    fn connect(
        &mut self,
        server: ServerId,
        target: &Target,
        tls: &Arc<ServerTls>,
        writer_of: Option<&str>,
    ) {
        *slot(&mut self.servers, server.0 as usize) = Conn::default();
        self.set_remote(server, None);
        let lease = writer_of.and_then(|cluster| self.shared.leases.of(cluster));
        self.begin_connecting(server, target, tls, lease);
    }

    fn send_cancel(&mut self, cancel: u64, server: ServerId, packet: &[u8]) {
        self.begin_cancel(cancel, server, packet);
    }

    fn forward_cancel(&mut self, cancel: u64, peer: u32, target: &Target, packet: &[u8]) {
        self.begin_forward(cancel, peer, target, packet);
    }

    fn forward_to_process(
        &mut self,
        cancel: u64,
        to: OtherProcess,
        requester: ClientId,
        packet: &[u8],
    ) -> bool {
        self.begin_passing(cancel, to, requester, packet)
    }

    fn start_tls(&mut self, client: ClientId, start: TlsStart, connected_at: Micros) {
        self.count_out(client);
        let conn = mem::take(self.client(client));
        let peer = mem::take(&mut self.peers[client.0 as usize]);
        let _ = self.epoll().delete(conn.fd);
        self.table.clear(conn.fd);
        let (said, is_direct) = match start {
            TlsStart::Asked => (Vec::new(), false),
            TlsStart::Direct(said) => (said, true),
        };
        let seat = self.shared.login_seat(&peer);
        let fd = process::own(conn.fd);
        let worker = self.worker;
        let arrival = TlsArrival { fd, peer, worker, said, is_direct, connected_at, seat };
        // The rest of the time for the login.
        let spent = Duration::from_micros(self.now.saturating_sub(connected_at));
        let limit = match self.config.global.client_login_timeout {
            Duration::ZERO => Duration::ZERO,
            limit => limit.saturating_sub(spent).max(Duration::from_millis(1)),
        };
        self.shared.handshakes.begin(Job::Client { arrival, limit });
    }

    #[inline]
    fn resume_client(&mut self, client: ClientId) {
        if let Some(token) = self.client_token(client) {
            self.queue(token);
        }
    }

    #[inline]
    fn detach_server(&mut self, server: ServerId, pool: PoolId) -> Transport {
        let conn = mem::take(self.server(server));
        debug_assert!(conn.pending.is_none(), "a server was released with output kept back");
        let token = self.table.token(conn.fd);
        self.table.change(token, Kind::Parked(pool));
        if conn.stalls != Token::default() {
            self.queue(conn.stalls);
        }
        if conn.has(READABLE) || conn.may_rest() {
            // The flags were dropped with `conn`, and a resting socket is not watched. This call
            // makes epoll report unread bytes again.
            let _ = self.epoll().modify(conn.fd, epoll::READ, token.to_u64());
        }
        Transport {
            fd: process::own(conn.fd),
            generation: token.generation(),
            home: self.worker,
            tls: conn.tls,
            remote: self.remotes[server.0 as usize].take(),
        }
    }

    #[inline]
    fn attach_server(&mut self, server: ServerId, transport: Transport) {
        let token = Token::of(&transport);
        let Transport { fd, home, tls, remote, .. } = transport;
        let fd = fd.into_raw_fd();
        self.set_remote(server, remote);
        *slot(&mut self.servers, server.0 as usize) = Conn { tls, ..Conn::new(fd, 0) };
        if home != self.worker {
            self.fetch_server(server, fd, home);
        } else if matches!(self.table.kind(token), Kind::Parked(_)) {
            self.table.change(token, Kind::Server(server.0));
        } else {
            // The server was on its way to another worker when an event came, which was left to
            // that worker. The server came back, so the event must be reported again.
            self.table.change(token, Kind::Server(server.0));
            let _ = self.epoll().modify(fd, epoll::READ, token.to_u64());
        }
    }

    #[inline]
    fn take_news(&mut self, server: ServerId) -> bool {
        let conn = self.server(server);
        let has_news = conn.has(NEWS);
        conn.flags &= !NEWS;
        has_news
    }

    fn hand_to_console(&mut self, client: ClientId, login: ConsoleLogin) {
        self.count_out(client);
        let conn = mem::take(self.client(client));
        let peer = mem::take(&mut self.peers[client.0 as usize]);
        let _ = self.epoll().delete(conn.fd);
        self.table.clear(conn.fd);
        let unsent = conn.pending.map_or_else(Vec::new, |pending| pending.into_unsent());
        let fd = process::own(conn.fd);
        let seat = ConsoleSeat::new(Arc::clone(&self.shared.hub), login.counted.clone());
        let console = ConsoleConnection { fd, tls: conn.tls, peer, login, unsent, seat };
        // Without a cold thread Weir is ending: the connection is closed with the request.
        let request = ConsoleRequest::Connection(console);
        let _ = self.shared.cold.send(ColdRequest::Console(request));
    }

    fn cancel_console(&mut self, key: &CancelKey) {
        let request = ConsoleRequest::Cancel(key.clone());
        let _ = self.shared.cold.send(ColdRequest::Console(request));
    }

    fn expect_backend(&mut self, backend: Attending) {
        self.shared.lobby.send(LobbyRequest::Expect(backend));
    }

    fn ask_to_leave(&mut self, serial: u64) {
        self.shared.lobby.send(LobbyRequest::AskToLeave(serial));
    }

    fn backend_closed(&mut self, pool: PoolId, serial: u64) {
        self.shared.lobby.send(LobbyRequest::BackendClosed { pool, serial });
    }

    fn runs_as_another_user(&self, process: u32) -> bool {
        let user = process::user_of(process, "postgres");
        user.is_some_and(|user| user != process::effective_uid())
    }

    fn hand_to_lobby(&mut self, client: ClientId, guest: Guest) -> bool {
        let conn = self.client(client);
        // A backend cannot continue what Weir has begun to send.
        if conn.tls.is_some() || conn.pending.is_some() || conn.has(FAILED) {
            return false;
        }
        self.count_out(client);
        let conn = mem::take(self.client(client));
        let peer = mem::take(&mut self.peers[client.0 as usize]);
        let _ = self.epoll().delete(conn.fd);
        self.table.clear(conn.fd);
        let fd = process::own(conn.fd);
        self.shared.lobby.send(LobbyRequest::Guest(Arriving { guest, fd, peer }));
        true
    }

    fn close_lobby(&mut self, pool: PoolId, when: Closing, why: &str) {
        if self.shared.lobby.guests() > 0 {
            self.shared.lobby.send(LobbyRequest::Close { pool, when, why: why.to_owned() });
        }
    }

    fn refuse_lobby(&mut self, pool: PoolId, error: &ErrorFields) {
        if self.shared.lobby.guests() > 0 {
            let error = Box::new(error.clone());
            self.shared.lobby.send(LobbyRequest::Refuse { pool, error });
        }
    }

    fn cancel_in_lobby(&mut self, key: &CancelKey, requester: (WorkerId, ClientId, u64)) -> bool {
        let is_asked = self.shared.lobby.guests() > 0;
        if is_asked {
            self.shared.lobby.send(LobbyRequest::Cancel { key: key.clone(), requester });
        }
        is_asked
    }

    fn check(&mut self, client: ClientId, serial: u64, check: Check) {
        let host = self.peer(client).host();
        let inquiry = Inquiry { worker: self.worker, client, serial, check, host };
        // Without a cold thread Weir is ending.
        let _ = self.shared.cold.send(ColdRequest::Check(inquiry));
    }

    fn ask_password(&mut self, server: ServerId, serial: u64, wanted: Wanted) {
        let request = PasswordRequest { worker: self.worker, server, serial, wanted };
        // Without a cold thread Weir is ending.
        let _ = self.shared.cold.send(ColdRequest::Password(request));
    }

    fn server_end(&self, server: ServerId) -> ChannelEnd {
        let tls = self.servers.get(server.0 as usize).and_then(|conn| conn.tls.as_ref());
        tls.map_or(ChannelEnd::Plain, |tls| match tls.end_point() {
            digest if digest.is_empty() => ChannelEnd::NoDigest,
            digest => ChannelEnd::Digest(digest),
        })
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.random.fill(bytes);
    }

    fn client_origin(&self, client: ClientId) -> String {
        self.peer(client).origin(self.config.global.listen_port)
    }

    fn client_place(&self, client: ClientId) -> String {
        self.peer(client).address_and_port()
    }

    fn connection_ended(&mut self, connection: Connection) {
        lock(&self.shared.ended).add(connection);
    }

    fn event(&mut self, event: Event<'_>) {
        self.note_event(&event);
        self.log_event(&event);
    }
}
