//! SHOW CLIENTS and SHOW SERVERS, which have the same columns except those about pins. `sockets.rs`
//! uses the columns, too.

use std::collections::{HashMap, HashSet};

use engine::Activity;

use super::{Cell, Column, Table, View, int4, joined, pins, split_micros, text, waits};
use crate::snapshot::{
    Address, ClientRow, ClientState, Connection, Doing, Pin, ServerRow, ServerState,
};

pub(super) static CLIENTS: Table<Line> = Table {
    name: "CLIENTS",
    about: "A row for each logged-in client, the console's included. Sorted by database, user and \
            state.",
    columns: &CLIENT_COLUMNS,
    rows: clients,
};

pub(super) static SERVERS: Table<Line> = Table {
    name: "SERVERS",
    about: "A row for each connection to PostgreSQL. Sorted by database, user and state.",
    columns: &SERVER_COLUMNS,
    rows: servers,
};

static CLIENT_COLUMNS: [Column<Line>; PINNED.len() + waits::ACTIVITY.len()] =
    joined(&PINNED, &waits::ACTIVITY);

const PINNED: [Column<Line>; COLUMNS.len() + pins::OF_CLIENT.len()] =
    joined(&COLUMNS, &pins::OF_CLIENT);

static SERVER_COLUMNS: [Column<Line>; COLUMNS.len() + waits::ACTIVITY.len()] =
    joined(&COLUMNS, &waits::ACTIVITY);

pub(super) const COLUMNS: [Column<Line>; 21] = [
    text("type", |line| line.kind.into(), "`C` for a client, `S` for a server."),
    text(
        "user",
        |line| (&line.connection.user).into(),
        "The client's name, or the user the server is logged in as.",
    ),
    text("database", |line| (&line.connection.database).into(), "Name clients ask for."),
    text(
        "replication",
        |line| line.connection.replication.into(),
        "`physical` or `logical` for a connection that replicates, else `none`.",
    ),
    text(
        "state",
        |line| line.state.into(),
        "State of the connection. Clients: `active` (linked), `idle`, `waiting`, \
         `active_cancel_req`, `waiting_cancel_req`. Servers: `active` (linked), `idle`, `used`, \
         `tested`, `new`, `being_canceled`, `listening` (Weir's own, `pool_mode = auto`).",
    ),
    text(
        "addr",
        |line| address(line.connection.peer),
        "Address of the other end; `unix` for a Unix socket; NULL if it is not known yet.",
    ),
    int4("port", |line| port(line.connection.peer), "Port of the other end."),
    text("local_addr", |line| address(line.connection.local), "Address of Weir's end."),
    int4("local_port", |line| port(line.connection.local), "Port of Weir's end."),
    text(
        "connect_time",
        |line| (line.local_time)(line.connection.connected_at).into(),
        "When the connection was made, in local time.",
    ),
    text(
        "request_time",
        |line| (line.local_time)(line.connection.request_at).into(),
        "When its last request arrived, in local time.",
    ),
    int4(
        "wait",
        |line| split_micros(line.connection.wait).0.into(),
        "Seconds since its current request arrived; 0 if it has none, as in a transaction at rest. \
         A cancel request: seconds that it has waited for a connection. A client of the console: \
         seconds since its last request.",
    ),
    int4(
        "wait_us",
        |line| split_micros(line.connection.wait).1.into(),
        "The microseconds to add to that.",
    ),
    int4(
        "close_needed",
        |line| line.connection.close_needed.into(),
        "1 if the connection is closed as soon as it is free.",
    ),
    text(
        "ptr",
        |line| pointer(line.connection.fd).into(),
        "Name of the connection, to which `link` refers. A later connection may get the same name.",
    ),
    text(
        "link",
        |line| match line.connection.link {
            0 => "".into(),
            fd => pointer(fd).into(),
        },
        "`ptr` of the server or client it is linked to; empty if there is none.",
    ),
    int4(
        "remote_pid",
        |line| line.connection.remote_pid.into(),
        "Process at the other end: PostgreSQL's, or a client's on a Unix socket; 0 if unknown.",
    ),
    text(
        "tls",
        |line| (&line.connection.tls).into(),
        "TLS version and cipher suite; empty without TLS.",
    ),
    text(
        "application_name",
        |line| (&line.connection.application_name).into(),
        "The client's name for itself, or the name given to the server.",
    ),
    int4(
        "prepared_statements",
        |line| line.connection.facts.prepared_statements.into(),
        "Prepared statements the client has, or the server holds.",
    ),
    int4(
        "id",
        |line| (line.connection.id & i32::MAX as u64).into(),
        "Unique number of the connection. After 2147483647 the numbers start again.",
    ),
];

