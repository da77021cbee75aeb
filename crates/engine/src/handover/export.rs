//! The old process's half of a hand-over: clients and servers become [`crate::handover::records`].
//!
//! ```text
//!  old process: client_can_stop … export ─┬─► cede      (the other has them)
//!                                         └─► nothing   (they are ours still)
//!  new process: import_pools ─► import_client, import_parked ─► begin_imported
//! ```
//!
//! `export` changes nothing. Until it is known which process owns the exported connections, the
//! caller must keep them unchanged; the pools are held meanwhile (`Gate::Held`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::admission::pool::Parked;
use crate::client::{Client, ClientPhase, Extended, KeyForm, StatementNames};
use crate::engine::Engine;
use crate::handover::records::{
    AttendingRecord, ClientRecord, ExtendedRecord, FailedRecord, NamedRecord, ReplicationRecord,
    ServerRecord, StatementRecord, VarsRecord, WelcomeRecord, WorkerRecords,
};
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::relay::prepared::Statement;
use crate::server::{Server, ServerPhase};
use crate::session::ahead::Ahead;
use crate::session::state::Session;
use crate::session::text_history::CustomsRecord;
use crate::session::verdict::remember_setting_names;
use crate::shell::Exchange;
use crate::values::Values;
use crate::vars::{TrackedNames, Vars, Welcome};

/// The exported connections, in the order of the records.
#[derive(Debug, Default)]
pub struct Exported {
    pub clients: Vec<ExportedClient>,
    /// Parked servers by pool and serial number.
    pub parked: Vec<(PoolId, u64)>,
    /// Servers of direct pools, with their serial numbers.
    pub attending: Vec<(ServerId, u64)>,
}

/// The exported connections, which another process has taken over.
#[derive(Debug)]
pub struct Ceded<T> {
    pub clients: Vec<ExportedClient>,
    pub parked: Vec<T>,
    pub attending: Vec<ServerId>,
}

#[derive(Clone, Copy, Debug)]
pub struct ExportedClient {
    pub id: ClientId,
    serial: u64,
    pub server: Option<ServerId>,
}

/// Writes a worker's records. Shared data is written once.
#[derive(Default)]
struct RecordWriter {
    records: WorkerRecords,
    vars: HashMap<*const Vars, u32>,
    welcomes: HashMap<*const Welcome, u32>,
    statements: HashSet<u64>,
}

impl RecordWriter {
    fn vars(&mut self, vars: &Values) -> u32 {
        let all = &mut self.records.vars;
        *self.vars.entry(&raw const **vars).or_insert_with(|| {
            all.push(VarsRecord::of(vars));
            all.len() as u32 - 1
        })
    }

    fn welcome(&mut self, welcome: &Arc<Welcome>) -> u32 {
        let all = &mut self.records.welcomes;
        *self.welcomes.entry(Arc::as_ptr(welcome)).or_insert_with(|| {
            all.push(WelcomeRecord::of(welcome));
            all.len() as u32 - 1
        })
    }

    fn statement(&mut self, statement: &Statement) -> u64 {
        if self.statements.insert(statement.id) {
            self.records.statements.push(StatementRecord::of(statement));
        }
        statement.id
    }

    fn client(&mut self, client: &Client) -> ClientRecord {
        ClientRecord {
            address: None,
            database: client.identity.database.clone(),
            user: client.identity.user.clone(),
            is_counted: client.counted,
            welcomed: client.is_welcomed(),
            notified: client.while_waiting.notified,
            key: client.key,
            long_key: client.key_form == KeyForm::Long,
            vars: self.vars(&client.vars),
            given: client.given,
            held: client.stream.held.to_vec(),
            extended: client.extended.as_deref().map(|extended| self.extended(extended)),
            replication: client.replication.as_deref().map(ReplicationRecord::of),
            startup: client.session.as_deref().map(|own| self.vars(&own.startup)),
            lacks_news: client.session.as_deref().is_some_and(Session::depends_on_listener),
            tracks: client.statement_names == StatementNames::Translated,
            connected_at: client.connected_at,
            request_at: client.request_at,
            transaction_at: client.transaction_at,
            failed: FailedRecord::of(client),
            server: None,
        }
    }

    fn extended(&mut self, extended: &Extended) -> ExtendedRecord {
        let names = extended.statements.iter().map(|(name, statement, since, shape)| NamedRecord {
            name: name.to_vec(),
            statement: self.statement(statement),
            since,
            shape,
        });
        ExtendedRecord {
            names: names.collect(),
            has_unnamed: extended.unnamed != 0,
            unnamed_parse: extended.unnamed_parse.clone(),
        }
    }

