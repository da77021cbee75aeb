//! The figures of a worker's pools, for the metrics. A [`Report`] has a row for each connection; these
//! are numbers only.
//!
//! [`Report`]: crate::operator::report::Report

use std::ops::AddAssign;

use config::PoolMode;

use crate::admission::view::PoolView;
use crate::client::Client;
use crate::ids::{Micros, PoolId};
use crate::operator::failures::Failures;
use crate::operator::histogram::Durations;
use crate::operator::inspect::{client_state, has_session_of_own, server_state};
use crate::operator::report::{ClientState, ServerState};
use crate::operator::stats::Stats;
use crate::server::Server;

/// The number of clients in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    pub login: u64,
    pub idle: u64,
    pub waiting: u64,
    pub active: u64,
    /// Connections that are cancel requests.
    pub canceling: u64,
}

impl ClientCounts {
    pub fn add(&mut self, state: ClientState) {
        match state {
            ClientState::Login => self.login += 1,
            ClientState::Idle => self.idle += 1,
            ClientState::Waiting => self.waiting += 1,
            ClientState::Active => self.active += 1,
            ClientState::Canceling => self.canceling += 1,
        }
    }

    /// Clients that are logged in.
    pub fn logged_in(&self) -> u64 {
        self.idle + self.waiting + self.active
    }

    /// Clients in any state.
    pub fn all(&self) -> u64 {
        self.login + self.idle + self.waiting + self.active + self.canceling
    }
}

impl AddAssign for ClientCounts {
    fn add_assign(&mut self, other: Self) {
        self.login += other.login;
        self.idle += other.idle;
        self.waiting += other.waiting;
        self.active += other.active;
        self.canceling += other.canceling;
    }
}

/// The number of servers in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    pub login: u64,
    pub idle: u64,
    pub used: u64,
    pub tested: u64,
    pub active: u64,
    pub being_canceled: u64,
    pub listening: u64,
    /// Servers among all these that a client keeps between its transactions (auto mode).
    pub pinned: u64,
}

impl ServerCounts {
    pub fn add(&mut self, state: ServerState) {
        match state {
            ServerState::Login => self.login += 1,
            ServerState::Idle => self.idle += 1,
            ServerState::Used => self.used += 1,
            ServerState::Tested => self.tested += 1,
            ServerState::Active => self.active += 1,
            ServerState::BeingCanceled => self.being_canceled += 1,
            ServerState::Listening => self.listening += 1,
            // It works for clients of the pool.
            ServerState::Attending => self.active += 1,
        }
    }

    /// Servers in any state.
    pub fn all(&self) -> u64 {
        let waiting = self.login + self.idle + self.used + self.tested;
        waiting + self.active + self.being_canceled + self.listening
    }
}

impl AddAssign for ServerCounts {
    fn add_assign(&mut self, other: Self) {
        self.login += other.login;
        self.idle += other.idle;
        self.used += other.used;
        self.tested += other.tested;
        self.active += other.active;
        self.being_canceled += other.being_canceled;
        self.listening += other.listening;
        self.pinned += other.pinned;
    }
}

/// The figures of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    pub clients: ClientCounts,
    pub servers: ServerCounts,
    pub stats: Stats,
    pub durations: Box<Durations>,
}

impl AddAssign<&Self> for PoolFigures {
    fn add_assign(&mut self, other: &Self) {
        self.clients += other.clients;
        self.servers += other.servers;
        self.stats += other.stats;
        *self.durations += &other.durations;
    }
}

/// The figures of one worker.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Clients without a pool: those that log in, and cancel requests.
    pub clients: ClientCounts,
    pub failures: Failures,
    /// One entry for each pool this worker has met. Parked servers are found in their pools.
    pub pools: Vec<(PoolId, PoolFigures)>,
}

/// Counts a worker's clients and servers by pool.
#[derive(Debug)]
pub(crate) struct Tally {
    pools: Vec<(ClientCounts, ServerCounts)>,
    /// Clients without a pool.
    clients: ClientCounts,
}

impl Tally {
    /// Every pool's number is below `places`.
    pub(crate) fn new(places: usize) -> Self {
        let none = (ClientCounts::default(), ServerCounts::default());
        Self { pools: vec![none; places], clients: ClientCounts::default() }
    }

    pub(crate) fn count_client(&mut self, client: &Client) {
        let own = client.pool.id().and_then(|pool| self.pools.get_mut(pool.0 as usize));
        own.map_or(&mut self.clients, |(clients, _)| clients).add(client_state(client));
    }

    /// `mode`: that of the server's pool.
    pub(crate) fn count_server(
        &mut self,
        server: &Server,
        client: Option<&Client>,
        mode: Option<PoolMode>,
        now: Micros,
    ) {
        let Some((_, own)) = self.pools.get_mut(server.pool.0 as usize) else { return };
        own.add(server_state(server, 0, now));
        own.pinned += u64::from(is_kept(server, client, mode));
    }

    pub(crate) fn clients_without_pool(&self) -> ClientCounts {
        self.clients
    }

    pub(crate) fn pool(&self, id: PoolId, view: &PoolView) -> PoolFigures {
        let (clients, servers) = self.pools[id.0 as usize];
        let mut durations = view.durations.clone();
        durations.wait.record_all(0, view.stats.assignments - durations.wait.count());
        PoolFigures { clients, servers, stats: view.stats, durations }
    }
}

/// Does a client keep the server between its transactions, in a pool in auto mode?
fn is_kept(server: &Server, client: Option<&Client>, pool: Option<PoolMode>) -> bool {
    client.is_some_and(|client| {
        server.session.pinned.is_some() || has_session_of_own(server, client, pool)
    })
}
