//! Sockets that come from another process, or are given to one.

use std::{mem, os::fd::RawFd};

use engine::ids::{ClientId, ServerId};

use super::{Outcome, Sockets, slot};
use crate::{
    data::{conn::Conn, table::Kind},
    exchange::{peer::Peer, transport::Remote},
};
use net::sys::{epoll, socket};

impl Sockets {
    /// Does one of these connections use TLS?
    pub(crate) fn has_tls(&self, client: ClientId, server: Option<ServerId>) -> bool {
        let client = self.clients.get(client.0 as usize);
        let server = server.and_then(|server| self.servers.get(server.0 as usize));
        client.into_iter().chain(server).any(|conn| conn.tls.is_some())
    }

    pub(crate) fn server_has_tls(&self, server: ServerId) -> bool {
        self.servers.get(server.0 as usize).is_some_and(|conn| conn.tls.is_some())
    }

    /// Forgets a client that another process has taken over, without sending anything or shutting
    /// the socket down.
    pub(crate) fn cede_client(&mut self, client: ClientId) {
        if self.client(client).fd >= 0 {
            self.count_out(client);
            let conn = mem::take(self.client(client));
            self.cede_socket(conn.fd);
        }
    }

    pub(crate) fn cede_server(&mut self, server: ServerId) {
        let conn = mem::take(self.server(server));
        self.set_remote(server, None);
        if conn.fd >= 0 {
            self.cede_socket(conn.fd);
        }
    }

    /// Closes a socket that another process has open. Its events must be ended explicitly.
    pub(crate) fn cede_socket(&mut self, fd: RawFd) {
        let _ = self.epoll().delete(fd);
        self.discard(fd);
    }

    /// Adds a client of another process. Its unread bytes are reported when the worker waits for
    /// events.
    pub(crate) fn import_client(&mut self, client: ClientId, fd: RawFd, peer: Peer) {
        if !self.add_client(client, fd, peer, None) {
            let token = self.table.token(fd);
            self.outcomes.push_back(Outcome::ClientLost(token));
        }
    }

    /// Adds a server of another process. `writer_of`: the cluster for whose primary it is.
    pub(crate) fn import_server(&mut self, server: ServerId, fd: RawFd, writer_of: Option<&str>) {
        let token = self.table.register(fd, Kind::Server(server.0));
        *slot(&mut self.servers, server.0 as usize) = Conn::new(fd, 0);
        let address = socket::peer_address(fd).unwrap_or_default();
        let lease = writer_of.and_then(|cluster| self.shared.leases.of(cluster));
        self.set_remote(server, Some(Box::new(Remote { address, lease, ..Remote::default() })));
        if self.epoll().add(fd, epoll::READ, token.to_u64()).is_err() {
            self.outcomes.push_back(Outcome::ServerLost(token));
        }
    }
}
