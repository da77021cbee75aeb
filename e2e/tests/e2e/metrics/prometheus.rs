//! Debian's Prometheus scrapes Weir, and accepts the packaged rules and dashboard.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{eventually, free_port, give_away, mortal_command, open_folder};

use super::{PATIENCE, ask, page, pool_labels, pooler};
use crate::support;

/// A Prometheus that scrapes one Weir once a second.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    fn start(weir: u16) -> Self {
        Self::start_with(weir, &[])
    }

    fn start_with(weir: u16, arguments: &[&str]) -> Self {
        let folder = open_folder("prometheus");
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - job_name: weir\n  static_configs: [{{targets: ['127.0.0.1:{weir}']}}]\n",
            packaged("weir.rules.yml").canonicalize().expect("it is part of the project").display()
        );
        fs::write(&config, text).expect("our own folder");
        let data = folder.join("data");
        fs::create_dir(&data).expect("our own folder");
        give_away(&data);
        let port = free_port();
        let child = mortal_command("/usr/bin/prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=error")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Prometheus (scripts/setup installs it)");
        Self { child, port }
    }

    /// Returns the answer to a query, as JSON.
    fn query(&self, promql: &str) -> Option<String> {
        let mut encoded = String::new();
        for byte in promql.bytes() {
            let _ = write!(encoded, "%{byte:02x}");
        }
        let path = format!("/api/v1/query?query={encoded}");
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        ask(self.port, &request).map(|answer| answer.body)
    }

    /// Waits until the answer contains these words.
    #[track_caller]
    fn until(&self, promql: &str, words: &str) {
        let mut last = None;
        let found = testkit::poll_until(PATIENCE, || {
            last = self.query(promql);
            last.as_ref()?.contains(words).then_some(())
        });
        assert!(found.is_some(), "{promql}: {last:?}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus").join(name)
}

/// Returns the queries of the dashboard, with values for Grafana's variables.
fn queries_of_the_dashboard() -> Vec<String> {
    let text = fs::read_to_string(packaged("weir-dashboard.json")).expect("it is packaged");
    let queries = text.lines().filter_map(|line| {
        let query = line.trim().strip_prefix("\"expr\": \"")?.strip_suffix("\",")?;
        let query = query.replace("\\\"", "\"").replace("$__rate_interval", "5s");
        Some(query.replace("$instance", ".*").replace("$database", ".*"))
    });
    queries.collect()
}

#[test]
fn prometheus_answers_queries_about_weir() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) =
        pooler(|setup| setup.set("metrics_names", "both").set("default_pool_size", 1));
    let prometheus = Prometheus::start(port);
    prometheus.until("up{job=\"weir\"}", ",\"1\"]");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    client.rows("SELECT 1");
    let mut waiting = pooler.client(&database);
    waiting.send(testkit::frontend::query("SELECT 2"));
    let own = format!("database=\"{database}\"");
    prometheus.until(&format!("weir_pool_waiting_clients{{{own}}}"), ",\"1\"]");
    prometheus.until(&format!("pgbouncer_pools_client_waiting_connections{{{own}}}"), ",\"1\"]");
    client.rows("COMMIT");
    waiting.read_to_ready();
    let wait = format!(
        "histogram_quantile(0.99, sum by (le) (rate(weir_pool_wait_seconds_bucket{{{own}}}[10s]))) > 0"
    );
    eventually("there is a percentile", PATIENCE, || {
        client.rows("SELECT 1");
        prometheus.query(&wait)?.contains("\"value\"").then_some(())
    });
    // OpenMetrics, the format that Prometheus requests, has its own types for these.
    prometheus.until("weir_build_info", "\"pgbouncer_version\":\"1.25.2\"");
    prometheus.until("weir_pool_queries_total > 1", "\"value\"");

    let queries = queries_of_the_dashboard();
    assert!(queries.len() > 30, "{queries:?}");
    for query in &queries {
        // A ratio may have no value, but each of its metrics must exist.
        prometheus.until(query, "\"status\":\"success\"");
        prometheus.until(query, "\"value\"");
    }
    let rules = ask(prometheus.port, "GET /api/v1/rules HTTP/1.0\r\nHost: x\r\n\r\n");
    let rules = rules.expect("an answer").body;
    assert!(
        rules.contains("\"name\":\"WeirDown\"") && !rules.contains("\"health\":\"err\""),
        "{rules}"
    );
}

