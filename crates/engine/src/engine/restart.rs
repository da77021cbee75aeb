//! An online restart: the clients and servers become records for another process, and records become
//! clients and servers. Nothing is sent before [`Engine::begin_imported`], since until then the other
//! process may still own them.

use std::sync::Arc;

use config::PoolMode;

use crate::admission::pool::Parked;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::handover::export::{Ceded, Exported, ExportedClient, RecordWriter};
use crate::handover::from_lobby::LobbyLeaver;
use crate::handover::import::{Destination, Entered, ImportTables};
use crate::handover::records::{
    AttendingRecord, ClientRecord, PoolRecord, ServerRecord, WorkerRecords,
};
use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Departure;
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::login::auth::{Login, Peer};
use crate::notify::listen::{Unread, end_listening};
use crate::server::{Server, ServerLogin, ServerPhase};
use crate::session::probe::Left;
use crate::session::text_history::CustomsRecord;
use crate::session::verdict::remember_setting_names;
use crate::shell::{Exchange, Io};
use crate::vars::TrackedNames;

impl<X: Exchange> Engine<X> {
    /// Returns the names of the tracked parameters.
    pub fn tracked_names(&self) -> &TrackedNames {
        &self.context.names
    }

    /// Does [`Engine::export`] write the complete state of this client? A transaction may be open.
    pub fn may_move(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let view = client.pool.and_then(|pool| self.pools.views.get(pool));
        client.may_move(view, client.server.map(|on| &*self.servers[on]))
    }

    /// Has every logged-in server come to rest or been released? Servers of clients that stay are
    /// ignored, and replication servers, because their stream has no end.
    pub fn has_come_to_rest(&self, stays: impl Fn(ClientId, Option<ServerId>) -> bool) -> bool {
        self.servers.iter().all(|(on, server)| match *server.phase {
            ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => true,
            ServerPhase::Linked => {
                server.replication.is_some()
                    || server.client.is_some_and(|id| self.may_move(id) || stays(id, Some(on)))
            }
            ServerPhase::Parked
            | ServerPhase::Preparing(_)
            | ServerPhase::Finishing
            | ServerPhase::Settling(_) => false,
        })
    }

    /// Writes the records of all clients that may move, except those that `stays` selects. It also
    /// writes the parked servers of this worker that `takes_parked` selects, which is called in the
    /// order of the records. Servers of direct pools are all written: the caller knows which of
    /// them another process can take.
    pub fn export(
        &mut self,
        stays: impl Fn(ClientId, Option<ServerId>) -> bool,
        mut takes_parked: impl FnMut(&X::Transport) -> bool,
    ) -> (WorkerRecords, Exported) {
        for (_, server) in self.servers.iter() {
            if let Some(view) = self.pools.views.get_mut(server.pool) {
                remember_setting_names(server, view);
            }
        }
        let mut writer = RecordWriter::default();
        let mut exported = Exported::default();
        for id in self.clients.ids_where(|_| true) {
            if !self.may_move(id) {
                continue;
            }
            let client = &self.clients[id];
            if stays(id, client.server) {
                continue;
            }
            let mut record = writer.client(client);
            if let Some(on) = client.server {
                let server = &*self.servers[on];
                let epoch = self.pools.exchange.pool(server.pool, |pool| pool.epoch());
                record.server = Some(writer.server(server, epoch, Some(client)));
            }
            writer.records.clients.push(record);
            let (serial, server) = (client.serial, client.server);
            exported.clients.push(ExportedClient { id, serial, server });
        }
        let worker = self.context.worker;
        for id in self.pools.exchange.pool_ids() {
            self.pools.exchange.pool(id, |pool| {
                let epoch = pool.epoch();
                for Parked { server, transport } in pool.idle_at(worker) {
                    if takes_parked(transport) {
                        let record = writer.server(server, epoch, None);
                        writer.records.parked.push(record);
                        exported.parked.push((id, server.serial));
                    }
                }
            });
        }
        for (id, server) in self.servers.iter() {
            if let Some(record) = writer.attending(server, &mut self.pools.exchange) {
                exported.attending.push((id, record.serial));
                writer.records.attending.push(record);
            }
        }
        writer.records.serial = self.context.serial;
        let customs = self.pools.views.iter().map(|(id, view)| view.history.customs_record(id.0));
        let is_empty = |record: &CustomsRecord| {
            *record == CustomsRecord { pool: record.pool, ..CustomsRecord::default() }
        };
        writer.records.customs = customs.filter(|record| !is_empty(record)).collect();
        (writer.records, exported)
    }

