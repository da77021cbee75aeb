//! SHOW POOLS.

use std::collections::HashMap;

use config::Proxied;
use engine::report::CancelTarget;

use super::{Table, View, int4, own, split_micros, text};
use crate::NAME;
use crate::snapshot::{ClientState, ServerState};

pub(super) static POOLS: Table<PoolLine> = Table {
    name: "POOLS",
    about: "A row for each database and user, the console's included. SHOW NODE_POOLS shows the pools \
            of standbys apart.",
    columns: &[
        text("database", |line| (&line.database).into(), "Name clients ask for."),
        text("user", |line| (&line.user).into(), "User the servers are logged in as."),
        int4(
            "cl_active",
            |line| line.clients(&[ClientState::Active, ClientState::Idle]).into(),
            "Clients that are linked to a server, or idle.",
        ),
        int4(
            "cl_waiting",
            |line| line.clients(&[ClientState::Waiting]).into(),
            "Clients that wait for a server.",
        ),
        int4(
            "cl_active_cancel_req",
            |line| line.clients(&[ClientState::ActiveCancel]).into(),
            "Cancel requests that are being sent to a server.",
        ),
        int4(
            "cl_waiting_cancel_req",
            |line| line.clients(&[ClientState::WaitingCancel]).into(),
            "Cancel requests that wait for a connection.",
        ),
        int4(
            "sv_active",
            |line| {
                (line.servers(ServerState::Active) + line.servers(ServerState::Attending)).into()
            },
            "Servers linked to a client, and servers of a direct pool that run a client's transaction or \
             are not in the lobby yet.",
        ),
        int4(
            "sv_active_cancel",
            |line| line.carriers.into(),
            "Connections that carry a cancel request.",
        ),
        int4(
            "sv_being_canceled",
            |line| line.servers(ServerState::BeingCanceled).into(),
            "Servers held back until cancel requests for them are over.",
        ),
        int4(
            "sv_idle",
            |line| line.servers(ServerState::Idle).into(),
            "Servers that can be used at once.",
        ),
        int4(
            "sv_used",
            |line| line.servers(ServerState::Used).into(),
            "Servers idle for longer than `server_check_delay`, checked before their next use.",
        ),
        int4(
            "sv_tested",
            |line| line.servers(ServerState::Tested).into(),
            "Servers that are being checked or reset.",
        ),
        int4(
            "sv_login",
            |line| line.servers(ServerState::Login).into(),
            "Servers that are connecting or logging in.",
        ),
        int4(
            "maxwait",
            |line| split_micros(line.oldest_wait).0.into(),
            "Seconds that the first client in the queue has waited.",
        ),
        int4(
            "maxwait_us",
            |line| split_micros(line.oldest_wait).1.into(),
            "The microseconds to add to that.",
        ),
        text("pool_mode", |line| line.pool_mode.into(), "Current pool mode."),
        text(
            "load_balance_hosts",
            |line| line.load_balance_hosts.into(),
            "How one of several hosts is chosen; NULL if there is one host.",
        ),
        own(int4(
            "sv_pinned",
            |line| line.pinned.into(),
            "Pinned servers, which SHOW PINS lists (`pool_mode = auto`). They are among the \
             servers linked to a client.",
        )),
        own(text(
            "session_state",
            |line| line.session_state().into(),
            "How Weir learns the session state (`pool_mode = auto`). `report`: the servers report \
             it, by the library `weir`. `probe`: Weir asks the servers. `mixed`: some servers \
             report it. NULL: there is no such server.",
        )),
        own(text(
            "data_path",
            |line| {
                line.pool.map(|proxied| if proxied.is_some() { "proxy" } else { "direct" }).into()
            },
            "`direct`: PostgreSQL's backends serve the clients' sockets (docs/direct.md). `proxy`: \
             Weir does.",
        )),
        own(text(
            "why",
            |line| line.why().into(),
            "Why the pool is proxied although `data_path` asks for a direct one; else NULL.",
        )),
    ],
    rows: lines,
};

#[derive(Default)]
pub(super) struct PoolLine {
    database: String,
    user: String,
    client_states: Vec<ClientState>,
    server_states: Vec<ServerState>,
    /// Connections that carry a cancel request.
    carriers: usize,
    pinned: usize,
    /// Servers that report their session's state, and those that are probed.
    reporting: usize,
    probed: usize,
    oldest_wait: u64,
    pool_mode: &'static str,
    load_balance_hosts: Option<&'static str>,
    /// Why the pool is proxied; None for the console.
    pool: Option<Option<Proxied>>,
}

impl PoolLine {
    fn clients(&self, states: &[ClientState]) -> usize {
        self.client_states.iter().filter(|state| states.contains(state)).count()
    }

    fn why(&self) -> Option<&'static str> {
        self.pool.flatten().filter(|why| *why != Proxied::SwitchedOff).map(Proxied::word)
    }

    fn session_state(&self) -> Option<&'static str> {
        match (self.reporting, self.probed) {
            (0, 0) => None,
            (_, 0) => Some("report"),
            (0, _) => Some("probe"),
            (_, _) => Some("mixed"),
        }
    }

    fn servers(&self, wanted: ServerState) -> usize {
        self.server_states.iter().filter(|state| **state == wanted).count()
    }
}

fn lines(view: View) -> Vec<PoolLine> {
    let config = &view.snapshot.config;
    let mut numbers = HashMap::new();
    let mut lines = vec![PoolLine {
        database: NAME.to_owned(),
        user: NAME.to_owned(),
        client_states: view.consoles.iter().map(|console| console.state).collect(),
        pool_mode: config::PoolMode::Statement.word(),
        ..PoolLine::default()
    }];
    // The pools of standbys belong to the row of their primary's pool.
    let mut by_name: HashMap<(String, String), usize> = HashMap::new();
    for pool in view.snapshot.pools {
        let number = *by_name
            .entry((pool.database.clone(), pool.user.clone()))
            .or_insert_with(|| lines.len());
        numbers.insert(pool.id, number);
        if let Some(line) = lines.get_mut(number) {
            line.oldest_wait = line.oldest_wait.max(pool.oldest_wait);
            continue;
        }
        lines.push(PoolLine {
            load_balance_hosts: super::databases::load_balancing(config, &pool.database),
            pool_mode: pool.pool_mode.word(),
            oldest_wait: pool.oldest_wait,
            pool: Some(pool.proxied),
            database: pool.database,
            user: pool.user,
            ..PoolLine::default()
        });
    }
    let number =
        |pool: Option<engine::ids::PoolId>| pool.and_then(|pool| numbers.get(&pool).copied());
    for client in &view.snapshot.clients {
        if let Some(number) = number(client.connection.pool) {
            lines[number].client_states.push(client.state);
        }
    }
    for server in &view.snapshot.servers {
        if let Some(number) = number(server.connection.pool) {
            lines[number].server_states.push(server.state);
            lines[number].pinned += usize::from(server.pin.is_some());
            lines[number].reporting +=
                usize::from(server.connection.facts.reports_state == Some(true));
            lines[number].probed +=
                usize::from(server.connection.facts.reports_state == Some(false));
        }
    }
    for cancel in view.snapshot.cancels.iter().filter(|cancel| cancel.sent) {
        if let CancelTarget::Pool(pool) = cancel.to
            && let Some(number) = number(Some(pool))
        {
            lines[number].carriers += 1;
        }
    }
    lines.sort_by(|a, b| (&a.database, &a.user).cmp(&(&b.database, &b.user)));
    lines
}
