//! A worker's part in an online restart. In the old process it comes to rest, exports its
//! connections, and keeps still until it is known which process owns them. Then it forgets them or
//! goes on. In the new process it takes the connections.

use std::{
    collections::HashSet,
    os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd},
};

use engine::{
    Ceded, Exported, ImportTables,
    ids::{ClientId, PoolId, ServerId, WorkerId},
    records::{AttendingRecord, ClientRecord, PoolRecord, ServerRecord, WorkerRecords},
    vars::TrackedNames,
};

use super::{Hold, Worker};
use crate::exchange::{
    late_arrivals::{Arrivals, PredecessorState, WorkerArrivals},
    lobby_door::{Departing, Home, LobbyRequest},
    peer::Peer,
    reports::{Rest, WorkerExport},
};
use net::sys::{Address, epoll, process, socket};

impl Worker {
    /// Admits no new clients and queries; running queries end.
    pub(super) fn freeze(&mut self) {
        self.hold = Hold::Freezing;
        self.unwatch_listeners();
    }

    /// Lets another process serve all clients that come to rest.
    pub(super) fn leave(&mut self) {
        self.hold = Hold::Leaving;
        self.engine.notes().note_successor();
    }

    /// Tells which clients another process could take over, now or later.
    pub(super) fn rest(&self) -> Rest {
        let goes = |id: &ClientId| !self.stays(*id, self.engine.look().server_of(*id));
        let mut rest = Rest::default();
        for id in self.engine.look().client_ids().filter(goes) {
            rest.is_awaited |= self.engine.look().may_come_to_rest(id);
            rest.can_move |= self.engine.look().may_move(id) && !self.has_stuck(id);
        }
        rest
    }

    /// Is there output that the client or its server has not read?
    fn has_stuck(&self, client: ClientId) -> bool {
        let server = self.engine.look().server_of(client);
        self.sockets.client_has_pending(client)
            || server.is_some_and(|server| self.sockets.server_has_pending(server))
    }

    /// Copies everything that can be handed over. Nothing is read from now on.
    pub(super) fn export(&mut self) -> WorkerExport {
        self.hold = Hold::Still;
        let sockets = &self.sockets;
        let mut parked_fds = Vec::new();
        let (mut records, mut exported) = self.engine.restart().export(
            |client, server| {
                let has_stuck = sockets.client_has_pending(client)
                    || server.is_some_and(|server| sockets.server_has_pending(server));
                has_stuck || sockets.has_tls(client, server)
            },
            |transport| {
                let goes = transport.tls.is_none();
                parked_fds.extend(goes.then(|| transport.fd.as_raw_fd()));
                goes
            },
        );
        let mut fds = Vec::new();
        for (client, record) in exported.clients.iter().zip(&mut records.clients) {
            record.address = self.sockets.peer(client.id).announced();
            fds.push(self.sockets.client_fd(client.id));
            fds.extend(client.server.map(|server| self.sockets.server_fd(server)));
        }
        fds.extend(parked_fds);
        let attending_fds = self.keep_movable(&mut records, &mut exported);
        self.exported = exported;
        let names = self.engine.look().tracked_names().all().to_vec();
        WorkerExport { worker: self.id, records, names, fds, attending_fds }
    }

    /// Removes servers of direct pools that cannot be handed over. Returns the sockets of the others.
    fn keep_movable(&self, records: &mut WorkerRecords, exported: &mut Exported) -> Vec<RawFd> {
        let moves = |server| {
            !self.sockets.server_has_pending(server) && !self.sockets.server_has_tls(server)
        };
        let mut all = exported.attending.iter();
        records.attending.retain(|_| all.next().is_some_and(|(server, _)| moves(*server)));
        exported.attending.retain(|(server, _)| moves(*server));
        exported.attending.iter().map(|(server, _)| self.sockets.server_fd(*server)).collect()
    }

    /// Tells the lobbies the records of a server that is to be held for the next process. Nothing is
    /// told if it has not logged in yet, or is gone.
    pub(super) fn tell_home(&mut self, server: ServerId, serial: u64) {
        let Some(records) = self.engine.restart().export_attending(server, serial) else { return };
        let socket = (!self.sockets.server_has_tls(server))
            .then(|| process::duplicate(self.sockets.server_fd(server)).ok())
            .flatten();
        let home = socket.map(|socket| Box::new(Home { socket, records }));
        self.shared.lobby.send(LobbyRequest::Home { serial, home });
    }

    /// Serves a client that has left its lobby with a server of this worker.
    pub(super) fn take_from_lobby(&mut self, departing: Departing) {
        self.sockets.now = self.shared.clock.now();
        let Departing { leaver, fd, peer } = departing;
        let serial = leaver.serial;
        let client = self.engine.restart().take_from_lobby(leaver, self.sockets.now);
        self.shared.gauge(self.id).load.enter(false);
        self.sockets.import_client(client, fd.into_raw_fd(), peer);
        self.imported.clients.push(client);
        self.begin_imported();
        self.shared.lobby.send(LobbyRequest::Departed(serial));
    }

    /// Is it already certain that this client cannot move? The keys of TLS connections cannot be
    /// handed over.
    pub(super) fn stays(&self, client: ClientId, server: Option<ServerId>) -> bool {
        self.sockets.has_tls(client, server)
    }

