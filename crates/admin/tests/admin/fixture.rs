//! A made-up pooler: its snapshot, and a control that records its orders.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use admin::{
    Address, AtNode, Boxed, Buffers, Cancel, ChecksRow, ClientRow, ClientState, ClusterRow,
    Connection, Control, DnsHost, DnsZone, Doing, FailoverRow, HealthRow, Judgement, Listener,
    MemberRow, Memory, NodeRow, NotReloaded, Order, Pin, PoolRow, Recording, RouteRow, ServerRow,
    ServerState, Shutdown, Snapshot, WorkerRow,
};
use config::{Config, ConsoleColumns, PcpCompat, PcpUser, PcpUsers, PoolMode};
use engine::Activity;
use engine::averages::Averages;
use engine::facts::Facts;
use engine::ids::{Identity, PoolId};
use engine::journal::{EventKind, Journal};
use engine::pulse::Pulse;
use engine::recorder::{Recorder as Flight, Sample};
use engine::report::CancelTarget;
use engine::routing::Place;
use engine::settings::PoolKey;
use engine::stats::Stats;
use engine::switches::Switches;
use engine::timings::{Choice, Connection as Timed};
use engine::transactions::Transaction;
use engine::values::Values;
use engine::vars::{CLIENT_ENCODING, STANDARD_CONFORMING_STRINGS, Vars};

const INI: &str = "
[databases]
app = host=10.0.0.1,10.0.0.2 port=5433 dbname=real user=owner pool_size=7 pool_mode=session
two = max_db_connections=5 reserve_pool_size=2 server_lifetime=60
* = host=10.0.0.9
[users]
carl = pool_mode=session pool_size=3 max_user_connections=4
[peers]
2 = host=10.0.0.20 port=6433
[pgbouncer]
listen_port = 6432
pool_mode = transaction
max_db_client_connections = 100
";

/// Returns 2026-01-02 03:04:05 in a made-up zone, plus the seconds.
pub(crate) fn local_time(seconds: i64) -> String {
    format!("2026-01-02 03:04:{:02} XYZ", 5 + seconds)
}

fn vars() -> Vars {
    let mut vars = Vars::default();
    vars.set(CLIENT_ENCODING, b"UTF8");
    vars.set(STANDARD_CONFORMING_STRINGS, b"on");
    vars
}

pub(crate) fn connection(id: u64, database: &str, user: &str) -> Connection {
    Connection {
        id,
        fd: id,
        pool: None,
        database: database.to_owned(),
        user: user.to_owned(),
        peer: Some(Address::Tcp(([192, 0, 2, 7], 40_000 + id as u16).into())),
        local: Some(Address::Tcp(([127, 0, 0, 1], 6432).into())),
        connected_at: 1,
        request_at: 2,
        wait: 0,
        close_needed: false,
        link: 0,
        remote_pid: 0,
        tls: String::new(),
        facts: Facts { key: id << 32 | 7, vars: Values::new(vars()), ..Facts::default() },
        application_name: "app".to_owned(),
        buffers: Buffers::default(),
        replication: "none",
    }
}

fn clients() -> Vec<ClientRow> {
    let mut linked = Connection {
        pool: Some(PoolId(1)),
        link: 0x21,
        wait: 2_500_000,
        buffers: Buffers { held: 20, remaining: 5, unsent: 7 },
        replication: "logical",
        tls: "TLSv1.3/TLS_AES_256_GCM_SHA384".to_owned(),
        ..connection(0x11, "app", "alice")
    };
    linked.facts.prepared_statements = 3;
    linked.facts.statement_bytes = 120;
    let waiting =
        Connection { pool: Some(PoolId(1)), wait: 30, ..connection(0x12, "app", "alice") };
    let idle = Connection {
        pool: Some(PoolId(2)),
        peer: Some(Address::Unix { port: 6432 }),
        local: Some(Address::Unix { port: 6432 }),
        remote_pid: 4242,
        ..connection(0x10, "app", "bob")
    };
    let cancel = Connection { pool: Some(PoolId(1)), ..connection(0x14, "app", "alice") };
    let from_star = Connection {
        pool: Some(PoolId(3)),
        peer: Some(Address::Tcp("[2001:db8::1]:50000".parse().unwrap())),
        ..connection(0x1_8000_0015, "other", "dave")
    };
    vec![
        ClientRow { state: ClientState::Waiting, connection: waiting },
        ClientRow { state: ClientState::Active, connection: linked },
        ClientRow { state: ClientState::Login, connection: connection(0x13, "(nodb)", "(nouser)") },
        ClientRow { state: ClientState::WaitingCancel, connection: cancel },
        ClientRow { state: ClientState::Idle, connection: idle },
        ClientRow { state: ClientState::Idle, connection: from_star },
    ]
}

