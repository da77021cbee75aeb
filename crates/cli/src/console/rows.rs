//! Translates the pooler's facts into the rows of the console's tables. Nothing is decided or
//! counted here.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
    process,
    sync::Arc,
};

use admin::{
    Address, AtNode, Buffers, Cancel, ChecksRow, ClientRow, ClientState, ClusterRow, Connection,
    DnsHost, DnsZone, Doing, FailoverRow, HealthRow, Listener, MemberRow, Memory, NodeRow, Pin,
    PoolRow, Recording, RouteRow, ServerRow, WorkerRow,
};
use config::Config;
use engine::{
    facts::Facts,
    ids::PoolId,
    replication::ReplicationKind,
    report::{self, CancelTarget},
    routing::{Place, why::Why},
    settings::{PoolKey, PoolSettings, Target},
};
use proxy::{
    CancelInfo, Checks, ClientInfo, ClusterInfo, Controller, HealthCheck, HostInfo, NodeInfo, Peer,
    PoolInfo, ServerInfo, WorkerInfo, ZoneInfo, log,
};

use crate::moment::Moment;

/// Returns everything that SHOW commands show. `facts` are the answers of the workers.
pub(super) fn snapshot(
    controller: &Controller,
    facts: proxy::Snapshot,
    now: Moment,
) -> admin::Snapshot {
    let config = controller.config();
    let port = config.global.listen_port;
    let keys: HashMap<PoolId, &PoolKey> =
        facts.pools.iter().map(|pool| (pool.id, &pool.key)).collect();
    let requests: HashMap<u64, &CancelInfo> =
        facts.cancels.iter().map(|cancel| (cancel.row.requester, cancel)).collect();
    let (names, clusters) = (controller.names(), controller.clusters());
    let totals = facts.pools.iter().map(|pool| (pool.id, pool.stats));
    let averages = controller.averages().at(facts.now, totals);
    admin::Snapshot {
        pools: facts.pools.iter().map(|pool| pool_row(pool, &config, now)).collect(),
        clients: facts
            .clients
            .iter()
            .map(|client| match requests.get(&client.row.serial) {
                Some(cancel) => request_row(client, cancel, &keys, port, now),
                None => client_row(client, port, now),
            })
            .collect(),
        servers: facts.servers.iter().map(|server| server_row(server, &keys, now)).collect(),
        dns_hosts: names.hosts.into_iter().map(dns_host).collect(),
        dns_zones: names.zones.into_iter().map(dns_zone).collect(),
        dns_queries: names.queries,
        cancels: facts.cancels.iter().map(cancel).collect(),
        listeners: controller
            .listeners()
            .map(|(fd, own)| Listener { fd, address: address(own) })
            .collect(),
        switches: facts.switches.clone(),
        averages: Arc::new(averages),
        memory: Memory {
            free_clients: facts.free_clients,
            statements: facts.statements.0,
            statement_bytes: facts.statements.1,
        },
        watched: facts.watched,
        workers: facts.workers.iter().map(worker_row).collect(),
        health: controller.health(&clusters).into_iter().map(health_row).collect(),
        clusters: clusters.into_iter().map(|one| cluster_row(one, now)).collect(),
        taken_at: now.seconds,
        local_time: log::local_time,
        config,
    }
}

/// Returns a snapshot without pools and connections.
pub(super) fn bare_snapshot(controller: &Controller) -> admin::Snapshot {
    snapshot(controller, proxy::Snapshot::default(), Moment::now(controller))
}

/// Returns the content of the flight recorder.
pub(super) fn recording(content: proxy::Recording, now: Moment) -> Recording {
    let proxy::Recording { now: at, tracks, events, transactions, connections } = content;
    Recording { now: at, wall: now.wall(at), tracks, events, transactions, connections }
}

fn health_row(check: HealthCheck) -> HealthRow {
    HealthRow { name: check.name, obstacle: check.obstacle }
}

pub(super) fn clusters(controller: &Controller, now: Moment) -> Vec<ClusterRow> {
    controller.clusters().into_iter().map(|one| cluster_row(one, now)).collect()
}

