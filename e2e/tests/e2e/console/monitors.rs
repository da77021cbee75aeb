//! Monitors, which rely on the number, the order and the types of PgBouncer's columns.

use std::path::Path;
use std::process::Command;

use testkit::{Flavour, Pooler, Postgres, RawClient, Role, flavour};

use crate::support::{self, run};

/// The expectation of a view over dblink on a SHOW command.
struct Row {
    show: &'static str,
    /// Names and types of the columns.
    columns: &'static [&'static str],
    /// A condition on the rows, and the number of rows that meet it. `$db` is the client's database.
    which: &'static str,
    count: u32,
}

/// The row types of the twelve views of the extension pgbouncer_fdw, for PgBouncer 1.24 and newer.
/// Times, truth values and counters have types of their own there, so dblink reads the values, too.
const ROWS: [Row; 12] = [
    Row {
        show: "VERSION",
        columns: &["version text"],
        which: "substring(version from '\\d.+') ~ '^1\\.\\d+\\.\\d+$'",
        count: 1,
    },
    Row {
        show: "CLIENTS",
        columns: &[CONNECTION],
        which: "database = '$db' AND connect_time <= now() AND wait = 0 AND wait_us = 0",
        count: 1,
    },
    Row {
        show: "SERVERS",
        columns: &[CONNECTION],
        which: "database = '$db' AND state = 'active' AND request_time <= now()",
        count: 1,
    },
    Row {
        show: "SOCKETS",
        columns: &[CONNECTION, BUFFERS],
        which: "database = '$db' AND state IN ('cl_active', 'sv_active') AND send_avail = 0",
        count: 2,
    },
    Row {
        show: "POOLS",
        columns: &[
            "database text, \"user\" text, cl_active int, cl_waiting int, cl_active_cancel_req int",
            "cl_waiting_cancel_req int, sv_active int, sv_active_cancel int, sv_being_canceled int",
            "sv_idle int, sv_used int, sv_tested int, sv_login int, maxwait int, maxwait_us int",
            "pool_mode text, load_balance_hosts int",
        ],
        which: "database = '$db' AND cl_active = 1 AND sv_active = 1 AND maxwait = 0",
        count: 1,
    },
    Row {
        show: "STATS",
        columns: &[
            "database text, total_server_assignment_count int, total_xact_count bigint",
            "total_query_count bigint, total_received bigint, total_sent bigint",
            "total_xact_time bigint, total_query_time bigint, total_wait_time bigint",
            "total_client_parse_count int, total_server_parse_count int, total_bind_count int",
            "avg_server_assignment_count int, avg_xact_count bigint, avg_query_count bigint",
            "avg_recv bigint, avg_sent bigint, avg_xact_time bigint, avg_query_time bigint",
            "avg_wait_time bigint, avg_client_parse_count int, avg_server_parse_count int",
            "avg_bind_count int",
        ],
        which: "database = '$db' AND total_query_count = 1 AND total_server_assignment_count > 0",
        count: 1,
    },
    Row {
        show: "DATABASES",
        columns: &[
            "name text, host text, port int, database text, force_user text, pool_size int",
            "min_pool_size int, reserve_pool_size int, server_lifetime int, pool_mode text",
            "load_balance_hosts int, max_connections int, current_connections int",
            "max_client_connections int, current_client_connections int, paused int, disabled int",
        ],
        which: "name = '$db' AND database = '$db' AND current_connections = 1 AND paused = 0",
        count: 1,
    },
    Row {
        show: "USERS",
        columns: &[
            "name text, pool_size text, reserve_pool_size text, pool_mode text",
            "max_user_connections int, current_connections int, max_user_client_connections int",
            "current_client_connections int",
        ],
        which: "name = 'app' AND current_connections = 2",
        count: 1,
    },
    Row {
        show: "LISTS",
        columns: &["list text, items int"],
        which: "list IN ('used_clients', 'used_servers', 'dns_names') AND items > 0",
        count: 3,
    },
    Row {
        show: "CONFIG",
        columns: &["key text, value text, \"default\" text, changeable boolean"],
        which: "key = 'stats_users' AND changeable OR key = 'listen_port' AND NOT changeable",
        count: 2,
    },
    Row {
        show: "DNS_HOSTS",
        columns: &["hostname text, ttl bigint, addrs text"],
        which: "hostname = 'localhost' AND addrs LIKE '%127.0.0.1%'",
        count: 1,
    },
    Row {
        show: "DNS_ZONES",
        columns: &["zonename text, serial text, count int"],
        which: "true",
        count: 0,
    },
];

const CONNECTION: &str = "type text, \"user\" text, database text, replication text, state text,
     addr text, port int, local_addr text, local_port int, connect_time timestamptz,
     request_time timestamptz, wait int, wait_us int, close_needed int, ptr text, link text,
     remote_pid int, tls text, application_name text, prepared_statements int, id int";

