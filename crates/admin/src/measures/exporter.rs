//! The names that prometheus-community's pgbouncer_exporter has for the same, so that dashboards and
//! alerts made for it go on working (`metrics_names`). The console's own database is not among them.

use super::{
    Board, DatabaseStats, Group, Kind, Measure, Measured, PoolMeasures, Value, counter, gauge,
};
use crate::{NAME, show::databases::DatabaseLine};

pub(super) static GROUPS: [&dyn Measured; 5] = [&VERSION, &PROCESS, &DATABASES, &POOLS, &STATS];

static VERSION: Group<Board> = Group {
    title: "Version",
    about: "Always 1; the label has the information.",
    labels: &[("version", |_| config::pgbouncer_version().into())],
    measures: &[Measure {
        name: "pgbouncer_version_info",
        kind: Kind::Info,
        help: "The text of SHOW VERSION.",
        value: |_| Value::Number(1),
    }],
    rows: |board| vec![board],
};

static PROCESS: Group<Board> = Group {
    title: "SHOW LISTS and SHOW CONFIG",
    about: "The process.",
    labels: &[],
    measures: &[
        gauge("pgbouncer_up", |_| Value::Number(1), "Always 1: Weir serves the page itself."),
        gauge("pgbouncer_databases", |all| all.databases.len().into(), "Databases."),
        gauge("pgbouncer_pools", |all| all.measures.pools.len().into(), "Pools."),
        gauge("pgbouncer_users", users, "Users of the configuration, of auth_file and of pools."),
        gauge("pgbouncer_used_clients", |all| all.clients().all().into(), "Client connections."),
        gauge("pgbouncer_free_clients", |_| Value::Number(0), "Always 0."),
        gauge(
            "pgbouncer_login_clients",
            |all| all.clients().login.into(),
            "Clients that are logging in.",
        ),
        gauge("pgbouncer_used_servers", |all| all.servers().into(), "Server connections."),
        gauge("pgbouncer_free_servers", |_| Value::Number(0), "Always 0."),
        gauge("pgbouncer_cached_dns_names", |all| all.measures.dns.0.into(), "Host names kept."),
        gauge("pgbouncer_cached_dns_zones", |all| all.measures.dns.1.into(), "DNS zones kept."),
        gauge(
            "pgbouncer_in_flight_dns_queries",
            |all| all.measures.dns.2.into(),
            "Host names that are being looked up.",
        ),
        gauge(
            "pgbouncer_config_max_client_connections",
            |all| all.measures.config.global.max_client_conn.into(),
            "max_client_conn.",
        ),
        gauge(
            "pgbouncer_config_max_user_connections",
            |all| all.measures.config.global.max_user_connections.into(),
            "max_user_connections.",
        ),
    ],
    rows: |board| vec![board],
};

fn users(board: &Board) -> Value<'_> {
    let config = &board.measures.config;
    let named = config.users.keys().chain(config.auth_file.users.keys()).map(String::as_str);
    let pools = board.measures.pools.iter().map(|pool| pool.user.as_str());
    let all: std::collections::BTreeSet<&str> = named.chain(pools).chain([NAME]).collect();
    all.len().into()
}

static DATABASES: Group<DatabaseLine> = Group {
    title: "SHOW DATABASES",
    about: "The databases.",
    labels: &[
        ("name", |line| (&line.name).into()),
        ("host", |line| line.host.as_deref().unwrap_or_default().into()),
        ("port", |line| line.port.to_string().into()),
        ("database", |line| (&line.database).into()),
        ("force_user", |line| line.force_user.as_deref().unwrap_or_default().into()),
        ("pool_mode", |line| line.pool_mode.unwrap_or_default().into()),
    ],
    measures: &[
        gauge("pgbouncer_databases_pool_size", |line| line.pool_size.into(), "pool_size."),
        gauge(
            "pgbouncer_databases_reserve_pool",
            |line| line.reserve_pool_size.into(),
            "reserve_pool_size.",
        ),
        gauge(
            "pgbouncer_databases_max_connections",
            |line| line.max_connections.into(),
            "max_db_connections.",
        ),
        gauge(
            "pgbouncer_databases_current_connections",
            |line| line.connections.into(),
            "Server connections of all its pools.",
        ),
        gauge("pgbouncer_databases_paused", |line| line.switches.paused.into(), "1 if paused."),
        gauge(
            "pgbouncer_databases_disabled",
            |line| line.switches.disabled.into(),
            "1 if disabled.",
        ),
    ],
    rows: |board| board.databases.iter().collect(),
};