fn cluster_row(cluster: ClusterInfo, now: Moment) -> ClusterRow {
    let (primary, reason) = match cluster.primary {
        Ok(primary) => (primary, String::new()),
        Err(reason) => (String::new(), reason),
    };
    let wall = |at: Option<u64>| at.map(|at| now.wall(at));
    let checks = |own: Checks| ChecksRow {
        total: own.total,
        failed: own.failed,
        longest: own.longest,
        shortest: own.shortest,
        sum: own.sum,
        last: wall(own.last_at),
        last_success: wall(own.success_at),
        last_failure: wall(own.failure_at),
    };
    let node = |node: NodeInfo| NodeRow {
        name: node.name,
        host: node.host,
        port: node.port,
        address: node.address,
        other_servers: node.other_servers,
        number: node.number,
        weight: node.weight,
        is_used: node.is_used,
        changed_at: now.wall(node.changed_at),
        checks: checks(node.checks),
        replication_state: node.replication.0,
        sync_state: node.replication.1,
        verdict: node.verdict,
        reason: node.reason,
        role: node.role,
        timeline: node.timeline,
        wal: node.wal,
        lag_bytes: node.lag_bytes,
    };
    let member = |one: proxy::MemberInfo| MemberRow {
        name: one.name,
        state: one.state,
        is_self: one.is_self,
        has_address: one.has_address,
        version: one.version,
        confirmed: one.confirmed,
        sees: one.sees,
        lease: one.lease,
        trouble: one.trouble,
    };
    let failover = |one: proxy::Failover| FailoverRow {
        began: now.wall(one.began_at),
        duration_ms: one.ended_at.map(|ended| ended.saturating_sub(one.began_at) / 1_000),
        from: one.from.unwrap_or_default(),
        to: one.to.unwrap_or_default(),
        old_timeline: one.old_timeline.map(u64::from),
        new_timeline: one.new_timeline.map(u64::from),
        reason: one.reason,
        at_risk: one.at_risk,
    };
    ClusterRow {
        name: cluster.name,
        failover: cluster.failover,
        source: cluster.source,
        trouble: cluster.trouble,
        failover_risk: cluster.failover_risk,
        primary,
        reason,
        timeline: cluster.timeline.into(),
        system: cluster.system.map_or_else(String::new, |system| system.to_string()),
        nodes: cluster.nodes.into_iter().map(node).collect(),
        failovers: cluster.failovers.into_iter().map(failover).collect(),
        paused: cluster.paused,
        term: cluster.fleet.as_ref().map_or_else(String::new, |fleet| fleet.term.clone()),
        members: cluster.fleet.into_iter().flat_map(|fleet| fleet.members).map(member).collect(),
    }
}

fn dns_host(host: HostInfo) -> DnsHost {
    DnsHost { name: host.name, ttl: host.ttl / 1_000_000, addresses: host.addresses }
}

fn dns_zone(zone: ZoneInfo) -> DnsZone {
    let hosts = u32::try_from(zone.hosts).unwrap_or(u32::MAX);
    DnsZone { name: zone.name, serial: zone.serial, hosts }
}

fn cancel(cancel: &CancelInfo) -> Cancel {
    Cancel { to: cancel.row.to, sent: cancel.sent }
}

fn worker_row(worker: &WorkerInfo) -> WorkerRow {
    WorkerRow {
        process_id: process::id(),
        clients: worker.clients,
        tls_clients: worker.tls_clients,
        idle_clients: worker.idle_clients,
        pools: worker.pools,
        servers: worker.servers,
        pinned_servers: worker.pinned_servers,
        idle_servers: worker.idle_servers,
        stats: worker.stats,
    }
}

/// Returns the reasons for the place of a pool's requests.
pub(super) fn routes(key: &PoolKey, settings: &PoolSettings) -> Vec<RouteRow> {
    let Some(routing) = &settings.routing else { return Vec::new() };
    let row = |(why, count): (Why, u64)| RouteRow {
        database: key.database.clone(),
        user: key.user.clone(),
        place: if why == Why::Read { "standby" } else { "primary" },
        reason: why.name(),
        description: why.description(),
        count,
    };
    routing.counts.found().map(row).collect()
}