pub(super) struct Line {
    pub(super) kind: &'static str,
    /// The order of its state in a pool; clients with and without a server are sorted together.
    pub(super) rank: u8,
    pub(super) state: &'static str,
    pub(super) local_time: fn(i64) -> String,
    pub(super) connection: Connection,
    /// The pin of a client that keeps its server; only SHOW CLIENTS sets it.
    pub(super) pin: Option<Pin>,
    /// The client's use of the server.
    pub(super) doing: Option<Doing>,
}

fn clients(view: View) -> Vec<Line> {
    let local_time = view.snapshot.local_time;
    let clients = without_waits_of_resting(view.snapshot.clients, &view.snapshot.servers);
    let servers = view.snapshot.servers.into_iter();
    let linked_servers = servers.filter(|server| server.connection.link != 0);
    let mut held: HashMap<u64, (Option<Pin>, Option<Doing>)> =
        linked_servers.map(|own| (own.connection.link, (own.pin, own.doing))).collect();
    let all = clients.chain(view.consoles);
    let lines = all.filter_map(|client| {
        let (rank, state) = match client.state {
            ClientState::Login => return None,
            ClientState::Idle => (0, "idle"),
            ClientState::Active => (0, linked(&client.connection)),
            ClientState::Waiting => (1, "waiting"),
            ClientState::ActiveCancel => (2, "active_cancel_req"),
            ClientState::WaitingCancel => (3, "waiting_cancel_req"),
        };
        let connection = client.connection;
        let (pin, doing) = held.remove(&connection.fd).unwrap_or_default();
        Some(Line { kind: "C", rank, state, local_time, connection, pin, doing })
    });
    sorted(lines)
}

fn servers(view: View) -> Vec<Line> {
    let local_time = view.snapshot.local_time;
    let lines = view.snapshot.servers.into_iter().map(|server| {
        let (rank, state) = match server.state {
            ServerState::Active => (0, linked(&server.connection)),
            ServerState::Idle => (1, "idle"),
            ServerState::Used => (2, "used"),
            ServerState::Tested => (3, "tested"),
            ServerState::Login => (4, "new"),
            ServerState::BeingCanceled => (5, "being_canceled"),
            ServerState::Listening => (6, "listening"),
            ServerState::Attending => (7, "direct"),
        };
        let (connection, doing) = (server.connection, server.doing);
        Line { kind: "S", rank, state, local_time, connection, pin: None, doing }
    });
    sorted(lines)
}

/// Returns the clients. Those that have a server and no request under way wait for nothing.
pub(super) fn without_waits_of_resting(
    clients: Vec<ClientRow>,
    servers: &[ServerRow],
) -> impl Iterator<Item = ClientRow> + use<> {
    let rests = |doing: Doing| doing.activity != Activity::Active;
    let resting: HashSet<u64> = servers
        .iter()
        .filter(|server| server.doing.is_some_and(rests))
        .map(|server| server.connection.link)
        .collect();
    clients.into_iter().map(move |mut client| {
        if client.state == ClientState::Active && resting.contains(&client.connection.fd) {
            client.connection.wait = 0;
        }
        client
    })
}

pub(super) fn sorted(lines: impl Iterator<Item = Line>) -> Vec<Line> {
    let mut lines: Vec<_> = lines.collect();
    let key = |line: &Line| (line.rank, line.connection.id);
    lines.sort_by(|a, b| {
        let pools = (&a.connection.database, &a.connection.user)
            .cmp(&(&b.connection.database, &b.connection.user));
        pools.then_with(|| key(a).cmp(&key(b)))
    });
    lines
}

/// Returns the state of the link. A connection without another side is idle, whatever its state is.
fn linked(connection: &Connection) -> &'static str {
    if connection.link == 0 { "idle" } else { "active" }
}

pub(super) fn address(address: Option<Address>) -> Cell<'static> {
    address
        .map(|address| match address {
            Address::Tcp(address) => address.ip().to_string(),
            Address::Unix { .. } => "unix".to_owned(),
        })
        .into()
}

pub(super) fn port(address: Option<Address>) -> Cell<'static> {
    address
        .map(|address| match address {
            Address::Tcp(address) => address.port(),
            Address::Unix { port } => port,
        })
        .into()
}

pub(super) fn pointer(id: u64) -> String {
    format!("{id:#x}")
}
