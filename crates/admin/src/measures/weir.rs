//! Weir's own names of the measures: `weir_<noun>_<unit>[_total]`.

use engine::figures::PoolFigures;

use super::{
    Board, CertificateEnd, Count, Group, Kind, LabelOf, Measure, Measured, PasswordRow,
    PoolMeasures, Value, counter, gauge, histogram,
};
use crate::show::databases::DatabaseLine;
use crate::snapshot::{ClusterRow, RouteRow};

pub(super) static GROUPS: [&dyn Measured; 12] = [
    &BUILD,
    &PROCESS,
    &CLIENT_ERRORS,
    &SERVER_FAILURES,
    &SERVER_CLOSES,
    &CERTIFICATES,
    &PASSWORDS,
    &CLUSTERS,
    &ROUTES,
    &DATABASES,
    &POOLS,
    &TIMES,
];

static BUILD: Group<Board> = Group {
    title: "Program",
    about: "Always 1; the labels have the information.",
    labels: &[
        ("version", |_| config::WEIR_VERSION.into()),
        ("pgbouncer_version", |_| config::PGBOUNCER_VERSION.into()),
    ],
    measures: &[Measure {
        name: "weir_build_info",
        kind: Kind::Info,
        help: "Versions of Weir and of the PgBouncer whose behaviour it has.",
        value: |_| Value::Number(1),
    }],
    rows: |board| vec![board],
};

static PROCESS: Group<Board> = Group {
    title: "Process",
    about: "All pools together, and the process itself.",
    labels: &[],
    measures: &[
        gauge("weir_workers", |all| u32::from(all.measures.workers).into(), "Worker threads."),
        gauge(
            "weir_clients",
            |all| all.clients().all().into(),
            "Client connections in any state, without those of the console.",
        ),
        gauge(
            "weir_login_clients",
            |all| all.clients().login.into(),
            "Clients that are logging in.",
        ),
        gauge(
            "weir_cancel_requests",
            |all| all.clients().canceling.into(),
            "Client connections that are cancel requests.",
        ),
        gauge(
            "weir_max_clients",
            |all| all.measures.config.global.max_client_conn.into(),
            "Limit of client connections (max_client_conn).",
        ),
        gauge("weir_pools", |all| all.pool_count.into(), "Pools, also those without own metrics."),
        gauge("weir_servers", |all| all.servers().into(), "Server connections in any state."),
        gauge(
            "weir_max_servers",
            |all| all.measures.config.global.max_server_connections.into(),
            "Limit of server connections (max_server_connections); 0 is no limit.",
        ),
        gauge(
            "weir_paused",
            |all| all.measures.switches.paused.into(),
            "1 after PAUSE without a name.",
        ),
        gauge("weir_suspended", |all| all.measures.switches.suspended.into(), "1 after SUSPEND."),
        gauge(
            "weir_prepared_statements",
            |all| all.measures.statements.0.into(),
            "Prepared statements that differ in text or types.",
        ),
        gauge(
            "weir_prepared_statements_bytes",
            |all| all.measures.statements.1.into(),
            "Bytes that these statements take.",
        ),
        gauge(
            "weir_dns_names",
            |all| all.measures.dns.0.into(),
            "Host names whose addresses are kept.",
        ),
        gauge(
            "weir_dns_queries",
            |all| all.measures.dns.2.into(),
            "Host names that are being looked up.",
        ),
        gauge(
            "weir_config_reload_success",
            |all| all.measures.reload_succeeded.into(),
            "1 if all of the last reload is in force.",
        ),
        gauge(
            "weir_config_reload_success_timestamp_seconds",
            |all| all.measures.reload_success_at.max(0).unsigned_abs().into(),
            "When the configuration was read last without an error, in seconds since 1970.",
        ),
    ],
    rows: |board| vec![board],
};

