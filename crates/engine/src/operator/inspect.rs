//! Reports of a worker for the console, and invariants for tests.

use std::collections::HashMap;

use config::PoolMode;

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::operator::facts::Facts;
use crate::operator::report::{ClientRow, ClientState, Reading, Report, ServerRow, ServerState};
use crate::operator::transactions::Transaction;
use crate::operator::waits::doing;
use crate::relay::stream::Stream;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::pins::{Pinned, Pins};
use crate::shell::Exchange;
use crate::vars::APPLICATION_NAME;

impl<X: Exchange> Engine<X> {
    /// Returns everything that an operator may want to see of this worker.
    pub fn report(&mut self, now: Micros) -> Report {
        let known: Vec<_> = self.pools.iter().map(|(id, _)| id).collect();
        let epochs = known.into_iter().map(|id| (id, self.exchange.pool(id, |pool| pool.epoch())));
        let epochs: HashMap<PoolId, u64> = epochs.collect();
        let clients = self.clients.iter().map(|(id, client)| {
            let server = client.server.and_then(|on| self.servers.get(on));
            let mut row = client_row(id, client, server.map_or(0, |server| server.serial));
            if self.is_read_held(id) {
                row.state = ClientState::Waiting;
            }
            row
        });
        let servers = self.servers.iter().map(|(id, server)| {
            let client = server.client.and_then(|id| self.clients.get(id));
            let mut row = server_row(Some(id), server, 0, now);
            row.doomed |= epochs.get(&server.pool).is_some_and(|epoch| *epoch != server.epoch);
            if client.is_some_and(|client| self.has_session_of_own(server, client)) {
                let since = server.times.opened_at;
                row.pinned = Some(Pinned { pins: Pins::SESSION, since, fingerprint: 0 });
            }
            if let Some(client) = client {
                row.client = client.serial;
                row.doing = client.is_welcomed().then(|| doing(server, client));
                row.request_at = client.request_at;
            }
            row
        });
        Report {
            now,
            clients: clients.collect(),
            free_clients: self.clients.free_slots(),
            servers: servers.collect(),
            cancels: self.cancel_rows(),
            stats: self.pools.iter().map(|(id, view)| (id, view.stats)).collect(),
            watched: self.watch.as_ref().map(|watch| watch.watched()).unwrap_or_default(),
        }
    }

    /// Returns the transactions that this worker remembers, the oldest first.
    pub fn transactions(&self) -> Vec<Transaction> {
        self.transactions.all()
    }

    /// Returns the client's server, for the shell's back-pressure.
    pub fn server_of(&self, id: ClientId) -> Option<ServerId> {
        self.clients.get(id)?.server
    }

    /// Is the client still logging in?
    pub fn is_logging_in(&self, id: ClientId) -> bool {
        let client = self.clients.get(id);
        client.is_some_and(|client| matches!(client.phase, ClientPhase::Login(_)))
    }

    pub fn client_of(&self, id: ServerId) -> Option<ClientId> {
        self.servers.get(id)?.client
    }

    /// Returns the client that receives what the server sends now, and that may be slow. Replies to
    /// Weir's own queries wait for no client.
    pub fn receiver_of(&self, id: ServerId) -> Option<ClientId> {
        let server = self.servers.get(id)?;
        server.client.filter(|_| matches!(server.phase, ServerPhase::Linked))
    }

    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Returns the largest number of bytes kept of an incomplete message.
    pub fn held_bytes(&self) -> usize {
        let clients = self.clients.iter().map(|(_, client)| client.stream.held.len());
        let servers = self.servers.iter().map(|(_, server)| server.stream.held.len());
        clients.chain(servers).max().unwrap_or_default()
    }

    /// Returns the number of servers in use. A listener is not counted, because shutdown does not
    /// wait for it.
    pub fn busy_servers(&self) -> usize {
        let listens = |server: &Server| matches!(server.phase, ServerPhase::Listening);
        self.servers.iter().filter(|(_, server)| !listens(server)).count()
    }

    /// Checks what must hold between any two calls.
    pub fn check_invariants(&self) {
        assert!(!self.has_work(), "work is left: {:?}", self.work);
        for (id, client) in self.clients.iter() {
            match client.phase {
                ClientPhase::Linked | ClientPhase::Preparing(_) => {
                    let on = client.server.expect("a linked client has a server");
                    let server = &self.servers[on];
                    assert_eq!(server.client, Some(id), "a one-sided link");
                }
                ClientPhase::Idle
                | ClientPhase::Waiting(_)
                | ClientPhase::Failed(_)
                | ClientPhase::Canceling { .. } => {
                    assert!(client.server.is_none(), "an unlinked client has a server");
                }
                ClientPhase::Login(_) => {}
            }
        }
        for (on, server) in self.servers.iter() {
            assert!(!matches!(server.phase, ServerPhase::Parked), "a parked server in the table");
            server.ledger.check_invariants();
            let has_session = server.mode == PoolMode::Auto || server.has_traces();
            assert_eq!(server.session.get().is_some(), has_session, "a session in another mode");
            if let Some(id) = server.client {
                let client = self.clients.get(id).expect("a server of a dead client");
                assert_eq!(client.server, Some(on), "a one-sided link");
            }
        }
    }
}

pub(crate) fn client_state(client: &Client) -> ClientState {
    match client.phase {
        ClientPhase::Login(_) => ClientState::Login,
        ClientPhase::Idle | ClientPhase::Failed(_) => ClientState::Idle,
        ClientPhase::Waiting(_) => ClientState::Waiting,
        ClientPhase::Preparing(_) | ClientPhase::Linked => ClientState::Active,
        ClientPhase::Canceling { .. } => ClientState::Canceling,
    }
}

fn client_row(id: ClientId, client: &Client, server: u64) -> ClientRow {
    ClientRow {
        id,
        serial: client.serial,
        identity: client.identity.clone(),
        pool: client.pool,
        state: client_state(client),
        connected_at: client.connected_at,
        request_at: client.request_at,
        server,
        facts: Facts::of_client(client),
        application_name: client.vars.get(APPLICATION_NAME).unwrap_or_default().to_vec(),
        reading: reading(&client.stream),
        replication: client.replication.as_ref().map(|own| own.kind),
    }
}

fn reading(stream: &Stream) -> Reading {
    Reading { held: stream.held.len(), remaining: stream.remaining }
}

/// Returns a server's state. `check_delay` separates idle from used.
pub fn server_state(server: &Server, check_delay: Micros, now: Micros) -> ServerState {
    match server.phase {
        ServerPhase::Connecting(_) | ServerPhase::Login(_) => ServerState::Login,
        ServerPhase::Parked if now.saturating_sub(server.times.released_at) > check_delay => {
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
        ServerPhase::Settling(_) if server.cancel.is_some() => ServerState::BeingCanceled,
        ServerPhase::Settling(_) => ServerState::Tested,
        ServerPhase::Listening => ServerState::Listening,
        ServerPhase::Attending { .. } => ServerState::Attending,
    }
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
        connected_at: server.times.connected_at,
        request_at: server.times.released_at,
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
