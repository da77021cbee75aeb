//! `pg_pooler_state()` and the other functions and views of the extension.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use testkit::{Authority, Builtin, Postgres, Version, eventually, frontend};

use super::set_heard;
use crate::support;

fn server(settings: &str) -> Builtin {
    server_on(Version::Installed, settings)
}

fn server_on(version: Version, settings: &str) -> Builtin {
    let server = Builtin::serving_on(version, settings);
    server.create_functions("postgres");
    server
}

fn sum(server: &Builtin, column: &str) -> u64 {
    let sql = format!("SELECT sum({column}) FROM pg_pooler_state()");
    server.superuser("postgres").value(&sql).parse().expect("a number")
}

#[test]
fn the_state_has_eleven_columns_and_a_row_for_each_worker() {
    if !support::only_weir() {
        return;
    }
    let server = server("weir.connection_proxies = 3");
    let mut superuser = server.superuser("postgres");
    let outcome = superuser.query("SELECT * FROM pg_pooler_state()");
    let columns = "SELECT string_agg(n, ' ' ORDER BY i) FROM pg_proc, \
                   unnest(proargnames) WITH ORDINALITY AS names(n, i) \
                   WHERE proname = 'pg_pooler_state'";
    assert_eq!(
        superuser.value(columns),
        "pid n_clients n_ssl_clients n_pools n_backends n_dedicated_backends n_idle_backends \
         n_idle_clients tx_bytes rx_bytes n_transactions"
    );
    assert_eq!(outcome.rows.len(), 3);
    let pid = server.pooler_pid().to_string();
    assert!(outcome.rows.iter().all(|row| row[0].as_deref() == Some(pid.as_str())), "{outcome:?}");
}

#[test]
fn the_counters_are_exact() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        for path in ["proxy", "direct"] {
            the_counters_are_exact_on(version, path);
        }
    }
}

fn the_counters_are_exact_on(version: Version, path: &str) {
    let settings = format!("weir.connection_proxies = 2\nweir.data_path = {path}");
    let server = server_on(version, &settings);
    let database = server.database();
    // So the log shows what pgbench has asked.
    server.sql("postgres", "ALTER ROLE app SET log_statement = 'all'");
    support::run(
        Postgres::client_program("pgbench", server.port(), &database).args(["-i", "-q", "-n"]),
    );
    eventually("no client is left", Duration::from_secs(10), || {
        (sum(&server, "n_clients") == 0).then_some(())
    });
    let before = sum(&server, "n_transactions");
    support::run(
        Postgres::client_program("pgbench", server.pooler_port(), &database)
            .args(["-S", "-n", "-t", "1000", "-c", "10"]),
    );
    eventually("no client is left", Duration::from_secs(10), || {
        (sum(&server, "n_clients") == 0).then_some(())
    });
    let after = sum(&server, "n_transactions");
    let pool = format!("SELECT data_path FROM weir_pools WHERE database = '{database}'");
    assert_eq!(server.superuser("postgres").value(&pool), path);
    let log = server.log();
    let asked = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(asked("statement: SELECT abalance FROM pgbench_accounts"), 10_000);
    // Before it begins, pgbench asks for its scale and for partitions.
    assert_eq!(asked("statement: select count(*) from pgbench_branches"), 1);
    assert_eq!(asked("statement: select o.n, p.partstrat"), 1);
    assert_eq!(after - before, 10_000 + 2);
    assert!(sum(&server, "tx_bytes") > 0 && sum(&server, "rx_bytes") > 0);
}

/// The bytes that a relay between the client and the port would count.
#[test]
fn the_bytes_are_those_of_the_clients() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        for path in ["proxy", "direct"] {
            let server = server_on(version, &format!("weir.data_path = {path}"));
            let mut client = server.client("postgres");
            client.rows("SELECT 1");
            let read = || [sum(&server, "tx_bytes"), sum(&server, "rx_bytes")];
            // Counters of the first request may still be on their way.
            let before = eventually("two equal readings", Duration::from_secs(10), || {
                let first = read();
                server.superuser("postgres").rows("SELECT pg_sleep(0.3)");
                (read() == first).then_some(first)
            });
            let (mut told, mut asked) = (0, 0);
            for count in [1, 1_000, 100_000] {
                let query = frontend::query(&format!("SELECT repeat('x', {count})"));
                asked += query.len() as u64;
                client.send(query);
                let answer = client.read_to_ready();
                told += answer.iter().map(|message| 5 + message.body.len() as u64).sum::<u64>();
            }
            let expected = [before[0] + told, before[1] + asked];
            eventually(
                &format!("{version:?} {path}: {expected:?}"),
                Duration::from_secs(10),
                || (read() == expected).then_some(()),
            );
        }
    }
}

