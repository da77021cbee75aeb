//! The state to show, as plain copies. It refers to no running object.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use config::{Config, PoolMode, Proxied};

use engine::Activity;
use engine::averages::Averages;
use engine::facts::Facts;
use engine::ids::PoolId;
use engine::report::CancelTarget;
pub use engine::report::ServerState;
use engine::stats::Stats;
use engine::switches::Switches;
use engine::watch::Watched;

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
    /// The findings of each worker's watch.
    pub watched: Vec<Watched>,
    pub workers: Vec<WorkerRow>,
    /// By name.
    pub clusters: Vec<ClusterRow>,
    pub health: Vec<HealthRow>,
    /// When it was made, in seconds since 1970.
    pub taken_at: i64,
    /// Formats a time, in seconds since 1970, as `YYYY-MM-DD HH:MM:SS ZONE` in local time.
    pub local_time: fn(i64) -> String,
}

#[derive(Clone, Debug)]
pub struct PoolRow {
    /// The pool's number in [`Connection::pool`] and [`Averages::record`].
    pub id: PoolId,
    /// The database as clients name it.
    pub database: String,
    /// The user that its servers log in as.
    pub user: String,
    pub pool_mode: PoolMode,
    /// Why it is proxied; None if it is direct.
    pub proxied: Option<Proxied>,
    /// The wait of the first client in the queue, in microseconds; 0 = no client waits.
    pub oldest_wait: u64,
    pub stats: Stats,
    /// Set if its database is in a cluster.
    pub at_node: Option<AtNode>,
    /// The reasons for the place of its clients' requests, if they are routed.
    pub routes: Vec<RouteRow>,
}

/// A pool's place in a cluster; see SHOW NODE_POOLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtNode {
    /// Empty while the primary is not known.
    pub node: String,
    /// Does the pool read from a standby? Then it has no clients of its own.
    pub is_reader: bool,
    /// Server connections in any state.
    pub servers: u32,
    /// The number of servers among these that are not logged in yet.
    pub opening: u32,
    pub waiting: u32,
}

/// The word of a judge about a text; see EXPLAIN ROUTE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The database as clients name it.
    pub database: String,
    /// `hint`, `text`, `catalogs` or the name of a node.
    pub judge: String,
    /// `primary` or `standby`.
    pub place: &'static str,
    pub reason: &'static str,
    pub description: &'static str,
}

/// A reason for the place of requests; see SHOW ROUTES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRow {
    /// The database as clients name it.
    pub database: String,
    pub user: String,
    /// `primary` or `standby`.
    pub place: &'static str,
    pub reason: &'static str,
    pub description: &'static str,
    pub count: u64,
}

/// The share of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Weir's, which is that of all workers.
    pub process_id: u32,
    pub clients: usize,
    pub tls_clients: usize,
    pub idle_clients: usize,
    pub pools: usize,
    pub servers: usize,
    /// Servers that a client keeps between transactions.
    pub pinned_servers: usize,
    pub idle_servers: usize,
    pub stats: Stats,
}

/// A cluster of PostgreSQL servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRow {
    pub name: String,
    pub failover: &'static str,
    /// `nodes`, `patroni` or `dns`.
    pub source: &'static str,
    /// Why the nodes cannot be found.
    pub trouble: String,
    /// Why a failover by Weir may lose commits.
    pub failover_risk: String,
    /// Empty if there is none.
    pub primary: String,
    /// Why there is none.
    pub reason: String,
    pub timeline: u64,
    /// Empty while it is not known.
    pub system: String,
    pub nodes: Vec<NodeRow>,
    pub failovers: Vec<FailoverRow>,
    /// Why Weir replaces no lost primary now.
    pub paused: String,
    /// The present term of several Weirs; empty without one.
    pub term: String,
    pub members: Vec<MemberRow>,
}

/// A health check; see SHOW HEALTH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRow {
    pub name: String,
    /// Why it fails; `None` if it passes.
    pub obstacle: Option<String>,
}

/// A Weir of a cluster; see SHOW MEMBERS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    pub name: String,
    pub state: &'static str,
    /// Is it this Weir?
    pub is_self: bool,
    /// It has the virtual address.
    pub has_address: bool,
    pub version: String,
    pub confirmed: u64,
    pub sees: String,
    /// Microseconds until the lease ends, for this Weir.
    pub lease: Option<u64>,
    pub trouble: String,
}

impl ClusterRow {
    /// Returns how many Weirs have one of these states. A Weir that does not reach etcd knows of none.
    pub(crate) fn members_in(&self, states: &[&str]) -> u64 {
        if self.members.iter().any(|own| own.state == "unreached") {
            return 0;
        }
        self.members.iter().filter(|own| states.contains(&own.state)).count() as u64
    }

    /// Returns the whole seconds until the lease of this Weir ends; 0 without a lease.
    pub(crate) fn lease_seconds(&self) -> u64 {
        self.members.iter().find_map(|own| own.lease).unwrap_or_default() / 1_000_000
    }

    /// Has this Weir the virtual address?
    pub(crate) fn has_address(&self) -> bool {
        self.members.iter().any(|own| own.is_self && own.has_address)
    }

