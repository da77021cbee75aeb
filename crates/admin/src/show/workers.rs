//! SHOW WORKERS: the share of each worker. `pg_pooler_state()` of the library in the server shows
//! these columns, whose names are those of PostgreSQL's proposed built-in pooler.

use super::{Table, int4, int8};
use crate::snapshot::WorkerRow;

pub(super) static WORKERS: Table<WorkerRow> = Table {
    name: "WORKERS",
    about: "A row for each worker thread. `pg_pooler_state()` shows the same \
            ([Built into the server](built-in.md)). Weir's own.",
    columns: &[
        int4("pid", |row| row.process_id.into(), "Weir's process; it is that of all its workers."),
        int4("n_clients", |row| row.clients.into(), "Clients that are logged in."),
        int4("n_ssl_clients", |row| row.tls_clients.into(), "Those of them with TLS."),
        int4("n_pools", |row| row.pools.into(), "Pools with a client or a server of this worker."),
        int4("n_backends", |row| row.servers.into(), "Servers, in any state."),
        int4(
            "n_dedicated_backends",
            |row| row.pinned_servers.into(),
            "Servers that SHOW PINS lists.",
        ),
        int4("n_idle_backends", |row| row.idle_servers.into(), "Servers that no client has."),
        int4(
            "n_idle_clients",
            |row| row.idle_clients.into(),
            "Clients that neither have a server nor wait for one.",
        ),
        int8("tx_bytes", |row| row.stats.sent.into(), "Bytes of servers for clients."),
        int8("rx_bytes", |row| row.stats.received.into(), "Bytes of clients for servers."),
        int8("n_transactions", |row| row.stats.transactions.into(), "Completed transactions."),
    ],
    rows: |view| view.snapshot.workers,
};
