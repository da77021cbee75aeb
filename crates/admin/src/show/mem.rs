//! SHOW MEM: the memory that Weir has allocated, by kind. PgBouncer lists its slabs; the common
//! kinds have the same names.

use engine::client::Client;
use engine::pool::Pool;
use engine::prepared::{ClientStatements, ServerStatements, Statement};
use engine::server::Server;

use super::{Table, View, int4, text};
use crate::snapshot::Connection;

pub(super) static MEM: Table<Line> = Table {
    name: "MEM",
    about: "The memory of each kind of item. `prepared_statement_cache` contains the texts that \
            clients have prepared, each once. `client_prepared_statement_cache` contains the \
            clients' names for them, and `server_prepared_statement_cache` the statements on \
            servers.",
    columns: &[
        text("name", |line| line.name.into(), "Kind of item."),
        int4(
            "size",
            |line| line.size.into(),
            "Bytes of one item, without parts of variable \
                                               length.",
        ),
        int4("used", |line| line.used.into(), "Number of items in use."),
        int4(
            "free",
            |line| line.free.into(),
            "Number of further items for which memory is \
                                               already allocated.",
        ),
        int4(
            "memtotal",
            |line| line.total.into(),
            "Bytes of all items, with everything they \
                                                    contain.",
        ),
    ],
    rows,
};

pub(super) struct Line {
    name: &'static str,
    size: usize,
    used: usize,
    free: usize,
    total: usize,
}

impl Line {
    /// Returns the row for objects of one size.
    fn fixed(name: &'static str, size: usize, used: usize, free: usize) -> Self {
        Self { name, size, used, free, total: size * (used + free) }
    }

    fn sum(
        name: &'static str,
        size: usize,
        all: &[&Connection],
        count_and_bytes: fn(&Connection) -> (usize, usize),
    ) -> Self {
        let (mut used, mut total) = (0, 0);
        for connection in all {
            let (count, bytes) = count_and_bytes(connection);
            used += count;
            total += bytes;
        }
        Self { name, size, used, free: 0, total }
    }
}

fn rows(view: View) -> Vec<Line> {
    let snapshot = &view.snapshot;
    let (config, memory) = (&snapshot.config, snapshot.memory);
    let clients: Vec<_> = snapshot.clients.iter().map(|client| &client.connection).collect();
    let servers: Vec<_> = snapshot.servers.iter().map(|server| &server.connection).collect();
    let both: Vec<_> = clients.iter().chain(&servers).copied().collect();
    let statements = |connection: &Connection| {
        (connection.facts.prepared_statements, connection.facts.statement_bytes)
    };
    let buffers = |connection: &Connection| {
        let kept = [connection.buffers.held, connection.buffers.unsent];
        (kept.iter().filter(|bytes| **bytes > 0).count(), kept.iter().sum())
    };
    let free = memory.free_clients;
    vec![
        Line::fixed("user_cache", size_of::<::config::UserSettings>(), config.users.len(), 0),
        Line::fixed("db_cache", size_of::<::config::Database>(), config.databases.len(), 0),
        Line::fixed("peer_cache", size_of::<::config::Peer>(), config.peers.len(), 0),
        Line::fixed("pool_cache", size_of::<Pool<()>>(), snapshot.pools.len(), 0),
        Line::fixed("server_cache", size_of::<Server>(), servers.len(), 0),
        Line::fixed("client_cache", size_of::<Client>(), clients.len(), free),
        Line::sum("iobuf_cache", 1, &both, buffers),
        Line {
            name: "prepared_statement_cache",
            size: size_of::<Statement>(),
            used: memory.statements,
            free: 0,
            total: memory.statement_bytes,
        },
        Line::sum(
            "client_prepared_statement_cache",
            ClientStatements::ENTRY_BYTES,
            &clients,
            statements,
        ),
        Line::sum(
            "server_prepared_statement_cache",
            ServerStatements::ENTRY_BYTES,
            &servers,
            statements,
        ),
    ]
}
