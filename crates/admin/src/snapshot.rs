//! The state to show at one moment, as plain copies. It refers to nothing that runs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use config::{Config, PoolMode};

use engine::averages::Averages;
use engine::ids::PoolId;
use engine::report::CancelTarget;
use engine::stats::Stats;
use engine::switches::Switches;
use engine::values::Values;

/// Everything a SHOW may print. Clients of the console itself are not in it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub config: Arc<Config>,
    pub pools: Vec<PoolRow>,
    pub clients: Vec<ClientRow>,
    pub servers: Vec<ServerRow>,
    /// Cancel requests on their way.
    pub cancels: Vec<Cancel>,
    pub listeners: Vec<Listener>,
    /// The switches that the operator has set.
    pub switches: Switches,
    pub dns_hosts: Vec<DnsHost>,
    pub dns_zones: Vec<DnsZone>,
    /// Names being looked up.
    pub dns_queries: usize,
    pub averages: Arc<Averages>,
    pub memory: Memory,
    /// Writes a moment, in seconds since 1970, as `YYYY-MM-DD HH:MM:SS ZONE` in local time.
    pub local_time: fn(i64) -> String,
}

#[derive(Clone, Debug)]
pub struct PoolRow {
    /// Its number in [`Connection::pool`] and [`Averages::record`].
    pub id: PoolId,
    /// The database as clients call it.
    pub database: String,
    /// The user its servers are logged in as.
    pub user: String,
    pub pool_mode: PoolMode,
    /// Microseconds the first client in the queue has been waiting; 0 = nobody waits.
    pub oldest_wait: u64,
    pub stats: Stats,
}

#[derive(Clone, Debug)]
pub struct ClientRow {
    pub state: ClientState,
    pub connection: Connection,
}

impl ClientRow {
    /// Is the connection a cancel request?
    pub(crate) fn is_request(&self) -> bool {
        matches!(self.state, ClientState::ActiveCancel | ClientState::WaitingCancel)
    }
}

#[derive(Clone, Debug)]
pub struct ServerRow {
    pub state: ServerState,
    pub connection: Connection,
    /// Its client keeps it.
    pub pin: Option<Pin>,
    /// Does it tell what its session holds, or is it asked? None if it is not used in auto mode.
    pub reports_state: Option<bool>,
}

/// Why a client keeps a server between transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// In words, separated by commas.
    pub reasons: String,
    /// Seconds.
    pub age: u64,
    /// Of a statement's text; 0 if that is not known.
    pub fingerprint: u64,
}

/// The columns that clients and servers share.
#[derive(Clone, Debug)]
pub struct Connection {
    /// No other connection of the process has had it or will have it. The console prints the lower
    /// 31 bits, all that its column holds.
    pub id: u64,
    /// The descriptor, by which the log, `ptr` and `link` name the connection.
    pub fd: u64,
    /// `None` while it is not known, during a client's login.
    pub pool: Option<PoolId>,
    /// As the client asked for it, not as the server calls it.
    pub database: String,
    /// The client's own name, or the user the server is logged in as.
    pub user: String,
    /// The other end.
    pub peer: Option<Address>,
    /// Our end.
    pub local: Option<Address>,
    /// Seconds since 1970.
    pub connected_at: i64,
    /// When its last request came, in seconds since 1970.
    pub request_at: i64,
    /// Microseconds since its present request came; 0 = it has none.
    pub wait: u64,
    /// It is closed as soon as it is free.
    pub close_needed: bool,
    /// Descriptor of the server or client at the other side; 0 = not linked.
    pub link: u64,
    /// The process at the other end: PostgreSQL's, or a client's on a Unix socket; 0 = unknown.
    pub remote_pid: u32,
    /// Protocol version and cipher suite; empty without TLS.
    pub tls: String,
    /// The cancel key: process id and secret.
    pub key: u64,
    /// Values of the parameters that are tracked.
    pub vars: Values,
    pub application_name: String,
    pub prepared_statements: usize,
    /// `none`, `physical` or `logical`.
    pub replication: &'static str,
    /// Bytes that its list of them takes.
    pub statement_bytes: usize,
    pub buffers: Buffers,
}

/// The bytes under way between a peer and Weir.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Received and kept, as part of a message that is not whole yet.
    pub held: usize,
    /// Still to come of a message that is passed on as it comes.
    pub remaining: usize,
    /// Waiting to be sent to this peer.
    pub unsent: usize,
}

/// The allocated memory, as far as no other table shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Places for clients that nobody has.
    pub free_clients: usize,
    /// Prepared statements that differ in text or types.
    pub statements: usize,
    /// Bytes they take, texts included.
    pub statement_bytes: usize,
}

/// A socket that clients come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    pub fd: u32,
    pub address: Option<Address>,
}

/// A host name that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsHost {
    pub name: String,
    /// Seconds.
    pub ttl: u64,
    pub addresses: Vec<IpAddr>,
}

/// A zone with names that were looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsZone {
    pub name: String,
    pub serial: u32,
    /// How many names.
    pub hosts: u32,
}

/// A cancel request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    pub to: CancelTarget,
    /// Is the other side connected, and has it been sent the request?
    pub sent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// A Unix socket, in the file system or abstract, named by its port.
    Unix {
        port: u16,
    },
}

/// In the order SHOW CLIENTS lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientState {
    /// Not logged in yet; counted by SHOW LISTS and shown nowhere else.
    Login,
    /// Linked to a server.
    Active,
    /// Logged in, without a server.
    Idle,
    /// It waits for a server.
    Waiting,
    /// A cancel request on its way to the server.
    ActiveCancel,
    /// A cancel request that waits for a connection to carry it.
    WaitingCancel,
}

/// In the order SHOW SERVERS lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerState {
    /// Linked to a client.
    Active,
    Idle,
    /// Idle for so long that it is checked before its next use.
    Used,
    /// It answers a query of the pooler's own: a check, a reset, settings.
    Tested,
    /// It connects or logs in.
    Login,
    /// Held back until a cancel request for it is over.
    BeingCanceled,
    /// It listens for the clients of its pool.
    Listening,
}
