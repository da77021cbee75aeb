//! The commands of Pgpool-II: SHOW POOL_NODES and similar ones. Every column is text, as there.

use super::{Column, Table, text};
use crate::pgpool::{self, Node, Process, millis, time};
use crate::show::View;

/// A node with the texts of its times.
pub(super) struct NodeLine {
    node: Node,
    last: [String; 3],
}

fn node_lines(view: View) -> Vec<NodeLine> {
    let snapshot = &view.snapshot;
    let line = |node: Node| {
        let checks = &node.row.checks;
        let last = [checks.last, checks.last_success, checks.last_failure];
        NodeLine { last: last.map(|at| time(snapshot, at)), node }
    };
    pgpool::nodes(snapshot).into_iter().map(line).collect()
}

const NODE_ID: Column<NodeLine> = text(
    "node_id",
    |line| line.node.id.to_string().into(),
    "Number of the node: the nodes of all clusters, counted in the order of the file. A node keeps \
     its number while its name and its cluster's name stay.",
);
const HOSTNAME: Column<NodeLine> =
    text("hostname", |line| line.node.row.host.as_str().into(), "Host of the node.");
const PORT: Column<NodeLine> =
    text("port", |line| line.node.row.port.to_string().into(), "Port of the node.");
const STATUS: Column<NodeLine> = text(
    "status",
    |line| line.node.status.word().into(),
    "`up` if Weir uses the node, `waiting` before its first answer, otherwise `down`.",
);
const ROLE: Column<NodeLine> = text(
    "role",
    |line| line.node.role.word().into(),
    "`primary` for the node that transactions go to, otherwise `standby`.",
);
const CHANGED: Column<NodeLine> = text(
    "last_status_change",
    |line| line.node.changed_at.as_str().into(),
    "When the `state` of SHOW NODES changed last.",
);
const SELECTS: Column<NodeLine> = text(
    "select_cnt",
    |line| line.node.reads.to_string().into(),
    "Reads that ran on it as a standby.",
);

pub(super) static POOL_NODES: Table<NodeLine> = Table {
    name: "POOL_NODES",
    about: "The nodes of all clusters, as Pgpool-II shows them ([Pgpool-II](pgpool.md)). Weir's own.",
    columns: &[
        NODE_ID,
        HOSTNAME,
        PORT,
        STATUS,
        text(
            "pg_status",
            |line| line.node.pg_status.into(),
            "`up` if it answers, `down` or `unknown`.",
        ),
        text(
            "lb_weight",
            |line| format!("{:.6}", line.node.weight).into(),
            "Its share of the reads on standbys; 0 for the primary.",
        ),
        ROLE,
        text(
            "pg_role",
            |line| line.node.pg_role().into(),
            "Its role by its last answer, or `unknown`.",
        ),
        SELECTS,
        text(
            "load_balance_node",
            |_| "false".into(),
            "Always `false`: the console runs no reads on standbys.",
        ),
        text(
            "replication_delay",
            |line| line.node.row.lag_bytes.unwrap_or(0).to_string().into(),
            "Bytes of WAL that it is behind the primary; 0 if that is not known.",
        ),
        text(
            "replication_state",
            |line| line.node.row.replication_state.as_str().into(),
            "`state` of its WAL sender in `pg_stat_replication`.",
        ),
        text(
            "replication_sync_state",
            |line| line.node.row.sync_state.as_str().into(),
            "`sync_state` of its WAL sender in `pg_stat_replication`.",
        ),
        CHANGED,
    ],
    rows: node_lines,
};

pub(super) static POOL_HEALTH_CHECK_STATS: Table<NodeLine> = Table {
    name: "POOL_HEALTH_CHECK_STATS",
    about: "Weir's questions for the state of each node, as Pgpool-II shows its health checks. Times \
            are in milliseconds. Weir's own.",
    columns: &[
        NODE_ID,
        HOSTNAME,
        PORT,
        STATUS,
        ROLE,
        CHANGED,
        text("total_count", |line| count(line.node.row.checks.total), "Questions so far."),
        text(
            "success_count",
            |line| count(line.node.row.checks.total - line.node.row.checks.failed),
            "Questions with an answer.",
        ),
        text("fail_count", |line| count(line.node.row.checks.failed), "Questions without one."),
        text("skip_count", |_| "0".into(), "Always 0: a node that is down is asked as well."),
        text("retry_count", |_| "0".into(), "Always 0: Weir asks all the time."),
        text("average_retry_count", |_| "0.000000".into(), "Always 0."),
        text("max_retry_count", |_| "0".into(), "Always 0."),
        text(
            "max_duration",
            |line| count(millis(line.node.row.checks.longest)),
            "The longest time to an answer.",
        ),
        text(
            "min_duration",
            |line| count(millis(line.node.row.checks.shortest)),
            "The shortest time to an answer.",
        ),
        text(
            "average_duration",
            |line| format!("{:.6}", line.node.row.checks.average_ms()).into(),
            "The average time to an answer.",
        ),
        text("last_health_check", |line| (&line.last[0]).into(), "When the last question ended."),
        text(
            "last_successful_health_check",
            |line| (&line.last[1]).into(),
            "When the last answer came.",
        ),
        text("last_skip_health_check", |_| "".into(), "Always empty."),
        text(
            "last_failed_health_check",
            |line| (&line.last[2]).into(),
            "When a question had no answer last.",
        ),
    ],
    rows: node_lines,
};

