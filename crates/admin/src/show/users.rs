//! SHOW USERS.

use std::collections::{BTreeSet, HashMap};

use config::{PoolMode, UserSettings};

use super::{Table, View, int4, text};
use crate::NAME;
use crate::snapshot::{ClientRow, Connection};

pub(super) static USERS: Table<UserLine> = Table {
    name: "USERS",
    about: "A row for each user of `[users]`, of `auth_file` or of a connection, and for the \
            console's own user. Sorted by name.",
    columns: &[
        text("name", |line| (&line.name).into(), "Name of the user."),
        text(
            "pool_size",
            |line| padded(line.settings.pool_size).into(),
            "Limit of servers of each of its pools; empty if the user has no own limit.",
        ),
        text(
            "reserve_pool_size",
            |line| padded(line.settings.reserve_pool_size).into(),
            "Additional servers of each of its pools; empty if the user has no own number.",
        ),
        text(
            "pool_mode",
            |line| line.settings.pool_mode.map(PoolMode::word).into(),
            "Its pool mode; NULL if the user has none.",
        ),
        int4(
            "max_user_connections",
            |line| line.max_connections.into(),
            "Limit of its servers; 0 is no limit.",
        ),
        int4("current_connections", |line| line.connections.into(), "Its servers."),
        int4(
            "max_user_client_connections",
            |line| line.max_clients.into(),
            "Limit of its clients; 0 is no limit.",
        ),
        int4("current_client_connections", |line| line.clients.into(), "Its clients."),
    ],
    rows: lines,
};

#[derive(Default)]
pub(super) struct UserLine {
    name: String,
    settings: UserSettings,
    max_connections: u32,
    connections: usize,
    max_clients: u32,
    clients: usize,
}

/// PgBouncer prints this number as a text of width nine.
fn padded(number: Option<u32>) -> String {
    number.map_or(String::new(), |number| format!("{number:>9}"))
}

fn lines(view: View) -> Vec<UserLine> {
    let snapshot = &view.snapshot;
    let (config, global) = (&snapshot.config, &snapshot.config.global);
    let logged_in = |row: &&ClientRow| row.connection.pool.is_some() && !row.is_request();
    let clients = snapshot.clients.iter().filter(logged_in).chain(&view.consoles);
    let clients = count(clients.map(|row| &row.connection));
    let servers = count(snapshot.servers.iter().map(|row| &row.connection));
    let names: BTreeSet<&str> = config
        .users
        .keys()
        .chain(config.auth_file.users.keys())
        .map(String::as_str)
        .chain(clients.keys().chain(servers.keys()).copied())
        .chain([NAME])
        .collect();
    let line = |name: &str| {
        let settings = config.users.get(name).cloned().unwrap_or_default();
        UserLine {
            name: name.to_owned(),
            max_connections: settings.max_user_connections.unwrap_or(global.max_user_connections),
            connections: servers.get(name).copied().unwrap_or_default(),
            max_clients: settings
                .max_user_client_connections
                .unwrap_or(global.max_user_client_connections),
            clients: clients.get(name).copied().unwrap_or_default(),
            settings,
        }
    };
    names.into_iter().map(line).collect()
}

/// Returns the number of connections of each user.
fn count<'a>(all: impl Iterator<Item = &'a Connection>) -> HashMap<&'a str, usize> {
    let mut users = HashMap::new();
    for connection in all {
        *users.entry(connection.user.as_str()).or_default() += 1;
    }
    users
}