#[test]
fn clients_with_tls_are_counted() {
    if !support::only_weir() {
        return;
    }
    let server = server("weir.connection_proxies = 2");
    server.offer_tls(&Authority::new("weir test").server());
    let psql = |sql: &str| {
        let mut psql = Postgres::client_program("psql", server.pooler_port(), "postgres");
        psql.env("PGSSLMODE", "require").args(["-XAtc", sql]).stderr(Stdio::null());
        psql
    };
    eventually("a client with TLS is let in", Duration::from_secs(10), || {
        psql("SELECT 1").output().expect("psql runs").status.success().then_some(())
    });
    let mut secured = psql("SELECT pg_sleep(60)").spawn().expect("psql runs");
    let figures = || ["n_clients", "n_ssl_clients"].map(|column| sum(&server, column));
    let plain = server.client("postgres");
    eventually("both", Duration::from_secs(10), || (figures() == [2, 1]).then_some(()));
    secured.kill().expect("our own child");
    secured.wait().expect("our own child");
    eventually("one", Duration::from_secs(10), || (figures() == [1, 0]).then_some(()));
    drop(plain);
    eventually("none", Duration::from_secs(10), || (figures() == [0, 0]).then_some(()));
}

#[test]
fn the_gauges_count_clients_and_servers_core() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        for (path, pin) in [("proxy", "temporary object"), ("direct", "direct pool")] {
            the_gauges_count_on(version, path, pin);
        }
    }
}

fn the_gauges_count_on(version: Version, path: &str, pin: &str) {
    // While clients wait, a lobby may get more backends than they need, but not here.
    let settings =
        format!("weir.connection_proxies = 2\nweir.session_pool_size = 1\nweir.data_path = {path}");
    let server = server_on(version, &settings);
    let mut clients: Vec<_> = (0..4).map(|_| server.client("postgres")).collect();
    clients[0].rows("CREATE TEMP TABLE t (a int)");
    clients[1].rows("BEGIN");
    eventually("the figures", Duration::from_secs(10), || {
        let figures = ["n_clients", "n_idle_clients", "n_backends", "n_dedicated_backends"]
            .map(|column| sum(&server, column));
        (figures == [4, 2, 2, 1]).then_some(())
    });
    let mut superuser = server.superuser("postgres");
    // The view itself is a client of the console.
    let pooled = "SELECT count(*) FROM weir_clients WHERE database = 'postgres'";
    assert_eq!(superuser.value(pooled), "4");
    assert_eq!(superuser.value("SELECT reason FROM weir_pins"), pin);
    let joined =
        "SELECT count(*) FROM weir_servers s JOIN pg_stat_activity a ON a.pid = s.remote_pid";
    assert_eq!(superuser.value(joined), "2");
    assert_eq!(superuser.value("SELECT sv_pinned FROM weir_pools WHERE \"user\" = 'app'"), "1");
    drop(clients);
    eventually("all have left", Duration::from_secs(10), || {
        (sum(&server, "n_clients") + sum(&server, "n_dedicated_backends") == 0).then_some(())
    });
}

#[test]
fn orders_reach_the_pooler() {
    if !support::only_weir() {
        return;
    }
    let server = server("");
    let database = server.database();
    let mut client = server.client(&database);
    let backend = client.value("SELECT pg_backend_pid()");
    let mut superuser = server.superuser("postgres");
    let refused = superuser.query("SELECT weir_order(NULL, NULL)").error.expect("no order");
    assert_eq!(refused.code(), "22004");
    superuser.rows(&format!("SELECT weir_pause('{database}')"));
    assert!(server.backends(&database).is_empty());
    client.send(frontend::query("SELECT pg_backend_pid()"));
    superuser.rows(&format!("SELECT weir_resume('{database}')"));
    let rows: Vec<_> = client.read_to_ready();
    let answer = rows.iter().find(|message| message.tag == b'D').expect("a row").row();
    let second = answer[0].clone().expect("a number");
    assert_ne!(second, backend);
    superuser.rows("SELECT weir_reconnect()");
    eventually("another backend serves", Duration::from_secs(10), || {
        (client.value("SELECT pg_backend_pid()") != second).then_some(())
    });
    superuser.rows("SELECT weir_reload()");
    // The views have all columns, whatever the console shows.
    superuser.rows("SELECT weir_order('SET console_columns = pgbouncer', NULL)");
    assert_ne!(superuser.value("SELECT count(data_path) FROM weir_pools"), "0");
    let error = superuser.query("SELECT weir_order('PAUSES', 'app')").error.expect("no command");
    assert_eq!(error.code(), "08000");
    assert!(error.message().contains("PAUSES \"app\" failed"), "{error:?}");
    assert_eq!(
        superuser
            .query("SELECT * FROM weir_show('X; SHUTDOWN') AS t(a text)")
            .error
            .expect("it is no word")
            .code(),
        "22023"
    );
}