    /// Writes the record of one server whose backend is in a lobby, or is about to come there.
    /// Returns `None` if it is gone, or has not logged in yet.
    pub fn export_attending(&mut self, id: ServerId, serial: u64) -> Option<WorkerRecords> {
        let server = self.servers.get(id).filter(|server| server.serial == serial)?;
        let mut writer = RecordWriter::default();
        let record = writer.attending(server, &mut self.pools.exchange)?;
        writer.records.attending.push(record);
        writer.records.serial = self.context.serial;
        Some(writer.records)
    }

    /// Forgets everything that was exported, without sending a message: another process owns it
    /// now. Returns the connections. Clients that have left meanwhile are omitted, since their
    /// slots may be in use again.
    pub fn cede(&mut self, exported: Exported, now: Micros) -> Ceded<X::Transport> {
        let Exported { mut clients, parked, mut attending } = exported;
        clients.retain_mut(|client| self.cede_client(client, now));
        let parked = parked.into_iter();
        let parked = parked.filter_map(|(pool, serial)| self.cede_parked(pool, serial, now));
        let parked = parked.collect();
        attending.retain(|(id, serial)| self.cede_attending(*id, *serial, now));
        let attending = attending.into_iter().map(|(id, _)| id).collect();
        Ceded { clients, parked, attending }
    }

    fn cede_client(&mut self, exported: &mut ExportedClient, now: Micros) -> bool {
        let ExportedClient { id, serial, .. } = *exported;
        if self.clients.get(id).is_none_or(|client| client.serial != serial) {
            return false;
        }
        let client = self.clients.remove(id);
        self.sessions.leave(id);
        exported.server = client.server;
        self.keys.remove(client.key);
        end_listening(self.context.worker, id, &client, &mut self.pools.exchange);
        if client.counted {
            self.pools.exchange.limits(|limits| limits.client_left(&client.identity));
        }
        if let Some(pool) = client.pool {
            let worker = self.context.worker;
            self.pools.exchange.pool(pool, |pool| {
                pool.clients -= 1;
                if let ClientPhase::Waiting(waiter) = &*client.phase {
                    pool.forget(worker, waiter.ticket);
                }
            });
        }
        if let Some(on) = client.server {
            let server = self.servers.remove(on);
            self.pools.forget_server(&server, now);
        }
        true
    }

    fn cede_parked(&mut self, id: PoolId, serial: u64, now: Micros) -> Option<X::Transport> {
        let worker = self.context.worker;
        let is_it = |parked: &Parked<_>| parked.server.serial == serial;
        let parked = self.pools.exchange.pool(id, |pool| pool.take_parked(worker, is_it))?;
        self.pools.view(id);
        self.pools.forget_server(&parked.server, now);
        Some(parked.transport)
    }

    fn cede_attending(&mut self, id: ServerId, serial: u64, now: Micros) -> bool {
        if self.servers.get(id).is_none_or(|server| server.serial != serial) {
            return false;
        }
        let server = self.servers.remove(id);
        if let ServerPhase::Attending { came: true, .. } = *server.phase {
            self.pools.exchange.pool(server.pool, |pool| pool.attending_gone(server.epoch));
        }
        self.pools.forget_server(&server, now);
        true
    }

    /// Prepares for the records of all workers, in each worker. Serial numbers given out later are
    /// above those of the records. Known names of settings are known again, since any transaction
    /// may have set them.
    pub fn expect_records(&mut self, records: &WorkerRecords, tables: &ImportTables) {
        self.context.serial = self.context.serial.max(records.serial);
        for record in &records.customs {
            let pool = tables.pool(record.pool);
            if let Some(pool) = pool
                .and_then(|to| self.pools.find_at(&self.context, &to.database, &to.user, to.place))
            {
                self.pools.view(pool).history.recall_customs(record);
            }
        }
    }

    /// Restores the pools first, with what their servers have reported.
    pub fn import_pools(&mut self, pools: Vec<Option<PoolRecord>>, tables: &mut ImportTables) {
        for record in pools {
            let Some(record) = record else {
                tables.add_pool(None);
                continue;
            };
            let (database, user) = (record.database.clone(), record.user.clone());
            let place = record.place;
            let found = self.pools.find_at(&self.context, &database, &user, place);
            let leads_there = !tables.lacks_names()
                && found
                    .is_some_and(|id| self.pools.settings(id).destination() == record.destination);
            let has_mode =
                found.is_some_and(|id| self.pools.settings(id).mode.word() == record.mode);
            let is_same = leads_there && has_mode;
            // The login does not depend on the mode.
            if let (true, Some(id)) = (leads_there, found) {
                let welcome = record.welcome.as_ref().map(|welcome| tables.welcome_of(welcome));
                self.pools.exchange.pool(id, |pool| record.teach(pool, welcome));
            }
            tables.add_pool(Some(Destination { database, user, place, is_same }));
        }
    }

