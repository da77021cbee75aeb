//! The page agrees with the console.

use testkit::eventually;

use super::{PATIENCE, ask, get, page, pool_labels, pooler, until, value};
use crate::support;

/// A column of SHOW POOLS and the metrics with the same values.
const POOLS: [(&str, &[&str], &str); 8] = [
    (
        "cl_active",
        &["weir_pool_active_clients", "weir_pool_idle_clients"],
        "pgbouncer_pools_client_active_connections",
    ),
    ("cl_waiting", &["weir_pool_waiting_clients"], "pgbouncer_pools_client_waiting_connections"),
    ("sv_active", &["weir_pool_active_servers"], "pgbouncer_pools_server_active_connections"),
    ("sv_idle", &["weir_pool_idle_servers"], "pgbouncer_pools_server_idle_connections"),
    ("sv_used", &["weir_pool_used_servers"], "pgbouncer_pools_server_used_connections"),
    ("sv_tested", &["weir_pool_tested_servers"], "pgbouncer_pools_server_testing_connections"),
    ("sv_login", &["weir_pool_login_servers"], "pgbouncer_pools_server_login_connections"),
    (
        "sv_being_canceled",
        &["weir_pool_canceled_servers"],
        "pgbouncer_pools_server_being_canceled_connections",
    ),
];

/// A column of SHOW STATS_TOTALS and the metrics with the same values.
const STATS: [(&str, &str, &str); 5] = [
    (
        "xact_count",
        "weir_pool_transactions_total",
        "pgbouncer_stats_totals_sql_transactions_pooled_total",
    ),
    ("query_count", "weir_pool_queries_total", "pgbouncer_stats_totals_queries_pooled_total"),
    (
        "bytes_received",
        "weir_pool_received_bytes_total",
        "pgbouncer_stats_totals_received_bytes_total",
    ),
    ("bytes_sent", "weir_pool_sent_bytes_total", "pgbouncer_stats_totals_sent_bytes_total"),
    ("bind_count", "weir_pool_binds_total", "pgbouncer_stats_totals_binds_total"),
];

#[test]
fn it_agrees_with_the_console_in_both_sets_of_names_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) =
        pooler(|setup| setup.set("metrics_names", "both").set("default_pool_size", 2));
    let mut busy: Vec<_> = (0..2).map(|_| pooler.client(&database)).collect();
    for client in &mut busy {
        client.rows("BEGIN");
        client.rows("SELECT 1");
    }
    let mut waiting = pooler.client(&database);
    waiting.send(testkit::frontend::query("SELECT 2"));
    let _idle: Vec<_> = (0..3).map(|_| pooler.client(&database)).collect();
    support::until_waiting(&pooler, &database, 1);
    let labels = pool_labels(&database);
    until(port, "weir_pool_waiting_clients", &labels, 1.0);
    until(port, "weir_pool_idle_clients", &labels, 3.0);

    let page = page(port);
    let of = |name: &str, labels: &str| {
        value(&page, name, labels).unwrap_or_else(|| panic!("{name}{{{labels}}}: {page}"))
    };
    let pools = pooler.admin("SHOW POOLS").with("database", &database);
    for (column, ours, exporters) in POOLS {
        let expected: f64 = pools.only(column).parse().expect("a number");
        let ours: f64 = ours.iter().map(|name| of(name, &labels)).sum();
        assert_eq!((ours, of(exporters, &labels)), (expected, expected), "{column}");
    }
    let stats = pooler.admin("SHOW STATS_TOTALS").with("database", &database);
    for (column, ours, exporters) in STATS {
        let expected: f64 = stats.only(column).parse().expect("a number");
        let of_database = of(exporters, &format!("database=\"{database}\""));
        assert_eq!((of(ours, &labels), of_database), (expected, expected), "{column}");
    }
    assert!(of("weir_pool_oldest_wait_seconds", &labels) > 0.0);
    assert_eq!(of("weir_pool_max_servers", &labels), 2.0);
    assert_eq!((of("weir_clients", ""), of("weir_servers", "")), (6.0, 2.0));
    assert_eq!(of("weir_workers", ""), 2.0);
    let of_database = format!("database=\"{database}\"");
    assert_eq!(of("weir_database_clients", &of_database), 6.0);
    assert_eq!(of("pgbouncer_version_info", "version=\"PgBouncer 1.25.2\""), 1.0);
}