const BUFFERS: &str = "recv_pos int, pkt_pos int, pkt_remain int, send_pos int, send_remain int,
     pkt_avail int, send_avail int";

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
    let (setup, database) = support::setup("transaction");
    let postgres = Postgres::shared();
    let reader = postgres.database();
    let by_name = format!("host=localhost port={} dbname={reader}", postgres.port());
    let pooler = setup.set("stats_users", Role::APP).database_at("by_name", &by_name).start();
    pooler.client("by_name").rows("SELECT 1");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    postgres.sql(&reader, "CREATE EXTENSION dblink");
    let console = format!(
        "host=127.0.0.1 port={} dbname=pgbouncer user={} password={}",
        pooler.port(),
        Role::APP,
        Role::APP_PASSWORD
    );
    for Row { show, columns, which, count } in ROWS {
        let columns = columns.join(", ");
        let rows =
            format!("dblink('{console}', 'show {}') AS rows({columns})", show.to_lowercase());
        let which = which.replace("$db", &database);
        let sql = format!("SELECT count(*) FROM {rows} WHERE {which}");
        let seen = postgres.sql(&reader, &sql)[0][0].clone();
        assert_eq!(
            seen,
            Some(count.to_string()),
            "{show}: {:?}",
            pooler.admin(&format!("SHOW {show}"))
        );
    }
}

/// Shell scripts, such as those for Zabbix, split the lines at `|`.
#[test]
fn psql_reads_the_tables_without_their_heads() {
    let (pooler, database, _client) = watched();
    let shows = ["lists", "pools", "stats", "databases", "totals"];
    let rows = |shows: &[&str]| -> Vec<Vec<String>> {
        let mut psql = pooler.client_program("psql", "pgbouncer");
        psql.args(["-X", "-A", "-t"]);
        for show in shows {
            psql.args(["-c", &format!("show {show};")]);
        }
        let said = run(&mut psql);
        said.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    };
    for show in shows {
        let shown = pooler.console().query(&format!("show {show};"));
        let rows = rows(&[show]);
        assert_eq!(rows.len(), shown.rows.len(), "{show}");
        assert!(rows.iter().all(|row| row.len() == shown.columns.len()), "{show}: {rows:?}");
    }
    let all = rows(&shows);
    let of = |name: &str| all.iter().filter(|row| row[0] == name).collect::<Vec<_>>();
    assert_eq!(of("used_servers"), [&["used_servers", "1"]]);
    let [pool, stats, place] = of(&database)[..] else { panic!("{all:?}") };
    assert_eq!(pool[1..4], [Role::APP, "1", "0"]);
    assert!(stats[1..].iter().all(|count| count.parse::<u64>().is_ok()), "{stats:?}");
    assert_eq!(place[1..4], ["127.0.0.1", &Postgres::shared().port().to_string(), &database]);
    assert_eq!(of("total_query_count").len(), 1);
}

#[test]
fn psycopg2_reads_the_console_with_autocommit() {
    let (pooler, database, _client) = watched();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/psycopg2_console.py");
    let console = format!(
        "host=127.0.0.1 port={} dbname=pgbouncer user={} password={}",
        pooler.port(),
        Role::APP,
        Role::APP_PASSWORD
    );
    // Uses Debian's Python, since Debian's package of the driver belongs to it.
    let mut python = Command::new("/usr/bin/python3");
    let output = run(python.arg("-B").arg(path).args([&console, &database]));
    assert_eq!(output, "ok\n", "is python3-psycopg2 installed?");
}

/// pgx sends a comment, and lib/pq a semicolon.
#[test]
fn the_pings_of_drivers_are_answered_and_not_logged() {
    if !support::only_weir() {
        return;
    }
    let (pooler, ..) = watched();
    let mut console =
        pooler.login(Role::APP, "pgbouncer", Role::APP_PASSWORD).expect("one of stats_users");
    for ping in [&b"Q\0\0\0\x0c-- ping\0"[..], b"Q\0\0\0\x06;\0", b"Q\0\0\0\x05\0"] {
        console.send(ping);
        let tags: String = console.read_to_ready().iter().map(|m| char::from(m.tag)).collect();
        assert_eq!(tags, "IZ", "{}", ping.escape_ascii());
    }
    // The log has this line, so it would have those of the pings, too.
    let refused = console.query("pong").error.expect("no command");
    pooler.log_contains(refused.message());
    assert_eq!(pooler.log().matches("invalid command").count(), 2, "{}", pooler.log());
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
        let said = run(&mut check);
        assert!(said.contains(" OK: ") && said.contains(&format!("{database}={value}")), "{said}");
    }
}