static CLIENT_ERRORS: Group<Count> = Group {
    title: "Errors of clients",
    about: "Clients that Weir has refused or disconnected, by the reason. `protocol` also stands \
            for all reasons without their own name; `server_refusal` is an error of PostgreSQL \
            that Weir has forwarded.",
    labels: &[("reason", |own| own.reason.into())],
    measures: &[counter(
        "weir_client_errors_total",
        |own| own.count.into(),
        "Clients that got an error and were disconnected.",
    )],
    rows: |board| board.client_errors.iter().collect(),
};

static SERVER_FAILURES: Group<Count> = Group {
    title: "Failures of servers",
    about: "`connect`: nothing answers; `login`: the server answers, but the login fails; \
            `lost`: a server that was logged in has ended the connection, or has sent a message \
            that no request had asked for.",
    labels: &[("reason", |own| own.reason.into())],
    measures: &[counter(
        "weir_server_failures_total",
        |own| own.count.into(),
        "Server connections that failed.",
    )],
    rows: |board| board.server_failures.iter().collect(),
};

static SERVER_CLOSES: Group<Count> = Group {
    title: "Closed servers",
    about: "Servers that were logged in, by the reason for closing them. `lifetime`: \
            server_lifetime; `idle`: server_idle_timeout; `uses`: server_max_uses; `memory`: \
            server_max_memory; `surplus`: the pool has become smaller; `spare`: \
            max_spare_servers; `evicted`: another pool needed the place; `failure`: an error of the server or of its client; `other`: all other \
            reasons.",
    labels: &[("reason", |own| own.reason.into())],
    measures: &[counter(
        "weir_server_closes_total",
        |own| own.count.into(),
        "Logged-in servers that were closed.",
    )],
    rows: |board| board.server_closes.iter().collect(),
};

static CERTIFICATES: Group<CertificateEnd> = Group {
    title: "Certificates",
    about: "The certificates that Weir shows. `key` is the key with the name of the file.",
    labels: &[("key", |own| own.key.into())],
    measures: &[gauge(
        "weir_certificate_not_after_timestamp_seconds",
        |own| own.not_after.max(0).unsigned_abs().into(),
        "When the certificate expires, in seconds since 1970. Subtract time() for the time left.",
    )],
    rows: |board| board.certificates.iter().collect(),
};

static PASSWORDS: Group<PasswordRow> = Group {
    title: "Short-lived passwords",
    about: "The databases with a `password_command`.",
    labels: &[("database", |row| row.database.as_str().into())],
    measures: &[
        gauge(
            "weir_password_remaining_seconds",
            |row| Value::Seconds(row.remaining),
            "How long the password is still valid; 0 if it has ended, or there is none yet.",
        ),
        counter(
            "weir_password_command_failures_total",
            |row| row.failures.into(),
            "Runs of the program that failed. Logins go on with the last password.",
        ),
    ],
    rows: |board| board.measures.passwords.iter().collect(),
};

static CLUSTERS: Group<ClusterRow> = Group {
    title: "Clusters",
    about: "The entries of `[clusters]`.",
    labels: &[("cluster", |row| row.name.as_str().into())],
    measures: &[
        gauge(
            "weir_cluster_has_primary",
            |row| (!row.primary.is_empty()).into(),
            "1 if the cluster has a primary; while it has none, clients wait.",
        ),
        gauge("weir_cluster_timeline", |row| row.timeline.into(), "The highest timeline seen."),
        gauge(
            "weir_cluster_members",
            |row| row.members_in(&["leader", "member"]).into(),
            "Weirs that hold a lease at etcd; 0 without `etcd`, and while this Weir does not reach it.",
        ),
        gauge(
            "weir_cluster_silent_members",
            |row| row.members_in(&["silent"]).into(),
            "Weirs whose lease at etcd has ended.",
        ),
        gauge(
            "weir_cluster_lease_seconds",
            |row| row.lease_seconds().into(),
            "How long this Weir may use the primary without an answer of etcd; 0 without `etcd`.",
        ),
        gauge(
            "weir_cluster_virtual_address",
            |row| u64::from(row.has_address()).into(),
            "1 if this machine has the virtual address.",
        ),
        gauge(
            "weir_cluster_failover_paused",
            |row| u64::from(!row.paused.is_empty()).into(),
            "1 if Weir replaces no lost primary now, for example by FAILOVER PAUSE.",
        ),
        gauge(
            "weir_cluster_readable_nodes",
            |row| row.in_state("readable").into(),
            "Standbys that follow the primary.",
        ),
        gauge("weir_cluster_down_nodes", |row| row.in_state("down").into(), "Nodes that are down."),
        gauge(
            "weir_cluster_false_primaries",
            |row| row.in_state("false primary").into(),
            "Nodes that accept writes and are not the primary.",
        ),
        gauge(
            "weir_cluster_max_lag_bytes",
            |row| {
                let lags = row.nodes.iter().filter(|node| node.verdict == "readable");
                lags.filter_map(|node| node.lag_bytes).max().unwrap_or(0).into()
            },
            "Bytes of WAL that the last of these standbys is behind the primary.",
        ),
    ],
    rows: |board| board.measures.clusters.iter().collect(),
};

