//! Weir's nodes and clients as Pgpool-II describes its own, for SHOW POOL_NODES and similar commands
//! and for the tools `pcp_*`. `docs/pgpool.md` says which values Weir does not have.

use std::collections::HashMap;

use crate::snapshot::{
    Address, ClientRow, ClientState, ClusterRow, Connection, NodeRow, PoolRow, ServerRow, Snapshot,
};
use engine::Activity;
use engine::ids::PoolId;

/// A node as Pgpool-II describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) id: u32,
    pub(crate) cluster: String,
    pub(crate) status: Status,
    /// `up`, `down` or `unknown`, by its last answers.
    pub(crate) pg_status: &'static str,
    /// Its share of the cluster's reads, from 0 to 1.
    pub(crate) weight: f64,
    pub(crate) role: Role,
    /// Queries of the pools that read from it as a standby.
    pub(crate) reads: u64,
    /// Queries of the pools at the primary, which is this node.
    pub(crate) others: u64,
    /// `YYYY-MM-DD HH:MM:SS` in local time.
    pub(crate) changed_at: String,
    pub(crate) row: NodeRow,
}

/// Weir's use of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It was not heard yet.
    Waiting,
    Up,
    /// It is down, or not used although it runs.
    Down,
}

impl Status {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// Returns the number by which the tools know it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Waiting => 1,
            Self::Up => 2,
            Self::Down => 3,
        }
    }
}

/// The role that Weir uses a node in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Standby,
}

impl Role {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Standby => "standby",
        }
    }

    /// Returns the number by which the tools know it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Primary => 2,
            Self::Standby => 3,
        }
    }
}

impl Node {
    /// Returns the role by its last answer.
    pub(crate) fn pg_role(&self) -> &'static str {
        if self.row.role.is_empty() { "unknown" } else { self.row.role }
    }

    fn new(cluster: &ClusterRow, row: &NodeRow, snapshot: &Snapshot) -> Self {
        let is_primary = row.name == cluster.primary;
        let standbys = cluster.nodes.iter().filter(|node| node.name != cluster.primary);
        let all: u32 = standbys.map(|node| u32::from(node.weight)).sum();
        let weight =
            if is_primary || all == 0 { 0.0 } else { f64::from(row.weight) / f64::from(all) };
        let queries = |is_reader| {
            let is_own = |pool: &&PoolRow| {
                let is_here = pool
                    .at_node
                    .as_ref()
                    .is_some_and(|at| at.is_reader == is_reader && at.node == row.name);
                is_here && cluster_of(snapshot, &pool.database).as_ref() == Some(&cluster.name)
            };
            snapshot.pools.iter().filter(is_own).map(|pool| pool.stats.queries).sum()
        };
        Self {
            id: row.number,
            cluster: cluster.name.clone(),
            status: match row.verdict {
                "unknown" => Status::Waiting,
                _ if row.is_used => Status::Up,
                _ => Status::Down,
            },
            pg_status: match row.verdict {
                "unknown" => "unknown",
                "down" => "down",
                _ => "up",
            },
            weight,
            role: if is_primary { Role::Primary } else { Role::Standby },
            reads: queries(true),
            others: queries(false),
            changed_at: time(snapshot, Some(row.changed_at)),
            row: row.clone(),
        }
    }
}

fn cluster_of(snapshot: &Snapshot, database: &str) -> Option<String> {
    snapshot.config.database(database)?.cluster.clone()
}

/// Returns all nodes, by their ids.
pub(crate) fn nodes(snapshot: &Snapshot) -> Vec<Node> {
    let of = |cluster: &ClusterRow| {
        let nodes = cluster.nodes.iter().map(|row| Node::new(cluster, row, snapshot));
        nodes.collect::<Vec<_>>()
    };
    let mut nodes: Vec<_> = snapshot.clusters.iter().flat_map(of).collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// Returns a time as Pgpool-II prints it; empty without one.
pub(crate) fn time(snapshot: &Snapshot, seconds: Option<i64>) -> String {
    /// The length of a time without its zone.
    const LEN: usize = "YYYY-MM-DD HH:MM:SS".len();
    let Some(seconds) = seconds else { return String::new() };
    let mut text = (snapshot.local_time)(seconds);
    text.truncate(LEN);
    text
}

/// Returns a time of Weir's own questions to a node, from microseconds to milliseconds.
pub(crate) fn millis(micros: u64) -> u64 {
    micros / 1_000
}

/// A client's session, which Pgpool-II would serve by a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// The lower 31 bits of the client's number, as in SHOW CLIENTS.
    pub(crate) pid: u64,
    pub(crate) database: String,
    pub(crate) user: String,
    /// When the client connected.
    pub(crate) connected_at: String,
    /// Seconds since its last request; 0 while one runs.
    pub(crate) idle: i64,
    /// The id of its server's node, or else of the primary; -1 if its database is at no cluster.
    pub(crate) node: i64,
    /// When its server was opened; empty without one.
    pub(crate) server_opened_at: String,
    /// The process of its server; 0 without one.
    pub(crate) backend_pid: u32,
    /// Does it read from a standby now?
    pub(crate) is_at_reader: bool,
    pub(crate) status: &'static str,
    /// `[local]` for a Unix socket.
    pub(crate) client_host: String,
    pub(crate) client_port: String,
}