    fn server(&mut self, server: &Server, epoch: u64, client: Option<&Client>) -> ServerRecord {
        let statements = server.statements.by_use();
        let unnamed =
            client.and_then(|client| client.extended.as_ref()).map_or(0, |own| own.unnamed);
        let ahead = server.session.ahead.as_deref();
        let changes = server.changes.as_deref();
        let mut traces = server.session.traces;
        traces.named |= server.has_too_many_names();
        let shows = |serial| ahead.is_some_and(|ahead| ahead.shows(serial));
        ServerRecord {
            pool: server.pool.0,
            mode: server.mode.word().to_owned(),
            is_obsolete: server.epoch != epoch || server.doomed.is_some(),
            status: server.status,
            process_id: server.key.pid,
            secret: server.key.secret.clone(),
            welcome: self.welcome(&server.welcome),
            vars: self.vars(&server.vars),
            pinned: server.session.pinned.as_deref().copied(),
            statements: statements
                .into_iter()
                .map(|(statement, doubtful)| (self.statement(statement), doubtful))
                .collect(),
            unnamed_is_clients: server.unnamed != 0 && server.unnamed == unnamed,
            numbers_are_clients: client.is_some_and(|client| server.has_numbers_of(client.serial)),
            changes_schema: changes.is_some_and(|changes| changes.schema),
            values_before: changes
                .and_then(|changes| changes.values_before.as_ref())
                .map(|values| self.vars(values)),
            lent: server.session.lent.keys().map(|name| name.to_vec()).collect(),
            traces,
            may_set: server.session.may_set,
            context_changed: server.context_changed,
            before: server.session.before.as_ref().map(|values| self.vars(values)),
            followed: server.session.followed.as_ref().map(|values| self.vars(values)),
            resets: server.session.resets.clone(),
            drawn: server.session.drawn.clone(),
            last_draw: server.session.last_draw,
            state_report: server.session.state_report.as_deref().cloned(),
            key: ahead.map(Ahead::key),
            own_keys: server.own_keys,
            shows_client: client.is_some_and(|client| shows(client.serial)),
            connected_at: server.times.connected_at,
            released_at: server.times.released_at,
            asked_at: server.times.asked_at,
            replied_at: server.times.replied_at,
        }
    }
}

impl Client {
    /// May Weir stop reading from this client, so that it comes to rest? In the middle of a
    /// message, a batch or a COPY its server would wait for the rest. Settings that go out with the
    /// next request wait for that request.
    pub(crate) fn can_stop(&self, server: Option<&Server>) -> bool {
        match *self.phase {
            ClientPhase::Login(_) | ClientPhase::Canceling { .. } => false,
            // The rest of a message may have to be dropped.
            ClientPhase::Idle | ClientPhase::Failed(_) => self.stream.remaining == 0,
            ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => true,
            ClientPhase::Linked => {
                let can_stop = |server: &Server| {
                    let ledger = &server.ledger;
                    !server.awaits_settings() && (ledger.is_at_rest() || ledger.ends_by_itself())
                };
                self.stream.remaining == 0 && !self.awaits_answer() && server.is_none_or(can_stop)
            }
        }
    }

    /// Will this client come to rest when its query ends? A client that is logging in may, but a
    /// replication stream has no end.
    pub(crate) fn may_come_to_rest(&self) -> bool {
        !matches!(*self.phase, ClientPhase::Canceling { .. }) && self.replication.is_none()
    }
}

impl Server {
    /// Has its client nothing under way here? Settings that go out with the next request wait for
    /// that request.
    fn rests(&self) -> bool {
        matches!(*self.phase, ServerPhase::Linked)
            && self.ledger.is_at_rest()
            && self.stream.at_boundary()
            && self.cancel.is_none()
            && !self.awaits_settings()
    }
}

impl<X: Exchange> Engine<X> {
    /// Does [`Engine::export`] write the complete state of this client? A transaction may be open.
    pub fn may_move(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        // The records do not say that a client has logged in as a former role.
        let view = client.pool.and_then(|pool| self.pools.views.get(pool));
        if view.is_some_and(|view| view.role_changes != client.role_changes) {
            return false;
        }
        let at_rest = client.stream.remaining == 0;
        match *client.phase {
            // The records do not contain the state of a signal.
            ClientPhase::Idle | ClientPhase::Waiting(_) | ClientPhase::Failed(_) => {
                at_rest && client.pool.is_some() && !client.signals()
            }
            ClientPhase::Linked => {
                at_rest
                    && client.is_welcomed()
                    && client.server.is_some_and(|on| self.servers[on].rests())
            }
            ClientPhase::Login(_) | ClientPhase::Preparing(_) | ClientPhase::Canceling { .. } => {
                false
            }
        }
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
                let server = &self.servers[on];
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
            if let Some(record) =
                Self::attending_record(&mut self.pools.exchange, server, &mut writer)
            {
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

    /// Returns the record of a server whose backend is in a lobby.
    fn attending_record(
        exchange: &mut X,
        server: &Server,
        writer: &mut RecordWriter,
    ) -> Option<AttendingRecord> {
        let ServerPhase::Attending { asked: is_asked, .. } = *server.phase else { return None };
        let epoch = exchange.pool(server.pool, |pool| pool.epoch());
        let record = writer.server(server, epoch, None);
        Some(AttendingRecord { serial: server.serial, is_asked, server: record })
    }

    /// Writes the record of one server whose backend is in a lobby, or is about to come there.
    /// Returns `None` if it is gone, or has not logged in yet.
    pub fn export_attending(&mut self, id: ServerId, serial: u64) -> Option<WorkerRecords> {
        let server = self.servers.get(id).filter(|server| server.serial == serial)?;
        let mut writer = RecordWriter::default();
        let record = Self::attending_record(&mut self.pools.exchange, server, &mut writer)?;
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
        self.keys.remove(&client.key);
        self.end_listening(id, &client);
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
            self.forget_server(&server, now);
        }
        true
    }

    fn cede_parked(&mut self, id: PoolId, serial: u64, now: Micros) -> Option<X::Transport> {
        let worker = self.context.worker;
        let is_it = |parked: &Parked<_>| parked.server.serial == serial;
        let parked = self.pools.exchange.pool(id, |pool| pool.take_parked(worker, is_it))?;
        self.pools.view(id);
        self.forget_server(&parked.server, now);
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
        self.forget_server(&server, now);
        true
    }

    fn forget_server(&mut self, server: &Server, now: Micros) {
        self.pools.exchange.pool(server.pool, |pool| pool.server_gone(server.epoch));
        self.pools.one(server.pool).vacate(now);
    }

    /// Returns the names of the tracked parameters.
    pub fn tracked_names(&self) -> &TrackedNames {
        &self.context.names
    }
}
