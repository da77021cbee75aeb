//! Servers: the connections that Weir opens and keeps. Cancel requests are in `cancel.rs`.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd},
    sync::Arc,
};

use config::{ServerTls, Source, in_words};
use engine::{ids::ServerId, journal::EventKind, settings::Target};

use super::{Outcome, Sockets, connecting::Connecting, events::server_at};
use crate::{
    data::{
        conn::{CONNECTING, Conn},
        table::{Kind, Token},
    },
    exchange::{
        handshakes::{CONNECT_TIMEOUT, Far, Job, SecuredServer},
        hub::lock,
        leases::LeaseEnd,
        listener,
        outages::{is_shortage, with_errno},
        requests::{ColdRequest, Question},
        transport::Remote,
    },
    warning,
};
use net::sys::{Address, epoll, process, socket};

/// Why a server could not be connected.
pub(super) const CONNECT_FAILED: &str = "connect failed";

impl Sockets {
    pub(super) fn begin_connecting(
        &mut self,
        server: ServerId,
        target: &Target,
        tls: &Arc<ServerTls>,
        lease: Option<Arc<LeaseEnd>>,
    ) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let name = self.connecting.remove(&server.0).and_then(|known| known.name);
        let mut waits = Connecting { tls: Arc::clone(tls), lease, ..Connecting::new(ticket, name) };
        let addresses = &mut waits.addresses;
        match target {
            Target::Unix(path) => addresses.push_back(Address::Unix(path.clone())),
            Target::Abstract(name) => addresses.push_back(Address::Abstract(name.clone().into())),
            Target::Tcp(host, port) | Target::Node(host, port) => {
                waits.host = Some(host.clone());
                match host.parse::<std::net::IpAddr>() {
                    Ok(ip) => addresses.push_back(Address::Inet((ip, *port).into())),
                    Err(_) => {
                        let (host, port, worker) = (host.clone(), *port, self.worker);
                        let is_node = matches!(target, Target::Node(..));
                        let question = Question { host, port, is_node, worker, ticket };
                        if self.shared.cold.send(ColdRequest::Resolve(question)).is_ok() {
                            self.connecting.insert(server.0, waits);
                            return;
                        }
                    }
                }
            }
        }
        self.connecting.insert(server.0, waits);
        self.connect_when_there_is_room(server);
    }

    /// Keeps a server's name for the log line about its connection.
    pub(super) fn name_server(&mut self, server: ServerId, name: (&str, &str)) {
        let name = Some((name.0.to_owned(), name.1.to_owned()));
        self.connecting.insert(server.0, Connecting::new(0, name));
    }

    /// Takes the addresses of a name that was looked up.
    pub(crate) fn resolved(&mut self, ticket: u64, addresses: Vec<std::net::SocketAddr>) {
        if let Some(forward) = self.forwards.remove(&ticket) {
            return self.forward_resolved(forward, addresses);
        }
        let mut all = self.connecting.iter_mut();
        if let Some((at, connecting)) = all.find(|(_, waits)| waits.ticket == ticket) {
            let server = ServerId(*at);
            connecting.addresses = addresses.into_iter().map(Address::Inet).collect();
            self.connect_when_there_is_room(server);
        }
    }

    fn connect_when_there_is_room(&mut self, server: ServerId) {
        if !self.waits_for_room(server) {
            self.try_next_address(server);
        }
    }

    pub(super) fn try_next_address(&mut self, server: ServerId) {
        loop {
            let Some(connecting) = self.connecting.get_mut(&server.0) else { return };
            let ticket = connecting.ticket;
            let Some(address) = connecting.addresses.pop_front() else {
                let reason = match (&connecting.tried, &connecting.host) {
                    (Some(_), _) => CONNECT_FAILED,
                    (None, host) => {
                        let host = host.as_deref().unwrap_or_default().to_owned();
                        self.note_failure(&host, "the host name has no address");
                        "server DNS lookup failed"
                    }
                };
                self.outcomes.push_back(Outcome::ConnectFailed { server, ticket, reason });
                return;
            };
            connecting.tried = Some(address.clone());
            match self.open_towards(&address) {
                Ok((fd, done)) => return self.watch_server(server, ticket, fd, address, done),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connecting_of(self, server, |connecting| {
                        connecting.addresses.push_front(address);
                        connecting.retry = true;
                    });
                    return;
                }
                Err(error) => {
                    if self.config.source == Source::Ini {
                        warning!("sbuf_connect failed: {}", in_words(&error));
                    }
                    match is_shortage(&error) {
                        true => self.shared.outages.unable(&address, &error),
                        false => self.note_failure(&address, &with_errno(&error)),
                    }
                }
            }
        }
    }

    /// Opens a socket and connects it. Also returns whether it is connected already.
    pub(super) fn open_towards(&self, address: &Address) -> io::Result<(OwnedFd, bool)> {
        let fd = socket::open(address)?;
        if matches!(address, Address::Inet(_)) {
            listener::set_tcp_options(fd.as_raw_fd(), &self.config.global)?;
        }
        let done = socket::connect(fd.as_raw_fd(), address)?;
        Ok((fd, done))
    }

    fn watch_server(
        &mut self,
        server: ServerId,
        ticket: u64,
        fd: OwnedFd,
        address: Address,
        done: bool,
    ) {
        let fd = fd.into_raw_fd();
        let token = self.table.register(fd, Kind::Server(server.0));
        let (flags, interest) =
            if done { (0, epoll::READ) } else { (CONNECTING, epoll::READ_WRITE) };
        self.servers[server.0 as usize] = Conn::new(fd, flags);
        let waits = self.connecting.get(&server.0);
        let host = waits.and_then(|waits| waits.host.clone());
        let lease = waits.and_then(|waits| waits.lease.clone());
        self.set_remote(server, Some(Box::new(Remote { address, host, tls: None, lease })));
        if self.epoll().add(fd, interest, token.to_u64()).is_err() {
            self.outcomes.push_back(Outcome::ConnectFailed {
                server,
                ticket,
                reason: CONNECT_FAILED,
            });
        } else if done {
            self.outcomes.push_back(Outcome::ServerConnected { server, ticket });
        }
    }

    /// Handles an event on a socket that is not connected yet. Its first bytes are reported again
    /// when it is watched for reading only.
    pub(crate) fn connect_event(&mut self, server: ServerId, token: Token) {
        let Some(ticket) = self.connecting.get(&server.0).map(|waits| waits.ticket) else {
            return;
        };
        let fd = token.fd();
        let connected = socket::take_error(fd)
            .and_then(|()| self.epoll().modify(fd, epoll::READ, token.to_u64()));
        let Err(error) = connected else {
            self.server(server).flags &= !CONNECTING;
            self.outcomes.push_back(Outcome::ServerConnected { server, ticket });
            return;
        };
        if let Some(address) = self.server_address(server) {
            self.note_failure(address, &with_errno(&error));
        }
        self.servers[server.0 as usize] = Conn::default();
        self.set_remote(server, None);
        self.discard(fd);
        self.try_next_address(server);
    }

    /// Does a connected server need no TLS? Otherwise its socket goes to a handshake and comes back
    /// in `secured`.
    pub(crate) fn needs_no_tls(&mut self, server: ServerId, ticket: u64) -> bool {
        let Some(waits) = self.connecting.get(&server.0) else { return true };
        let Some(host) = waits.host.clone() else { return true };
        if waits.ticket != ticket {
            return true;
        }
        let tls = match self.shared.tls().servers(&waits.tls) {
            Ok(Some(tls)) => tls.clone(),
            Ok(None) => return true,
            Err(why) => {
                self.secured(server, ticket, Err(why.to_string()));
                return false;
            }
        };
        if let Some(remote) = &mut self.remotes[server.0 as usize] {
            remote.tls = Some(tls.clone());
        }
        let to = Far { host, tls };
        let conn = std::mem::take(self.server(server));
        let _ = self.epoll().delete(conn.fd);
        self.table.clear(conn.fd);
        let (fd, worker) = (process::own(conn.fd), self.worker);
        let limit = self.config.global.server_connect_timeout;
        self.shared.handshakes.begin(Job::Server { fd, to, worker, server, ticket, limit });
        false
    }

    /// Takes the result of a handshake.
    pub(crate) fn secured(
        &mut self,
        server: ServerId,
        ticket: u64,
        result: Result<SecuredServer, String>,
    ) {
        let is_awaited = self.connecting.get(&server.0).is_some_and(|waits| waits.ticket == ticket);
        let SecuredServer { fd, tls } = match result {
            Ok(secured) if is_awaited => secured,
            // Dropping it closes it.
            Ok(_) => return,
            Err(reason) => {
                let remote = self.remote(server).map(|remote| server_at(&remote.address));
                let at = remote.unwrap_or_default();
                warning!("TLS to the server at {at} failed: {reason}");
                let is_late = reason == CONNECT_TIMEOUT;
                let reason = if is_late { CONNECT_TIMEOUT } else { CONNECT_FAILED };
                self.outcomes.push_back(Outcome::ConnectFailed { server, ticket, reason });
                return;
            }
        };
        let fd = fd.into_raw_fd();
        let token = self.table.register(fd, Kind::Server(server.0));
        self.servers[server.0 as usize] = Conn { tls, ..Conn::new(fd, 0) };
        if self.epoll().add(fd, epoll::READ, token.to_u64()).is_err() {
            self.outcomes.push_back(Outcome::ConnectFailed {
                server,
                ticket,
                reason: CONNECT_FAILED,
            });
        } else {
            self.outcomes.push_back(Outcome::ServerReady { server, ticket });
        }
    }

    /// Notes that this address does not accept connections.
    fn note_failure(&self, address: &dyn fmt::Display, why: &str) {
        if self.shared.outages.failed(address, why) {
            self.note(EventKind::ServerDown, &format!("{address}: {why}"));
        }
    }

    fn note_accepted(&self, address: &dyn fmt::Display) {
        if self.shared.outages.reached(address) {
            self.note(EventKind::ServerUp, &address.to_string());
        }
    }

    /// Notes an event of no database for the flight recorder.
    fn note(&self, kind: EventKind, text: &str) {
        lock(&self.shared.journal).note(kind, ("", ""), text, self.now);
    }

    /// Notes that the server's address has accepted a connection.
    pub(crate) fn note_reached(&self, server: ServerId) {
        if let Some(Remote { address, host, .. }) = self.remote(server) {
            self.note_accepted(address);
            if let Some(host) = host {
                self.note_accepted(host);
            }
        }
    }

    /// Notes that the server's address did not answer in time, if it is being connected.
    pub(super) fn note_silence(&self, server: ServerId) {
        if self.connecting.contains_key(&server.0)
            && let Some(address) = self.server_address(server)
        {
            let limit = self.config.global.server_connect_timeout.as_secs_f64();
            let why = format!("no answer within {limit} s (server_connect_timeout)");
            self.note_failure(address, &why);
        }
    }

    /// Is this attempt under way?
    pub(crate) fn is_connecting(&self, server: ServerId, ticket: u64) -> bool {
        self.connecting.get(&server.0).is_some_and(|connecting| connecting.ticket == ticket)
    }

    /// Ends the attempt, if this result belongs to the present one.
    pub(crate) fn end_connecting(&mut self, server: ServerId, ticket: u64) -> bool {
        let is_present = self.connecting.get(&server.0).is_some_and(|waits| waits.ticket == ticket);
        if is_present && let Some(waits) = self.connecting.remove(&server.0) {
            self.log_connected(server, waits.name.as_ref());
            self.unreached = waits.tried.map(|address| (server.0, address));
        }
        is_present
    }

    /// Repeats connections and gives up overdue requests, by the clock.
    pub(crate) fn tick(&mut self) {
        self.end_lingering();
        self.end_late_departures();
        self.end_late_cancels();

        let again = self.connecting.iter_mut().filter(|(_, waits)| waits.retry);
        let again: Vec<_> = again
            .map(|(at, waits)| {
                waits.retry = false;
                ServerId(*at)
            })
            .collect();
        again.into_iter().for_each(|server| self.try_next_address(server));
    }
}

fn connecting_of(sockets: &mut Sockets, server: ServerId, f: impl FnOnce(&mut Connecting)) {
    if let Some(connecting) = sockets.connecting.get_mut(&server.0) {
        f(connecting);
    }
}