#[test]
fn times_are_in_histograms_whose_sums_are_those_of_the_console() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) = pooler(|setup| setup.set("default_pool_size", 1));
    let mut first = pooler.client(&database);
    first.rows("BEGIN");
    let mut second = pooler.client(&database);
    second.send(testkit::frontend::query("SELECT 2"));
    support::until_waiting(&pooler, &database, 1);
    first.rows("SELECT pg_sleep(0.3)");
    first.rows("COMMIT");
    second.read_to_ready();
    let labels = pool_labels(&database);
    // The first client has sent three queries, and the second one.
    until(port, "weir_pool_query_seconds_count", &labels, 4.0);
    let page = page(port);
    let of = |name: &str, labels: &str| value(&page, name, labels).expect("a sample");
    let stats = pooler.admin("SHOW STATS_TOTALS").with("database", &database);
    for (column, name) in [
        ("wait_time", "weir_pool_wait_seconds"),
        ("query_time", "weir_pool_query_seconds"),
        ("xact_time", "weir_pool_transaction_seconds"),
    ] {
        let micros: f64 = stats.only(column).parse().expect("a number");
        let sum = of(&format!("{name}_sum"), &labels) * 1e6;
        assert!((sum - micros).abs() < 1.0, "{column}: {sum} {micros}");
        // One query of each kind took at least 0.3 s, and none took 17 s.
        let below =
            |bound: &str| of(&format!("{name}_bucket"), &format!("{labels},le=\"{bound}\""));
        let count = of(&format!("{name}_count"), &labels);
        assert_eq!((below("16.0"), below("+Inf")), (count, count), "{column}");
        assert_eq!(below("0.25"), count - 1.0, "{column}: {page}");
    }
    let assignments: f64 = stats.only("server_assignment_count").parse().expect("a number");
    assert_eq!(of("weir_pool_wait_seconds_count", &labels), assignments);
    assert!(of("weir_pool_connect_seconds_count", &labels) >= 1.0);
}

#[test]
fn a_reload_changes_whose_histograms_the_page_has() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database, port) = pooler(|setup| setup.set("metrics_histograms", "total"));
    pooler.client(&database).rows("SELECT 1");
    let (count, labels) = ("weir_pool_query_seconds_count", pool_labels(&database));
    until(port, count, "", 1.0);
    let mut new_page = |value: &str| {
        pooler.reconfigure(|ini| ini.set("metrics_histograms", value));
        pooler.reload();
        let is_new = |page: &String| page.contains("_bucket") != (value == "none");
        eventually("the page is made anew", PATIENCE, || Some(page(port)).filter(is_new))
    };
    let none = new_page("none");
    assert_eq!(value(&none, count, ""), None);
    assert_eq!(value(&none, "weir_pool_queries_total", &labels), Some(1.0));
    let of_pools = new_page("pool");
    assert_eq!(value(&of_pools, count, ""), None);
    assert_eq!(value(&of_pools, count, &labels), Some(1.0));
    // SET does the same, and refuses another value.
    pooler.admin("SET metrics_histograms = total");
    until(port, count, "", 1.0);
    let refused = pooler.try_admin("SET metrics_histograms = each");
    assert!(refused.error.is_some(), "{refused:?}");
}

