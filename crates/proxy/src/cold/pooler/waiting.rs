//! The log's lines about a shutdown that waits: for which connections, and how to end the wait.

use std::{
    collections::HashMap,
    iter,
    time::{Duration, Instant},
};

use engine::{
    ids::Micros,
    report::{ClientState, ServerState},
};
use tokio::time::sleep;

use crate::{
    cold::controller::{Controller, PoolInfo, Shutdown, Snapshot},
    exchange::reports::{ClientInfo, ServerInfo},
    log,
};

/// A shutdown that takes less time is not explained.
const FIRST: Duration = Duration::from_secs(1);
/// The time to the second line. It doubles from line to line.
const AGAIN: Duration = Duration::from_secs(30);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// Connections that a line describes at most; the others are counted.
const NAMED_MAX: usize = 5;

/// Logs at intervals what a shutdown waits for. It never returns.
pub(super) async fn explain(controller: Controller, how: Shutdown) {
    let began = Instant::now();
    for pause in pauses() {
        sleep(pause).await;
        let port = controller.config().global.listen_port;
        let connections = describe(&controller.snapshot().await, how, port);
        let mut awaited: Vec<String> = connections.into_iter().collect();
        if !controller.0.clusters.are_at_rest() {
            awaited.push("a change of a cluster's primary".to_owned());
        }
        if !awaited.is_empty() {
            let seconds = began.elapsed().as_secs();
            let awaited = awaited.join(" and ");
            log!("shutting down for {seconds} s, waiting for {awaited}{}", end_of_wait(how));
        }
    }
}

/// The pauses before the lines.
fn pauses() -> impl Iterator<Item = Duration> {
    let later = |pause: &Duration| Some((*pause * 2).min(AGAIN_MAX));
    iter::once(FIRST).chain(iter::successors(Some(AGAIN), later))
}

/// Says what ends the wait at once.
fn end_of_wait(how: Shutdown) -> &'static str {
    match how {
        // The console is at the other process.
        Shutdown::TakenOver => "; SIGTERM ends this process at once, and these connections",
        Shutdown::WaitForServers | Shutdown::WaitForClients | Shutdown::Immediate => {
            "; a second SIGINT or SIGTERM, or SHUTDOWN on the console, ends Weir at once, and these \
             connections"
        }
    }
}

/// Describes the connections that keep the process, if there are any.
fn describe(all: &Snapshot, how: Shutdown, port: u16) -> Option<String> {
    let clients: HashMap<u64, &ClientInfo> =
        all.clients.iter().map(|client| (client.pointer, client)).collect();
    let (what, mut connections): (_, Vec<(Micros, String)>) = match how {
        Shutdown::WaitForServers | Shutdown::Immediate => {
            let pools: HashMap<_, _> = all.pools.iter().map(|pool| (pool.id, pool)).collect();
            let busy = all.servers.iter().filter(|server| is_busy(server));
            let describe = |server: &ServerInfo| {
                let client = clients.get(&server.link).copied();
                let pool = pools.get(&server.row.pool).copied();
                describe_server(server, client.filter(|_| server.link != 0), pool, all.now, port)
            };
            ("server", busy.map(describe).collect())
        }
        Shutdown::WaitForClients | Shutdown::TakenOver => {
            let servers: HashMap<_, _> = all.servers.iter().map(|it| (it.pointer, it)).collect();
            let linked = |client: &ClientInfo| match client.link {
                0 => None,
                link => servers.get(&link).copied(),
            };
            let describe = |client| describe_client(client, linked(client), all.now, port);
            ("client", all.clients.iter().map(describe).collect())
        }
    };
    // The oldest first.
    connections.sort();
    let count = connections.len();
    let mut texts: Vec<_> = connections.into_iter().take(NAMED_MAX).map(|(_, text)| text).collect();
    if count > NAMED_MAX {
        texts.push(format!("{} more", count - NAMED_MAX));
    }
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("{count} {what}{plural}: {}", texts.join("; ")))
}

/// Must a shutdown that waits for servers wait for this one? Parked servers have no slot.
fn is_busy(server: &ServerInfo) -> bool {
    server.row.slot.is_some() && server.row.state != ServerState::Listening
}

/// Returns since when the server has been busy, and why.
fn describe_server(
    server: &ServerInfo,
    client: Option<&ClientInfo>,
    pool: Option<&PoolInfo>,
    now: Micros,
    port: u16,
) -> (Micros, String) {
    if let Some(client) = client {
        return describe_client(client, Some(server), now, port);
    }
    let (database, user) =
        pool.map_or(("(nodb)", "(nouser)"), |pool| (&pool.key.database, &pool.key.user));
    let state = match server.row.state {
        ServerState::Login => "logs in",
        ServerState::Tested => "answers a query of Weir",
        ServerState::BeingCanceled => "is being canceled",
        ServerState::Active
        | ServerState::Idle
        | ServerState::Used
        | ServerState::Listening
        | ServerState::Attending => "is being closed",
    };
    let since = server.row.request_at.max(server.row.connected_at);
    let seconds = seconds(since, now);
    (since, format!("{database}/{user}: the server at {} {state}, {seconds} s", server.remote))
}

/// Returns since when the client does what it does, and what keeps its server.
fn describe_client(
    client: &ClientInfo,
    server: Option<&ServerInfo>,
    now: Micros,
    port: u16,
) -> (Micros, String) {
    let row = &client.row;
    let idle_since = row.request_at.max(row.connected_at);
    let (since, state) = match (server.and_then(|server| server.row.doing), row.state) {
        (Some(doing), _) => (doing.since, doing.activity.words()),
        (None, ClientState::Login) => (row.connected_at, "logging in"),
        (None, ClientState::Idle) => (idle_since, "idle"),
        (None, ClientState::Waiting) => (idle_since, "waiting for a server"),
        (None, ClientState::Active) => (idle_since, "active"),
        (None, ClientState::Canceling) => (idle_since, "sends a cancel request"),
    };
    let seconds = seconds(since, now);
    let mut text = format!(
        "{}/{}@{} {state} {seconds} s",
        row.identity.database,
        row.identity.user,
        client.peer.label(port)
    );
    if let Some(pinned) = server.and_then(|server| server.row.pinned) {
        text += &format!(", pinned by {pinned}");
    }
    (since, text)
}

fn seconds(since: Micros, now: Micros) -> Micros {
    now.saturating_sub(since) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_become_rarer() {
        let seconds: Vec<_> = pauses().take(8).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 30, 60, 120, 240, 480, 600, 600]);
    }
}