    /// Adds a client, and its server if it has one. If the client's database is no longer
    /// configured, it loses its server, and [`Engine::begin_imported`] disconnects it.
    pub fn import_client(
        &mut self,
        mut record: ClientRecord,
        tables: &ImportTables,
    ) -> (ClientId, Option<ServerId>) {
        let pool = self.pools.find(&self.context, &record.database, &record.user);
        let on = record.server.take().filter(|_| pool.is_some());
        let has_unnamed = record.extended.as_ref().is_some_and(|own| own.has_unnamed);
        let unnamed = if has_unnamed { self.context.next_serial() } else { 0 };
        let has_numbers = on.as_ref().is_some_and(|server| server.numbers_are_clients);
        let is_shown = on.as_ref().is_some_and(|server| server.shows_client);
        let on = on.and_then(|server| self.import_server(server, unnamed, tables));
        let (database, user) = (record.database.clone(), record.user.clone());
        let identity = Arc::new(Identity { database, user });
        let identity = pool
            .map(|pool| self.pools.view(pool).identity.clone())
            .filter(|pools| **pools == *identity)
            .unwrap_or(identity);
        if record.is_counted {
            self.pools.exchange.limits(|limits| limits.client_came(&identity));
        }
        let entered = pool.map(|pool| {
            let role_changes = self.pools.one(pool).lock(|pool| {
                pool.enter();
                pool.role_changes()
            });
            Entered { pool, role_changes }
        });
        let serial = self.pools.exchange.next_connection();
        let login = Login::new(Peer::default(), identity);
        let key = record.welcomed.then_some(record.key);
        let client = record.into_client(login, (serial, unnamed), (entered, on.is_some()), tables);
        let id = self.clients.insert(client);
        if let Some(key) = key {
            self.keys.insert(key, id);
        }
        if let Some(on) = on {
            let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
            pair::link_again(id, client, on, server);
            server.phase.link();
            server.replication = client.replication.as_ref().map(|own| own.kind);
            server.recall_client(serial, has_numbers, is_shown);
        }
        (id, on)
    }

    /// Adds a server without a client. [`Engine::begin_imported`] parks it.
    pub fn import_parked(
        &mut self,
        record: ServerRecord,
        tables: &ImportTables,
    ) -> Option<ServerId> {
        self.import_server(record, 0, tables)
    }

    /// Returns the pool here for the direct pool of another process with this number, if its lobby
    /// can be taken over.
    pub fn pool_for_lobby(&mut self, number: u32, tables: &ImportTables) -> Option<PoolId> {
        let Destination { database, user, place, is_same } = tables.pool(number)?;
        let pool =
            self.pools.find_at(&self.context, database, user, *place).filter(|_| *is_same)?;
        self.pools.exchange.pool(pool, |pool| pool.settings.proxied.is_none()).then_some(pool)
    }

    /// Adds a server whose backend is in a lobby. `came`: the engine has been told so. Returns the
    /// server's serial number here. [`Engine::begin_imported`] looks after it.
    pub fn import_attending(
        &mut self,
        record: AttendingRecord,
        came: bool,
        tables: &ImportTables,
    ) -> Option<(ServerId, u64)> {
        let AttendingRecord { is_asked, server, .. } = record;
        let id = self.import_server(server, 0, tables)?;
        let server = &mut *self.servers[id];
        server.phase.attend(came, is_asked);
        let (pool, epoch, serial) = (server.pool, server.epoch, server.serial);
        if came {
            self.pools.exchange.pool(pool, |pool| pool.lobby_works(epoch));
        }
        Some((id, serial))
    }

    /// `unnamed`: the serial number here of its client's unnamed statement.
    fn import_server(
        &mut self,
        record: ServerRecord,
        unnamed: u64,
        tables: &ImportTables,
    ) -> Option<ServerId> {
        let Destination { database, user, place, is_same } = tables.pool(record.pool)?;
        let pool = self.pools.find_at(&self.context, database, user, *place)?;
        let is_current = *is_same && !record.is_obsolete;
        let reports = record.state_report.is_some();
        let epoch = self.pools.exchange.pool(pool, |pool| {
            pool.is_told |= reports;
            pool.adopt(is_current)
        });
        let claim = self.pools.view(pool).claim(pool);
        self.pools.exchange.limits(|limits| limits.seat_anyway(&claim));
        let serial = self.pools.exchange.next_connection();
        let server = Server::new(pool, serial, ServerLogin::default(), record.connected_at);
        let mut server = Box::new(server);
        server.epoch = epoch;
        let mode = PoolMode::of_word(&record.mode);
        server.use_in(mode.unwrap_or(self.pools.settings(pool).mode));
        Some(self.servers.insert(record.into_server(server, unnamed, tables)))
    }

