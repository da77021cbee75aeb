//! The new process's half of a hand-over: the records become clients and servers. Nothing is sent
//! before `Engine::begin_imported`, since until then the other process may still own them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wire::startup::CancelKey;

use crate::admission::membership::Membership;
use crate::cancel::client_key::ClientKey;
use crate::client::{Client, Extended, StatementNames};
use crate::handover::records::{
    ClientRecord, ExtendedRecord, ServerRecord, VarsRecord, WelcomeRecord, WorkerRecords,
};
use crate::ids::{ClientId, PoolId, ServerId};
use crate::login::auth::Login;
use crate::notify::listening::{Listening, News};
use crate::phase::Restored;
use crate::relay::changes::Changes;
use crate::relay::prepared::{DOUBTFUL, Statement};
use crate::relay::status::Status;
use crate::relay::unnamed::{ClientUnnamed, ServerUnnamed};
use crate::routing::Place;
use crate::server::Server;
use crate::session::ahead::Ahead;
use crate::session::carried::{Carried, Setting};
use crate::session::on_server::ServerSession;
use crate::session::state::{Lent, Numbers, Session};
use crate::times::ClientTimes;
use crate::values::{ClientValues, Values};
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
pub(crate) struct Destination {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) place: Place,
    /// Do its servers connect to the same address, in the same way?
    pub(crate) is_same: bool,
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

    /// Adds the next pool of the other process.
    pub(crate) fn add_pool(&mut self, destination: Option<Destination>) {
        self.pools.push(destination);
    }

    /// Returns the pool of the other process with this number.
    pub(crate) fn pool(&self, number: u32) -> Option<&Destination> {
        self.pools.get(number as usize)?.as_ref()
    }

    /// Can values of the other process be incomplete here?
    pub(crate) fn lacks_names(&self) -> bool {
        self.lacks_names
    }

    pub(crate) fn welcome_of(&mut self, record: &WelcomeRecord) -> Arc<Welcome> {
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

impl ClientRecord {
    /// Returns the client, which gets its server afterwards. `unnamed`: the serial number here of its
    /// unnamed statement. `login`: with its identity. `is_linked`: its server was imported.
    pub(crate) fn into_client(
        self,
        login: Login,
        (serial, unnamed): (u64, u64),
        (membership, is_linked): (Membership, bool),
        tables: &ImportTables,
    ) -> Client {
        let mut client = Client::new(serial, login, self.connected_at);
        client.phase.restore(match (is_linked, self.failed) {
            (true, _) => Restored::Linked,
            (false, Some(failed)) => Restored::Failed(failed.into_failed()),
            (false, None) => Restored::Idle,
        });
        client.pool = membership;
        if self.notified {
            client.while_waiting.notify();
        }
        let number = if self.welcomed { self.key } else { 0 };
        client.key = ClientKey::imported(number, self.long_key);
        client.vars = ClientValues::new(tables.vars(self.vars), tables.given(self.given));
        client.stream.hold(self.held.into());
        client.extended = self.extended.map(|own| extended(own, unnamed, tables));
        client.replication = self.replication.map(|own| Box::new(own.into_replication()));
        client.session = self.startup.map(|at| Box::new(Session::new(tables.vars(at))));
        if let (true, Some(pool)) = (self.lacks_news, client.pool.id()) {
            client.miss_news(pool);
        }
        client.statement_names =
            if self.tracks { StatementNames::Translated } else { StatementNames::Own };
        client.times =
            ClientTimes::imported(self.connected_at, self.request_at, self.transaction_at);
        client
    }
}

impl Client {
    /// It is told that it may have missed notifications.
    pub(crate) fn miss_news(&mut self, pool: PoolId) {
        let mut listening = Box::new(Listening::new(pool));
        listening.keep(News::Gap);
        self.session_mut().listening = Some(listening);
    }
}

impl ServerRecord {
    /// Returns the server, without its client. `unnamed`: the serial number here of its client's
    /// unnamed statement.
    pub(crate) fn into_server(
        mut self,
        mut server: Box<Server>,
        unnamed: u64,
        tables: &ImportTables,
    ) -> Box<Server> {
        server.phase.restore();
        server.status = Status::imported(self.status, self.has_failed);
        server.context_change.end_transaction(self.context_changed);
        let secret = std::mem::take(&mut self.secret);
        server.key = CancelKey { pid: self.process_id, secret };
        server.welcome = tables.welcome(self.welcome);
        server.vars = tables.vars(self.vars);
        server.uses = self.uses;
        server.own_keys = self.own_keys;
        server.password_number = self.password_number;
        server.unnamed = ServerUnnamed::imported(if self.unnamed_is_clients { unnamed } else { 0 });
        if let Some(session) = server.session.get_mut() {
            import_session(&mut self, session, tables);
        }
        let values_before = self.values_before.map(|at| tables.vars(at));
        server.changes = Changes::imported(self.changes_schema, values_before);
        server.times.import(self.released_at, self.asked_at, self.replied_at);
        for (id, is_doubtful) in self.statements {
            if let Some(statement) = tables.statements.get(&id) {
                // Older than all later messages.
                server.statements.insert(statement.clone(), if is_doubtful { DOUBTFUL } else { 0 });
            }
        }
        server
    }
}

impl Server {
    /// Its imported client has this serial number, and `record` is the server's.
    pub(crate) fn recall_client(&mut self, serial: u64, has_numbers: bool, is_shown: bool) {
        let Some(session) = self.session.get_mut() else { return };
        if has_numbers {
            session.numbers = Numbers::Of(serial);
        }
        if let Some(ahead) = session.ahead.as_deref_mut().filter(|_| is_shown) {
            ahead.note_shown(serial);
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
        unnamed: ClientUnnamed::imported(unnamed, record.unnamed_parse),
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