/// Returns the place of a pool in its cluster.
fn at_node(pool: &PoolInfo, config: &Config) -> Option<AtNode> {
    let nodes = &config.clusters.get(pool.settings.cluster.as_ref()?)?.nodes;
    let node = match (pool.key.place, &pool.settings.targets[..]) {
        (Place::Reader(node), _) => nodes.get(usize::from(node.0)),
        (Place::Writer, [only]) => nodes.iter().find(|node| Target::of_node(node) == *only),
        (Place::Writer, _) => None,
    };
    Some(AtNode {
        node: node.map(|node| node.name.clone()).unwrap_or_default(),
        is_reader: pool.key.place != Place::Writer,
        servers: pool.servers,
        opening: pool.opening,
        waiting: pool.waiting,
    })
}

fn pool_row(pool: &PoolInfo, config: &Config, now: Moment) -> PoolRow {
    PoolRow {
        id: pool.id,
        database: pool.key.database.clone(),
        user: pool.key.user.clone(),
        pool_mode: pool.settings.mode,
        // At least 1 while a client waits, since 0 means that no client waits.
        proxied: pool.proxied,
        oldest_wait: pool.oldest_wait.map_or(0, |since| now.micros.saturating_sub(since).max(1)),
        stats: pool.stats,
        at_node: at_node(pool, config),
        routes: routes(&pool.key, &pool.settings),
    }
}

fn client_row(client: &ClientInfo, port: u16, now: Moment) -> ClientRow {
    let row = &client.row;
    let state = match row.state {
        report::ClientState::Login => ClientState::Login,
        report::ClientState::Idle => ClientState::Idle,
        report::ClientState::Waiting => ClientState::Waiting,
        report::ClientState::Active => ClientState::Active,
        report::ClientState::Canceling => ClientState::ActiveCancel,
    };
    let busy = matches!(state, ClientState::Active | ClientState::Waiting);
    let connection = Connection {
        id: row.serial,
        fd: client.pointer,
        pool: row.pool,
        database: row.identity.database.clone(),
        user: row.identity.user.clone(),
        peer: peer_address(&client.peer, port),
        local: address(&client.local).or_else(|| peer_address(&client.peer, port)),
        connected_at: now.wall(row.connected_at),
        request_at: now.wall(row.request_at),
        wait: if busy { now.micros.saturating_sub(row.request_at) } else { 0 },
        close_needed: false,
        link: client.link,
        remote_pid: peer_pid(&client.peer),
        tls: client.tls.clone(),
        facts: row.facts.clone(),
        application_name: text(&row.application_name),
        buffers: buffers(row.reading, client.unsent),
        replication: replication(row.replication),
    };
    ClientRow { state, connection }
}

/// Returns a client whose connection is a cancel request. It has the pool of the server that the
/// request is for, or the number of the peer instead of a database.
fn request_row(
    client: &ClientInfo,
    cancel: &CancelInfo,
    keys: &HashMap<PoolId, &PoolKey>,
    port: u16,
    now: Moment,
) -> ClientRow {
    let mut row = client_row(client, port, now);
    if client.row.state != report::ClientState::Canceling {
        return row;
    }
    match cancel.row.to {
        CancelTarget::Pool(pool) => {
            row.connection.pool = Some(pool);
            let key = keys.get(&pool);
            row.connection.database = key.map_or_else(String::new, |key| key.database.clone());
        }
        CancelTarget::Peer(peer) => row.connection.database = peer.to_string(),
    }
    if !cancel.sent {
        row.state = ClientState::WaitingCancel;
        row.connection.wait = now.micros.saturating_sub(client.row.connected_at);
    }
    row
}

fn server_row(server: &ServerInfo, keys: &HashMap<PoolId, &PoolKey>, now: Moment) -> ServerRow {
    let row = &server.row;
    let key = keys.get(&row.pool);
    let connection = Connection {
        id: row.serial,
        fd: server.pointer,
        pool: Some(row.pool),
        database: key.map_or_else(String::new, |key| key.database.clone()),
        user: key.map_or_else(String::new, |key| key.user.clone()),
        peer: address(&server.remote),
        local: address(&server.local).or_else(|| address(&server.remote)),
        connected_at: now.wall(row.connected_at),
        request_at: now.wall(row.request_at),
        wait: 0,
        close_needed: row.doomed,
        link: server.link,
        remote_pid: row.process_id,
        tls: server.tls.clone(),
        facts: row.facts.clone(),
        application_name: text(&row.application_name),
        buffers: buffers(row.reading, server.unsent),
        replication: replication(row.replication),
    };
    let pin = row.pinned.map(|pinned| Pin {
        reasons: pinned.pins.words().collect::<Vec<_>>().join(", "),
        age: now.micros.saturating_sub(pinned.since) / 1_000_000,
        fingerprint: pinned.fingerprint,
    });
    let doing = row.doing.map(|doing| Doing {
        activity: doing.activity,
        age: now.micros.saturating_sub(doing.since),
    });
    ServerRow { state: row.state, connection, doing, pin }
}