    /// Adds a client that has left its lobby. It counts in the limits already.
    /// [`Engine::begin_imported`] begins to serve it.
    pub fn take_from_lobby(&mut self, leaver: LobbyLeaver, now: Micros) -> ClientId {
        let (pool, serial) = (leaver.guest.pool, leaver.serial);
        self.pools.view(pool);
        let found = self.servers.get(leaver.server).filter(|found| found.serial == serial);
        let epoch = found.map_or(u64::MAX, |found| found.epoch);
        let (role_changes, welcome) = self.pools.exchange.pool(pool, |pool| {
            (pool.role_changes_at(epoch), pool.welcome.clone().unwrap_or_default())
        });
        let mut client = leaver.client(role_changes, now);
        leaver.restore(&mut client, &welcome, &mut self.context, &mut self.pools.exchange);
        let id = self.clients.insert(client);
        self.keys.insert(leaver.guest.key, id);
        let left = leaver.left();
        if !self.take_server(id, (leaver.server, serial), &left, now) {
            // It listens again, and is told that it may have missed something.
            let client = &mut self.clients[id];
            client.vars.change(|vars| vars.channels = left.channels.unwrap_or_default());
            client.miss_news(pool);
        }
        id
    }

    /// Gives the client its server, which it keeps for the channels. Returns false if the server is
    /// gone.
    fn take_server(
        &mut self,
        id: ClientId,
        (on, serial): (ServerId, u64),
        left: &Left,
        now: Micros,
    ) -> bool {
        let found = self.servers.get_mut(on);
        let Some(server) = found.filter(|server| server.serial == serial) else { return false };
        let ServerPhase::Attending { came, .. } = *server.phase else { return false };
        let (pool, epoch) = (server.pool, server.epoch);
        self.pools.exchange.pool(pool, |pool| {
            if came {
                pool.attending_gone(epoch);
            }
            pool.is_told = true;
        });
        if server.mode != PoolMode::Auto {
            // It was opened before a change of the pool's mode. No other mode knows of channels.
            server.doomed = Some(CloseReason::Obsolete);
            let left = Departure::default();
            self.work.push(Work::TakeBack { server: on, serial, left });
            return false;
        }
        server.leave_with(now);
        let client = &mut self.clients[id];
        pair::link(id, client, on, server);
        client.phase.prepare(Waiter::served(id, pool, now));
        // The listener cannot have the others, so the client keeps its server for them.
        self.channels(id).take(left);
        true
    }

    pub(crate) fn begin_imported_clients(
        &mut self,
        mut clients: Vec<ClientId>,
        io: &mut impl Io<X>,
    ) {
        clients.retain(|id| self.clients.contains(*id));
        for id in clients.iter().copied() {
            if !self.clients[id].vars.channels.is_empty() {
                let told = self.channels(id).listen_again(io);
                if let Err(Unread) = told {
                    self.disconnect(id, Unread::WHY, io);
                }
            }
        }
        for id in clients.iter().copied() {
            let Some(client) = self.clients.get(id) else { continue };
            let is_preparing = matches!(*client.phase, ClientPhase::Preparing(_));
            if matches!(*client.phase, ClientPhase::Failed(_)) {
                if self.clients[id].has_request_to_route() {
                    self.work.push(Work::Route(id));
                }
            } else if let Some(on) = client.server.filter(|_| is_preparing)
                && self.prepare(id, on, io) == Readable::Now
            {
                // It has left its lobby with this server.
                self.go_on(id, io);
            }
        }
        let is_idle = |client: &Client| matches!(*client.phase, ClientPhase::Idle);
        clients.retain(|id| self.clients.get(*id).is_some_and(is_idle));
        // The client that has waited longest comes first again.
        clients.sort_by_key(|id| self.clients[*id].request_at);
        for id in clients {
            let Some(client) = self.clients.get(id) else { continue };
            let asks = !client.is_welcomed() || client.stream.holds_message();
            match client.pool {
                None => self.disconnect(id, CloseReason::DatabaseRemoved, io),
                Some(pool) if client.replication.is_some() => self.link_own(id, pool, io),
                Some(_) => {
                    if asks && self.link(id, io) == Readable::Now {
                        self.go_on(id, io);
                    }
                }
            }
        }
    }
}
