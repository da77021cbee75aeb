//! The state of logged-in clients and servers in a form that another process understands, when one
//! process takes over from another. It covers `client.rs`, `server.rs`, `prepared.rs` and
//! `vars.rs`. Plain data, not used on the hot path. The shell sends the sockets along, in the order
//! of the records.
//!
//! Only connections *at rest* are recorded (`Look::may_move`): no reply is owed and no message is
//! half sent. So the records contain no ledger and no output. Times are those of the process's
//! clock, which the next process continues.
//!
//! If you change a record, increase [`FORMAT`].

use std::sync::Arc;

use config::{Host, Node};
use serde::{Deserialize, Serialize};
use wire::error_fields::ErrorFields;
use wire::scram::{ScramKeys, ScramVerifier};

use crate::admission::pool::Pool;
use crate::client::{Client, ClientPhase};
use crate::ids::Micros;
use crate::lifecycle::loss::{Failed, Skips};
use crate::lifecycle::replication::{Replication, ReplicationKind};
use crate::lifecycle::while_waiting::Steps;
use crate::login::server_secret::ServerSecret;
use crate::relay::prepared::Statement;
use crate::routing::Place;
use crate::session::ahead::Key;
use crate::session::carried::Setting;
use crate::session::pins::Pinned;
use crate::session::resets::Resets;
use crate::session::sequences::DrawnNumbers;
use crate::session::state::Traces;
use crate::session::state_report::StateReport;
use crate::session::text_history::CustomsRecord;
use crate::settings::Primary;
use crate::vars::{Slots, Vars, Welcome};

/// The version of the records below; two processes must agree on it.
pub const FORMAT: u32 = 30;

/// Everything that one worker hands over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecords {
    /// The worker's counter of messages: all numbers in the records are below it.
    pub serial: u64,
    pub statements: Vec<StatementRecord>,
    pub vars: Vec<VarsRecord>,
    pub welcomes: Vec<WelcomeRecord>,
    pub clients: Vec<ClientRecord>,
    /// Servers without a client.
    pub parked: Vec<ServerRecord>,
    /// Servers whose backends serve the clients of a direct pool.
    pub attending: Vec<AttendingRecord>,
    pub customs: Vec<CustomsRecord>,
}

/// Everything that a process hands over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverState {
    /// The time of the process's clock.
    pub now: Micros,
    /// The secret of long cancel keys.
    pub seed: [u8; 32],
    /// The names of the tracked parameters.
    pub names: Vec<String>,
    /// The last number of a statement.
    pub statements: Numbering,
    /// The number of connections so far; later ones have higher numbers.
    pub connections: u64,
    /// The pools by their numbers; None where a number is unused.
    pub pools: Vec<Option<PoolRecord>>,
    pub disabled: Vec<String>,
    pub primaries: Vec<PrimaryRecord>,
    pub memberships: Vec<MembershipRecord>,
    pub addresses: Vec<AddressRecord>,
    /// The clusters whose nodes were found, with these nodes in their order.
    pub clusters: Vec<(String, Vec<NodeRecord>)>,
    /// Cluster and name of each node that an operator has detached.
    pub detached: Vec<(String, String)>,
    /// The listening sockets belong to a service manager.
    pub managed_sockets: bool,
    /// The number of processes in a row that were killed soon after their start.
    pub deaths: u32,
    pub worker_records: Vec<WorkerRecords>,
    pub lobbies: Vec<LobbyRecord>,
    pub passwords: Vec<PasswordRecord>,
}

/// The last password that a program has printed (`password_command`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordRecord {
    /// The program (see [`command_text`](crate::settings::command_text)).
    pub command: String,
    pub number: u64,
    pub password: String,
    /// The time until its end; 0 if it has ended.
    pub remaining: Micros,
}

/// The primary of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryRecord {
    pub cluster: String,
    pub primary: Primary,
    /// Why it is not reachable now.
    pub outage: Option<String>,
}

/// The process as one of several Weirs in front of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipRecord {
    pub cluster: String,
    pub instance: String,
    /// The old process may send to the writer until then, by the system's clock.
    pub until: Micros,
}

/// The address in use of a node whose host is a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRecord {
    pub host: String,
    pub port: u16,
    pub address: String,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    pub host: String,
    pub port: u16,
    pub weight: u16,
}

impl From<&Node> for NodeRecord {
    fn from(node: &Node) -> Self {
        let Node { name, host, port, weight } = node;
        Self { name: name.clone(), host: host.to_string(), port: *port, weight: *weight }
    }
}

