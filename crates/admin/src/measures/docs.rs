//! `docs/metrics.md`, made from the groups of measures.

use std::fmt::Write;

use config::reference::wrapped;

use super::{Kind, Measured, exporter, weir};

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from the tables in crates/admin/src/measures; do not edit.
     `UPDATE_DOCS=1 cargo test -p weir-admin` writes it anew. -->

Weir serves metrics for Prometheus over HTTP. With a `weir.toml` or `weir serve` that is on by
default; a `pgbouncer.ini` switches it on with `metrics_port`:

```console
$ curl http://127.0.0.1:9127/metrics
$ curl http://127.0.0.1:9127/readyz
```

| path | answer |
|---|---|
| `/metrics` | the metrics below, in Prometheus' text format, in OpenMetrics or in protobuf: what `Accept` prefers |
| `/health/live`, `/healthz` | 200 while the process is alive |
| `/health/ready`, `/readyz` | 200 if Weir takes clients; 503 with the reason after PAUSE and SUSPEND, and while it shuts down |
| `/health/primary` | 200 if Weir is ready and each of its [clusters](cluster.md) has a primary; 503 with the reason if not, or without clusters |
| `/health/primary/NAME` | the same for one cluster; 404 if there is none of this name |

The health checks alone are served at `health_addr` and `health_port` as well, for
[load balancers](high-availability.md) that need no metrics. That is off by default.

| key | default | meaning |
|---|---|---|
| `metrics_addr` | `127.0.0.1` | addresses or host names to listen on; `*` is all |
| `metrics_port` | 9127; 0 in a `pgbouncer.ini` | port; 0 is none |
| `health_addr` | `*` | addresses or host names for the health checks |
| `health_port` | 0 | port of `health_addr`; 0 is none |
| `metrics_names` | `weir` | names of the metrics: `weir`, `pgbouncer_exporter` or `both` |
| `metrics_histograms` | `pool` | histograms of each pool (`pool`), of all pools added up (`total`) or none (`none`) |

A RELOAD or SET changes all of them. There is no password and no TLS: keep
the ports to a trusted network.

A scrape configuration for Prometheus:

```yaml
scrape_configs:
  - job_name: weir
    static_configs:
      - targets: [\"127.0.0.1:9127\"]
```

`packaging/prometheus` has alert rules (`weir.rules.yml`) and a dashboard for Grafana
(`weir-dashboard.json`).

## Port 9127

PgBouncer's exporter has the same port. If the port is taken, Weir logs a warning and serves its
clients without metrics. The next RELOAD tries again. Set `metrics_port` to run both. If the
configuration is changed to an address or a port that cannot be used, each RELOAD returns an error
until metrics are served there.

In an online restart the old process closes the port, and the new process opens it. Counters begin
again at 0 there, as after each start; `rate()` and `increase()` allow for that. The old process has
no metrics while it waits for its last clients.

## Native histograms

A scraper that prefers protobuf gets [native histograms][native], and the ordinary buckets as well.
Prometheus does so with `--enable-feature=native-histograms`. It then keeps the native histograms
only, so the packaged rules and dashboard need `scrape_classic_histograms: true` in the scrape
configuration (Prometheus 2.45; from 3.0 on `always_scrape_classic_histograms`). Without it:

```promql
histogram_quantile(0.99, sum by (database, user) (rate(weir_pool_wait_seconds[5m])))
```

A native histogram has a bucket for each power of two of a second that has durations. Durations of
at most 1.9 µs are in its zero bucket.

[native]: https://prometheus.io/docs/specs/native_histograms/

## Size of a page

A page of 200 pools, with one query each and names of 11 or 12 letters:

| `metrics_histograms` | lines | text or OpenMetrics | protobuf |
|---|---|---|---|
| `pool` | 24,345 | 2.08 MB | 0.61 MB |
| `total` | 6,037 | 0.41 MB | 0.33 MB |
| `none` | 5,937 | 0.40 MB | 0.33 MB |

With `metrics_histograms = total`, the histograms of all pools are added up, and have no labels. The
queries of the packaged dashboard for all databases still work then, and the rule for slow waits
names no pool. With `none`, the percentiles of the dashboard are empty, and this rule never fires.

## Costs and limits

* A page is made at most once a second. All that ask within that second get the same page.
* For a page, each worker counts its clients and servers once. It copies no connection.
* A pool has 115 lines. The first 500 pools have metrics of their own. The others are added up, with
  the labels `database=\"other\",user=\"other\"`; `weir_pools` counts all of them.
* Pools come and go with `pool_idle_timeout`.
* A connection is good for one request, and for at most 10 s. The head of a request has 5 s and
  16 KiB.
* There are at most 32 connections. If one more comes, the oldest that has not asked yet is closed.

## Console

The console's own database and its connections are in no metric.

## Times

Histograms have bounds at powers of two of a second, from 61 µs to 32 s. The 99th percentile of the
time that clients wait for a server, by pool:

```promql
histogram_quantile(0.99, sum by (le, database, user) (rate(weir_pool_wait_seconds_bucket[5m])))
```
";

const EXPORTER: &str = "
# Names of PgBouncer's exporter

With `metrics_names = pgbouncer_exporter` or `both`, for dashboards and alerts made for
prometheus-community's `pgbouncer_exporter`. The help texts name the column of the console. The
console's own database `pgbouncer` is missing, and so are metrics of the exporter's own process.
";

/// The whole of `docs/metrics.md`.
pub fn metrics_markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for group in weir::GROUPS {
        describe(&mut text, group);
    }
    text.push_str(EXPORTER);
    for group in exporter::GROUPS {
        describe(&mut text, group);
    }
    text
}

// Writing to a String cannot fail, so the results of `write!` are dropped.
fn describe(text: &mut String, group: &dyn Measured) {
    let labels: Vec<_> = group.labels().iter().map(|label| format!("`{label}`")).collect();
    let labels = match labels.len() {
        0 => "No labels.".to_owned(),
        _ => format!("Labels: {}.", labels.join(", ")),
    };
    let about = wrapped(&format!("{} {labels}", group.about()));
    let title = group.title();
    let _ = write!(text, "\n## {title}\n\n{about}\n\n| metric | kind | meaning |\n|---|---|---|\n");
    for head in group.heads() {
        let _ = writeln!(text, "| `{}` | {} | {} |", head.name, head.kind.word(), head.help);
    }
}

impl Kind {
    /// As the formats call it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_say_what_is_counted_and_helps_are_sentences() {
        let mut seen = HashSet::new();
        for (prefix, groups) in
            [("weir_", &weir::GROUPS[..]), ("pgbouncer_", &exporter::GROUPS[..])]
        {
            for head in groups.iter().flat_map(|group| group.heads()) {
                let name = head.name;
                assert!(seen.insert(name), "{name} twice");
                assert!(name.starts_with(prefix), "{name}");
                assert_eq!(name.ends_with("_total"), head.kind == Kind::Counter, "{name}");
                assert_eq!(name.ends_with("_info"), head.kind == Kind::Info, "{name}");
                assert!(head.help.ends_with('.'), "{name}");
                assert!(!head.help.contains(['|', '\\', '\n']), "{name}");
            }
        }
    }

    #[test]
    fn labels_are_bounded() {
        for label in weir::GROUPS.iter().flat_map(|group| group.labels()) {
            let known = [
                "database",
                "user",
                "cluster",
                "node",
                "version",
                "pgbouncer_version",
                "reason",
                "key",
            ];
            assert!(known.contains(&label), "{label}: one for each client or query is too many");
        }
    }
}
