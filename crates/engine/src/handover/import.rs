//! The new process's half of a hand-over: the records become clients and servers. Nothing is sent
//! before [`Engine::begin_imported`], since until then the other process may still own them.

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::phase::Restored;
use crate::routing::Place;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use config::PoolMode;
use sql::{Seen, Signs};
use wire::HEADER_LEN;
use wire::messages::Parse;
use wire::startup::CancelKey;

use crate::client::{Client, ClientPhase, Extended, KeyForm, StatementNames};
use crate::engine::Engine;
use crate::handover::records::{
    AttendingRecord, ClientRecord, ExtendedRecord, PoolRecord, ServerRecord, VarsRecord,
    WelcomeRecord, WorkerRecords,
};
use crate::ids::{ClientId, Identity, PoolId, ServerId};
use crate::login::auth::{Login, Peer};
use crate::notify::listening::{Listening, News};
use crate::relay::changes::Changes;
use crate::relay::prepared::{DOUBTFUL, Statement};
use crate::server::{Server, ServerLogin};
use crate::session::ahead::Ahead;
use crate::session::carried::{Carried, Setting};
use crate::session::on_server::ServerSession;
use crate::session::state::{Lent, Numbers, Session};
use crate::shell::{Exchange, Io};
use crate::values::Values;
use crate::vars::{Slots, TrackedNames, Vars, Welcome};

/// The shared data of a worker's records, which they refer to by number.
#[derive(Debug)]
pub struct ImportTables {
    statements: HashMap<u64, Arc<Statement>>,
    vars: Vec<Values>,
    welcomes: Vec<Arc<Welcome>>,
    /// Equal values are shared.
    known: HashSet<Values>,
    /// The slot here for each slot of the other process.
    slots: Vec<Option<usize>>,
    /// Does this process track parameters that the other one did not? Then their values on its
    /// servers are unknown.
    lacks_names: bool,
    pools: Vec<Option<Destination>>,
}

/// The connections that a worker has received and not begun to serve.
#[derive(Debug, Default)]
pub struct Imported {
    pub clients: Vec<ClientId>,
    pub parked: Vec<ServerId>,
    pub attending: Vec<ServerId>,
}

/// A pool of the other process.
#[derive(Clone, Debug)]
struct Destination {
    database: String,
    user: String,
    place: Place,
    /// Do its servers connect to the same address, in the same way?
    is_same: bool,
}

impl ImportTables {
    /// `names` are those of the other process, `ours` this one's.
    pub fn new(names: &[String], ours: &TrackedNames) -> Self {
        Self {
            statements: HashMap::new(),
            vars: Vec::new(),
            welcomes: Vec::new(),
            known: HashSet::new(),
            slots: names.iter().map(|name| ours.slot(name.as_bytes())).collect(),
            lacks_names: ours
                .all()
                .iter()
                .any(|own| !names.iter().any(|name| name.eq_ignore_ascii_case(own))),
            pools: Vec::new(),
        }
    }

    /// Opens the records of the next worker. Their statements have been restored already.
    pub fn open(&mut self, records: &WorkerRecords, statements: HashMap<u64, Arc<Statement>>) {
        self.statements = statements;
        self.vars.clear();
        for record in &records.vars {
            let vars = self.share(record);
            self.vars.push(vars);
        }
        self.welcomes.clear();
        for record in &records.welcomes {
            let welcome = self.welcome_of(record);
            self.welcomes.push(welcome);
        }
    }

    fn welcome_of(&mut self, record: &WelcomeRecord) -> Arc<Welcome> {
        let vars = self.share(&record.vars);
        Arc::new(Welcome::new(record.fixed.clone(), vars))
    }

    fn share(&mut self, record: &VarsRecord) -> Values {
        let vars = Values::new(self.translate(record));
        if let Some(known) = self.known.get(&vars) {
            return known.clone();
        }
        self.known.insert(vars.clone());
        vars
    }