fn servers() -> Vec<ServerRow> {
    let server = |id, state, pool, database| {
        let connection = Connection {
            pool: Some(PoolId(pool)),
            peer: Some(Address::Tcp(([10, 0, 0, 1], 5433).into())),
            remote_pid: 7000 + id as u32,
            ..connection(id, database, "owner")
        };
        ServerRow { state, connection, doing: None, pin: None }
    };
    let mut linked = server(0x21, ServerState::Active, 1, "app");
    linked.connection.link = 0x11;
    linked.pin = Some(Pin {
        reasons: "temporary object, advisory lock".into(),
        age: 61,
        fingerprint: 0xabc,
    });
    linked.doing = Some(Doing { activity: Activity::IdleInTransaction, age: 118_000_000 });
    linked.connection.close_needed = true;
    linked.connection.facts.reports_state = Some(true);
    let mut opening = server(0x22, ServerState::Login, 1, "app");
    opening.connection.peer = None;
    opening.connection.local = None;
    vec![
        server(0x23, ServerState::BeingCanceled, 1, "app"),
        server(0x24, ServerState::Used, 1, "app"),
        server(0x25, ServerState::Tested, 1, "app"),
        opening,
        server(0x26, ServerState::Idle, 3, "other"),
        linked,
    ]
}

fn stats(factor: u64) -> Stats {
    Stats {
        assignments: 10 * factor,
        transactions: 20 * factor,
        queries: 40 * factor,
        received: 1000 * factor,
        sent: 5000 * factor,
        transaction_time: 600 * factor,
        query_time: 800 * factor,
        wait_time: 70 * factor,
        client_parses: 3 * factor,
        server_parses: 2 * factor,
        binds: 30 * factor,
        process_ids: 0,
        logins: 5 * factor,
    }
}

fn pools() -> Vec<PoolRow> {
    let pool = |id, database: &str, user: &str, pool_mode, stats| PoolRow {
        id,
        database: database.to_owned(),
        user: user.to_owned(),
        pool_mode,
        proxied: Some(config::Proxied::SwitchedOff),
        oldest_wait: 0,
        stats,
        at_node: None,
        routes: Vec::new(),
    };
    let at = |node: &str, is_reader| AtNode {
        node: node.to_owned(),
        is_reader,
        servers: 3,
        opening: 1,
        waiting: 0,
    };
    let route = |place, reason, count| RouteRow {
        database: "app".into(),
        user: "bob".into(),
        place,
        reason,
        description: "A sentence.",
        count,
    };
    vec![
        pool(PoolId(3), "other", "owner", PoolMode::Transaction, stats(5)),
        PoolRow {
            proxied: None,
            oldest_wait: 3_000_030,
            ..pool(PoolId(1), "app", "owner", PoolMode::Session, stats(2))
        },
        PoolRow {
            at_node: Some(at("b", false)),
            routes: vec![route("standby", "read", 70), route("primary", "writes", 30)],
            ..pool(PoolId(2), "app", "bob", PoolMode::Session, stats(1))
        },
        PoolRow {
            at_node: Some(at("c", true)),
            ..pool(PoolId(4), "app", "bob", PoolMode::Session, stats(1))
        },
    ]
}

/// The MD5 of `secret`.
pub(crate) const MD5: &str = "5ebe2294ecd0e0f08eab7690d2a6ee69";

