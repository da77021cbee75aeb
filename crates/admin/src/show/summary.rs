//! SHOW SUMMARY, which is Weir's own: the pools, narrow enough for a terminal of 80 columns.

use std::collections::HashMap;

use engine::ids::PoolId;

use super::{Column, Table, View, int8, text};
use crate::snapshot::{ClientState, ServerState};

/// Characters of a pool's name. With it, and five digits in each column, psql needs 80 columns.
const NAME_LEN_MAX: usize = 22;

pub(super) static SUMMARY: Table<Line> = Table {
    name: "SUMMARY",
    about: "A row for each pool, in at most 80 columns of psql. Weir's own.",
    columns: &COLUMNS,
    rows,
};

static COLUMNS: [Column<Line>; 7] = [
    text(
        "pool",
        |line| line.name.as_str().into(),
        "Database and user of the pool. A long name is cut and ends with `~`.",
    ),
    int8("clients", |line| line.clients.into(), "Clients of the pool."),
    int8("waiting", |line| line.waiting.into(), "Those that wait for a server."),
    int8("maxwait", |line| line.longest.into(), "Seconds that the first of them has waited."),
    int8("busy", |line| line.busy.into(), "Servers that clients have."),
    int8("idle", |line| line.idle.into(), "Servers that no client has."),
    int8("pinned", |line| line.pinned.into(), "Servers that clients keep (SHOW PINS)."),
];

#[derive(Default)]
pub(super) struct Line {
    name: String,
    clients: u64,
    waiting: u64,
    longest: u64,
    busy: u64,
    idle: u64,
    pinned: u64,
}

fn rows(view: View) -> Vec<Line> {
    let snapshot = view.snapshot;
    let mut lines: HashMap<PoolId, Line> = HashMap::new();
    for pool in &snapshot.pools {
        let line = lines.entry(pool.id).or_default();
        line.name = cut(&format!("{}/{}", pool.database, pool.user));
        line.longest = pool.oldest_wait / 1_000_000;
    }
    for client in &snapshot.clients {
        let pool = client.connection.pool.filter(|_| !client.is_request());
        let Some(line) = pool.and_then(|pool| lines.get_mut(&pool)) else { continue };
        line.clients += 1;
        line.waiting += u64::from(client.state == ClientState::Waiting);
    }
    for server in &snapshot.servers {
        let pool = server.connection.pool;
        let Some(line) = pool.and_then(|pool| lines.get_mut(&pool)) else { continue };
        match server.state {
            ServerState::Active
            | ServerState::Attending
            | ServerState::Tested
            | ServerState::BeingCanceled => {
                line.busy += 1;
            }
            ServerState::Idle | ServerState::Used => line.idle += 1,
            ServerState::Login | ServerState::Listening => {}
        }
        line.pinned += u64::from(server.pin.is_some());
    }
    let mut lines: Vec<_> = lines.into_values().collect();
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_LEN_MAX {
        return name.to_owned();
    }
    let kept: String = name.chars().take(NAME_LEN_MAX - 1).collect();
    format!("{kept}~")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// psql puts a blank on each side of a column and a line between two.
    #[test]
    fn psql_needs_at_most_80_columns() {
        let width = |column: &Column<Line>| match column.head.name {
            "pool" => NAME_LEN_MAX,
            name => name.len().max(5),
        };
        let columns: usize = COLUMNS.iter().map(|column| width(column) + 3).sum();
        assert!(columns - 1 <= 80, "{columns}");
        assert_eq!(cut(&"x".repeat(22)).len(), 22);
        assert_eq!(cut(&"x".repeat(23)), format!("{}~", "x".repeat(21)));
    }
}