impl From<NodeRecord> for Node {
    fn from(record: NodeRecord) -> Self {
        let NodeRecord { name, host, port, weight } = record;
        Self { name, host: Host::new(&host), port, weight }
    }
}

/// Values of parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VarsRecord {
    /// Values in the order of [`HandoverState::names`].
    pub tracked: Vec<Option<Vec<u8>>>,
    /// Names and values.
    pub carried: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names and texts.
    pub prepared: Vec<(Vec<u8>, Vec<u8>)>,
    pub channels: Vec<Vec<u8>>,
}

/// The progress of a process in numbering statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbering {
    pub last_id: u64,
    /// The number of schema changes seen.
    pub schema: u64,
}

/// A prepared statement. Its number is part of its name on the servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementRecord {
    pub id: u64,
    /// The number of schema changes seen when the statement was first prepared.
    pub schema: u64,
    pub sql: Vec<u8>,
    pub types: Vec<u8>,
    /// A digest of its parse context.
    pub context: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    pub database: String,
    pub user: String,
    pub place: Place,
    /// The connection parameters of its servers (see `PoolSettings::destination`).
    pub destination: String,
    /// The configuration's word for its mode.
    pub mode: String,
    /// None if there is no welcome yet.
    pub welcome: Option<WelcomeRecord>,
    pub server_secret: Option<ServerSecretRecord>,
    /// See `Pool::own_keys`.
    pub own_keys: bool,
    /// A verifier in its stored form.
    pub proven: Option<String>,
    pub minor_version: u16,
    pub may_ask_report: bool,
}

/// The parameters that a server has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomeRecord {
    pub fixed: Vec<(Vec<u8>, Vec<u8>)>,
    pub vars: VarsRecord,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerSecretRecord {
    Scram { client_key: [u8; 32], server_key: [u8; 32] },
    Md5(String),
    Password(String),
    Verifier,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// The client's address, if the shell knows a better one than the socket's.
    pub address: Option<String>,
    pub database: String,
    pub user: String,
    pub is_counted: bool,
    pub welcomed: bool,
    pub notified: bool,
    pub key: u64,
    pub long_key: bool,
    /// Index into [`WorkerRecords::vars`].
    pub vars: u32,
    /// The parameters of [`HandoverState::names`] whose values the client gave.
    pub given: Slots,
    pub held: Vec<u8>,
    pub extended: Option<ExtendedRecord>,
    pub replication: Option<ReplicationRecord>,
    /// Index into [`WorkerRecords::vars`]: the values that RESET returns to, if the client has a
    /// session in auto mode.
    pub startup: Option<u32>,
    /// May notifications for the client be lost with the other process?
    pub lacks_news: bool,
    pub tracks: bool,
    pub connected_at: Micros,
    pub request_at: Micros,
    pub transaction_at: Micros,
    /// Set if its transaction or its session was lost with its server.
    pub failed: Option<FailedRecord>,
    /// The client's server, if it has one.
    pub server: Option<ServerRecord>,
}

/// The treatment of the next messages of a client whose transaction was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRecord {
    /// The fields of the error; empty if the client was told.
    pub error: Vec<(u8, Vec<u8>)>,
    /// Are its messages discarded up to its Sync?
    pub skips: bool,
    /// The transaction status for the client.
    pub status: u8,
}

impl FailedRecord {
    /// Returns the record of a client that has no server.
    pub(crate) fn of(client: &Client) -> Option<Self> {
        match &*client.phase {
            ClientPhase::Failed(failed) => {
                let error = failed.error.as_ref().map(|error| error.fields.clone());
                // Another process drops the rest of a copy on a server.
                let (skips, status) = (failed.skips == Skips::ToSync, failed.status);
                Some(Self { error: error.unwrap_or_default(), skips, status })
            }
            ClientPhase::Login(_)
            | ClientPhase::Idle
            | ClientPhase::Waiting(_)
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Canceling { .. } => {
                // The next process does not know how the transaction was begun.
                let fails = client.while_waiting.is_due(Steps::FAILS | Steps::BEGINS);
                fails.then(|| Self { status: b'E', ..Self::default() })
            }
        }
    }

