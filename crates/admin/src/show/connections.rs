//! SHOW CLIENTS and SHOW SERVERS, which have the same columns but for what a client keeps.
//! `sockets.rs` has them, too.

use std::collections::HashMap;

use super::{Cell, Column, Table, View, int4, joined, pins, split_micros, text};
use crate::snapshot::{Address, ClientState, Connection, Pin, ServerState};

pub(super) static CLIENTS: Table<Line> = Table {
    name: "CLIENTS",
    about: "A row for each client that is logged in, by database, user and state, those of the \
            console among them.",
    columns: &CLIENT_COLUMNS,
    rows: clients,
};

pub(super) static SERVERS: Table<Line> = Table {
    name: "SERVERS",
    about: "A row for each connection to PostgreSQL, by database, user and state.",
    columns: &COLUMNS,
    rows: servers,
};

static CLIENT_COLUMNS: [Column<Line>; COLUMNS.len() + pins::OF_CLIENT.len()] =
    joined(&COLUMNS, &pins::OF_CLIENT);

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
        "Of a client: `active` (linked), `idle`, `waiting`, `active_cancel_req`, \
         `waiting_cancel_req`. Of a server: `active` (linked), `idle`, `used`, `tested`, `new`, \
         `being_canceled`, `listening` (Weir's own, `pool_mode = auto`).",
    ),
    text(
        "addr",
        |line| address(line.connection.peer),
        "Address of the other end; `unix` for a Unix socket; NULL while it is not known.",
    ),
    int4("port", |line| port(line.connection.peer), "Port of the other end."),
    text("local_addr", |line| address(line.connection.local), "Address of our end."),
    int4("local_port", |line| port(line.connection.local), "Port of our end."),
    text(
        "connect_time",
        |line| (line.local_time)(line.connection.connected_at).into(),
        "When the connection was made, in local time.",
    ),
    text(
        "request_time",
        |line| (line.local_time)(line.connection.request_at).into(),
        "When its last request came, in local time.",
    ),
    int4(
        "wait",
        |line| split_micros(line.connection.wait).0.into(),
        "Seconds since its present request came, be it waiting or being carried out; of a cancel \
         request, how long it has waited for a connection.",
    ),
    int4(
        "wait_us",
        |line| split_micros(line.connection.wait).1.into(),
        "Microseconds of that beyond the whole seconds.",
    ),
    int4(
        "close_needed",
        |line| line.connection.close_needed.into(),
        "1 if the connection is closed as soon as it is free.",
    ),
    text(
        "ptr",
        |line| pointer(line.connection.fd).into(),
        "A name of the connection, which later ones may have again; `link` refers to it.",
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
        "What the client calls itself, or the server was told.",
    ),
    int4(
        "prepared_statements",
        |line| line.connection.prepared_statements.into(),
        "Prepared statements the client has, or the server holds.",
    ),
    int4(
        "id",
        |line| (line.connection.id & i32::MAX as u64).into(),
        "Number of the connection, which no other has or will have; it begins anew after 2147483647.",
    ),
];

pub(super) struct Line {
    pub(super) kind: &'static str,
    /// Its place among the states of a pool; clients with and without a server stand together.
    pub(super) rank: u8,
    pub(super) state: &'static str,
    pub(super) local_time: fn(i64) -> String,
    pub(super) connection: Connection,
    /// Of a client that keeps its server; SHOW CLIENTS alone fills it in.
    pub(super) pin: Option<Pin>,
}

fn clients(view: View) -> Vec<Line> {
    let local_time = view.snapshot.local_time;
    let servers = view.snapshot.servers.into_iter();
    let mut pins: HashMap<u64, Pin> =
        servers.filter_map(|server| Some((server.connection.link, server.pin?))).collect();
    let all = view.snapshot.clients.into_iter().chain(view.consoles);
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
        let pin = pins.remove(&connection.fd);
        Some(Line { kind: "C", rank, state, local_time, connection, pin })
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
        };
        Line { kind: "S", rank, state, local_time, connection: server.connection, pin: None }
    });
    sorted(lines)
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

/// Without anybody at the other side it is idle, whatever it does otherwise.
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
