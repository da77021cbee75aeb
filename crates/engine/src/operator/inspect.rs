//! Looking at a worker from outside: reports for the console, invariants for tests.

use std::collections::HashMap;

use config::PoolMode;

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::operator::report::{ClientRow, ClientState, Reading, Report, ServerRow, ServerState};
use crate::relay::stream::Stream;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::pins::{Pinned, Pins};
use crate::shell::Exchange;
use crate::vars::APPLICATION_NAME;

impl<X: Exchange> Engine<X> {
    /// Everything an operator may want to see of this worker.
    pub fn report(&mut self, now: Micros) -> Report {
        let known: Vec<_> = self.pools.iter().map(|(id, _)| id).collect();
        let epochs = known.into_iter().map(|id| (id, self.exchange.pool(id, |pool| pool.epoch())));
        let epochs: HashMap<PoolId, u64> = epochs.collect();
        let clients = self.clients.iter().map(|(slot, client)| {
            let server = client.server.and_then(|on| self.servers.get(on.0 as usize));
            client_row(ClientId(slot as u32), client, server.map_or(0, |server| server.serial))
        });
        let servers = self.servers.iter().map(|(slot, server)| {
            let client = server.client.and_then(|id| self.clients.get(id.0 as usize));
            let mut row = server_row(Some(ServerId(slot as u32)), server, 0, now);
            row.doomed |= epochs.get(&server.pool).is_some_and(|epoch| *epoch != server.epoch);
            let pool = self.pools.get(server.pool).map(|view| view.settings.mode);
            let (in_session, in_auto) =
                (server.mode == PoolMode::Session, pool == Some(PoolMode::Auto));
            if client.is_some_and(|client| client.is_welcomed()) && in_session && in_auto {
                let since = server.times.opened_at;
                row.pinned = Some(Pinned { pins: Pins::SESSION, since, fingerprint: 0 });
            }
            if let Some(client) = client {
                row.client = client.serial;
                row.request_at = client.request_at;
            }
            row
        });
        Report {
            now,
            clients: clients.collect(),
            free_clients: self.clients.capacity() - self.clients.len(),
            servers: servers.collect(),
            cancels: self.cancel_rows(),
            stats: self.pools.iter().map(|(id, view)| (id, view.stats)).collect(),
        }
    }

    /// The link, for the shell's back-pressure.
    pub fn server_of(&self, id: ClientId) -> Option<ServerId> {
        self.clients.get(id.0 as usize)?.server
    }

    /// Is the client still saying who it is?
    pub fn is_logging_in(&self, id: ClientId) -> bool {
        let client = self.clients.get(id.0 as usize);
        client.is_some_and(|client| matches!(client.phase, ClientPhase::Login(_)))
    }

    pub fn client_of(&self, id: ServerId) -> Option<ClientId> {
        self.servers.get(id.0 as usize)?.client
    }

    /// The client that what the server says now is for, and that may be slow to take it. What the
    /// server is asked for our own sake waits for no client.
    pub fn reader_of(&self, id: ServerId) -> Option<ClientId> {
        let server = self.servers.get(id.0 as usize)?;
        server.client.filter(|_| matches!(server.phase, ServerPhase::Linked))
    }

    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// The most that is kept of any message which is not whole yet, in bytes.
    pub fn held_bytes(&self) -> usize {
        let clients = self.clients.iter().map(|(_, client)| client.stream.held.len());
        let servers = self.servers.iter().map(|(_, server)| server.stream.held.len());
        clients.chain(servers).max().unwrap_or_default()
    }

    /// Servers that somebody needs at the moment. One that listens need not be waited for.
    pub fn busy_servers(&self) -> usize {
        let listens = |server: &Server| matches!(server.phase, ServerPhase::Listening);
        self.servers.iter().filter(|(_, server)| !listens(server)).count()
    }