/// Prometheus asks for protobuf with this feature, and keeps native histograms only.
#[test]
fn prometheus_reads_native_histograms() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) = pooler(|setup| setup);
    let prometheus = Prometheus::start_with(port, &["--enable-feature=native-histograms"]);
    prometheus.until("up{job=\"weir\"}", ",\"1\"]");
    let mut client = pooler.client(&database);
    client.rows("SELECT 1");
    client.rows("SELECT 1");
    client.rows("SELECT pg_sleep(0.3)");
    let queries = format!("weir_pool_query_seconds{{{}}}", pool_labels(&database));
    prometheus.until(&format!("histogram_count({queries})"), ",\"3\"]");
    // One query of the three has taken between 0.25 s and 0.5 s.
    let slow = format!("3 * histogram_fraction(0.25, 0.5, {queries})");
    prometheus.until(&slow, ",\"1\"]");
    prometheus.until(&format!("histogram_sum({queries}) > 0.3 < 0.5"), "\"value\"");
    let median = format!("histogram_quantile(0.5, sum(rate({queries}[10s]))) > 0");
    eventually("there is a percentile", PATIENCE, || {
        client.rows("SELECT 1");
        prometheus.query(&median)?.contains("\"value\"").then_some(())
    });
    prometheus.until("weir_build_info", "\"pgbouncer_version\":\"1.25.2\"");
    prometheus.until("weir_pool_queries_total > 3", "\"value\"");
    let ordinary = prometheus.query("weir_pool_query_seconds_bucket").expect("an answer");
    assert!(ordinary.contains("\"result\":[]"), "{ordinary}");
}

#[test]
fn promtool_finds_nothing_wrong() {
    if !support::only_weir() {
        return;
    }
    support::run(Command::new("promtool").args(["check", "rules"]).arg(packaged("weir.rules.yml")));
    let tests = packaged("weir.rules.test.yml");
    support::run(Command::new("promtool").args(["test", "rules"]).arg(tests));
    let (pooler, database, port) = pooler(|setup| setup.set("metrics_names", "both"));
    pooler.client(&database).rows("SELECT 1");
    let text = open_folder("promtool").join("page");
    fs::write(&text, page(port)).expect("our own folder");
    // promtool's exit status reports errors and unconventional names.
    let script = "promtool check metrics <\"$0\"";
    support::run(Command::new("sh").args(["-c", script]).arg(&text));
    fs::write(&text, "weir_pool_wait_total 1\n").expect("our own folder");
    let bad = support::run_any(Command::new("sh").args(["-c", script]).arg(&text));
    assert!(!bad.status.success(), "it objects to a metric without a help text");
}

/// Checks that Weir has each metric of the rules and of the dashboard.
#[test]
fn packaged_dashboards_and_rules_use_existing_metrics() {
    if !support::only_weir() {
        return;
    }
    let authority = testkit::Authority::new("weir test");
    let own = authority.server();
    let (pooler, database, port) = pooler(|setup| {
        let setup = setup.set("client_tls_sslmode", "allow");
        setup.set("client_tls_cert_file", own.certificate()).set("client_tls_key_file", own.key())
    });
    pooler.client(&database).rows("SELECT 1");
    let page = page(port);
    for file in ["weir.rules.yml", "weir-dashboard.json"] {
        let text = fs::read_to_string(packaged(file)).expect("it is packaged");
        let mut names: Vec<_> = text
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .filter(|word| word.starts_with("weir_"))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            assert!(
                page.contains(&format!("\n{name}{{")) || page.contains(&format!("\n{name} ")),
                "{name}"
            );
        }
    }
}
