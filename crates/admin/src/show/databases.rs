//! SHOW DATABASES.

use std::collections::HashMap;

use config::{Config, Database, Host, PoolMode};
use engine::switches::DatabaseSwitches;

use super::{Table, View, int4, text};
use crate::NAME;
use crate::snapshot::Connection;

pub(super) static DATABASES: Table<DatabaseLine> = Table {
    name: "DATABASES",
    about: "A row for each database and for the console, by name. The entry `*` has no row; a \
            database made from it has one if it is in use, paused or disabled.",
    columns: &[
        text("name", |line| (&line.name).into(), "Name clients ask for."),
        text(
            "host",
            |line| line.host.as_ref().into(),
            "Host of the server; NULL without `host`: then it is the Unix socket in \
             `unix_socket_dir`.",
        ),
        int4("port", |line| line.port.into(), "Port of the server."),
        text("database", |line| (&line.database).into(), "Name on the server."),
        text(
            "force_user",
            |line| line.force_user.as_ref().into(),
            "User of all its servers; NULL if each client logs in as itself.",
        ),
        int4("pool_size", |line| line.pool_size.into(), "Limit of servers of each pool."),
        int4("min_pool_size", |line| line.min_pool_size.into(), "Servers kept open in each pool."),
        int4(
            "reserve_pool_size",
            |line| line.reserve_pool_size.into(),
            "Additional servers of each pool for clients that wait too long.",
        ),
        int4(
            "server_lifetime",
            |line| line.server_lifetime.into(),
            "Age in seconds at which an unused server is closed.",
        ),
        text(
            "pool_mode",
            |line| line.pool_mode.into(),
            "Pool mode of the entry; NULL if the entry has none.",
        ),
        text(
            "load_balance_hosts",
            |line| line.load_balance_hosts.into(),
            "How one of several hosts is chosen; NULL if there is one host.",
        ),
        int4(
            "max_connections",
            |line| line.max_connections.into(),
            "Limit of servers of all its pools; 0 is no limit.",
        ),
        int4("current_connections", |line| line.connections.into(), "Servers of all its pools."),
        int4(
            "max_client_connections",
            |line| line.max_client_connections.into(),
            "Limit of its clients; 0 is no limit.",
        ),
        int4("current_client_connections", |line| line.clients.into(), "Its clients."),
        int4("paused", |line| line.switches.paused.into(), "1 if PAUSE or KILL named it."),
        int4("disabled", |line| line.switches.disabled.into(), "1 if it is disabled."),
    ],
    rows: lines,
};

pub(crate) struct DatabaseLine {
    pub(crate) name: String,
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) force_user: Option<String>,
    pub(crate) pool_size: u32,
    pub(crate) min_pool_size: u32,
    pub(crate) reserve_pool_size: u32,
    pub(crate) server_lifetime: u64,
    pub(crate) pool_mode: Option<&'static str>,
    pub(crate) load_balance_hosts: Option<&'static str>,
    pub(crate) max_connections: u32,
    pub(crate) connections: usize,
    pub(crate) max_client_connections: u32,
    pub(crate) clients: usize,
    pub(crate) switches: DatabaseSwitches,
}

/// Returns the hosts in the configuration's form; `None` if there are none.
pub(super) fn hosts(hosts: &[Host]) -> Option<String> {
    let names: Vec<_> = hosts.iter().map(Host::to_string).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Returns the policy for choosing among several hosts of `database`.
pub(super) fn load_balancing(config: &Config, database: &str) -> Option<&'static str> {
    let database = config.database(database)?;
    (database.hosts.len() > 1).then(|| database.load_balance_hosts.word())
}

fn lines(view: View) -> Vec<DatabaseLine> {
    let config = &view.snapshot.config;
    let snapshot = &view.snapshot;
    let servers = count(snapshot.servers.iter().map(|row| &row.connection));
    let clients = snapshot.clients.iter().filter(|row| !row.is_request());
    let clients = count(clients.map(|row| &row.connection));
    let current = |name: &str| Current {
        connections: servers.get(name).copied().unwrap_or_default(),
        clients: clients.get(name).copied().unwrap_or_default(),
        switches: snapshot.switches.database(name),
    };
    let databases = view.database_names().into_iter().filter_map(|name| config.database(name));
    let mut lines: Vec<_> =
        databases.map(|database| line(config, &database, current(&database.name))).collect();
    lines.push(console_line(&view));
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

/// The present state of one database.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) connections: usize,
    pub(crate) clients: usize,
    pub(crate) switches: DatabaseSwitches,
}

fn count<'a>(all: impl Iterator<Item = &'a Connection>) -> HashMap<&'a str, usize> {
    let mut databases = HashMap::new();
    for connection in all.filter(|connection| connection.pool.is_some()) {
        *databases.entry(connection.database.as_str()).or_default() += 1;
    }
    databases
}

pub(crate) fn line(config: &Config, database: &Database, current: Current) -> DatabaseLine {
    let (global, name) = (&config.global, &database.name);
    DatabaseLine {
        name: name.clone(),
        host: hosts(&database.hosts),
        port: database.port.of(0),
        database: database.dbname.as_ref().unwrap_or(name).clone(),
        force_user: database.user.clone(),
        pool_size: database.pool_size.unwrap_or(global.default_pool_size),
        min_pool_size: config.min_pool_size(database),
        reserve_pool_size: database.reserve_pool_size.unwrap_or(global.reserve_pool_size),
        server_lifetime: config.server_lifetime(database).as_secs(),
        pool_mode: database.pool_mode.map(PoolMode::word),
        load_balance_hosts: load_balancing(config, name),
        max_connections: config.max_db_connections(database),
        connections: current.connections,
        max_client_connections: config.max_db_client_connections(name),
        clients: current.clients,
        switches: current.switches,
    }
}

fn console_line(view: &View) -> DatabaseLine {
    let global = &view.snapshot.config.global;
    DatabaseLine {
        name: NAME.to_owned(),
        host: None,
        port: global.listen_port,
        database: NAME.to_owned(),
        force_user: Some(NAME.to_owned()),
        pool_size: 2,
        min_pool_size: 0,
        reserve_pool_size: 0,
        server_lifetime: global.server_lifetime.as_secs(),
        pool_mode: Some(PoolMode::Statement.word()),
        load_balance_hosts: None,
        max_connections: 0,
        connections: 0,
        max_client_connections: global.max_db_client_connections,
        clients: view.consoles.len(),
        switches: DatabaseSwitches::default(),
    }
}