    /// What must hold between any two calls.
    pub fn check_invariants(&self) {
        assert!(!self.has_work(), "work is left: {:?}", self.work);
        for (slot, client) in &self.clients {
            match client.phase {
                ClientPhase::Linked | ClientPhase::Preparing(_) => {
                    let on = client.server.expect("a linked client has a server");
                    let server = &self.servers[on.0 as usize];
                    assert_eq!(server.client, Some(ClientId(slot as u32)), "a one-sided link");
                }
                ClientPhase::Idle | ClientPhase::Waiting(_) | ClientPhase::Canceling { .. } => {
                    assert!(client.server.is_none(), "an unlinked client has a server");
                }
                ClientPhase::Login(_) => {}
            }
        }
        for (slot, server) in &self.servers {
            assert!(!matches!(server.phase, ServerPhase::Parked), "a parked server in the table");
            server.ledger.check_invariants();
            if let Some(id) = server.client {
                let client = self.clients.get(id.0 as usize).expect("a server of a dead client");
                assert_eq!(client.server, Some(ServerId(slot as u32)), "a one-sided link");
            }
        }
    }
}

fn client_row(id: ClientId, client: &Client, server: u64) -> ClientRow {
    ClientRow {
        id,
        serial: client.serial,
        identity: client.identity.clone(),
        pool: client.pool,
        state: match client.phase {
            ClientPhase::Login(_) => ClientState::Login,
            ClientPhase::Idle => ClientState::Idle,
            ClientPhase::Waiting(_) => ClientState::Waiting,
            ClientPhase::Preparing(_) | ClientPhase::Linked => ClientState::Active,
            ClientPhase::Canceling { .. } => ClientState::Canceling,
        },
        connected_at: client.connected_at,
        request_at: client.request_at,
        server,
        key: client.key,
        vars: client.vars.clone(),
        application_name: client.vars.get(APPLICATION_NAME).unwrap_or_default().to_vec(),
        prepared_statements: client
            .extended
            .as_ref()
            .map_or(0, |extended| extended.statements.len()),
        statement_bytes: client.extended.as_ref().map_or(0, |extended| extended.statements.bytes()),
        reading: reading(&client.stream),
        replication: client.replication.as_ref().map(|own| own.kind),
    }
}

/// The first eight bytes of it, as an old client would be given them.
fn cancel_key(server: &Server) -> u64 {
    let secret = server.secret.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    u64::from(server.process_id) << 32 | u64::from(secret)
}

fn reading(stream: &Stream) -> Reading {
    Reading { held: stream.held.len(), remaining: stream.remaining }
}

/// A server as SHOW SERVERS tells of it; `check_delay` decides between idle and used.
pub fn server_row(
    slot: Option<ServerId>,
    server: &Server,
    check_delay: Micros,
    now: Micros,
) -> ServerRow {
    let is_used = server.mode == PoolMode::Auto
        && server.replication.is_none()
        && !matches!(
            server.phase,
            ServerPhase::Connecting(_) | ServerPhase::Login(_) | ServerPhase::Listening
        );
    ServerRow {
        slot,
        serial: server.serial,
        pool: server.pool,
        state: match server.phase {
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => ServerState::Login,
            ServerPhase::Parked if now.saturating_sub(server.times.released_at) > check_delay => {
                ServerState::Used
            }
            ServerPhase::Parked => ServerState::Idle,
            // What it is asked then is its client's request, once more.
            ServerPhase::Preparing(
                Preparation::Unwind
                | Preparation::Renew
                | Preparation::Confirm
                | Preparation::Signal(_),
            )
            | ServerPhase::Linked => ServerState::Active,
            ServerPhase::Preparing(Preparation::AwaitCancel) | ServerPhase::Finishing => {
                ServerState::BeingCanceled
            }
            ServerPhase::Preparing(_) => ServerState::Tested,
            ServerPhase::Settling(_) if server.cancel.is_some() => ServerState::BeingCanceled,
            ServerPhase::Settling(_) => ServerState::Tested,
            ServerPhase::Listening => ServerState::Listening,
        },
        connected_at: server.times.connected_at,
        request_at: server.times.released_at,
        client: 0,
        process_id: server.process_id,
        key: cancel_key(server),
        vars: server.vars.clone(),
        application_name: server.vars.get(APPLICATION_NAME).unwrap_or_default().to_vec(),
        prepared_statements: server.statements.len(),
        statement_bytes: server.statements.bytes(),
        reading: reading(&server.stream),
        replication: server.replication,
        // Who has gone keeps nothing, though what it left may not be taken away yet.
        pinned: server.session.pinned.as_deref().filter(|_| server.client.is_some()).copied(),
        reports_state: is_used.then_some(server.session.state_report.is_some()),
        doomed: server.doomed.is_some(),
    }
}
