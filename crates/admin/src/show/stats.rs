//! SHOW STATS, STATS_TOTALS and STATS_AVERAGES.

use std::collections::BTreeMap;

use super::{Column, Table, View, numeric, own, text};
use crate::NAME;
use engine::ids::PoolId;
use engine::stats::Stats;

pub(super) static STATS: Table<StatsLine> = Table {
    name: "STATS",
    about: "A row for each database that has a pool, and for the console. The totals count since \
            the start. The averages count since the beginning of the last completed \
            `stats_period`. Times are in microseconds.",
    columns: &[
        DATABASE,
        numeric(
            "total_server_assignment_count",
            |line| line.total.assignments.into(),
            "Times a server was given to a client.",
        ),
        numeric("total_xact_count", |line| line.total.transactions.into(), "Transactions."),
        numeric(
            "total_query_count",
            |line| line.total.queries.into(),
            "Queries; a pipeline counts once.",
        ),
        numeric("total_received", |line| line.total.received.into(), "Bytes from clients."),
        numeric("total_sent", |line| line.total.sent.into(), "Bytes from servers."),
        numeric(
            "total_xact_time",
            |line| line.total.transaction_time.into(),
            "Time with a transaction open, idle or not.",
        ),
        numeric(
            "total_query_time",
            |line| line.total.query_time.into(),
            "Time with a query running.",
        ),
        numeric(
            "total_wait_time",
            |line| line.total.wait_time.into(),
            "Time that clients waited for a server.",
        ),
        numeric(
            "total_client_parse_count",
            |line| line.total.client_parses.into(),
            "Statements prepared by clients.",
        ),
        numeric(
            "total_server_parse_count",
            |line| line.total.server_parses.into(),
            "Statements prepared on servers.",
        ),
        numeric("total_bind_count", |line| line.total.binds.into(), "Bind messages."),
        own(numeric(
            "total_client_login_count",
            |line| line.total.logins.into(),
            "Successful logins of clients.",
        )),
        numeric(
            "avg_server_assignment_count",
            |line| line.average.assignments.into(),
            "Assignments a second.",
        ),
        numeric(
            "avg_xact_count",
            |line| line.average.transactions.into(),
            "Transactions a second.",
        ),
        numeric("avg_query_count", |line| line.average.queries.into(), "Queries a second."),
        numeric("avg_recv", |line| line.average.received.into(), "Bytes a second from clients."),
        numeric("avg_sent", |line| line.average.sent.into(), "Bytes a second from servers."),
        numeric(
            "avg_xact_time",
            |line| line.average.transaction_time.into(),
            "Time of a transaction.",
        ),
        numeric("avg_query_time", |line| line.average.query_time.into(), "Time of a query."),
        numeric(
            "avg_wait_time",
            |line| line.average.wait_time.into(),
            "Time waited for each assignment.",
        ),
        numeric(
            "avg_client_parse_count",
            |line| line.average.client_parses.into(),
            "Statements prepared by clients a second.",
        ),
        numeric(
            "avg_server_parse_count",
            |line| line.average.server_parses.into(),
            "Statements prepared on servers a second.",
        ),
        numeric("avg_bind_count", |line| line.average.binds.into(), "Bind messages a second."),
        own(numeric(
            "avg_client_login_count",
            |line| line.average.logins.into(),
            "Successful logins of clients a second.",
        )),
    ],
    rows: lines,
};

pub(super) static STATS_TOTALS: Table<StatsLine> = Table {
    name: "STATS_TOTALS",
    about: "The totals of SHOW STATS.",
    columns: &[
        DATABASE,
        numeric(
            "server_assignment_count",
            |line| line.total.assignments.into(),
            "Times a server was given to a client.",
        ),
        numeric("xact_count", |line| line.total.transactions.into(), "Transactions."),
        numeric(
            "query_count",
            |line| line.total.queries.into(),
            "Queries; a pipeline counts once.",
        ),
        numeric("bytes_received", |line| line.total.received.into(), "Bytes from clients."),
        numeric("bytes_sent", |line| line.total.sent.into(), "Bytes from servers."),
        numeric(
            "xact_time",
            |line| line.total.transaction_time.into(),
            "Time with a transaction open, idle or not.",
        ),
        numeric("query_time", |line| line.total.query_time.into(), "Time with a query running."),
        numeric(
            "wait_time",
            |line| line.total.wait_time.into(),
            "Time that clients waited for a server.",
        ),
        numeric(
            "client_parse_count",
            |line| line.total.client_parses.into(),
            "Statements prepared by clients.",
        ),
        numeric(
            "server_parse_count",
            |line| line.total.server_parses.into(),
            "Statements prepared on servers.",
        ),
        numeric("bind_count", |line| line.total.binds.into(), "Bind messages."),
        own(numeric(
            "client_login_count",
            |line| line.total.logins.into(),
            "Successful logins of clients.",
        )),
    ],
    rows: lines,
};

/// Only the last four names have a prefix, as in PgBouncer.
pub(super) static STATS_AVERAGES: Table<StatsLine> = Table {
    name: "STATS_AVERAGES",
    about: "The averages of SHOW STATS.",
    columns: &[
        DATABASE,
        numeric(
            "server_assignment_count",
            |line| line.average.assignments.into(),
            "Assignments a second.",
        ),
        numeric("xact_count", |line| line.average.transactions.into(), "Transactions a second."),
        numeric("query_count", |line| line.average.queries.into(), "Queries a second."),
        numeric(
            "bytes_received",
            |line| line.average.received.into(),
            "Bytes a second from clients.",
        ),
        numeric("bytes_sent", |line| line.average.sent.into(), "Bytes a second from servers."),
        numeric("xact_time", |line| line.average.transaction_time.into(), "Time of a transaction."),
        numeric("query_time", |line| line.average.query_time.into(), "Time of a query."),
        numeric(
            "wait_time",
            |line| line.average.wait_time.into(),
            "Time waited for each assignment.",
        ),
        numeric(
            "avg_client_parse_count",
            |line| line.average.client_parses.into(),
            "Statements prepared by clients a second.",
        ),
        numeric(
            "avg_server_parse_count",
            |line| line.average.server_parses.into(),
            "Statements prepared on servers a second.",
        ),
        numeric("avg_bind_count", |line| line.average.binds.into(), "Bind messages a second."),
        own(numeric(
            "avg_client_login_count",
            |line| line.average.logins.into(),
            "Successful logins of clients a second.",
        )),
    ],
    rows: lines,
};

const DATABASE: Column<StatsLine> =
    text("database", |line| (&line.database).into(), "Name clients ask for.");

pub(super) struct StatsLine {
    database: String,
    total: Stats,
    average: Stats,
}

fn lines(view: View) -> Vec<StatsLine> {
    let mut databases = BTreeMap::from([(NAME, (of_console(&view), Vec::new()))]);
    for pool in &view.snapshot.pools {
        let (total, pools) = databases.entry(&pool.database).or_default();
        *total += pool.stats;
        pools.push(pool.id);
    }
    let line = |(database, (total, pools)): (&str, (Stats, Vec<PoolId>))| StatsLine {
        database: database.to_owned(),
        total,
        average: view.snapshot.averages.of(pools),
    };
    databases.into_iter().map(line).collect()
}

/// Returns the statistics of the console. As in PgBouncer, each connection that has sent a query
/// counts as one transaction with one query. Besides that, only logins are counted.
pub(super) fn of_console(view: &View) -> Stats {
    let View { sessions, logins, .. } = *view;
    Stats { transactions: sessions, queries: sessions, logins, ..Stats::default() }
}