    /// Returns how many nodes have this state.
    pub(crate) fn in_state(&self, state: &str) -> u64 {
        self.nodes.iter().filter(|node| node.verdict == state).count() as u64
    }
}

/// A node of a cluster; see SHOW NODES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    pub host: String,
    pub port: u16,
    pub verdict: &'static str,
    pub reason: String,
    pub role: &'static str,
    pub timeline: u32,
    pub wal: String,
    pub lag_bytes: Option<u64>,
    pub address: String,
    pub other_servers: String,
    /// Its number among the nodes of all clusters.
    pub number: u32,
    /// Its share of the reads; 0 = none.
    pub weight: u16,
    /// Does Weir send transactions or reads to it?
    pub is_used: bool,
    /// When its verdict changed last, in seconds since 1970.
    pub changed_at: i64,
    pub checks: ChecksRow,
    /// Of its WAL sender at the primary, as in `pg_stat_replication`; empty if it has none.
    pub replication_state: String,
    pub sync_state: String,
}

/// The questions for a node's state so far. Times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksRow {
    pub total: u64,
    /// The questions without an answer.
    pub failed: u64,
    /// Of the answers, as the two below.
    pub longest: u64,
    pub shortest: u64,
    pub sum: u64,
    /// Seconds since 1970, as the two below.
    pub last: Option<i64>,
    pub last_success: Option<i64>,
    pub last_failure: Option<i64>,
}

impl ChecksRow {
    /// Returns the average time to an answer, in milliseconds.
    pub(crate) fn average_ms(&self) -> f64 {
        let answers = self.total - self.failed;
        if answers == 0 { 0.0 } else { self.sum as f64 / answers as f64 / 1_000.0 }
    }
}

/// A change of a cluster's primary; see SHOW FAILOVERS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverRow {
    /// Seconds since 1970.
    pub began: i64,
    pub duration_ms: Option<u64>,
    pub from: String,
    pub to: String,
    pub old_timeline: Option<u64>,
    pub new_timeline: Option<u64>,
    pub reason: String,
    /// Bytes of WAL that no standby was known to have received; none at the start.
    pub at_risk: Option<u64>,
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
    /// Its client's use of it; none without a client.
    pub doing: Option<Doing>,
    /// Its client keeps it.
    pub pin: Option<Pin>,
}

/// The use that a client makes of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing {
    pub activity: Activity,
    /// Microseconds since it does so.
    pub age: u64,
}

/// Why a client keeps a server between transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The reasons in words, separated by commas.
    pub reasons: String,
    /// Seconds.
    pub age: u64,
    /// The fingerprint of a statement's text; 0 if unknown.
    pub fingerprint: u64,
}

/// The columns that clients and servers share.
#[derive(Clone, Debug)]
pub struct Connection {
    /// A number that is unique in the process. The console prints the lower 31 bits, as its column
    /// is narrow.
    pub id: u64,
    /// The descriptor; the log, `ptr` and `link` name the connection by it.
    pub fd: u64,
    /// `None` during a client's login.
    pub pool: Option<PoolId>,
    /// The client's name for it, not the server's.
    pub database: String,
    /// The client's user, or the user that the server is logged in as.
    pub user: String,
    /// The other end.
    pub peer: Option<Address>,
    /// Our end.
    pub local: Option<Address>,
    /// Seconds since 1970.
    pub connected_at: i64,
    /// When its last request came, in seconds since 1970.
    pub request_at: i64,
    /// Microseconds since its present request came; 0 = there is none.
    pub wait: u64,
    /// The connection is closed as soon as it is free.
    pub close_needed: bool,
    /// Descriptor of the server or client at the other side; 0 = not linked.
    pub link: u64,
    /// The process at the other end: PostgreSQL's, or a client's on a Unix socket; 0 = unknown.
    pub remote_pid: u32,
    /// Protocol version and cipher suite; empty without TLS.
    pub tls: String,
    pub facts: Facts,
    pub application_name: String,
    /// `none`, `physical` or `logical`.
    pub replication: &'static str,
    pub buffers: Buffers,
}

/// The buffered bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Received bytes of an incomplete message.
    pub held: usize,
    /// Missing bytes of a message that is forwarded as it arrives.
    pub remaining: usize,
    /// Unsent output for this peer.
    pub unsent: usize,
}

/// Allocated memory that no other table shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Free slots for clients.
    pub free_clients: usize,
    /// Different prepared statements.
    pub statements: usize,
    /// Their memory in bytes, including the texts.
    pub statement_bytes: usize,
}

/// A listening socket.
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
    /// The number of names.
    pub hosts: u32,
}

/// A cancel request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    pub to: CancelTarget,
    /// Is the other side connected, and was the request sent?
    pub sent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// A Unix socket, in the file system or abstract, shown by its port.
    Unix {
        port: u16,
    },
}

/// The state of a client. The order is that of SHOW CLIENTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientState {
    /// Not logged in yet; only SHOW LISTS counts it.
    Login,
    /// Linked to a server.
    Active,
    /// Logged in, without a server.
    Idle,
    /// Waiting for a server.
    Waiting,
    /// A cancel request on its way to the server.
    ActiveCancel,
    /// A cancel request that waits for a connection.
    WaitingCancel,
}
