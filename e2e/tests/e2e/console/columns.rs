//! Names and types of the columns, which dashboards and exporters depend on. They are those of
//! 1.25.2, followed by a few of Weir's own.

use crate::support;
use testkit::{Pooler, frontend};

const TEXT: u32 = 25;
const INT4: u32 = 23;
const INT8: u32 = 20;
const BYTEA: u32 = 17;
const NUMERIC: u32 = 1700;

const POOLS: &str = "database:t user:t cl_active cl_waiting cl_active_cancel_req \
    cl_waiting_cancel_req sv_active sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested \
    sv_login maxwait maxwait_us pool_mode:t load_balance_hosts:t";

const OWN_POOLS: &str = "sv_pinned session_state:t data_path:t why:t";

const SOCKETS: &str = "type:t user:t database:t replication:t state:t addr:t port local_addr:t \
    local_port connect_time:t request_time:t wait wait_us close_needed ptr:t link:t remote_pid \
    tls:t application_name:t prepared_statements id";

const OWN_CLIENTS: &str = "pin_reason:t pin_age:q pin_fingerprint:t";

const OWN_ACTIVITY: &str = "activity:t activity_age:q";

const BUFFERS: &str = "recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail";

const FDS: &str = "fd task:t user:t database:t addr:t port cancel:q link client_encoding:t \
    std_strings:t datestyle:t timezone:t password:t scram_client_key:b scram_server_key:b";

const DATABASES: &str = "name:t host:t port database:t force_user:t pool_size min_pool_size \
    reserve_pool_size server_lifetime pool_mode:t load_balance_hosts:t max_connections \
    current_connections max_client_connections current_client_connections paused disabled";

const STATS: &str = "database:t total_server_assignment_count:n total_xact_count:n \
    total_query_count:n total_received:n total_sent:n total_xact_time:n total_query_time:n \
    total_wait_time:n total_client_parse_count:n total_server_parse_count:n total_bind_count:n \
    avg_server_assignment_count:n avg_xact_count:n avg_query_count:n avg_recv:n avg_sent:n \
    avg_xact_time:n avg_query_time:n avg_wait_time:n avg_client_parse_count:n \
    avg_server_parse_count:n avg_bind_count:n";

/// Compares the columns with a list of names. A type follows each name, unless it is int4.
#[track_caller]
fn assert_columns(pooler: &Pooler, command: &str, expected: &str) {
    let mut console = pooler.console();
    console.send(frontend::query(command));
    let messages = console.read_to_ready();
    let description = messages.iter().find(|m| m.tag == b'T').expect("a RowDescription");
    let seen: Vec<_> = description.columns().into_iter().zip(description.column_types()).collect();
    let expected: Vec<_> = expected
        .split_whitespace()
        .map(|column| match column.split_once(':') {
            Some((name, "t")) => (name.to_owned(), TEXT),
            Some((name, "q")) => (name.to_owned(), INT8),
            Some((name, "b")) => (name.to_owned(), BYTEA),
            Some((name, _)) => (name.to_owned(), NUMERIC),
            None => (column.to_owned(), INT4),
        })
        .collect();
    assert_eq!(seen, expected, "{command}");
    let tag = messages.iter().find(|m| m.tag == b'C').expect("a CommandComplete").text();
    assert_eq!(tag, "SHOW");
}

#[test]
fn every_show_command_has_the_columns_of_pgbouncer_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("SELECT 1");
    assert_columns(&pooler, "SHOW VERSION", "version:t");
    assert_columns(&pooler, "SHOW CONFIG", "key:t value:t default:t changeable:t");
    assert_columns(&pooler, "SHOW POOLS", POOLS);
    assert_columns(&pooler, "SHOW CLIENTS", SOCKETS);
    assert_columns(&pooler, "SHOW SERVERS", SOCKETS);
    for command in ["SHOW SOCKETS", "SHOW ACTIVE_SOCKETS"] {
        assert_columns(&pooler, command, &format!("{SOCKETS} {BUFFERS}"));
    }
    assert_columns(&pooler, "SHOW FDS", FDS);
    assert_columns(&pooler, "SHOW MEM", "name:t size used free memtotal");
    assert_columns(&pooler, "SHOW DATABASES", DATABASES);
    assert_columns(&pooler, "SHOW STATS", STATS);
    pooler.log_contains("SHOW POOLS EXTENDED has Weir's own as well");
}

#[test]
fn weirs_own_columns_come_with_extended_or_by_a_key() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("SELECT 1");
    let own = |end: &str| {
        assert_columns(&pooler, &format!("SHOW POOLS{end}"), &format!("{POOLS} {OWN_POOLS}"));
        let clients = format!("{SOCKETS} {OWN_CLIENTS} {OWN_ACTIVITY}");
        assert_columns(&pooler, &format!("show clients{end};"), &clients);
        assert_columns(
            &pooler,
            &format!("SHOW SERVERS{end}"),
            &format!("{SOCKETS} {OWN_ACTIVITY}"),
        );
    };
    own(" EXTENDED");
    pooler.admin("SET console_columns = weir");
    own("");
    pooler.admin("SET console_columns = pgbouncer");
    assert_columns(&pooler, "SHOW POOLS", POOLS);
}

#[test]
fn the_columns_that_older_ones_have_too_are_there() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("SELECT 1");
    for (command, columns) in [
        ("SHOW POOLS", ["database", "user", "cl_active", "sv_idle", "maxwait", "pool_mode"]),
        ("SHOW CLIENTS", ["type", "user", "database", "state", "connect_time", "ptr"]),
        (
            "SHOW STATS",
            ["database", "total_xact_count", "total_sent", "avg_recv", "avg_sent", "avg_wait_time"],
        ),
    ] {
        let table = pooler.admin(command);
        for column in columns {
            assert!(table.columns.iter().any(|name| name == column), "{command}: {column}");
        }
    }
}

#[test]
fn show_fds_names_every_socket_and_what_cancels_it_to_admins_only() {
    let (setup, database) = support::setup("session");
    let pooler = setup.set("stats_users", testkit::Role::APP).start();
    let mut client = pooler.client(&database);
    let backend = client.value("SELECT pg_backend_pid()");
    let shown = pooler.admin("SHOW FDS");
    assert!(!shown.with("task", "pooler").column("fd").is_empty());
    let (client_row, server_row) = (shown.with("task", "client"), shown.with("task", "server"));
    assert_eq!(client_row.only("link"), server_row.only("fd"));
    assert_eq!(server_row.only("link"), client_row.only("fd"));
    assert_eq!(client_row.with("database", &database).only("client_encoding"), "UTF8");
    assert_eq!(server_row.only("std_strings"), "on");
    let cancel: u64 = server_row.only("cancel").parse().expect("a number");
    assert_eq!((cancel >> 32).to_string(), backend);
    let mut guest = pooler
        .login(testkit::Role::APP, "pgbouncer", testkit::Role::APP_PASSWORD)
        .expect("who may look");
    let error = guest.query("SHOW FDS").error.expect("a refusal");
    assert_eq!(error.message(), "admin access needed");
}
