//! SHOW FDS: the descriptors that a new PgBouncer would take over from an old one. They are only
//! listed, not sent: `-R` has its own protocol, which also sends the state of the connections.

use std::collections::HashSet;

use engine::values::Values;
use engine::vars::{CLIENT_ENCODING, DATE_STYLE, STANDARD_CONFORMING_STRINGS, TIME_ZONE};

use super::connections::{address, port};
use super::{Cell, Column, Head, Kind, Table, View, int4, int8, text};
use crate::snapshot::{Address, Connection, Listener};

pub(super) static FDS: Table<Line> = Table {
    name: "FDS",
    about: "A row for each listening socket, client and server. Connections with TLS have no row, \
            nor do the connections that they are linked to. Only `admin_users` may run the \
            command: its rows contain the keys that cancel any query. The descriptors themselves \
            are not sent.",
    columns: &COLUMNS,
    rows: lines,
};

static COLUMNS: [Column<Line>; 15] = [
    int4("fd", |line| line.fd.into(), "Number of the descriptor."),
    text("task", |line| line.task.into(), "`pooler`, `client` or `server`."),
    text(
        "user",
        |line| known(&line.user),
        "The client's name, or the user the server is logged in as.",
    ),
    text("database", |line| known(&line.database), "Name clients ask for."),
    text(
        "addr",
        |line| address(line.address),
        "Address of the other end, or of the listening socket.",
    ),
    int4("port", |line| port(line.address), "Port of that address."),
    int8(
        "cancel",
        |line| line.cancel.into(),
        "Process id (upper half) and secret for cancel requests.",
    ),
    int4(
        "link",
        |line| line.link.into(),
        "Descriptor of the server or client it is linked to, or 0.",
    ),
    text(
        "client_encoding",
        |line| value(line, CLIENT_ENCODING),
        "Value of the parameter, if known.",
    ),
    text(
        "std_strings",
        |line| value(line, STANDARD_CONFORMING_STRINGS),
        "Value of `standard_conforming_strings`.",
    ),
    text("datestyle", |line| value(line, DATE_STYLE), "Value of the parameter."),
    text("timezone", |line| value(line, TIME_ZONE), "Value of the parameter."),
    text("password", |_| Cell::Null, "NULL: passwords are not shown."),
    bytea("scram_client_key", "NULL: keys are not shown."),
    bytea("scram_server_key", "NULL, likewise."),
];

const fn bytea(name: &'static str, about: &'static str) -> Column<Line> {
    Column { head: Head { name, kind: Kind::Bytea, about, is_own: false }, cell: |_| Cell::Null }
}

pub(super) struct Line {
    fd: u64,
    task: &'static str,
    user: Option<String>,
    database: Option<String>,
    address: Option<Address>,
    cancel: u64,
    link: u64,
    vars: Values,
}

impl Line {
    fn listener(listener: &Listener) -> Self {
        Self {
            fd: listener.fd.into(),
            task: "pooler",
            user: None,
            database: None,
            address: listener.address,
            cancel: 0,
            link: 0,
            vars: Values::default(),
        }
    }

    /// Before its login, a client has no database yet.
    fn connection(task: &'static str, connection: Connection) -> Self {
        let is_known = connection.pool.is_some();
        Self {
            fd: connection.fd,
            task,
            user: is_known.then_some(connection.user),
            database: is_known.then_some(connection.database),
            address: connection.peer,
            cancel: connection.facts.key,
            link: connection.link,
            vars: connection.facts.vars,
        }
    }
}

fn known(text: &Option<String>) -> Cell<'_> {
    text.as_ref().into()
}

fn value(line: &Line, slot: usize) -> Cell<'_> {
    line.vars.get(slot).map(|value| String::from_utf8_lossy(value).into_owned()).into()
}

/// Returns the listening sockets, clients that are logging in, and then each pool's clients and
/// servers.
fn lines(view: View) -> Vec<Line> {
    let mut all: Vec<_> = view.snapshot.listeners.iter().map(Line::listener).collect();
    let clients = view
        .snapshot
        .clients
        .into_iter()
        .filter_map(|client| (!client.is_request()).then_some(("client", client.connection)));
    let servers = view.snapshot.servers.into_iter().map(|server| ("server", server.connection));
    let mut connections: Vec<_> = clients.chain(servers).collect();
    let secured: HashSet<_> = connections
        .iter()
        .filter(|(_, one)| !one.tls.is_empty())
        .flat_map(|(_, one)| [one.fd, one.link])
        .filter(|fd| *fd != 0)
        .collect();
    connections.retain(|(_, one)| !secured.contains(&one.fd));
    connections.sort_by(|(a_task, a), (b_task, b)| {
        let pool = |one: &Connection| (one.pool.is_some(), one.database.clone(), one.user.clone());
        (pool(a), a_task, a.fd).cmp(&(pool(b), b_task, b.fd))
    });
    all.extend(connections.into_iter().map(|(task, one)| Line::connection(task, one)));
    all
}
