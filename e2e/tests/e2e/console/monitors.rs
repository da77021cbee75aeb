//! Monitors that rely on the number, the order and the types of PgBouncer's columns.

use std::process::Command;

use testkit::{Flavour, Pooler, Postgres, RawClient, Role, flavour};

use crate::support;

/// The row types that views over dblink give to PgBouncer's console.
const ROWS: [(&str, &str); 4] = [
    (
        "SHOW POOLS",
        "database text, \"user\" text, cl_active int, cl_waiting int, cl_active_cancel_req int,
         cl_waiting_cancel_req int, sv_active int, sv_active_cancel int, sv_being_canceled int,
         sv_idle int, sv_used int, sv_tested int, sv_login int, maxwait int, maxwait_us int,
         pool_mode text, load_balance_hosts text",
    ),
    (
        "SHOW STATS",
        "database text, total_server_assignment_count numeric, total_xact_count numeric,
         total_query_count numeric, total_received numeric, total_sent numeric,
         total_xact_time numeric, total_query_time numeric, total_wait_time numeric,
         total_client_parse_count numeric, total_server_parse_count numeric,
         total_bind_count numeric, avg_server_assignment_count numeric, avg_xact_count numeric,
         avg_query_count numeric, avg_recv numeric, avg_sent numeric, avg_xact_time numeric,
         avg_query_time numeric, avg_wait_time numeric, avg_client_parse_count numeric,
         avg_server_parse_count numeric, avg_bind_count numeric",
    ),
    ("SHOW CLIENTS", CONNECTION),
    ("SHOW SERVERS", CONNECTION),
];

const CONNECTION: &str = "type text, \"user\" text, database text, replication text, state text,
     addr text, port int, local_addr text, local_port int, connect_time text, request_time text,
     wait int, wait_us int, close_needed int, ptr text, link text, remote_pid int, tls text,
     application_name text, prepared_statements int, id int";

/// A pooler, its database, and a client in a transaction.
fn watched() -> (Pooler, String, RawClient) {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("stats_users", Role::APP).start();
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    (pooler, database, client)
}

#[test]
fn dblink_reads_the_console_by_pgbouncers_row_types_core() {
    if flavour() == Flavour::PgBouncer {
        // The one of Debian is older and has fewer columns.
        return;
    }
    let (pooler, database, _client) = watched();
    let postgres = Postgres::shared();
    let reader = postgres.database();
    postgres.sql(&reader, "CREATE EXTENSION dblink");
    let console = format!(
        "host=127.0.0.1 port={} dbname=pgbouncer user={} password={}",
        pooler.port(),
        Role::APP,
        Role::APP_PASSWORD
    );
    for (command, columns) in ROWS {
        let rows = format!("dblink('{console}', '{command}') AS rows({columns})");
        let sql = format!("SELECT count(*) FROM {rows} WHERE database = '{database}'");
        assert_eq!(postgres.sql(&reader, &sql)[0][0].as_deref(), Some("1"), "{command}");
    }
}

#[test]
fn check_postgres_watches_the_pools() {
    let (pooler, database, _client) = watched();
    for (action, value) in [
        ("pgb_pool_cl_active", "1"),
        ("pgb_pool_cl_waiting", "0"),
        ("pgb_pool_sv_active", "1"),
        ("pgb_pool_sv_idle", "0"),
        ("pgb_pool_maxwait", "0"),
    ] {
        let mut check = Command::new("check_postgres");
        check
            .args([&format!("--action={action}"), "--dbname=pgbouncer", "--host=127.0.0.1"])
            .args([&format!("--port={}", pooler.port()), &format!("--dbuser={}", Role::APP)])
            .args(["--warning=100", "--critical=200"])
            .env("PGPASSWORD", Role::APP_PASSWORD);
        let said = support::run(&mut check);
        assert!(said.contains(" OK: ") && said.contains(&format!("{database}={value}")), "{said}");
    }
}
