//! SHOW WAITS, which is Weir's own: the clients that hold the servers for which others wait. And the
//! columns about what a client does with its server, which SHOW CLIENTS and SHOW SERVERS have, too.

use std::collections::HashMap;

use engine::ids::PoolId;

use super::connections::{self, address, pointer};
use super::{Column, Table, View, int8, own, pins, text};
use crate::snapshot::{ClientState, Connection, Doing, Pin};

/// Behind all other columns of SHOW CLIENTS and SHOW SERVERS.
pub(super) const ACTIVITY: [Column<connections::Line>; 2] = [
    own(text(
        "activity",
        |line| line.doing.map(|doing| doing.activity.words()).into(),
        "The client's use of its server, as `state` in `pg_stat_activity`. The values are \
         `active`, `idle in transaction`, `idle in transaction (aborted)` and `idle`. `idle`: the \
         client keeps the server without a transaction. NULL: the client has no server.",
    )),
    own(int8(
        "activity_age",
        |line| line.doing.map(|doing| doing.age / 1_000_000).into(),
        "Seconds for which `activity` has had this value.",
    )),
];

pub(super) static WAITS: Table<Line> = Table {
    name: "WAITS",
    about: "For each pool in which clients wait, a row for each server that has a client. The \
            server that has been in its state for the longest time comes first. A pool without \
            such a server has one row without a client. Weir's own.",
    columns: &[
        text("database", |line| (&line.waiting.database).into(), "Name clients ask for."),
        text("user", |line| (&line.waiting.user).into(), "The user the servers are logged in as."),
        int8("waiting", |line| line.waiting.count.into(), "Clients of the pool that wait."),
        int8(
            "maxwait",
            |line| (line.waiting.longest / 1_000_000).into(),
            "Seconds that the first of them has waited.",
        ),
        text(
            "server",
            |line| line.held().map(|held| pointer(held.server.fd)).into(),
            "As `ptr` in SHOW SERVERS.",
        ),
        text(
            "client",
            |line| line.held().map(|held| pointer(held.server.link)).into(),
            "The client that has the server, as `ptr` in SHOW CLIENTS.",
        ),
        text(
            "client_user",
            |line| line.client().map(|client| client.user.as_str()).into(),
            "The user that client is logged in as.",
        ),
        text(
            "application_name",
            |line| line.client().map(|client| client.application_name.as_str()).into(),
            "The name that the client has given itself.",
        ),
        text(
            "addr",
            |line| address(line.client().and_then(|client| client.peer)),
            "Its address; `unix` for a Unix socket.",
        ),
        text(
            "activity",
            |line| {
                let doing = line.held().and_then(|held| held.doing);
                doing.map(|doing| doing.activity.words()).into()
            },
            "As in SHOW SERVERS.",
        ),
        int8(
            "activity_age",
            |line| {
                line.held().and_then(|held| held.doing).map(|doing| doing.age / 1_000_000).into()
            },
            "As in SHOW SERVERS.",
        ),
        text(
            "pin_reason",
            |line| line.pin().map(|pin| pin.reasons.as_str()).into(),
            "As `reason` in SHOW PINS.",
        ),
        text(
            "pin_fingerprint",
            |line| line.pin().map(pins::fingerprint).into(),
            "As `fingerprint` in SHOW PINS.",
        ),
    ],
    rows,
};

/// The clients of a pool that wait.
#[derive(Clone, Default)]
struct Waiting {
    database: String,
    user: String,
    count: u64,
    /// Microseconds.
    longest: u64,
}

struct Held {
    server: Connection,
    client: Option<Connection>,
    doing: Option<Doing>,
    pin: Option<Pin>,
}

pub(super) struct Line {
    waiting: Waiting,
    held: Option<Box<Held>>,
}

impl Line {
    fn held(&self) -> Option<&Held> {
        self.held.as_deref()
    }

    fn client(&self) -> Option<&Connection> {
        self.held()?.client.as_ref()
    }

    fn pin(&self) -> Option<&Pin> {
        self.held()?.pin.as_ref()
    }
}

fn rows(view: View) -> Vec<Line> {
    let snapshot = view.snapshot;
    let mut waiting: HashMap<PoolId, Waiting> = HashMap::new();
    for client in snapshot.clients.iter().filter(|client| client.state == ClientState::Waiting) {
        if let Some(pool) = client.connection.pool {
            let own = waiting.entry(pool).or_default();
            own.count += 1;
            own.longest = own.longest.max(client.connection.wait);
        }
    }
    for pool in snapshot.pools {
        if let Some(own) = waiting.get_mut(&pool.id) {
            (own.database, own.user) = (pool.database, pool.user);
        }
    }
    let mut clients: HashMap<u64, Connection> = snapshot
        .clients
        .into_iter()
        .filter(|client| client.connection.link != 0)
        .map(|client| (client.connection.fd, client.connection))
        .collect();
    let mut lines = Vec::new();
    let mut held_somewhere: HashMap<PoolId, u64> = HashMap::new();
    for server in snapshot.servers {
        let pool = server.connection.pool.filter(|_| server.connection.link != 0);
        let Some((pool, own)) = pool.and_then(|pool| Some((pool, waiting.get(&pool)?))) else {
            continue;
        };
        *held_somewhere.entry(pool).or_default() += 1;
        let client = clients.remove(&server.connection.link);
        let (doing, pin) = (server.doing, server.pin);
        let held = Held { server: server.connection, client, doing, pin };
        lines.push(Line { waiting: own.clone(), held: Some(Box::new(held)) });
    }
    let without = waiting.into_iter().filter(|(pool, _)| !held_somewhere.contains_key(pool));
    lines.extend(without.map(|(_, waiting)| Line { waiting, held: None }));
    lines.sort_by(|a, b| {
        let pool = |line: &Line| (line.waiting.database.clone(), line.waiting.user.clone());
        let age = |line: &Line| line.held().and_then(|held| held.doing).map(|doing| doing.age);
        pool(a).cmp(&pool(b)).then_with(|| age(b).cmp(&age(a)))
    });
    lines
}
