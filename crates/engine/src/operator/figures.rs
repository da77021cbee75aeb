//! The figures of a worker's pools, for the metrics. A [`Report`] has a row for each connection; these
//! are numbers only.
//!
//! [`Report`]: crate::operator::report::Report

use std::ops::AddAssign;

use config::PoolMode;

use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{Micros, PoolId};
use crate::operator::failures::Failures;
use crate::operator::histogram::Durations;
use crate::operator::inspect::{client_state, server_state};
use crate::operator::report::{ClientState, ServerState};
use crate::operator::stats::Stats;
use crate::server::Server;
use crate::shell::Exchange;

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

impl<X: Exchange> Engine<X> {
    /// The figures of this worker's pools. Costs a look at each client and each server.
    pub fn figures(&self, now: Micros) -> Figures {
        let places = self.pools.iter().map(|(id, _)| id.0 as usize + 1).max().unwrap_or_default();
        let mut counts = vec![(ClientCounts::default(), ServerCounts::default()); places];
        let mut clients = ClientCounts::default();
        for (_, client) in self.clients.iter() {
            let own = client.pool.and_then(|pool| counts.get_mut(pool.0 as usize));
            own.map_or(&mut clients, |(clients, _)| clients).add(client_state(client));
        }
        for (_, server) in self.servers.iter() {
            let Some((_, own)) = counts.get_mut(server.pool.0 as usize) else { continue };
            own.add(server_state(server, 0, now));
            own.pinned += u64::from(self.is_kept(server));
        }
        let pools = self.pools.iter().map(|(id, view)| {
            let (clients, servers) = counts[id.0 as usize];
            let mut durations = view.durations.clone();
            durations.wait.record_all(0, view.stats.assignments - durations.wait.count());
            (id, PoolFigures { clients, servers, stats: view.stats, durations })
        });
        Figures { clients, failures: self.failures, pools: pools.collect() }
    }

    /// Does a client keep the server between its transactions, in a pool in auto mode?
    fn is_kept(&self, server: &Server) -> bool {
        let client = server.client.and_then(|id| self.clients.get(id));
        client.is_some_and(|client| {
            server.session.pinned.is_some() || self.has_session_of_own(server, client)
        })
    }

    /// Does the client have the server in session mode, although its pool is in auto mode?
    pub(crate) fn has_session_of_own(&self, server: &Server, client: &Client) -> bool {
        let pool = self.pools.get(server.pool).map(|view| view.settings.mode);
        let modes = (server.mode, pool);
        client.is_welcomed() && modes == (PoolMode::Session, Some(PoolMode::Auto))
    }
}