pub(super) static POOL_BACKEND_STATS: Table<NodeLine> = Table {
    name: "POOL_BACKEND_STATS",
    about: "The queries at each node, as Pgpool-II counts statements. Weir does not count statements \
            by their kind, nor errors of PostgreSQL. Weir's own.",
    columns: &[
        NODE_ID,
        HOSTNAME,
        PORT,
        STATUS,
        ROLE,
        SELECTS,
        text("insert_cnt", |_| "0".into(), "Always 0."),
        text("update_cnt", |_| "0".into(), "Always 0."),
        text("delete_cnt", |_| "0".into(), "Always 0."),
        text("ddl_cnt", |_| "0".into(), "Always 0."),
        text(
            "other_cnt",
            |line| count(line.node.others),
            "Queries of any kind, also reads, of the pools at the primary, if it is the primary now.",
        ),
        text("panic_cnt", |_| "0".into(), "Always 0."),
        text("fatal_cnt", |_| "0".into(), "Always 0."),
        text("error_cnt", |_| "0".into(), "Always 0."),
    ],
    rows: node_lines,
};

fn count(number: u64) -> crate::show::Cell<'static> {
    number.to_string().into()
}

const PID: Column<Process> = text(
    "pool_pid",
    |own| own.pid.to_string().into(),
    "The `id` of SHOW CLIENTS: each client counts as one process.",
);
const STARTED: Column<Process> =
    text("start_time", |own| own.connected_at.as_str().into(), "When the client connected.");
const CONNECTIONS: Column<Process> =
    text("client_connection_count", |_| "0".into(), "Always 0: a client has a process of its own.");
const DATABASE: Column<Process> =
    text("database", |own| own.database.as_str().into(), "Name the client asked for.");
const USER: Column<Process> =
    text("username", |own| own.user.as_str().into(), "The client's user.");
const OPENED: Column<Process> = text(
    "backend_connection_time",
    |own| own.server_opened_at.as_str().into(),
    "When its server was opened; empty without a server.",
);
const COUNTER: Column<Process> = text("pool_counter", |_| "1".into(), "Always 1.");
const DOES: Column<Process> = text(
    "status",
    |own| own.status.into(),
    "`Execute command` while a request runs or waits, `Idle in transaction` or `Idle`.",
);

pub(super) static POOL_PROCESSES: Table<Process> = Table {
    name: "POOL_PROCESSES",
    about: "The clients, as Pgpool-II shows its processes. Weir's own.",
    columns: &[PID, STARTED, CONNECTIONS, DATABASE, USER, OPENED, COUNTER, DOES],
    rows: |view| pgpool::processes(&view.snapshot),
};

pub(super) static POOL_POOLS: Table<Process> = Table {
    name: "POOL_POOLS",
    about: "The clients with their servers, as Pgpool-II shows its pools. Weir's own.",
    columns: &[
        PID,
        STARTED,
        CONNECTIONS,
        text("pool_id", |_| "0".into(), "Always 0: a client has one server at a time."),
        text(
            "backend_id",
            |own| own.node.to_string().into(),
            "The node of its server, or the primary while it has no server; -1 outside of clusters.",
        ),
        DATABASE,
        USER,
        OPENED,
        text(
            "client_connection_time",
            |own| own.connected_at.as_str().into(),
            "When the client connected.",
        ),
        text("client_disconnection_time", |_| "".into(), "Always empty: the client is connected."),
        text(
            "client_idle_duration",
            |own| own.idle.to_string().into(),
            "Seconds since its last request came; 0 while it runs.",
        ),
        text("majorversion", |_| "3".into(), "The protocol's version."),
        text("minorversion", |_| "0".into(), "The protocol's version."),
        COUNTER,
        text(
            "pool_backendpid",
            |own| own.backend_pid.to_string().into(),
            "The server's process; 0 without a server.",
        ),
        text("pool_connected", |_| "1".into(), "Always 1: the client is connected."),
        DOES,
        text(
            "load_balance_node",
            |own| if own.is_at_reader { "1" } else { "0" }.into(),
            "1 while it reads from a standby.",
        ),
        text("client_host", |own| own.client_host.as_str().into(), "The client's address."),
        text("client_port", |own| own.client_port.as_str().into(), "The client's port."),
        text("statement", |_| "".into(), "Always empty: Weir keeps no texts of statements."),
    ],
    rows: |view| pgpool::processes(&view.snapshot),
};

pub(super) static POOL_VERSION: Table<String> = Table {
    name: "POOL_VERSION",
    about: "The version of Pgpool-II that `pcp_compat` names, with Weir's own. Weir's own.",
    columns: &[text("pool_version", |own| own.into(), "Both versions.")],
    rows: |view| vec![pgpool::version(&view.snapshot.config)],
};

pub(super) static POOL_STATUS: Table<[String; 3]> = Table {
    name: "POOL_STATUS",
    about: "The global keys of Weir's configuration and the nodes, as Pgpool-II shows its parameters. \
            `PGPOOL SHOW ALL` is the same. Weir's own.",
    columns: &[
        text(
            "item",
            |own| (&own[0]).into(),
            "Name of the key, or `backend_…` with a node's number.",
        ),
        text("value", |own| (&own[1]).into(), "Its present value."),
        text("description", |own| (&own[2]).into(), "Where the key is explained."),
    ],
    rows: |view| pgpool::settings(&view.snapshot),
};
