//! Back-pressure: unsent output, reading that is suspended because of it, and the last bytes of a
//! client.

use std::{io, os::fd::RawFd};

use engine::ids::{ClientId, ServerId, WorkerId};

use super::{Outcome, Sockets};
use crate::data::{
    conn::{BROKEN, DONE, FAILED, NEWS, READABLE},
    table::{Kind, Token},
};
use net::sys::{epoll, socket};

/// A client with more unsent output than this is not read: it sends faster than it reads.
const CLIENT_PENDING_MAX: usize = 64 * 1024;

/// The last bytes of a client that has closed its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWords {
    None,
    Terminate,
    /// A request that needs a server, even if the client no longer reads.
    Request,
}

impl Sockets {
    /// May this client be read, with regard to unsent output? If not, it is queued when the output
    /// is sent.
    #[inline]
    pub(crate) fn client_may_be_read(&mut self, client: ClientId, on: Option<ServerId>) -> bool {
        if let Some(on) = on
            && self.servers[on.0 as usize].pending.is_some()
        {
            let token = self.client_token(client).unwrap_or_default();
            self.server(on).stalls = token;
            return false;
        }
        self.clients[client.0 as usize].pending_len() <= CLIENT_PENDING_MAX
    }

    /// May this server be read? Not while its client has unsent output.
    #[inline]
    pub(crate) fn server_may_be_read(&mut self, server: ServerId, by: Option<ClientId>) -> bool {
        if let Some(by) = by
            && self.clients[by.0 as usize].pending.is_some()
        {
            let token = self.server_token(server).unwrap_or_default();
            self.client(by).stalls = token;
            return false;
        }
        true
    }

    pub(super) fn watch_writable(&mut self, kind: Kind) {
        self.watch(kind, epoll::READ_WRITE);
    }

    /// Watches a connection again after a pause.
    pub(super) fn watch_again(&mut self, kind: Kind) {
        let has_pending = self.conn(kind).is_some_and(|conn| conn.pending.is_some());
        self.watch(kind, if has_pending { epoll::READ_WRITE } else { epoll::READ });
    }

    fn watch(&mut self, kind: Kind, interest: u32) {
        let Some(fd) = self.conn(kind).map(|conn| conn.fd) else { return };
        let token = self.table.token(fd);
        if self.epoll().modify(fd, interest, token.to_u64()).is_err() {
            self.report_lost(token, kind);
        }
    }

    fn report_lost(&mut self, token: Token, kind: Kind) {
        match kind {
            Kind::Client(_) => self.outcomes.push_back(Outcome::ClientLost(token)),
            Kind::Server(_) => self.outcomes.push_back(Outcome::ServerLost(token)),
            _ => {}
        }
    }

    /// Sends the kept output of a client or a server, whose socket is writable again.
    pub(crate) fn flush(&mut self, token: Token, kind: Kind) {
        if let Kind::Server(at) = kind
            && self.shared.leases.exist()
            && self.has_lost_lease(ServerId(at))
        {
            return;
        }
        let Some(conn) = self.conn(kind) else { return };
        if conn.pending.is_none() {
            return;
        }
        match conn.flush() {
            Ok(false) => {}
            Ok(true) => {
                let stalled = std::mem::take(&mut conn.stalls);
                self.watch(kind, epoll::READ);
                self.queue(stalled);
                self.queue(token);
            }
            Err(_) => match kind {
                Kind::Server(at) => self.read_last_words(ServerId(at)),
                _ => self.report_lost(token, kind),
            },
        }
    }

    /// Has the lease ended without which nothing may be sent to this server? Then the server is given
    /// up, with its unsent output.
    #[cold]
    pub(super) fn has_lost_lease(&mut self, server: ServerId) -> bool {
        let lease = self.remote(server).and_then(|remote| remote.lease.as_ref());
        if !lease.is_some_and(|lease| lease.is_over()) {
            return false;
        }
        let lost = self.server_token(server).map(Outcome::ServerLost);
        let conn = self.server(server);
        conn.pending = None;
        conn.flags |= FAILED;
        self.outcomes.extend(lost);
        true
    }

    /// Reads a server to its end when sending to it fails. It may have sent the reason.
    pub(super) fn read_last_words(&mut self, server: ServerId) {
        let Some(token) = self.server_token(server) else { return };
        let conn = self.server(server);
        conn.flags |= READABLE | DONE | BROKEN;
        let stalled = std::mem::take(&mut conn.stalls);
        self.queue(stalled);
        self.queue(token);
    }

    /// Watches a server that comes from another worker. Unread bytes are reported again. They are
    /// also checked at once, because the other worker may be slow to notice the change.
    pub(super) fn fetch_server(&mut self, server: ServerId, fd: RawFd, home: WorkerId) {
        let _ = self.shared.epoll(home).delete(fd);
        let token = self.table.register(fd, Kind::Server(server.0));
        if self.epoll().add(fd, epoll::READ, token.to_u64()).is_err() {
            return self.outcomes.push_back(Outcome::ServerLost(token));
        }
        let peeked = socket::peek(fd, &mut [0]);
        if !peeked.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
            self.server(server).flags |= READABLE | NEWS;
            self.queue(token);
        }
    }

    /// Examines the last bytes of an idle client that has closed its side. If they are a Terminate,
    /// the client need not wait for a server.
    pub(crate) fn last_words(&mut self, client: ClientId) -> LastWords {
        if self.client(client).tls.is_some() {
            return self.last_records(client);
        }
        const TERMINATE: [u8; 5] = *b"X\0\0\0\x04";
        let mut next = [0; TERMINATE.len()];
        match socket::peek(self.client(client).fd, &mut next) {
            Ok(0) => LastWords::None,
            Ok(count) if next[..count] == TERMINATE => LastWords::Terminate,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => LastWords::None,
            Ok(_) | Err(_) => LastWords::Request,
        }
    }

    /// Does the same for TLS, where lengths suffice. Five bytes are a Terminate, or a message that
    /// needs no server (Sync, Flush). Two bytes are TLS's closing alert.
    fn last_records(&mut self, client: ClientId) -> LastWords {
        let mut next = [0; 128];
        let conn = self.client(client);
        let count = match socket::peek(conn.fd, &mut next) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return LastWords::None,
        };
        let lens = conn.tls.as_ref().and_then(|tls| tls.content_lens(&next[..count]));
        match lens.as_deref() {
            Some([] | [2]) => LastWords::None,
            Some([5] | [5, 2]) => LastWords::Terminate,
            Some(_) | None => LastWords::Request,
        }
    }
}
