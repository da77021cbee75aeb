//! New clients. Every worker watches every listening socket, and a connection wakes one that
//! sleeps. `schedule.rs` chooses the client's worker.

use std::{
    io,
    os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd},
    sync::Arc,
};

use config::Global;
use engine::ids::Micros;

use super::{LOGINS_MAX, Worker};
use crate::{
    data::table::Kind,
    error,
    exchange::{
        handshakes::SecuredClient,
        mail::ShellMail,
        peer::Peer,
        requests::{Arrival, ColdRequest},
    },
};
use net::sys::{epoll, socket};

/// Clients accepted before others get their turn.
const ACCEPT_MAX: usize = 4;
/// Clients accepted before others get their turn, while more logging-in clients have sent something
/// than are read in a turn. Clients that wait too long would give up, or be disconnected for
/// others. At least one is always accepted, or a few busy clients could keep all others out.
const ACCEPT_MAX_CROWDED: usize = 1;
const COMPLAINT_PAUSE: Micros = 1_000_000;

impl Worker {
    pub(super) fn watch_listeners(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        for (at, listener) in shared.listeners.iter().enumerate() {
            // It may still be watched, if watching the next one failed last time.
            self.unwatch_listener(listener.fd());
            if listener.is_open() {
                let token = self.sockets.table.register(listener.fd(), Kind::Listener(at as u32));
                let interest = epoll::READABLE | epoll::EXCLUSIVE;
                self.shared.epoll(self.id).add(listener.fd(), interest, token.to_u64())?;
            }
        }
        Ok(())
    }

    /// Is there room for one more login? If not, no TCP client is accepted until the next tick, and
    /// all workers disconnect stalled logins.
    fn has_room_for_login(&mut self, at: usize) -> bool {
        let limit = self.sockets.global().max_client_logins as usize;
        if limit == 0 || !self.shared.listeners[at].is_tcp() || self.shared.logins() < limit {
            return true;
        }
        self.shared.tell_all(|| ShellMail::CrowdOut);
        self.shared.handshakes.crowd_out();
        for at in 0..self.shared.listeners.len() {
            if self.shared.listeners[at].is_tcp() {
                let fd = self.shared.listeners[at].fd();
                self.unwatch_listener(fd);
            }
        }
        self.accepting_paused = true;
        false
    }

    fn unwatch_listener(&mut self, fd: RawFd) {
        let _ = self.shared.epoll(self.id).delete(fd);
        self.sockets.table.clear(fd);
    }

    pub(super) fn accept(&mut self, at: usize) {
        let listener = &self.shared.listeners[at];
        let (listener, is_open) = (listener.fd(), listener.is_open());
        if !is_open {
            return self.unwatch_listener(listener);
        }
        let is_crowded = self.sockets.logins.len() > LOGINS_MAX;
        let most = if is_crowded { ACCEPT_MAX_CROWDED } else { ACCEPT_MAX };
        for _ in 0..most {
            if !self.has_room_for_login(at) {
                return;
            }
            let failure = match socket::accept(listener) {
                Ok((fd, address)) => {
                    let peer = Peer::new(fd.as_raw_fd(), &address);
                    self.place_client(fd, peer);
                    continue;
                }
                Err(failure) => failure,
            };
            match failure.raw_os_error() {
                Some(libc::EAGAIN) => return,
                // The client has left before it was accepted, or a similar error.
                Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO | libc::EPERM) => {}
                // The listening socket was shut down.
                Some(libc::EINVAL) => return self.unwatch_listener(listener),
                _ => return self.pause_accepting(&failure),
            }
        }
    }

    /// Usually no descriptors are left. The listening socket would report an event again and again.
    fn pause_accepting(&mut self, failure: &io::Error) {
        if self.sockets.now >= self.next_complaint {
            self.next_complaint = self.sockets.now + COMPLAINT_PAUSE;
            error!("accept() failed: {failure}");
        }
        self.unwatch_listeners();
        self.accepting_paused = true;
    }

    pub(super) fn unwatch_listeners(&mut self) {
        for at in 0..self.shared.listeners.len() {
            let fd = self.shared.listeners[at].fd();
            self.unwatch_listener(fd);
        }
    }

    fn place_client(&mut self, fd: OwnedFd, peer: Peer) {
        if comes_by_a_proxy(self.sockets.global(), &peer) {
            let seat = self.shared.login_seat(&peer);
            let arrival = Arrival { fd, peer, worker: self.id, seat };
            // Without a cold thread Weir is ending: the connection is closed.
            let _ = self.shared.cold.send(ColdRequest::Arrival(arrival));
            return;
        }
        let worker = self.shared.place_client(self.id);
        if worker == self.id {
            self.adopt_client(fd, peer);
        } else {
            self.shared.hub.mailbox(worker).post(ShellMail::Client { fd, peer });
        }
    }

    /// Adds a client to this worker, which has counted it already.
    pub(super) fn adopt_client(&mut self, fd: OwnedFd, peer: Peer) {
        let now = self.sockets.now;
        let seat = self.shared.login_seat(&peer);
        let origin = peer.to_auth(None, seat);
        let Some(client) = self.engine.notes().accept(origin, now) else {
            self.shared.gauge(self.id).load.leave(false);
            return;
        };
        if !self.sockets.add_client(client, fd.into_raw_fd(), peer, None) {
            self.lose_client(client);
        }
    }

    /// Adds a client that has connected at `connected_at`, and has TLS now.
    pub(super) fn adopt_secured(
        &mut self,
        client: SecuredClient,
        peer: Peer,
        connected_at: Micros,
    ) {
        let SecuredClient { fd, tls, secured, said, seat } = client;
        let origin = peer.to_auth(Some(secured), seat);
        let Some(client) = self.engine.notes().accept(origin, connected_at) else {
            self.shared.gauge(self.id).load.leave(true);
            return;
        };
        if !self.sockets.add_client(client, fd.into_raw_fd(), peer, Some(tls)) {
            self.lose_client(client);
        } else if !said.is_empty() {
            self.engine.client_bytes(client, &said, &mut self.sockets);
            self.report_outcomes();
        }
    }
}

/// Does this client come through a trusted proxy, which announces its address?
fn comes_by_a_proxy(global: &Global, peer: &Peer) -> bool {
    let trusted = &global.proxy_protocol_trusted;
    let address = match peer {
        Peer::V4(ip, _) => (*ip).into(),
        Peer::V6(address) => address.ip(),
        Peer::Unix { .. } | Peer::Process(_) | Peer::Unknown => return false,
    };
    trusted.iter().any(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use net::sys::Address;

    use super::*;

    #[test]
    fn a_header_comes_by_a_proxy_of_trusted_addresses_only() {
        let mut global = Global::default();
        global.set("proxy_protocol_trusted", "127.0.0.0/8, fd00::/8").unwrap();
        for (address, expected) in [
            ("127.0.0.9:1", true),
            ("10.0.0.1:1", false),
            ("[fd00::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("[::1]:1", false),
        ] {
            let peer = Peer::new(-1, &Address::Inet(address.parse().unwrap()));
            assert_eq!(comes_by_a_proxy(&global, &peer), expected, "{address}");
        }
        assert!(!comes_by_a_proxy(&global, &Peer::Unix { pid: 1, uid: Some(0) }));
    }
}
