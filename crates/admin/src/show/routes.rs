//! SHOW ROUTES and SHOW NODE_POOLS, which are Weir's own.

use super::{Table, int4, int8, text};
use crate::snapshot::{AtNode, PoolRow, RouteRow};

pub(super) static ROUTES: Table<RouteRow> = Table {
    name: "ROUTES",
    about: "Why requests ran on the primary or on a standby ([Reads on standbys](routing.md)), since the \
            pool exists. Databases without `reads = standby` have no row. Weir's own.",
    columns: &[
        text("database", |row| row.database.as_str().into(), "Name clients ask for."),
        text("user", |row| row.user.as_str().into(), "User the servers are logged in as."),
        text("place", |row| row.place.into(), "`primary` or `standby`."),
        text("reason", |row| row.reason.into(), "The reason in a word."),
        int8("requests", |row| row.count.into(), "Requests with this reason."),
        text("description", |row| row.description.into(), "The reason as a sentence."),
    ],
    rows: |view| view.snapshot.pools.into_iter().flat_map(|pool| pool.routes).collect(),
};

pub(super) static NODE_POOLS: Table<NodePool> = Table {
    name: "NODE_POOLS",
    about: "The pools of databases in a cluster: one at the primary, and one at each standby that has \
            run a read. Weir's own.",
    columns: &[
        text("database", |line| line.pool.database.as_str().into(), "Name clients ask for."),
        text("user", |line| line.pool.user.as_str().into(), "User the servers are logged in as."),
        text("node", |line| line.at.node.as_str().into(), "The node of its servers."),
        text(
            "place",
            |line| if line.at.is_reader { "standby" } else { "primary" }.into(),
            "`primary` or `standby`.",
        ),
        int4("servers", |line| line.at.servers.into(), "Server connections in any state."),
        int4("sv_login", |line| line.at.opening.into(), "Servers that are not logged in yet."),
        int4("cl_waiting", |line| line.at.waiting.into(), "Clients that wait for a server of it."),
        int8("transactions", |line| line.pool.stats.transactions.into(), "Transactions so far."),
        int8("queries", |line| line.pool.stats.queries.into(), "Queries so far."),
    ],
    rows: |view| {
        let pools = view.snapshot.pools.into_iter();
        let mut lines: Vec<_> =
            pools.filter_map(|pool| Some(NodePool { at: pool.at_node.clone()?, pool })).collect();
        lines.sort_by(|a, b| a.key().cmp(&b.key()));
        lines
    },
};

pub(super) struct NodePool {
    pool: PoolRow,
    at: AtNode,
}

impl NodePool {
    fn key(&self) -> (&str, &str, bool, &str) {
        (&self.pool.database, &self.pool.user, self.at.is_reader, &self.at.node)
    }
}
