//! SHOW TOTALS.

use super::stats::of_console;
use super::{Table, View, numeric, text};
use engine::stats::Stats;

pub(super) static TOTALS: Table<(String, u64)> = Table {
    name: "TOTALS",
    about: "The counters of all databases together: a row `total_X` for each, then a row `avg_X`. The \
            rows of `client_login_count` are Weir's own.",
    columns: &[
        text("name", |row| (&row.0).into(), "Name of the counter."),
        numeric("value", |row| row.1.into(), "Its value; times are in microseconds."),
    ],
    rows,
};

fn rows(view: View) -> Vec<(String, u64)> {
    let snapshot = &view.snapshot;
    let mut total = of_console(&view);
    for pool in &snapshot.pools {
        total += pool.stats;
    }
    let average = snapshot.averages.of(snapshot.pools.iter().map(|pool| pool.id));
    let with = |prefix: &'static str, stats: Stats| {
        named(stats).map(move |(name, value)| (format!("{prefix}_{name}"), value))
    };
    let rows = with("total", total).into_iter().chain(with("avg", average));
    rows.filter(|(name, _)| view.has_own || !name.ends_with(OWN)).collect()
}

/// The counter that PgBouncer 1.25.2 does not have.
const OWN: &str = "client_login_count";

/// Returns the counters by PgBouncer's internal names, which differ from those of SHOW STATS.
fn named(stats: Stats) -> [(&'static str, u64); 12] {
    [
        ("server_assignment_count", stats.assignments),
        ("xact_count", stats.transactions),
        ("query_count", stats.queries),
        ("client_bytes", stats.received),
        ("server_bytes", stats.sent),
        ("xact_time", stats.transaction_time),
        ("query_time", stats.query_time),
        ("wait_time", stats.wait_time),
        ("ps_client_parse_count", stats.client_parses),
        ("ps_server_parse_count", stats.server_parses),
        ("ps_bind_count", stats.binds),
        (OWN, stats.logins),
    ]
}