    pub(crate) fn into_failed(self) -> Failed {
        let Self { error, skips, status } = self;
        let error = Some(error).filter(|fields| !fields.is_empty());
        let skips = if skips { Skips::ToSync } else { Skips::Nothing };
        Failed { error: error.map(|fields| ErrorFields { fields }), skips, status }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationRecord {
    /// Is it logical replication of one database?
    pub is_logical: bool,
    pub options: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedRecord {
    pub names: Vec<NamedRecord>,
    pub has_unnamed: bool,
    pub unnamed_parse: Vec<u8>,
}

/// One of a client's names for statements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRecord {
    pub name: Vec<u8>,
    pub statement: u64,
    pub since: u64,
    pub shape: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Index into [`HandoverState::pools`].
    pub pool: u32,
    /// The configuration's word for the mode in which the server is used.
    pub mode: String,
    /// Should the server be replaced as soon as it is free?
    pub is_obsolete: bool,
    pub status: u8,
    pub process_id: u32,
    pub secret: Vec<u8>,
    /// Index into [`WorkerRecords::welcomes`].
    pub welcome: u32,
    /// Index into [`WorkerRecords::vars`].
    pub vars: u32,
    pub pinned: Option<Pinned>,
    /// The least recently used first; `true` if it is uncertain whether the statement exists.
    pub statements: Vec<(u64, bool)>,
    /// Is the unnamed statement that of the present client?
    pub unnamed_is_clients: bool,
    /// Has only the present client drawn the numbers that `lastval` returns there?
    pub numbers_are_clients: bool,
    /// Has the open transaction changed the schema?
    pub changes_schema: bool,
    /// See [`crate::relay::changes::Changes`]; an index into [`WorkerRecords::vars`].
    pub values_before: Option<u32>,
    /// Names of the client's statements that were prepared there under the client's own names.
    pub lent: Vec<Vec<u8>>,
    /// See `Server::context_change`.
    pub context_changed: bool,
    /// Its client's last transaction has failed.
    pub has_failed: bool,
    /// Traces of the open transaction, or of earlier ones without a verdict.
    pub traces: Traces,
    /// See `ServerSession::may_set`.
    pub may_set: bool,
    /// See `ServerSession::before`; an index into [`WorkerRecords::vars`].
    pub before: Option<u32>,
    /// See `ServerSession::followed`; an index into [`WorkerRecords::vars`].
    pub followed: Option<u32>,
    /// The settings that the transaction's texts may have reset.
    pub resets: Resets,
    /// The texts by which the client has drawn numbers that it may still ask for.
    pub drawn: DrawnNumbers,
    /// See `ServerSession::last_draw`.
    pub last_draw: u32,
    /// The latest state report, if the server sends any.
    pub state_report: Option<StateReport>,
    /// The key of its login, if it can be sent settings and a request in one write.
    pub key: Option<Key>,
    /// See `Server::own_keys`.
    pub own_keys: bool,
    /// See `Server::password_number`.
    pub password_number: Option<u64>,
    /// Does it show the address of the present client?
    pub shows_client: bool,
    pub uses: u64,
    pub connected_at: Micros,
    pub released_at: Micros,
    pub asked_at: Micros,
    pub replied_at: Micros,
}

/// A server whose backend serves the clients of a direct pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttendingRecord {
    pub serial: u64,
    /// Was it asked to leave the lobby?
    pub is_asked: bool,
    pub server: ServerRecord,
}

impl VarsRecord {
    pub(crate) fn of(vars: &Vars) -> Self {
        let pair = |setting: &Setting| (setting.name.to_vec(), setting.value.to_vec());
        Self {
            tracked: vars.tracked().map(|value| value.map(<[u8]>::to_vec)).collect(),
            carried: vars.carried.all().iter().map(pair).collect(),
            prepared: vars.prepared.all().iter().map(pair).collect(),
            channels: vars.channels.all().iter().map(|one| one.name.to_vec()).collect(),
        }
    }
}

impl PoolRecord {
    pub fn of<T>(pool: &Pool<T>) -> Self {
        Self {
            database: pool.key.database.clone(),
            user: pool.key.user.clone(),
            place: pool.key.place,
            destination: pool.settings.destination(),
            mode: pool.settings.mode.word().to_owned(),
            welcome: pool.welcome.as_deref().map(WelcomeRecord::of),
            server_secret: pool.server_secret.as_ref().map(ServerSecretRecord::of),
            own_keys: pool.own_keys,
            proven: pool.proven.as_ref().map(ToString::to_string),
            minor_version: pool.minor_version,
            may_ask_report: pool.may_ask_report,
        }
    }