static POOLS: Group<PoolMeasures> = Group {
    title: "SHOW POOLS",
    about: "The pools.",
    labels: &[("database", |pool| (&pool.database).into()), ("user", |pool| (&pool.user).into())],
    measures: &[
        gauge(
            "pgbouncer_pools_client_active_connections",
            |pool| (pool.figures.clients.active + pool.figures.clients.idle).into(),
            "cl_active: clients that are linked to a server, or idle.",
        ),
        gauge(
            "pgbouncer_pools_client_waiting_connections",
            |pool| pool.figures.clients.waiting.into(),
            "cl_waiting.",
        ),
        gauge(
            "pgbouncer_pools_client_active_cancel_connections",
            |pool| pool.cancels.0.into(),
            "cl_active_cancel_req.",
        ),
        gauge(
            "pgbouncer_pools_client_waiting_cancel_connections",
            |pool| pool.cancels.1.into(),
            "cl_waiting_cancel_req.",
        ),
        gauge(
            "pgbouncer_pools_server_active_connections",
            |pool| pool.figures.servers.active.into(),
            "sv_active.",
        ),
        gauge(
            "pgbouncer_pools_server_active_cancel_connections",
            |pool| pool.cancels.0.into(),
            "sv_active_cancel.",
        ),
        gauge(
            "pgbouncer_pools_server_being_canceled_connections",
            |pool| pool.figures.servers.being_canceled.into(),
            "sv_being_canceled.",
        ),
        gauge(
            "pgbouncer_pools_server_idle_connections",
            |pool| pool.figures.servers.idle.into(),
            "sv_idle.",
        ),
        gauge(
            "pgbouncer_pools_server_used_connections",
            |pool| pool.figures.servers.used.into(),
            "sv_used.",
        ),
        gauge(
            "pgbouncer_pools_server_testing_connections",
            |pool| pool.figures.servers.tested.into(),
            "sv_tested.",
        ),
        gauge(
            "pgbouncer_pools_server_login_connections",
            |pool| pool.figures.servers.login.into(),
            "sv_login.",
        ),
        gauge(
            "pgbouncer_pools_client_maxwait_seconds",
            |pool| Value::Number(pool.oldest_wait / 1_000_000),
            "maxwait: whole seconds.",
        ),
    ],
    rows: |board| board.measures.pools.iter().collect(),
};

static STATS: Group<DatabaseStats> = Group {
    title: "SHOW STATS_TOTALS",
    about: "The databases that have a pool.",
    labels: &[("database", |line| (&line.database).into())],
    measures: &[
        counter(
            "pgbouncer_stats_totals_sql_transactions_pooled_total",
            |line| line.stats.transactions.into(),
            "xact_count.",
        ),
        counter(
            "pgbouncer_stats_totals_queries_pooled_total",
            |line| line.stats.queries.into(),
            "query_count.",
        ),
        counter(
            "pgbouncer_stats_totals_received_bytes_total",
            |line| line.stats.received.into(),
            "bytes_received.",
        ),
        counter(
            "pgbouncer_stats_totals_sent_bytes_total",
            |line| line.stats.sent.into(),
            "bytes_sent.",
        ),
        counter(
            "pgbouncer_stats_totals_server_in_transaction_seconds_total",
            |line| Value::Seconds(line.stats.transaction_time),
            "xact_time.",
        ),
        counter(
            "pgbouncer_stats_totals_queries_duration_seconds_total",
            |line| Value::Seconds(line.stats.query_time),
            "query_time.",
        ),
        counter(
            "pgbouncer_stats_totals_client_wait_seconds_total",
            |line| Value::Seconds(line.stats.wait_time),
            "wait_time.",
        ),
        counter(
            "pgbouncer_stats_totals_client_parses_total",
            |line| line.stats.client_parses.into(),
            "client_parse_count.",
        ),
        counter(
            "pgbouncer_stats_totals_server_parses_total",
            |line| line.stats.server_parses.into(),
            "server_parse_count.",
        ),
        counter(
            "pgbouncer_stats_totals_binds_total",
            |line| line.stats.binds.into(),
            "bind_count.",
        ),
    ],
    rows: |board| board.stats.iter().collect(),
};