#[test]
fn only_superusers_give_orders_and_only_monitors_look_core_strict() {
    if !support::only_weir() {
        return;
    }
    let server = server("");
    let mut superuser = server.superuser("postgres");
    superuser.rows("CREATE ROLE watcher LOGIN PASSWORD 'x' IN ROLE pg_monitor");
    let reads = [
        "SELECT * FROM pg_pooler_state()",
        "SELECT * FROM weir_pools",
        "SELECT * FROM weir_clients",
        "SELECT * FROM weir_servers",
        "SELECT * FROM weir_pins",
    ];
    let orders = [
        "SELECT weir_pause('x')",
        "SELECT weir_resume()",
        "SELECT weir_reload()",
        "SELECT weir_reconnect()",
        "SELECT weir_order('SHUTDOWN', NULL)",
    ];
    for (role, may_read) in [("watcher", true), ("app", false)] {
        superuser.rows(&format!("SET SESSION AUTHORIZATION {role}"));
        for sql in reads {
            assert_eq!(superuser.query(sql).error.is_none(), may_read, "{role}: {sql}");
        }
        for sql in orders {
            let error = superuser.query(sql).error.expect("it is refused");
            assert_eq!(error.code(), "42501", "{role}: {sql}");
        }
        superuser.rows("RESET SESSION AUTHORIZATION");
    }
}

#[test]
fn every_object_has_a_comment() {
    if !support::only_weir() {
        return;
    }
    let server = server("");
    let bare = "SELECT count(*) FROM (SELECT obj_description(oid, 'pg_proc') FROM pg_proc \
                WHERE proname ~ '^(weir_|pg_pooler_state)' UNION ALL \
                SELECT obj_description(oid, 'pg_class') FROM pg_class WHERE relname ~ '^weir_') \
                AS all_objects(comment)";
    let mut superuser = server.superuser("postgres");
    assert_eq!(superuser.value(bare), "11");
    assert_eq!(superuser.value(&format!("{bare} WHERE comment IS NULL")), "0");
}

#[test]
fn without_a_pooler_the_functions_say_so() {
    if !support::only_weir() {
        return;
    }
    let server = server("");
    set_heard(&server, "weir.program", "/nonexistent/weir");
    support::kill9(server.pooler_pid());
    server.log_contains(&["/nonexistent/weir", "No such file"]);
    let mut superuser = server.superuser("postgres");
    let error = superuser.query("SELECT * FROM pg_pooler_state()").error.expect("there is none");
    assert!(error.message().contains("the connection pooler cannot start"), "{error:?}");
}

/// PostgreSQL 18 finds extensions in other folders than its own.
#[test]
fn the_extension_is_created_in_the_database_postgres_unless_that_is_switched_off() {
    if !support::only_weir() {
        return;
    }
    let version = Version::Eighteen;
    let folder = testkit::open_folder("extension");
    let files = folder.join("extension");
    fs::create_dir(&files).expect("our own folder");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../extension");
    let control = fs::read_to_string(sources.join("weir.control")).expect("a source");
    let library = testkit::library_file(version).with_extension("");
    let control = control.replace("$libdir/weir", &library.display().to_string());
    fs::write(files.join("weir.control"), control).expect("our own folder");
    fs::copy(sources.join("weir--1.0.sql"), files.join("weir--1.0.sql")).expect("our own folder");
    testkit::give_away(&folder);
    let settings = |create: &str| {
        let folder = folder.display();
        format!("extension_control_path = '{folder}'\nweir.create_extension = {create}")
    };
    let server = Builtin::start(version, &settings("on"));
    server.log_contains(&["weir: created the extension weir in the database postgres"]);
    server.wait_until_serving();
    let count = "SELECT count(*) FROM pg_extension WHERE extname = 'weir'";
    let state = "SELECT count(*) > 0 FROM pg_pooler_state()";
    assert_eq!(server.superuser("postgres").value(state), "t");
    let other = server.database();
    assert_eq!(server.superuser(&other).value(count), "0");
    server.sql(&other, "CREATE EXTENSION weir");
    assert_eq!(server.superuser(&other).value(state), "t");
    let off = Builtin::start(version, &settings("off"));
    off.wait_until_serving();
    assert_eq!(off.superuser("postgres").value(count), "0");
}