/// Returns the sessions of all clients that are logged in, by their pids.
pub(crate) fn processes(snapshot: &Snapshot) -> Vec<Process> {
    let servers: HashMap<u64, &ServerRow> =
        snapshot.servers.iter().map(|server| (server.connection.fd, server)).collect();
    let pools: HashMap<PoolId, &PoolRow> =
        snapshot.pools.iter().map(|pool| (pool.id, pool)).collect();
    let process = |client: &ClientRow| {
        let own = &client.connection;
        let linked = servers.get(&own.link).copied().filter(|_| own.link != 0);
        let pool = linked.and_then(|server| pools.get(&server.connection.pool?)).copied();
        let at = pool.and_then(|pool| pool.at_node.as_ref());
        let status = status(client, linked);
        let is_busy = status == EXECUTES;
        let (client_host, client_port) = match own.peer {
            Some(Address::Tcp(address)) => (address.ip().to_string(), address.port().to_string()),
            Some(Address::Unix { .. }) => ("[local]".to_owned(), String::new()),
            None => (String::new(), String::new()),
        };
        Process {
            pid: own.id & i32::MAX as u64,
            database: own.database.clone(),
            user: own.user.clone(),
            connected_at: time(snapshot, Some(own.connected_at)),
            idle: if is_busy { 0 } else { snapshot.taken_at.saturating_sub(own.request_at).max(0) },
            node: node_of(snapshot, own, at.map(|at| &*at.node)).map_or(-1, i64::from),
            server_opened_at: time(snapshot, linked.map(|server| server.connection.connected_at)),
            backend_pid: linked.map_or(0, |server| server.connection.remote_pid),
            is_at_reader: at.is_some_and(|at| at.is_reader),
            status,
            client_host,
            client_port,
        }
    };
    let is_session =
        |client: &&ClientRow| client.state != ClientState::Login && !client.is_request();
    let mut all: Vec<_> = snapshot.clients.iter().filter(is_session).map(process).collect();
    all.sort_by_key(|process| process.pid);
    all
}

const EXECUTES: &str = "Execute command";

fn status(client: &ClientRow, linked: Option<&ServerRow>) -> &'static str {
    let activity = linked.and_then(|server| server.doing).map(|doing| doing.activity);
    match (activity, client.state) {
        (Some(Activity::IdleInTransaction | Activity::IdleInFailedTransaction), _) => {
            "Idle in transaction"
        }
        (Some(Activity::Idle), _) => "Idle",
        (Some(Activity::Active), _) | (None, ClientState::Active | ClientState::Waiting) => {
            EXECUTES
        }
        (None, _) => "Idle",
    }
}

/// Returns the id of the named node in the cluster of a client's database, or else of its primary.
fn node_of(snapshot: &Snapshot, client: &Connection, name: Option<&str>) -> Option<u32> {
    let cluster = cluster_of(snapshot, &client.database)?;
    let cluster = snapshot.clusters.iter().find(|own| own.name == cluster)?;
    let name = name.unwrap_or(&cluster.primary);
    Some(cluster.nodes.iter().find(|node| node.name == name)?.number)
}

/// Returns item, value and description of each setting: the nodes, and Weir's global keys.
pub(crate) fn settings(snapshot: &Snapshot) -> Vec<[String; 3]> {
    let of_nodes = nodes(snapshot).into_iter().flat_map(|node| {
        let id = node.id;
        let item = |item: &str, value: String, about: &str| {
            [format!("{item}{id}"), value, format!("{about} #{id}")]
        };
        [
            item("backend_hostname", node.row.host.clone(), "host of node"),
            item("backend_port", node.row.port.to_string(), "port of node"),
            item("backend_weight", format!("{:.6}", node.weight), "share of the reads of node"),
            item("backend_status", node.status.word().to_owned(), "status of node"),
        ]
    });
    let of_keys = config::show(&snapshot.config).into_iter().map(|row| {
        let value = row.value.unwrap_or_default();
        [row.key.to_owned(), value, format!("see weir help {}", row.key)]
    });
    of_keys.chain(of_nodes).collect()
}

/// Returns the version of Pgpool-II that Weir stands in for, with Weir's own.
pub(crate) fn version(config: &config::Config) -> String {
    format!("{} (Weir {})", config.global.pcp_compat.version(), config::WEIR_VERSION)
}
