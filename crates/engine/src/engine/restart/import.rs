//! The new process's half of an online restart, and clients that leave their lobbies.

use std::sync::Arc;

use config::PoolMode;

use super::Restart;
use crate::admission::membership::Membership;
use crate::engine::work::Work;
use crate::handover::from_lobby::LobbyLeaver;
use crate::handover::import::{Destination, ImportTables};
use crate::handover::records::{
    AttendingRecord, ClientRecord, PoolRecord, ServerRecord, WorkerRecords,
};
use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Departure;
use crate::lifecycle::pair;
use crate::login::auth::{Login, Peer};
use crate::operator::timings::Connection;
use crate::server::{Server, ServerLogin, ServerPhase};
use crate::session::left::Left;
use crate::shell::Exchange;

/// Records become connections.
impl<X: Exchange> Restart<'_, X> {
    /// Prepares for the records of all workers, in each worker. Serial numbers given out later are
    /// above those of the records. Known names of settings are known again, since any transaction
    /// may have set them.
    pub fn expect_records(&mut self, records: &WorkerRecords, tables: &ImportTables) {
        self.context.serial = self.context.serial.max(records.serial);
        for record in &records.customs {
            let pool = tables.pool(record.pool);
            if let Some(pool) = pool
                .and_then(|to| self.pools.find_at(self.context, &to.database, &to.user, to.place))
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
            let found = self.pools.find_at(self.context, &database, &user, place);
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
        let pool = self.pools.find(self.context, &record.database, &record.user);
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
        let mut membership = Membership::default();
        if record.is_counted {
            self.pools.exchange.limits(|limits| limits.client_came(&identity));
            membership.count();
        }
        if let Some(pool) = pool {
            let role_changes = self.pools.one(pool).lock(|pool| {
                pool.enter();
                pool.role_changes()
            });
            membership.enter(pool, role_changes);
        }
        let serial = self.pools.exchange.next_connection();
        let login = Login::new(Peer::default(), identity);
        let key = record.welcomed.then_some(record.key);
        let client =
            record.into_client(login, (serial, unnamed), (membership, on.is_some()), tables);
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
        let pool = self.pools.find_at(self.context, database, user, *place).filter(|_| *is_same)?;
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
        let pool = self.pools.find_at(self.context, database, user, *place)?;
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
}

/// Clients from lobbies.
impl<X: Exchange> Restart<'_, X> {
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
        leaver.restore(&mut client, &welcome, self.context, &mut self.pools.exchange);
        let id = self.clients.insert(client);
        self.keys.insert(leaver.guest.key, id);
        if let (Some(timings), Some(timing)) = (&mut *self.timings, &leaver.guest.timing) {
            timings.resume(Connection::clone(timing));
        }
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
            server.doomed.condemn(CloseReason::Obsolete);
            let left = Departure::default();
            self.work.push(Work::TakeBack { server: on, serial, left });
            return false;
        }
        server.leave_with(now);
        let client = &mut self.clients[id];
        pair::link(id, client, on, server);
        client.phase.prepare(Waiter::served(id, pool, now));
        // The listener cannot have the others, so the client keeps its server for them.
        let exchange = &mut self.pools.exchange;
        self.clients.channels(id, self.servers, self.context, exchange).take(left);
        true
    }
}