/// Returns a connection of the console itself. The console fills in the names.
pub(super) fn console(
    (fd, serial): (&OwnedFd, u64),
    peer: &Peer,
    tls: String,
    connected_at: i64,
    port: u16,
) -> Connection {
    Connection {
        id: serial,
        fd: u64::from(fd.as_raw_fd().unsigned_abs()),
        pool: None,
        database: String::new(),
        user: String::new(),
        peer: peer_address(peer, port),
        local: local_address(fd, peer, port),
        connected_at,
        request_at: connected_at,
        wait: 0,
        close_needed: false,
        link: 0,
        remote_pid: peer_pid(peer),
        tls,
        facts: Facts::default(),
        application_name: String::new(),
        buffers: Buffers::default(),
        replication: replication(None),
    }
}

fn buffers(reading: report::Reading, unsent: usize) -> Buffers {
    Buffers { held: reading.held, remaining: reading.remaining, unsent }
}

fn peer_address(peer: &Peer, port: u16) -> Option<Address> {
    match peer {
        Peer::Unix { .. } => Some(Address::Unix { port }),
        Peer::V4(ip, port) => Some(Address::Tcp(SocketAddr::from((*ip, *port)))),
        Peer::V6(address) => Some(Address::Tcp(**address)),
        Peer::Process(_) | Peer::Unknown => None,
    }
}

/// Returns the local address of a connection of the console. `proxy` has those of other
/// connections.
fn local_address(fd: &OwnedFd, peer: &Peer, port: u16) -> Option<Address> {
    match peer {
        Peer::V4(..) | Peer::V6(_) => {
            let socket = TcpStream::from(fd.try_clone().ok()?);
            socket.local_addr().ok().map(Address::Tcp)
        }
        Peer::Unix { .. } | Peer::Process(_) | Peer::Unknown => peer_address(peer, port),
    }
}

fn peer_pid(peer: &Peer) -> u32 {
    match peer {
        Peer::Unix { pid, .. } => *pid,
        Peer::V4(..) | Peer::V6(_) | Peer::Process(_) | Peer::Unknown => 0,
    }
}

fn address(address: &proxy::Address) -> Option<Address> {
    let unix = |name: &str| {
        let (_, port) = name.rsplit_once(".s.PGSQL.")?;
        Some(Address::Unix { port: port.parse().ok()? })
    };
    match address {
        proxy::Address::Inet(address) => Some(Address::Tcp(*address)),
        proxy::Address::Unix(path) => unix(&path.to_string_lossy()),
        proxy::Address::Abstract(name) => unix(&text(name)),
        proxy::Address::Unnamed => None,
    }
}

fn replication(kind: Option<ReplicationKind>) -> &'static str {
    kind.map_or("none", ReplicationKind::name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn addresses_are_translated() {
        let tcp: SocketAddr = "10.0.0.1:5432".parse().unwrap();
        for (from, to) in [
            (proxy::Address::Inet(tcp), Some(Address::Tcp(tcp))),
            (
                proxy::Address::Unix(PathBuf::from("/run/.s.PGSQL.5433")),
                Some(Address::Unix { port: 5433 }),
            ),
            (
                proxy::Address::Abstract(b"x/.s.PGSQL.5434".to_vec()),
                Some(Address::Unix { port: 5434 }),
            ),
            (proxy::Address::Unix(PathBuf::from("/run/socket")), None),
            (proxy::Address::Unnamed, None),
        ] {
            assert_eq!(address(&from), to, "{from:?}");
        }
        let peer = Peer::Unix { pid: 7, uid: None };
        assert_eq!(peer_address(&peer, 6432), Some(Address::Unix { port: 6432 }));
        assert_eq!((peer_pid(&peer), peer_pid(&Peer::Unknown)), (7, 0));
    }
}
