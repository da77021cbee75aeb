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

use crate::admission::view::PoolView;
use crate::client::{Client, ClientPhase, Extended, StatementNames};
use crate::handover::records::{
    AttendingRecord, ClientRecord, ExtendedRecord, FailedRecord, NamedRecord, ReplicationRecord,
    ServerRecord, StatementRecord, VarsRecord, WelcomeRecord, WorkerRecords,
};
use crate::ids::{ClientId, PoolId, ServerId};
use crate::relay::prepared::Statement;
use crate::server::{Server, ServerPhase};
use crate::session::ahead::Ahead;
use crate::session::state::Session;
use crate::shell::Exchange;
use crate::values::Values;
use crate::vars::{Vars, Welcome};

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
    pub(crate) serial: u64,
    pub server: Option<ServerId>,
}

/// Writes a worker's records. Shared data is written once.
#[derive(Default)]
pub(crate) struct RecordWriter {
    pub(crate) records: WorkerRecords,
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

    pub(crate) fn client(&mut self, client: &Client) -> ClientRecord {
        ClientRecord {
            address: None,
            database: client.identity.database.clone(),
            user: client.identity.user.clone(),
            is_counted: client.pool.is_counted(),
            welcomed: client.is_welcomed(),
            notified: client.while_waiting.is_notified(),
            key: client.key.number(),
            long_key: client.key.is_long(),
            vars: self.vars(&client.vars),
            given: client.vars.given(),
            held: client.stream.held().to_vec(),
            extended: client.extended.as_deref().map(|extended| self.extended(extended)),
            replication: client.replication.as_deref().map(ReplicationRecord::of),
            startup: client.session.as_deref().map(|own| self.vars(&own.startup)),
            lacks_news: client.session.as_deref().is_some_and(Session::depends_on_listener),
            tracks: client.statement_names == StatementNames::Translated,
            connected_at: client.times.connected_at(),
            request_at: client.times.request_at(),
            transaction_at: client.times.transaction_at(),
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
            has_unnamed: extended.unnamed.exists(),
            unnamed_parse: extended.unnamed.message().to_vec(),
        }
    }

    pub(crate) fn server(
        &mut self,
        server: &Server,
        epoch: u64,
        client: Option<&Client>,
    ) -> ServerRecord {
        let statements = server.statements.by_use();
        let own = client.and_then(|client| client.extended.as_ref());
        let ahead = server.session.ahead.as_deref();
        let mut traces = server.session.traces;
        traces.named |= server.has_too_many_names();
        let shows = |serial| ahead.is_some_and(|ahead| ahead.shows(serial));
        ServerRecord {
            pool: server.pool.0,
            mode: server.mode.word().to_owned(),
            is_obsolete: server.epoch != epoch || server.doomed.is_some(),
            status: server.status.byte(),
            process_id: server.key.pid,
            secret: server.key.secret.clone(),
            welcome: self.welcome(&server.welcome),
            vars: self.vars(&server.vars),
            pinned: server.session.pinned.as_deref().copied(),
            statements: statements
                .into_iter()
                .map(|(statement, doubtful)| (self.statement(statement), doubtful))
                .collect(),
            unnamed_is_clients: own.is_some_and(|own| server.unnamed.is_of(&own.unnamed)),
            numbers_are_clients: client.is_some_and(|client| server.has_numbers_of(client.serial)),
            changes_schema: server.changes.has_schema(),
            values_before: server.changes.values_before().map(|values| self.vars(values)),
            lent: server.session.lent.keys().map(|name| name.to_vec()).collect(),
            traces,
            may_set: server.session.may_set,
            context_changed: server.context_change.is_possible(),
            has_failed: server.status.has_ended_failed(),
            before: server.session.before.as_ref().map(|values| self.vars(values)),
            followed: server.session.followed.as_ref().map(|values| self.vars(values)),
            resets: server.session.resets.clone(),
            drawn: server.session.drawn.clone(),
            last_draw: server.session.last_draw,
            state_report: server.session.state_report.as_deref().cloned(),
            key: ahead.map(Ahead::key),
            own_keys: server.own_keys,
            password_number: server.password_number,
            shows_client: client.is_some_and(|client| shows(client.serial)),
            uses: server.uses,
            connected_at: server.times.connected_at(),
            released_at: server.times.released_at(),
            asked_at: server.times.asked_at(),
            replied_at: server.times.replied_at(),
        }
    }

    /// Returns the record of a server whose backend is in a lobby, or is about to come there.
    pub(crate) fn attending<X: Exchange>(
        &mut self,
        server: &Server,
        exchange: &mut X,
    ) -> Option<AttendingRecord> {
        let ServerPhase::Attending { asked: is_asked, .. } = *server.phase else { return None };
        let epoch = exchange.pool(server.pool, |pool| pool.epoch());
        let record = self.server(server, epoch, None);
        Some(AttendingRecord { serial: server.serial, is_asked, server: record })
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
            ClientPhase::Idle | ClientPhase::Failed(_) => self.stream.remaining() == 0,
            ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => true,
            ClientPhase::Linked => {
                let can_stop = |server: &Server| {
                    let ledger = &server.ledger;
                    !server.awaits_settings() && (ledger.is_at_rest() || ledger.ends_by_itself())
                };
                self.stream.remaining() == 0 && !self.awaits_answer() && server.is_none_or(can_stop)
            }
        }
    }

    /// Do its record and its server's contain its complete state? A transaction may be open. `view`:
    /// its pool's.
    pub(crate) fn may_move(&self, view: Option<&PoolView>, server: Option<&Server>) -> bool {
        // The records do not say that a client has logged in as a former role.
        if view.is_some_and(|view| self.pool.has_another_role(view.role_changes)) {
            return false;
        }
        let at_rest = self.stream.remaining() == 0;
        match *self.phase {
            // The records do not contain the state of a signal.
            ClientPhase::Idle | ClientPhase::Waiting(_) | ClientPhase::Failed(_) => {
                at_rest && self.pool.id().is_some() && !self.signals()
            }
            ClientPhase::Linked => {
                at_rest && self.is_welcomed() && server.is_some_and(Server::rests)
            }
            ClientPhase::Login(_) | ClientPhase::Preparing(_) | ClientPhase::Canceling { .. } => {
                false
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
            && !self.cancel.is_under_way()
            && !self.awaits_settings()
    }
}
