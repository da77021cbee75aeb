//! SHOW LISTS.

use super::{Table, View, int4, text};
use crate::snapshot::{ClientRow, ClientState};

/// Rows for lists that Weir does not have are zero; some tools expect these rows.
pub(super) static LISTS: Table<(&str, usize)> = Table {
    name: "LISTS",
    about: "The number of items of each kind. Weir keeps no spare connections, so `free_*` are 0.",
    columns: &[
        text("list", |row| row.0.into(), "Kind of item."),
        int4("items", |row| row.1.into(), "Number of items."),
    ],
    rows,
};

fn rows(view: View) -> Vec<(&'static str, usize)> {
    let snapshot = &view.snapshot;
    let peers = snapshot.config.peers.len();
    let pools = snapshot.pools.len() + 1;
    let databases = view.database_names().len() + 1;
    let in_login = |row: &&ClientRow| row.state == ClientState::Login;
    let login_clients = snapshot.clients.iter().filter(in_login).count();
    let used_clients = snapshot.clients.len() + view.consoles.len();
    let used_servers = snapshot.servers.len();
    let (names, zones) = (snapshot.dns_hosts.len(), snapshot.dns_zones.len());
    let queries = snapshot.dns_queries;
    let users = (super::users::USERS.rows)(view).len();
    vec![
        ("databases", databases),
        ("users", users),
        ("peers", peers),
        ("pools", pools),
        ("peer_pools", 0),
        ("free_clients", 0),
        ("used_clients", used_clients),
        ("login_clients", login_clients),
        ("free_servers", 0),
        ("used_servers", used_servers),
        ("dns_names", names),
        ("dns_zones", zones),
        ("dns_queries", queries),
        ("dns_pending", 0),
    ]
}
