//! A worker's part in a take-over: it comes to rest, tells what it has, keeps still until it is
//! known whose that is, and forgets it or goes on. In a new process: it gets what others had.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

use engine::{
    Exported, Shelf,
    ids::{ClientId, ServerId},
    parcel::{ClientRecord, Parcel, PoolRecord, ServerRecord},
    vars::TrackedNames,
};

use super::{Hold, Worker};
use crate::{
    peer::Peer,
    shared::WorkerExport,
    sys::{Address, epoll, socket},
    table::Token,
};

impl Worker {
    /// No new clients, no new transactions; those under way come to their end.
    pub(super) fn finish(&mut self) {
        self.hold = Hold::Finishing;
        self.unwatch_listeners();
    }

    /// No new queries either.
    pub(super) fn freeze(&mut self) {
        self.hold = Hold::Freezing;
    }

    /// What can be given away, copied. Nothing is read from now on.
    pub(super) fn export(&mut self) -> WorkerExport {
        self.hold = Hold::Still;
        let (sockets, shared) = (&self.sockets, &self.shared);
        let (mut parcel, exported) = self.engine.export(
            |client, server| {
                let has_stuck = sockets.client_has_pending(client)
                    || server.is_some_and(|server| sockets.server_has_pending(server));
                has_stuck || sockets.has_tls(client, server)
            },
            |handle| shared.has_parked_tls(Token::from_handle(handle).0.fd()),
        );
        let mut fds = Vec::new();
        for (client, record) in exported.clients.iter().zip(&mut parcel.clients) {
            record.address = self.sockets.peer(client.id).announced();
            fds.push(self.sockets.client_fd(client.id));
            fds.extend(client.server.map(|server| self.sockets.server_fd(server)));
        }
        let parked = exported.parked.iter();
        fds.extend(parked.map(|(_, handle)| Token::from_handle(*handle).0.fd()));
        self.exported = exported;
        let names = self.engine.tracked_names().all().to_vec();
        WorkerExport { worker: self.id, parcel, names, fds }
    }

    /// Is it clear already that this client cannot go? The keys of TLS connections cannot be
    /// handed on.
    pub(super) fn stays(&self, client: ClientId, server: Option<ServerId>) -> bool {
        self.sockets.has_tls(client, server)
    }

    /// What was exported is the other process's.
    pub(super) fn cede(&mut self) {
        let exported = std::mem::take(&mut self.exported);
        let Exported { clients, parked } = self.engine.cede(exported, self.sockets.now);
        for client in clients {
            self.sockets.cede_client(client.id);
            if let Some(server) = client.server {
                self.sockets.cede_server(server);
            }
        }
        for (_, handle) in parked {
            self.sockets.cede_socket(Token::from_handle(handle).0.fd());
        }
    }

    /// Whatever is here still is served as before.
    pub(super) fn thaw(&mut self) {
        self.hold = Hold::None;
        self.exported = Exported::default();
        self.accepting_paused = self.watch_listeners().is_err();
        self.sockets.queue_all();
        for letter in std::mem::take(&mut self.postponed) {
            self.read_letter(letter);
            self.settle();
        }
        for token in std::mem::take(&mut self.missed) {
            self.handle_event(token, epoll::READABLE);
        }
    }

    pub(crate) fn tracked_names(&self) -> &TrackedNames {
        self.engine.tracked_names()
    }

    pub(crate) fn import_pools(&mut self, pools: Vec<Option<PoolRecord>>, shelf: &mut Shelf) {
        self.engine.import_pools(pools, shelf);
    }

    pub(crate) fn expect_parcel(&mut self, parcel: &Parcel, shelf: &Shelf) {
        self.engine.expect_parcel(parcel, shelf);
    }

    pub(crate) fn import_client(
        &mut self,
        record: ClientRecord,
        shelf: &Shelf,
        fd: OwnedFd,
        server_fd: Option<OwnedFd>,
    ) {
        let known = record.address.as_deref().and_then(|text| text.parse().ok());
        let address = known.map_or_else(
            || socket::peer_address(fd.as_raw_fd()).unwrap_or_default(),
            Address::Inet,
        );
        let (client, server) = self.engine.import_client(record, shelf);
        let peer = Peer::new(fd.as_raw_fd(), &address);
        self.shared.gauge(self.id).load.enter(false);
        self.sockets.import_client(client, fd.into_raw_fd(), peer);
        if let (Some(server), Some(fd)) = (server, server_fd) {
            self.sockets.import_server(server, fd.into_raw_fd());
        }
        self.has_imported = true;
    }

    pub(crate) fn import_parked(&mut self, record: ServerRecord, shelf: &Shelf, fd: OwnedFd) {
        // Of a database that is not configured any more, it is closed here.
        if let Some(server) = self.engine.import_parked(record, shelf) {
            self.sockets.import_server(server, fd.into_raw_fd());
            self.has_imported = true;
        }
    }

    /// All that was imported is ours from now on.
    pub(super) fn begin_imported(&mut self) {
        if std::mem::take(&mut self.has_imported) {
            let now = self.sockets.now;
            self.engine.begin_imported(now, &mut self.sockets);
            self.settle();
        }
    }
}