/// The database `app` is at the cluster.
fn config() -> Config {
    let no_include = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let mut config = Config::parse_ini(INI, "pgbouncer.ini", &no_include).unwrap();
    Arc::make_mut(config.databases.get_mut("app").unwrap()).cluster = Some("main".to_owned());
    let user = |name: &str, is_admin| PcpUser { name: name.into(), md5: MD5.into(), is_admin };
    config.pcp_users = PcpUsers(vec![user("pcpadmin", true), user("viewer", false)]);
    config
}

pub(crate) fn snapshot() -> Snapshot {
    let mut averages = Averages::new(0);
    averages.record(1_000_000, [(PoolId(1), stats(1)), (PoolId(3), stats(1))]);
    averages.record(11_000_000, pools().into_iter().map(|pool| (pool.id, pool.stats)));
    let mut switches = Switches::default();
    switches.database_mut("app").paused = true;
    switches.database_mut("two").disabled = true;
    // Made from `*`, and not in use.
    switches.database_mut("unused").paused = true;
    switches.database_mut("resumed").paused = false;
    Snapshot {
        switches,
        config: Arc::new(config()),
        pools: pools(),
        clients: clients(),
        servers: servers(),
        dns_hosts: vec![
            DnsHost {
                name: "db.example.org".into(),
                ttl: 12,
                addresses: vec![[10, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()],
            },
            DnsHost { name: "gone.example.org".into(), ttl: 0, addresses: Vec::new() },
        ],
        dns_zones: vec![DnsZone { name: "example.org".into(), serial: 4_000_000_000, hosts: 2 }],
        dns_queries: 1,
        listeners: [
            Listener { fd: 5, address: Some(Address::Tcp(([127, 0, 0, 1], 6432).into())) },
            Listener { fd: 6, address: Some(Address::Unix { port: 6432 }) },
        ]
        .to_vec(),
        cancels: [true, false, true]
            .map(|sent| Cancel { to: CancelTarget::Peer(2), sent })
            .into_iter()
            .chain([Cancel { to: CancelTarget::Pool(PoolId(3)), sent: true }])
            .collect(),
        averages: Arc::new(averages),
        watched: Vec::new(),
        workers: vec![
            WorkerRow {
                process_id: 4711,
                clients: 4,
                tls_clients: 1,
                idle_clients: 2,
                pools: 2,
                servers: 5,
                pinned_servers: 1,
                idle_servers: 3,
                stats: stats(7),
            },
            WorkerRow {
                process_id: 4711,
                clients: 0,
                tls_clients: 0,
                idle_clients: 0,
                pools: 0,
                servers: 1,
                pinned_servers: 0,
                idle_servers: 1,
                stats: stats(1),
            },
        ],
        clusters: vec![cluster()],
        health: [("live", None), ("ready", Some("the pooler is paused (PAUSE); RESUME ends that"))]
            .map(|(name, why)| HealthRow { name: name.into(), obstacle: why.map(Into::into) })
            .to_vec(),
        memory: Memory { free_clients: 10, statements: 2, statement_bytes: 500 },
        taken_at: 12,
        local_time,
    }
}

/// A cluster that has lost its primary once.
fn cluster() -> ClusterRow {
    let node = |name: &str, verdict, reason: &str, role, lag_bytes| NodeRow {
        name: name.into(),
        host: format!("{name}.example.org"),
        port: 5432,
        verdict,
        reason: reason.into(),
        role,
        timeline: 2,
        wal: "0/3000148".into(),
        lag_bytes,
        address: "10.0.0.1".into(),
        other_servers: String::new(),
        number: u32::from(name.as_bytes()[0] - b'a'),
        weight: 3,
        is_used: ["writable", "readable"].contains(&verdict),
        changed_at: 9,
        checks: ChecksRow {
            total: 12,
            failed: 2,
            longest: 7_900,
            shortest: 1_200,
            sum: 25_000,
            last: Some(4),
            last_success: Some(4),
            last_failure: None,
        },
        replication_state: if role == "standby" { "streaming" } else { "" }.to_owned(),
        sync_state: if role == "standby" { "async" } else { "" }.to_owned(),
    };
    ClusterRow {
        name: "main".into(),
        failover: "follow",
        source: "patroni",
        trouble: "Patroni at 10.0.0.1:8008: no answer within 2 s".to_owned(),
        failover_risk: "synchronous_standby_names is empty".to_owned(),
        primary: "b".into(),
        reason: String::new(),
        timeline: 2,
        system: "7301".into(),
        nodes: vec![
            node("a", "down", "connections are refused", "", None),
            node("b", "writable", "", "primary", Some(0)),
            node("c", "readable", "", "standby", Some(8)),
        ],
        failovers: vec![FailoverRow {
            began: 0,
            duration_ms: Some(350),
            from: "a".into(),
            to: "b".into(),
            old_timeline: Some(1),
            new_timeline: Some(2),
            reason: "primary a is lost: connections are refused".into(),
            at_risk: Some(0),
        }],
        paused: "FAILOVER PAUSE by member weir2:6432".to_owned(),
        term: "term 4: node b is the primary, timeline 2".to_owned(),
        members: members(),
    }
}

fn members() -> Vec<MemberRow> {
    vec![
        MemberRow {
            name: "weir1:6432".into(),
            state: "leader",
            is_self: true,
            has_address: true,
            version: "0.1.0".into(),
            confirmed: 3,
            sees: "a=down, b=writable, c=readable".into(),
            lease: Some(9_640_000),
            trouble: String::new(),
        },
        MemberRow {
            name: "weir2:6432".into(),
            state: "silent",
            is_self: false,
            has_address: false,
            version: "0.1.0".into(),
            confirmed: 1,
            sees: String::new(),
            lease: None,
            trouble: String::new(),
        },
    ]
}

/// A pool with two seconds, an error and an order, and two transactions.
pub(crate) fn recording() -> Recording {
    let key = PoolKey { database: "app".into(), user: "owner".into(), place: Place::default() };
    let mut journal = Journal::default();
    journal.note(EventKind::Order, ("", ""), "PAUSE command issued", 1_000_000);
    let hostile = ("app", "<script>alert('u')</script>");
    journal.note(EventKind::ClientError, hostile, "query_wait_timeout", 2_000_000);
    let mut recorder = Flight::default();
    for (second, waiting) in [(2, 0), (3, 4)] {
        let stats = Stats { transactions: 10 * second, ..Stats::default() };
        let pulse = Pulse { active: 1, in_transaction: 2, kept: 3, stats };
        let sample = Sample {
            pool: PoolId(3),
            database: &key.database,
            user: &key.user,
            waiting,
            maxwait: 1_500_000,
            idle: 5,
            opening: 6,
            pulse,
            errors: 7,
        };
        recorder.record(second * 1_000_000, &[sample], 0);
    }
    let transaction = |client: u64, done: u32| Transaction {
        client,
        queued_at: 1_000_000 + client,
        linked: 1,
        applied: 2,
        sent: 3,
        first_byte: 4,
        done,
        busy: 5,
        pool: PoolId(3),
        is_complete: client == 1,
        fingerprint: if client == 1 { 0 } else { 0xabc },
        ..Transaction::default()
    };
    Recording {
        now: 3_000_000,
        wall: 3,
        tracks: recorder.tracks().cloned().collect(),
        events: journal.entries(3_000_000),
        transactions: vec![(key.clone(), transaction(1, 900)), (key, transaction(2, 4_000_000))],
        connections: vec![served(), handed_over()],
    }
}

/// A connection of a client that has got a new server and an answer.
fn served() -> Timed {
    Timed {
        client: 7,
        identity: Arc::new(Identity { database: "shop".into(), user: "app".into() }),
        accepted_at: 1_000_000,
        startup_at: 1_000_100,
        authenticated_at: 1_000_200,
        welcomed_at: 1_000_300,
        queued_at: 1_001_000,
        linked_at: 1_002_000,
        applied_at: 1_002_000,
        sent_at: 1_002_500,
        first_byte_at: 1_003_000,
        done_at: 2_000_000,
        choice: Choice::New,
    }
}

/// A connection of a client of a direct pool.
fn handed_over() -> Timed {
    Timed {
        client: 8,
        queued_at: 0,
        linked_at: 0,
        applied_at: 0,
        sent_at: 0,
        first_byte_at: 0,
        choice: Choice::Direct,
        ..served()
    }
}

/// The orders that the console was given.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) done: Mutex<Vec<String>>,
    /// The log lines that it wrote.
    pub(crate) notes: Mutex<Vec<String>>,
    /// The log lines about refused orders.
    pub(crate) errors: Mutex<Vec<String>>,
    /// The keys that a reload cannot change; `None`: it succeeds.
    pub(crate) not_reloaded: Option<Vec<String>>,
    pub(crate) console_columns: ConsoleColumns,
    pub(crate) pcp_compat: PcpCompat,
    /// The users since a reload.
    pub(crate) pcp_users: Mutex<Option<PcpUsers>>,
    /// PAUSE without a name never comes to its end.
    pub(crate) is_busy: bool,
}