    /// Copies what the servers of the record have taught to the pool, unless the pool has had
    /// servers of its own.
    pub(crate) fn teach<T>(self, pool: &mut Pool<T>, welcome: Option<Arc<Welcome>>) {
        if pool.welcome.is_some() {
            return;
        }
        let Self { server_secret, proven, minor_version, may_ask_report, .. } = self;
        pool.welcome = welcome;
        pool.own_keys = self.own_keys;
        pool.server_secret = server_secret.map(ServerSecretRecord::into_secret);
        pool.proven = proven.as_deref().and_then(ScramVerifier::parse);
        pool.minor_version = minor_version;
        pool.may_ask_report = may_ask_report;
    }
}

impl WelcomeRecord {
    pub(crate) fn of(welcome: &Welcome) -> Self {
        Self { fixed: welcome.fixed().to_vec(), vars: VarsRecord::of(&welcome.vars) }
    }
}

impl ServerSecretRecord {
    fn of(server_secret: &ServerSecret) -> Self {
        match server_secret {
            ServerSecret::Scram(ScramKeys { client_key, server_key }) => {
                Self::Scram { client_key: *client_key, server_key: *server_key }
            }
            ServerSecret::Md5(hash) => Self::Md5(hash.clone()),
            ServerSecret::Password(password) => Self::Password(password.clone()),
            ServerSecret::Verifier => Self::Verifier,
        }
    }

    fn into_secret(self) -> ServerSecret {
        match self {
            Self::Scram { client_key, server_key } => {
                ServerSecret::Scram(ScramKeys { client_key, server_key })
            }
            Self::Md5(hash) => ServerSecret::Md5(hash),
            Self::Password(password) => ServerSecret::Password(password),
            Self::Verifier => ServerSecret::Verifier,
        }
    }
}

impl ReplicationRecord {
    pub(crate) fn of(asked: &Replication) -> Self {
        let is_logical = match asked.kind {
            ReplicationKind::Logical => true,
            ReplicationKind::Physical => false,
        };
        Self { is_logical, options: asked.options.clone() }
    }

    pub(crate) fn into_replication(self) -> Replication {
        let kind = match self.is_logical {
            true => ReplicationKind::Logical,
            false => ReplicationKind::Physical,
        };
        Replication { kind, options: self.options }
    }
}

impl StatementRecord {
    pub(crate) fn of(statement: &Statement) -> Self {
        Self {
            id: statement.id,
            schema: statement.schema,
            sql: statement.sql.to_vec(),
            types: statement.types.to_vec(),
            context: statement.context.0,
        }
    }
}

/// The bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed state: {0}")]
pub struct Malformed(String);

/// The number of servers of a pool that the clients of another process use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    pub database: String,
    pub user: String,
    pub servers: u32,
}

/// The servers that the predecessor's clients use; they count against the limits of the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage(pub Vec<UsageRecord>);

impl Usage {
    /// # Errors
    /// Never in practice: it is all plain data.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        postcard::to_stdvec(self).map_err(|error| Malformed(error.to_string()))
    }

    /// # Errors
    /// If the bytes were not written by [`Usage::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        postcard::from_bytes(bytes).map_err(|error| Malformed(error.to_string()))
    }
}

impl HandoverState {
    /// Limits all times in the records to `now`, whatever the other process's clock shows.
    pub fn date_back_to(&mut self, now: Micros) {
        self.lobbies.iter_mut().for_each(|lobby| lobby.date_back_to(now));
        let clamp = |time: &mut Micros| *time = (*time).min(now);
        for records in &mut self.worker_records {
            for client in &mut records.clients {
                clamp(&mut client.connected_at);
                clamp(&mut client.request_at);
                clamp(&mut client.transaction_at);
            }
            let used = records.clients.iter_mut().filter_map(|client| client.server.as_mut());
            let attending = records.attending.iter_mut().map(|record| &mut record.server);
            for server in used.chain(&mut records.parked).chain(attending) {
                clamp(&mut server.connected_at);
                clamp(&mut server.released_at);
                clamp(&mut server.asked_at);
                clamp(&mut server.replied_at);
            }
        }
    }

    /// # Errors
    /// Never in practice: it is all plain data.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        postcard::to_stdvec(self).map_err(|error| Malformed(error.to_string()))
    }

    /// # Errors
    /// If the bytes were not written by [`HandoverState::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        match postcard::take_from_bytes(bytes) {
            Ok((handover_state, [])) => Ok(handover_state),
            Ok((_, rest)) => Err(Malformed(format!("{} bytes too many", rest.len()))),
            Err(error) => Err(Malformed(error.to_string())),
        }
    }
}

mod held;
mod lobbies;

pub use held::{HeldRecord, ProcessRecord};
pub use lobbies::{DismissalRecord, GuestRecord, LineRecord, LobbyRecord};

#[cfg(test)]
mod tests;