    /// Forgets what was exported: the other process has it. `servers`: of those of direct pools, it
    /// has these.
    pub(super) fn cede(&mut self, servers: &HashSet<u64>) {
        let mut exported = std::mem::take(&mut self.exported);
        exported.attending.retain(|(_, serial)| servers.contains(serial));
        let Ceded { clients, parked, attending } =
            self.engine.restart().cede(exported, self.sockets.now);
        for client in clients {
            self.sockets.cede_client(client.id);
            if let Some(server) = client.server {
                self.sockets.cede_server(server);
            }
        }
        attending.into_iter().for_each(|server| self.sockets.cede_server(server));
        for transport in parked {
            self.sockets.cede_socket(transport.fd.into_raw_fd());
        }
    }

    /// Serves the remaining connections as before.
    pub(super) fn thaw(&mut self) {
        self.hold = Hold::None;
        self.exported = Exported::default();
        self.accepting_paused = self.watch_listeners().is_err();
        self.sockets.queue_all();
        for letter in std::mem::take(&mut self.postponed) {
            self.read_letter(letter);
            self.report_outcomes();
        }
        for token in std::mem::take(&mut self.missed) {
            self.handle_event(token, epoll::READABLE);
        }
    }

    pub(crate) fn id(&self) -> WorkerId {
        self.id
    }

    pub(crate) fn tracked_names(&self) -> &TrackedNames {
        self.engine.look().tracked_names()
    }

    pub(crate) fn import_pools(
        &mut self,
        pools: Vec<Option<PoolRecord>>,
        tables: &mut ImportTables,
    ) {
        self.engine.restart().import_pools(pools, tables);
    }

    pub(crate) fn expect_records(&mut self, records: &WorkerRecords, tables: &ImportTables) {
        self.engine.restart().expect_records(records, tables);
    }

    pub(crate) fn import_client(
        &mut self,
        record: ClientRecord,
        tables: &ImportTables,
        fd: OwnedFd,
        server_fd: Option<OwnedFd>,
    ) {
        let known = record.address.as_deref().and_then(|text| text.parse().ok());
        let address = known.map_or_else(
            || socket::peer_address(fd.as_raw_fd()).unwrap_or_default(),
            Address::Inet,
        );
        let (client, server) = self.engine.restart().import_client(record, tables);
        let peer = Peer::new(fd.as_raw_fd(), &address);
        self.shared.gauge(self.id).load.enter(false);
        self.sockets.import_client(client, fd.into_raw_fd(), peer);
        if let (Some(server), Some(fd)) = (server, server_fd) {
            self.import_server(server, fd);
        }
        self.imported.clients.push(client);
    }

    fn import_server(&mut self, server: ServerId, fd: OwnedFd) {
        let writer_of = self.engine.look().writer_of(server);
        self.sockets.import_server(server, fd.into_raw_fd(), writer_of);
    }

    pub(crate) fn import_parked(
        &mut self,
        record: ServerRecord,
        tables: &ImportTables,
        fd: OwnedFd,
    ) {
        // If its database is no longer configured, dropping it closes it.
        if let Some(server) = self.engine.restart().import_parked(record, tables) {
            self.import_server(server, fd);
            self.imported.parked.push(server);
        }
    }

    /// Returns the pool here for another process's pool of this number, if its lobby can be taken
    /// over.
    pub(crate) fn pool_for_lobby(&mut self, number: u32, tables: &ImportTables) -> Option<PoolId> {
        self.engine.restart().pool_for_lobby(number, tables)
    }

    /// Takes a server whose backend is in a lobby. Returns it with its serial number here.
    pub(crate) fn import_attending(
        &mut self,
        record: AttendingRecord,
        came: bool,
        tables: &ImportTables,
        fd: OwnedFd,
    ) -> Option<(ServerId, u64)> {
        let (server, serial) = self.engine.restart().import_attending(record, came, tables)?;
        self.import_server(server, fd);
        self.imported.attending.push(server);
        Some((server, serial))
    }

    /// Begins to serve what was imported.
    pub(super) fn begin_imported(&mut self) {
        let imported = std::mem::take(&mut self.imported);
        self.engine.begin_imported(imported, &mut self.sockets);
        self.report_outcomes();
    }

    /// Prepares every worker for clients and servers of the predecessor.
    pub(super) fn expect(&mut self, state: &PredecessorState) {
        let tables = self.tables(state);
        for records in &state.handover_state.worker_records {
            self.engine.restart().expect_records(records, &tables);
        }
    }

    /// Takes clients and servers of the predecessor that come to this worker.
    pub(super) fn adopt(&mut self, arrivals: WorkerArrivals) {
        // No time in the records is later.
        self.sockets.now = self.shared.clock.now();
        let WorkerArrivals { state, parts } = arrivals;
        let mut tables = self.tables(&state);
        for (at, Arrivals { clients, parked }) in parts.into_iter().enumerate() {
            let statements = state.statements[at].clone();
            tables.open(&state.handover_state.worker_records[at], statements);
            for (record, client, server) in clients {
                self.import_client(record, &tables, client, server);
            }
            for (record, server) in parked {
                self.import_parked(record, &tables, server);
            }
        }
        self.begin_imported();
    }

    fn tables(&mut self, state: &PredecessorState) -> ImportTables {
        let handover_state = &state.handover_state;
        let mut tables =
            ImportTables::new(&handover_state.names, self.engine.look().tracked_names());
        self.engine.restart().import_pools(handover_state.pools.clone(), &mut tables);
        tables
    }
}