impl Recorder {
    fn record(&self, what: String) {
        self.done.lock().unwrap().push(what);
    }
}

impl Control for Recorder {
    fn explain_route(&self, _: &[u8]) -> Vec<Judgement> {
        Vec::new()
    }

    fn snapshot(&self) -> Boxed<'_, Snapshot> {
        let config = Control::config(self);
        Box::pin(async { Snapshot { config, ..snapshot() } })
    }

    fn timings(&self) -> Recording {
        recording()
    }

    fn recording(&self) -> Boxed<'_, Recording> {
        Box::pin(async { recording() })
    }

    fn reload(&self) -> Boxed<'_, Result<Vec<String>, NotReloaded>> {
        self.record("reload".to_owned());
        Box::pin(async {
            match self.not_reloaded.clone() {
                None => Ok(Vec::new()),
                Some(kept) => Err(NotReloaded { kept, ..NotReloaded::default() }),
            }
        })
    }

    fn config(&self) -> Arc<Config> {
        let mut config = config();
        config.global.console_columns = self.console_columns;
        config.global.pcp_compat = self.pcp_compat;
        if let Some(users) = &*self.pcp_users.lock().unwrap() {
            config.pcp_users = users.clone();
        }
        Arc::new(config)
    }

    fn shutdown(&self, how: Shutdown) {
        self.record(format!("shutdown {how:?}"));
    }

    fn refusal(&self, order: &Order) -> Option<String> {
        (*order == Order::Suspend && self.is_busy).then(|| "already suspended/paused".to_owned())
    }

    fn order(&self, order: Order) -> Boxed<'_, Result<(), String>> {
        let waits = self.is_busy && order == Order::Pause(None);
        let refused = order == Order::KillClient(404);
        self.record(format!("{order:?}"));
        Box::pin(async move {
            if waits {
                std::future::pending::<()>().await;
            }
            if refused { Err("client not found".to_owned()) } else { Ok(()) }
        })
    }

    fn give_up(&self) {
        self.record("give up".to_owned());
    }

    fn abandoned(&self) {
        self.record("abandoned".to_owned());
    }

    fn set(&self, key: String, value: String) -> Boxed<'_, Result<Option<String>, String>> {
        let result = match key.as_str() {
            "wrong" => Err("no such key".to_owned()),
            "half" => Ok(Some("the other half is missing".to_owned())),
            _ => Ok(None),
        };
        self.record(format!("set {key} to {value}"));
        Box::pin(async move { result })
    }

    fn note(&self, what: &str) {
        self.notes.lock().unwrap().push(what.to_owned());
    }

    fn error(&self, what: &str) {
        self.errors.lock().unwrap().push(what.to_owned());
    }

    fn pooler_error(&self, who: &str, what: &str) {
        self.errors.lock().unwrap().push(format!("{who} pooler error: {what}"));
    }
}
