//! The rows of clients and servers in a worker's report for the console.

use config::PoolMode;

use crate::client::{Client, ClientPhase};
use crate::ids::{ClientId, Micros, ServerId};
use crate::operator::facts::Facts;
use crate::operator::report::{ClientRow, ClientState, Reading, ServerRow, ServerState};
use crate::operator::waits::doing;
use crate::relay::stream::Stream;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::pins::{Pinned, Pins};
use crate::vars::APPLICATION_NAME;

pub(crate) fn client_state(client: &Client) -> ClientState {
    match *client.phase {
        ClientPhase::Login(_) => ClientState::Login,
        ClientPhase::Idle | ClientPhase::Failed(_) => ClientState::Idle,
        ClientPhase::Waiting(_) => ClientState::Waiting,
        ClientPhase::Preparing(_) | ClientPhase::Linked => ClientState::Active,
        ClientPhase::Canceling { .. } => ClientState::Canceling,
    }
}

/// `server`: the serial number of its server; 0 = none.
pub(crate) fn client_row(id: ClientId, client: &Client, server: u64) -> ClientRow {
    ClientRow {
        id,
        serial: client.serial,
        identity: client.identity.clone(),
        pool: client.pool.id(),
        state: client_state(client),
        connected_at: client.times.connected_at(),
        request_at: client.times.request_at(),
        server,
        facts: Facts::of_client(client),
        application_name: client.vars.get(APPLICATION_NAME).unwrap_or_default().to_vec(),
        reading: reading(&client.stream),
        replication: client.replication.as_ref().map(|own| own.kind),
    }
}

fn reading(stream: &Stream) -> Reading {
    Reading { held: stream.held().len(), remaining: stream.remaining() }
}

/// Returns a server's state. `check_delay` separates idle from used.
pub fn server_state(server: &Server, check_delay: Micros, now: Micros) -> ServerState {
    match *server.phase {
        ServerPhase::Connecting(_) | ServerPhase::Login(_) => ServerState::Login,
        ServerPhase::Parked if now.saturating_sub(server.times.released_at()) > check_delay => {
            ServerState::Used
        }
        ServerPhase::Parked => ServerState::Idle,
        // In these steps, Weir repeats or decides the client's own request.
        ServerPhase::Preparing(
            Preparation::Unwind
            | Preparation::Renew
            | Preparation::Confirm
            | Preparation::Ahead(_)
            | Preparation::Signal(_),
        )
        | ServerPhase::Linked => ServerState::Active,
        ServerPhase::Preparing(Preparation::AwaitCancel) | ServerPhase::Finishing => {
            ServerState::BeingCanceled
        }
        // It has no client, and is idle again in a moment.
        ServerPhase::Preparing(Preparation::TellPrincipal(_)) => ServerState::Idle,
        ServerPhase::Preparing(_) => ServerState::Tested,
        ServerPhase::Settling(_) if server.cancel.is_under_way() => ServerState::BeingCanceled,
        ServerPhase::Settling(_) => ServerState::Tested,
        ServerPhase::Listening => ServerState::Listening,
        ServerPhase::Attending { .. } => ServerState::Attending,
    }
}

/// Returns the row of a server in use, and what its client does with it.
pub(crate) fn busy_row(
    id: ServerId,
    server: &Server,
    client: Option<&Client>,
    pool: Option<PoolMode>,
    now: Micros,
) -> ServerRow {
    let mut row = server_row(Some(id), server, 0, now);
    if let Some(client) = client {
        if has_session_of_own(server, client, pool) {
            let since = server.times.opened_at();
            row.pinned = Some(Pinned { pins: Pins::SESSION, since, fingerprint: 0 });
        }
        row.client = client.serial;
        row.doing = client.is_welcomed().then(|| doing(server, client));
        row.request_at = client.times.request_at();
    }
    row
}

/// Does the client have the server in session mode, although its pool is in auto mode?
pub(crate) fn has_session_of_own(server: &Server, client: &Client, pool: Option<PoolMode>) -> bool {
    let modes = (server.mode, pool);
    client.is_welcomed() && modes == (PoolMode::Session, Some(PoolMode::Auto))
}

/// Returns a server's row for SHOW SERVERS.
pub fn server_row(
    slot: Option<ServerId>,
    server: &Server,
    check_delay: Micros,
    now: Micros,
) -> ServerRow {
    ServerRow {
        slot,
        serial: server.serial,
        pool: server.pool,
        state: server_state(server, check_delay, now),
        connected_at: server.times.connected_at(),
        request_at: server.times.released_at(),
        client: 0,
        doing: None,
        process_id: server.key.pid,
        facts: Facts::of_server(server),
        application_name: server.vars.get(APPLICATION_NAME).unwrap_or_default().to_vec(),
        reading: reading(&server.stream),
        replication: server.replication,
        // A client that has left pins nothing, though its state may not be removed yet.
        pinned: server.session.pinned.as_deref().filter(|_| server.client.is_some()).copied(),
        doomed: server.doomed.is_some(),
    }
}