    fn translate(&self, record: &VarsRecord) -> Vars {
        let mut vars = Vars::default();
        for (value, slot) in record.tracked.iter().zip(&self.slots) {
            if let (Some(value), Some(slot)) = (value, slot) {
                vars.set(*slot, value);
            }
        }
        let setting = |(name, value): &(Vec<u8>, Vec<u8>)| Setting {
            name: name.as_slice().into(),
            value: value.as_slice().into(),
        };
        vars.carried = Carried::new(record.carried.iter().map(setting).collect());
        vars.prepared = Carried::new(record.prepared.iter().map(setting).collect());
        vars.channels = Carried::names(record.channels.iter().map(|name| name.as_slice().into()));
        vars
    }

    /// Translates the slots of the values that the client gave. Slots that only this process tracks
    /// count as given, because the other process did not record them.
    fn given(&self, given: Slots) -> Slots {
        let mut ours = Slots::ALL;
        for (at, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot
                && !given.has(at)
            {
                ours.remove(*slot);
            }
        }
        ours
    }

    fn welcome(&self, at: u32) -> Arc<Welcome> {
        self.welcomes.get(at as usize).cloned().unwrap_or_default()
    }

    fn vars(&self, at: u32) -> Values {
        self.vars.get(at as usize).cloned().unwrap_or_default()
    }
}

impl<X: Exchange> Engine<X> {
    /// Restores the pools first, with what their servers have reported.
    pub fn import_pools(&mut self, pools: Vec<Option<PoolRecord>>, tables: &mut ImportTables) {
        for record in pools {
            let Some(record) = record else {
                tables.pools.push(None);
                continue;
            };
            let (database, user) = (record.database.clone(), record.user.clone());
            let place = record.place;
            let found = self.pools.find_at(&self.context, &database, &user, place);
            let leads_there = !tables.lacks_names
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
            tables.pools.push(Some(Destination { database, user, place, is_same }));
        }
    }