static ROUTES: Group<RouteRow> = Group {
    title: "Reads on standbys",
    about: "The requests of pools with `reads = standby`, by the reason for their place. \
            `read` is the reason of all requests that went to a standby; SHOW ROUTES describes the \
            others, which went to the primary.",
    labels: &[
        ("database", |row| row.database.as_str().into()),
        ("user", |row| row.user.as_str().into()),
        ("reason", |row| row.reason.into()),
    ],
    measures: &[counter(
        "weir_routed_requests_total",
        |row| row.count.into(),
        "Requests with this reason.",
    )],
    rows: |board| board.measures.routes.iter().collect(),
};

static DATABASES: Group<DatabaseLine> = Group {
    title: "Databases",
    about: "The databases of SHOW DATABASES. `database` is the name that clients ask for.",
    labels: &[("database", |line| (&line.name).into())],
    measures: &[
        gauge("weir_database_clients", |line| line.clients.into(), "Clients of the database."),
        gauge(
            "weir_database_max_clients",
            |line| line.max_client_connections.into(),
            "Limit of its clients (max_db_client_connections); 0 is no limit.",
        ),
        gauge(
            "weir_database_servers",
            |line| line.connections.into(),
            "Server connections of all its pools.",
        ),
        gauge(
            "weir_database_max_servers",
            |line| line.max_connections.into(),
            "Limit of its server connections (max_db_connections); 0 is no limit.",
        ),
        gauge(
            "weir_database_paused",
            |line| line.switches.paused.into(),
            "1 after PAUSE or KILL with its name.",
        ),
        gauge("weir_database_disabled", |line| line.switches.disabled.into(), "1 after DISABLE."),
    ],
    rows: |board| board.databases.iter().collect(),
};

const POOL_LABELS: [(&str, LabelOf<PoolMeasures>); 2] =
    [("database", |pool| (&pool.database).into()), ("user", |pool| (&pool.user).into())];

