//! Debian's `prometheus-pgbouncer-exporter`: it finds the same metrics as with Debian's PgBouncer.
//!
//! Its version 1.7 reads columns that PgBouncer has not had since 1.8 (`total_requests`) and 1.24
//! (`reserve_pool`). With Debian's own PgBouncer, too, it ends at once unless it is told to report
//! databases without a pool. So this test compares the names of all metrics, and the values of SHOW
//! LISTS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::{Pooler, eventually, free_port};

use crate::support;

/// The metrics with PgBouncer 1.18.
const METRICS: &str = "active_clients databases dns_names dns_pending dns_queries dns_zones \
    free_clients free_servers login_clients pool_size pools query_microseconds_total \
    received_bytes_total requests_total reserve_pool sent_bytes_total used_clients used_servers \
    users waiting_clients";

struct Exporter {
    child: Child,
    port: u16,
}

impl Exporter {
    fn start(pooler: &Pooler) -> Self {
        let port = free_port();
        let child = Command::new("/usr/bin/prometheus-pgbouncer-exporter")
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--pgbouncer-host", "127.0.0.1"])
            .args(["--pgbouncer-port", &pooler.port().to_string()])
            .args(["--pgbouncer-user", "stats", "--database", "without-a-pool"])
            .env("PGPASSWORD", "stats-secret")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the exporter (scripts/setup installs it)");
        Self { child, port }
    }

    /// Returns its page as soon as it serves it.
    fn page(&self) -> String {
        eventually("there are metrics", Duration::from_secs(50), || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
            let mut page = String::new();
            stream.read_to_string(&mut page).ok()?;
            page.contains(" 200 ").then_some(page)
        })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the rests of the lines that begin with `words` and `pgbouncer_`.
fn after<'a>(page: &'a str, words: &str) -> Vec<&'a str> {
    page.lines().filter_map(|line| line.strip_prefix(words)?.strip_prefix("pgbouncer_")).collect()
}

#[test]
fn debians_exporter_finds_its_metrics() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("SELECT 1");
    let exporter = Exporter::start(&pooler);
    let page = exporter.page();
    let mut names: Vec<_> =
        after(&page, "# TYPE ").iter().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    let expected: Vec<_> = METRICS.split_whitespace().collect();
    assert_eq!(names, expected);

    let lists = pooler.admin("SHOW LISTS");
    for list in ["databases", "users", "pools", "used_servers"] {
        let expected = format!("{list} {}.0", lists.with("list", list).only("items"));
        assert!(after(&page, "").contains(&&*expected), "{expected}: {page}");
    }
    // The clients are the application's and the exporter's.
    assert!(after(&page, "").contains(&"used_clients 2.0"), "{page}");
}