    /// Adds a client, and its server if it has one. If the client's database is no longer
    /// configured, it loses its server, and [`Engine::begin_imported`] disconnects it.
    pub fn import_client(
        &mut self,
        record: ClientRecord,
        tables: &ImportTables,
    ) -> (ClientId, Option<ServerId>) {
        let pool = self.pools.find(&self.context, &record.database, &record.user);
        let on = record.server.filter(|_| pool.is_some());
        let unnamed = if record.extended.as_ref().is_some_and(|own| own.has_unnamed) {
            self.context.next_serial()
        } else {
            0
        };
        let has_numbers = on.as_ref().is_some_and(|server| server.numbers_are_clients);
        let is_shown = on.as_ref().is_some_and(|server| server.shows_client);
        let on = on.and_then(|server| self.import_server(server, unnamed, tables));
        let identity = Arc::new(Identity { database: record.database, user: record.user });
        let identity = pool
            .map(|pool| self.pools.view(pool).identity.clone())
            .filter(|pools| **pools == *identity)
            .unwrap_or(identity);
        if record.is_counted {
            self.pools.exchange.limits(|limits| limits.client_came(&identity));
        }
        let entered = pool.map(|pool| {
            self.pools.exchange.pool(pool, |pool| {
                pool.enter();
                pool.role_changes()
            })
        });
        let role_changes = entered.unwrap_or_default();
        let serial = self.pools.exchange.next_connection();
        let login = Login::new(Peer::default(), identity);
        let mut client = Client::new(serial, login, record.connected_at);
        client.phase.restore(match (on, record.failed) {
            (Some(_), _) => Restored::Linked,
            (None, Some(failed)) => Restored::Failed(failed.into_failed()),
            (None, None) => Restored::Idle,
        });
        client.counted = record.is_counted;
        (client.pool, client.role_changes) = (pool, role_changes);
        client.while_waiting.notified = record.notified;
        client.key = if record.welcomed { record.key } else { 0 };
        client.key_form = if record.long_key { KeyForm::Long } else { KeyForm::Short };
        client.vars = tables.vars(record.vars);
        client.given = tables.given(record.given);
        client.stream.held = record.held.into();
        client.extended = record.extended.map(|own| extended(own, unnamed, tables));
        client.replication = record.replication.map(|own| Box::new(own.into_replication()));
        client.session = record.startup.map(|at| Box::new(Session::new(tables.vars(at))));
        if let (true, Some(pool)) = (record.lacks_news, pool) {
            let mut listening = Box::new(Listening::new(pool));
            listening.keep(News::Gap);
            client.session_mut().listening = Some(listening);
        }
        client.statement_names =
            if record.tracks { StatementNames::Translated } else { StatementNames::Own };
        client.request_at = record.request_at;
        client.transaction_at = record.transaction_at;
        let replicates = client.replication.as_ref().map(|own| own.kind);
        let id = self.clients.insert(client);
        if record.welcomed {
            self.keys.insert(record.key, id);
        }
        if let Some(on) = on {
            let server = &mut self.servers[on];
            pair::link_again(id, &mut self.clients[id], on, server);
            server.phase.link();
            server.replication = replicates;
            if let Some(session) = server.session.get_mut().filter(|_| has_numbers) {
                session.numbers = Numbers::Of(serial);
            }
            let session = server.session.get_mut().filter(|_| is_shown);
            if let Some(ahead) = session.and_then(|session| session.ahead.as_deref_mut()) {
                ahead.note_shown(serial);
            }
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
        let destination = tables.pools.get(number as usize)?.as_ref()?;
        let Destination { database, user, place, is_same } = destination;
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
        let server = &mut self.servers[id];
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
        mut record: ServerRecord,
        unnamed: u64,
        tables: &ImportTables,
    ) -> Option<ServerId> {
        let destination = tables.pools.get(record.pool as usize)?.as_ref()?;
        let Destination { database, user, place, is_same } = destination;
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
        let mut server = Server::new(pool, serial, ServerLogin::default(), record.connected_at);
        server.phase.restore();
        server.epoch = epoch;
        server.use_in(PoolMode::of_word(&record.mode).unwrap_or(self.pools.settings(pool).mode));
        server.status = record.status;
        server.context_changed = record.context_changed;
        let secret = std::mem::take(&mut record.secret);
        server.key = CancelKey { pid: record.process_id, secret };
        server.welcome = tables.welcome(record.welcome);
        server.vars = tables.vars(record.vars);
        server.own_keys = record.own_keys;
        server.unnamed = if record.unnamed_is_clients { unnamed } else { 0 };
        if let Some(session) = server.session.get_mut() {
            import_session(&mut record, session, tables);
        }
        let values_before = record.values_before.map(|at| tables.vars(at));
        if record.changes_schema || values_before.is_some() {
            server.changes = Some(
                Changes { schema: record.changes_schema, values_before, ..Changes::default() }
                    .into(),
            );
        }
        server.times.released_at = record.released_at;
        server.times.asked_at = record.asked_at;
        server.times.replied_at = record.replied_at;
        for (id, is_doubtful) in record.statements {
            if let Some(statement) = tables.statements.get(&id) {
                // Older than all later messages.
                server.statements.insert(statement.clone(), if is_doubtful { DOUBTFUL } else { 0 });
            }
        }
        Some(self.servers.insert(Box::new(server)))
    }

    /// Prepares for the records of all workers, in each worker. Serial numbers given out later are
    /// above those of the records. Known names of settings are known again, since any transaction
    /// may have set them.
    pub fn expect_records(&mut self, records: &WorkerRecords, tables: &ImportTables) {
        self.context.serial = self.context.serial.max(records.serial);
        for record in &records.customs {
            let pool = tables.pools.get(record.pool as usize).and_then(Option::as_ref);
            if let Some(pool) = pool
                .and_then(|to| self.pools.find_at(&self.context, &to.database, &to.user, to.place))
            {
                self.pools.view(pool).history.recall_customs(record);
            }
        }
    }

    pub(crate) fn begin_imported_clients(
        &mut self,
        mut clients: Vec<ClientId>,
        io: &mut impl Io<X>,
    ) {
        clients.retain(|id| self.clients.contains(*id));
        for id in clients.iter().copied() {
            if !self.clients[id].vars.channels.is_empty() {
                self.listen_again(id, io);
            }
        }
        for id in clients.iter().copied() {
            let client = &self.clients[id];
            let is_preparing = matches!(*client.phase, ClientPhase::Preparing(_));
            if matches!(*client.phase, ClientPhase::Failed(_)) {
                self.route_later(id);
            } else if let Some(on) = client.server.filter(|_| is_preparing)
                && self.prepare(id, on, io) == Readable::Now
            {
                // It has left its lobby with this server.
                self.go_on(id, io);
            }
        }
        clients.retain(|id| matches!(*self.clients[*id].phase, ClientPhase::Idle));
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

fn import_session(record: &mut ServerRecord, session: &mut ServerSession, tables: &ImportTables) {
    session.pinned = record.pinned.map(Box::new);
    session.state_report = record.state_report.take().map(Box::new);
    session.ahead = record.key.map(Ahead::of_key);
    session.traces = record.traces;
    session.before = record.before.map(|at| tables.vars(at));
    session.followed = record.followed.map(|at| tables.vars(at));
    session.resets = std::mem::take(&mut record.resets);
    session.may_set = record.may_set;
    session.drawn = std::mem::take(&mut record.drawn);
    session.last_draw = record.last_draw;
    session.numbers = Numbers::Strangers;
    // Older than all later messages.
    let lent = Lent { since: 0, is_placeholder: false };
    session.lent = record.lent.iter().map(|name| (name.as_slice().into(), lent)).collect();
}

fn extended(record: ExtendedRecord, unnamed: u64, tables: &ImportTables) -> Box<Extended> {
    let mut extended = Extended {
        unnamed,
        unnamed_seen: seen_in_parse(&record.unnamed_parse),
        unnamed_parse: record.unnamed_parse,
        ..Extended::default()
    };
    for named in record.names {
        if let Some(statement) = tables.statements.get(&named.statement) {
            let (name, since, shape) = (named.name, named.since, named.shape);
            extended.statements.import(name, statement.clone(), since, shape);
        }
    }
    Box::new(extended)
}

/// Returns what an unnamed statement may leave in the session. Its Parse message was kept, unless
/// it was too long.
pub(crate) fn seen_in_parse(message: &[u8]) -> Seen {
    let body = message.get(HEADER_LEN..).unwrap_or_default();
    match Parse::decode(body) {
        Ok(parse) => sql::scan_either(parse.sql),
        Err(_) => Seen { signs: Signs::OPAQUE, ..Seen::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_parameters_are_translated_by_name() {
        let few = TrackedNames::new(&["geqo".into()]);
        let many = TrackedNames::new(&["work_mem".into(), "geqo".into()]);
        let given = |names: &TrackedNames, name: &str| {
            let mut given = Slots::default();
            names.slot(name.as_bytes()).into_iter().for_each(|slot| given.add(slot));
            given
        };
        for (theirs, ours) in [(&many, &few), (&few, &many)] {
            let tables = ImportTables::new(theirs.all(), ours);
            let known = tables.given(given(theirs, "geqo"));
            let has = |name: &str| ours.slot(name.as_bytes()).map(|slot| known.has(slot));
            assert_eq!((has("geqo"), has("TimeZone")), (Some(true), Some(false)));
            // The other process did not track it.
            assert_ne!(has("work_mem"), Some(false));
        }
    }
}