static POOLS: Group<PoolMeasures> = Group {
    title: "Pools",
    about: "The pools of SHOW POOLS. `database` is the name that clients ask for, `user` the user that the \
            servers are logged in as.",
    labels: &POOL_LABELS,
    measures: &[
        gauge(
            "weir_pool_active_clients",
            |pool| pool.figures.clients.active.into(),
            "Clients that have a server.",
        ),
        gauge(
            "weir_pool_idle_clients",
            |pool| pool.figures.clients.idle.into(),
            "Clients that neither have a server nor wait for one.",
        ),
        gauge(
            "weir_pool_waiting_clients",
            |pool| pool.figures.clients.waiting.into(),
            "Clients that wait for a server.",
        ),
        gauge(
            "weir_pool_oldest_wait_seconds",
            |pool| Value::Seconds(pool.oldest_wait),
            "How long the first client in the queue has waited; 0 if none waits.",
        ),
        gauge(
            "weir_pool_active_servers",
            |pool| pool.figures.servers.active.into(),
            "Servers that a client has.",
        ),
        gauge(
            "weir_pool_idle_servers",
            |pool| pool.figures.servers.idle.into(),
            "Servers that can be used at once.",
        ),
        gauge(
            "weir_pool_used_servers",
            |pool| pool.figures.servers.used.into(),
            "Servers idle for longer than server_check_delay, checked before their next use.",
        ),
        gauge(
            "weir_pool_tested_servers",
            |pool| pool.figures.servers.tested.into(),
            "Servers that are being checked or reset.",
        ),
        gauge(
            "weir_pool_login_servers",
            |pool| pool.figures.servers.login.into(),
            "Servers that are connecting or logging in.",
        ),
        gauge(
            "weir_pool_canceled_servers",
            |pool| pool.figures.servers.being_canceled.into(),
            "Servers held back until cancel requests for them are over.",
        ),
        gauge(
            "weir_pool_listening_servers",
            |pool| pool.figures.servers.listening.into(),
            "Servers that listen for the clients of the pool (pool_mode = auto).",
        ),
        gauge(
            "weir_pool_pinned_servers",
            |pool| pool.figures.servers.pinned.into(),
            "Servers that a client keeps between transactions (pool_mode = auto). They are active, too.",
        ),
        gauge(
            "weir_pool_max_servers",
            |pool| pool.size.into(),
            "Limit of the pool's servers (pool_size); 0 is no limit.",
        ),
        gauge(
            "weir_pool_reserve_servers",
            |pool| pool.reserve.into(),
            "Further servers for clients that wait for long (reserve_pool_size).",
        ),
        counter(
            "weir_pool_logins_total",
            |pool| pool.figures.stats.logins.into(),
            "Clients that have logged in.",
        ),
        counter(
            "weir_pool_assignments_total",
            |pool| pool.figures.stats.assignments.into(),
            "Times a client was given a server.",
        ),
        counter(
            "weir_pool_transactions_total",
            |pool| pool.figures.stats.transactions.into(),
            "Transactions begun.",
        ),
        counter(
            "weir_pool_queries_total",
            |pool| pool.figures.stats.queries.into(),
            "Queries begun. A pipeline counts once.",
        ),
        counter(
            "weir_pool_received_bytes_total",
            |pool| pool.figures.stats.received.into(),
            "Bytes from clients.",
        ),
        counter(
            "weir_pool_sent_bytes_total",
            |pool| pool.figures.stats.sent.into(),
            "Bytes from servers.",
        ),
        counter(
            "weir_pool_client_parses_total",
            |pool| pool.figures.stats.client_parses.into(),
            "Statements prepared by clients.",
        ),
        counter(
            "weir_pool_server_parses_total",
            |pool| pool.figures.stats.server_parses.into(),
            "Statements prepared on servers.",
        ),
        counter("weir_pool_binds_total", |pool| pool.figures.stats.binds.into(), "Bind messages."),
    ],
    rows: |board| board.measures.pools.iter().collect(),
};

static TIMES: Group<PoolMeasures> = Group {
    title: "Times of pools",
    about: "The histograms of each pool. With `metrics_histograms = total` all pools are added up, \
            and there are no labels.",
    labels: &POOL_LABELS,
    measures: &[
        histogram(
            "weir_pool_wait_seconds",
            |pool| {
                let PoolFigures { durations, stats, .. } = &pool.figures;
                Value::Durations(&durations.wait, stats.wait_time)
            },
            "How long clients waited until they were given a server.",
        ),
        histogram(
            "weir_pool_query_seconds",
            |pool| {
                let PoolFigures { durations, stats, .. } = &pool.figures;
                Value::Durations(&durations.query, stats.query_time)
            },
            "Duration of finished queries, without the wait for a server.",
        ),
        histogram(
            "weir_pool_transaction_seconds",
            |pool| {
                let PoolFigures { durations, stats, .. } = &pool.figures;
                Value::Durations(&durations.transaction, stats.transaction_time)
            },
            "Duration of finished transactions.",
        ),
        histogram(
            "weir_pool_connect_seconds",
            |pool| {
                let durations = &pool.figures.durations;
                Value::Durations(&durations.connect, durations.connect_time)
            },
            "Time to connect and log in to a server.",
        ),
    ],
    rows: Board::times,
};