#[test]
fn readiness_follows_pause_and_the_end() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database, port) = pooler(|setup| setup);
    let status = |path: &str| get(port, path).map(|answer| (answer.status, answer.body));
    let ok = Some((200, "ok\n".to_owned()));
    assert_eq!((status("/readyz"), status("/healthz")), (ok.clone(), ok.clone()));
    // The console stays open, since a suspension ends with the console that ordered it.
    let mut console = pooler.console();
    for (order, word) in [("PAUSE", "paused"), ("SUSPEND", "suspended")] {
        console.query(order);
        let (code, why) = status("/readyz").expect("an answer");
        assert!(code == 503 && why.contains(word), "{code} {why}");
        assert_eq!(status("/healthz"), ok, "it lives");
        console.query("RESUME");
        assert_eq!(status("/readyz"), ok);
    }
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    pooler.signal("TERM");
    eventually("it is not ready", PATIENCE, || {
        let (code, why) = status("/readyz")?;
        (code == 503 && why.contains("shutting down")).then_some(())
    });
    assert_eq!(status("/metrics").expect("an answer").0, 200, "until the end");
    drop(client);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn only_the_documented_pages_are_served() {
    if !support::only_weir() {
        return;
    }
    let (_pooler, _, port) = pooler(|setup| setup);
    let status = |request: &str| ask(port, request).expect("an answer").status;
    assert_eq!(get(port, "/metrics/").expect("an answer").status, 404);
    assert_eq!(status("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"), 405);
    assert_eq!(status("this is no HTTP\r\n\r\n"), 400);
    let head = ask(port, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("an answer");
    assert_eq!((head.status, &*head.body), (200, ""));
    let plain = get(port, "/metrics").expect("an answer");
    assert!(plain.head.contains("text/plain; version=0.0.4"), "{}", plain.head);
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\
        Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n";
    let open = ask(port, request).expect("an answer");
    assert!(open.head.contains("application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(open.body.ends_with("\n# EOF\n"), "{}", open.body);
    let kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                encoding=delimited";
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {kind}\r\n\r\n");
    let messages = ask(port, &request).expect("an answer");
    assert!(messages.head.contains(kind), "{}", messages.head);
    assert!(messages.body.contains("weir_build_info"), "{}", messages.body);
}

#[test]
fn failures_are_counted_by_their_reason() {
    if !support::only_weir() {
        return;
    }
    let gone = testkit::free_port();
    let (pooler, database, port) = pooler(|setup| {
        let gone = format!("host=127.0.0.1 port={gone}");
        let setup = setup.set("auth_type", "scram-sha-256").set("query_wait_timeout", 1);
        setup.database_at("gone", &gone)
    });
    let page = page(port);
    let errors = |reason: &str| format!("reason=\"{reason}\"");
    assert_eq!(value(&page, "weir_client_errors_total", &errors("password")), Some(0.0));
    assert_eq!(value(&page, "weir_server_failures_total", &errors("lost")), Some(0.0));
    for _ in 0..2 {
        assert!(pooler.login(testkit::Role::APP, &database, "wrong").is_err());
    }
    let password = testkit::Role::APP_PASSWORD;
    assert!(pooler.login(testkit::Role::APP, "no_such_database", password).is_err());
    assert!(pooler.login(testkit::Role::APP, "gone", password).is_err());
    until(port, "weir_client_errors_total", &errors("password"), 2.0);
    until(port, "weir_client_errors_total", &errors("unknown_database"), 1.0);
    eventually("the address is counted", PATIENCE, || {
        let page = get(port, "/metrics")?.body;
        (value(&page, "weir_server_failures_total", &errors("connect"))? >= 1.0).then_some(())
    });
    let mut client = pooler.client(&database);
    let backend = client.value("SELECT pg_backend_pid()").parse().expect("a process id");
    support::terminate_and_wait(backend);
    until(port, "weir_server_failures_total", &errors("lost"), 1.0);
}

#[test]
fn metrics_show_the_expiry_of_a_certificate() {
    if !support::only_weir() {
        return;
    }
    let authority = testkit::Authority::new("weir test");
    let own = authority.server();
    let (_pooler, _, port) = pooler(|setup| {
        let setup = setup.set("client_tls_sslmode", "allow");
        setup.set("client_tls_cert_file", own.certificate()).set("client_tls_key_file", own.key())
    });
    let page = page(port);
    let key = "key=\"client_tls_cert_file\"";
    let until = value(&page, "weir_certificate_not_after_timestamp_seconds", key).expect("a time");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    assert!(until > now.expect("after 1970").as_secs_f64(), "{until}");
}
