//! Connections for cancel requests, to the address of a server or to a peer. Each sends one request
//! and waits for the other end to close.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    os::{
        fd::{IntoRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::{
    ids::{ClientId, Micros, ServerId},
    settings::Target,
    shell::{CancelEnd, OtherProcess},
};

use super::{
    Outcome, Sockets,
    request::{Cancel, CancelLine, Queued},
};
use crate::{
    data::table::Kind,
    exchange::{
        handshakes::{Far, Job},
        lines::Letter,
        peer::Peer,
        requests::{ColdRequest, Question},
        transport::Remote,
    },
};
use net::sys::{Address, epoll, socket};

impl Sockets {
    fn new_cancel(&mut self, id: u64, peer: Option<u32>, packet: &[u8]) -> Cancel {
        let limit = self.config.global.cancel_wait_timeout.as_micros() as Micros;
        let until = (limit > 0).then_some(self.now + limit);
        let (began, name) = (self.now, self.cancel_name.take().filter(|_| peer.is_none()));
        let address = Address::default();
        Cancel { id, packet: packet.to_vec(), sent: false, peer, until, began, name, address }
    }

    /// Sends `packet` on a second connection to the address of `server`.
    pub(super) fn begin_cancel(&mut self, id: u64, server: ServerId, packet: &[u8]) {
        let cancel = self.new_cancel(id, None, packet);
        let conn = &self.servers[server.0 as usize];
        let (is_open, is_secured) = (conn.fd >= 0, conn.tls.is_some());
        match self.remote(server).filter(|_| is_open).cloned() {
            // With TLS to the server, its key must not be readable on the network either.
            Some(Remote { address, host: Some(host), tls: Some(tls), .. }) if is_secured => {
                let (packet, worker) = (packet.to_vec(), self.worker);
                let limit = self.config.global.cancel_wait_timeout;
                let sent = Arc::<AtomicBool>::default();
                self.secured_cancels.insert(id, sent.clone());
                let to = Far { host, tls };
                let job = Job::Cancel { address, to, packet, worker, cancel: id, limit, sent };
                self.shared.handshakes.begin(job);
            }
            Some(remote) => self.open_cancel(cancel, &remote.address),
            None => self.outcomes.push_back(Outcome::CancelDone(id, CancelEnd::Unsent)),
        }
    }

    /// Sends `packet` on a connection to a peer, as soon as the limit allows it.
    pub(super) fn begin_forward(&mut self, id: u64, peer: u32, target: &Target, packet: &[u8]) {
        let cancel = self.new_cancel(id, Some(peer), packet);
        self.queued.push_back(Queued { cancel, peer, target: target.clone() });
        self.begin_queued();
    }

    /// Gives another process of an online restart one end of a connection with `packet`. It closes
    /// the connection after acting. Requests are never returned to their process.
    pub(super) fn begin_passing(
        &mut self,
        id: u64,
        to: OtherProcess,
        requester: ClientId,
        packet: &[u8],
    ) -> bool {
        let Some(line) = self.shared.lines.to(to) else { return false };
        if *self.peer(requester) == Peer::Process(to) {
            return false;
        }
        let Ok((near, far)) = UnixStream::pair() else { return false };
        if near.set_nonblocking(true).and(far.set_nonblocking(true)).is_err() {
            return false;
        }
        let cancel = self.new_cancel(id, None, packet);
        line.send(Letter::Cancel(far.into()));
        self.watch_cancel(cancel, near.into());
        true
    }

    /// Sends the requests that had to wait, the oldest first. Places that other workers give up are
    /// noticed at the next tick.
    fn begin_queued(&mut self) {
        for _ in 0..self.queued.len() {
            let Some(next) = self.queued.pop_front() else { break };
            let own = self.config.peers.get(&next.peer).and_then(|entry| entry.pool_size);
            let most = own.unwrap_or(self.config.global.default_pool_size);
            if self.shared.begin_forward(next.peer, most) {
                self.connect_to_peer(next.cancel, &next.target);
            } else {
                self.queued.push_back(next);
            }
        }
    }

    /// Connects to a peer. A host name is looked up first.
    fn connect_to_peer(&mut self, cancel: Cancel, target: &Target) {
        let address = match target {
            Target::Unix(path) => Address::Unix(path.clone()),
            Target::Abstract(name) => Address::Abstract(name.clone().into()),
            Target::Tcp(host, port) | Target::Node(host, port) => match host.parse::<IpAddr>() {
                Ok(ip) => Address::Inet((ip, *port).into()),
                Err(_) => return self.resolve_peer(cancel, host, *port),
            },
        };
        self.open_cancel(cancel, &address);
    }

    fn resolve_peer(&mut self, cancel: Cancel, host: &str, port: u16) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let (host, worker) = (host.to_owned(), self.worker);
        let question = Question { host, port, is_node: false, worker, ticket };
        if self.shared.cold.send(ColdRequest::Resolve(question)).is_ok() {
            self.forwards.insert(ticket, cancel);
        } else {
            self.finish(&cancel, CancelEnd::Unsent);
        }
    }

    pub(super) fn forward_resolved(&mut self, cancel: Cancel, addresses: Vec<SocketAddr>) {
        match addresses.first() {
            Some(address) => self.open_cancel(cancel, &Address::Inet(*address)),
            None => self.finish(&cancel, CancelEnd::Unsent),
        }
    }

    fn open_cancel(&mut self, mut cancel: Cancel, address: &Address) {
        cancel.address.clone_from(address);
        let Ok((fd, _)) = self.open_towards(address) else {
            return self.finish(&cancel, CancelEnd::Unsent);
        };
        self.watch_cancel(cancel, fd);
    }

    fn watch_cancel(&mut self, cancel: Cancel, fd: OwnedFd) {
        let fd = fd.into_raw_fd();
        let token = self.table.register(fd, Kind::Cancel);
        self.cancels.insert(fd, cancel);
        // A socket that is already connected is also reported as writable.
        if self.epoll().add(fd, epoll::READ_WRITE, token.to_u64()).is_err() {
            self.end_cancel(fd, CancelEnd::Unsent);
        }
    }

    /// Sends the request when the socket is writable. Then the other side closes the connection
    /// after acting.
    pub(crate) fn cancel_event(&mut self, fd: RawFd, events: u32) {
        let Some(cancel) = self.cancels.get_mut(&fd) else { return };
        if events & epoll::WRITABLE != 0 && !cancel.sent {
            // So few bytes into an empty socket buffer are sent as a whole or not at all.
            cancel.sent = socket::send(fd, &cancel.packet).is_ok();
            if let Some(cancel) = self.cancels.get(&fd).filter(|cancel| cancel.sent) {
                self.log_cancel(fd, cancel, CancelLine::Opened);
            }
        }
        let over = events & (epoll::BROKEN | epoll::PEER_DONE) != 0;
        if over {
            let sent = self.cancels.get(&fd).is_some_and(|cancel| cancel.sent);
            self.end_cancel(fd, if sent { CancelEnd::Taken } else { CancelEnd::Unsent });
        }
    }

    fn end_cancel(&mut self, fd: RawFd, end: CancelEnd) {
        if let Some(cancel) = self.cancels.remove(&fd) {
            self.log_cancel(fd, &cancel, CancelLine::Closed(end));
            self.discard(fd);
            self.finish(&cancel, end);
        }
    }

    fn finish(&mut self, cancel: &Cancel, end: CancelEnd) {
        self.outcomes.push_back(Outcome::CancelDone(cancel.id, end));
        if let Some(peer) = cancel.peer {
            self.shared.end_forward(peer);
        }
    }

    /// Gives up requests that are overdue.
    pub(super) fn end_late_cancels(&mut self) {
        let now = self.now;
        let is_late = |cancel: &Cancel| cancel.until.is_some_and(|until| until <= now);
        let late = self.cancels.iter().filter(|(_, cancel)| is_late(cancel));
        let late: Vec<_> = late.map(|(fd, cancel)| (*fd, cancel.sent)).collect();
        for (fd, sent) in late {
            self.end_cancel(fd, CancelEnd::Late { sent });
        }
        let unsent = CancelEnd::Late { sent: false };
        let unresolved: Vec<_> = self.forwards.extract_if(|_, cancel| is_late(cancel)).collect();
        unresolved.iter().for_each(|(_, cancel)| self.finish(cancel, unsent));
        let outcomes = &mut self.outcomes;
        self.queued.retain(|Queued { cancel, .. }| {
            let late = is_late(cancel);
            if late {
                outcomes.push_back(Outcome::CancelDone(cancel.id, unsent));
            }
            !late
        });
        self.begin_queued();
    }

    /// Ends a request to a server with TLS.
    pub(crate) fn secured_cancel_over(&mut self, id: u64) {
        self.secured_cancels.remove(&id);
    }

    /// Returns the numbers of the requests that were sent and are not finished.
    pub(crate) fn sent_cancels(&self) -> HashSet<u64> {
        let plain = self.cancels.values().filter(|cancel| cancel.sent).map(|cancel| cancel.id);
        let secured = self.secured_cancels.iter().filter(|(_, sent)| sent.load(Ordering::Relaxed));
        plain.chain(secured.map(|(id, _)| *id)).collect()
    }
}
