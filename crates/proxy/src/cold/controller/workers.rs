//! The share of one worker: what SHOW WORKERS and `pg_pooler_state()` show of it.

use std::collections::HashSet;

use engine::{
    ids::{PoolId, WorkerId},
    report::{ClientState, ServerState},
    stats::Stats,
};

use crate::exchange::reports::{ClientInfo, ServerInfo};

/// One worker, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    pub id: WorkerId,
    /// Clients that are logged in.
    pub clients: usize,
    /// Clients among these with TLS.
    pub tls_clients: usize,
    /// Clients without a server that do not wait for one.
    pub idle_clients: usize,
    /// Pools of which this worker has a client or a server.
    pub pools: usize,
    /// Servers in any state whose sockets this worker watches.
    pub servers: usize,
    /// Servers that a client keeps between transactions.
    pub pinned_servers: usize,
    /// Servers that no client has.
    pub idle_servers: usize,
    /// The counters of all its pools.
    pub stats: Stats,
}

impl WorkerInfo {
    pub(super) fn new(id: WorkerId, stats: Stats) -> Self {
        Self {
            id,
            clients: 0,
            tls_clients: 0,
            idle_clients: 0,
            pools: 0,
            servers: 0,
            pinned_servers: 0,
            idle_servers: 0,
            stats,
        }
    }

    /// Counts the worker's own among all connections.
    pub(super) fn count(&mut self, clients: &[ClientInfo], servers: &[ServerInfo]) {
        let mut pools: HashSet<PoolId> = HashSet::new();
        let own = clients.iter().filter(|client| client.worker == self.id);
        for client in own.filter(|client| is_logged_in(client.row.state)) {
            self.clients += 1;
            self.tls_clients += usize::from(!client.tls.is_empty());
            self.idle_clients += usize::from(client.row.state == ClientState::Idle);
            pools.extend(client.row.pool);
        }
        for server in servers.iter().filter(|server| server.worker == self.id) {
            self.servers += 1;
            self.pinned_servers += usize::from(server.row.pinned.is_some());
            let is_idle = matches!(server.row.state, ServerState::Idle | ServerState::Used);
            self.idle_servers += usize::from(is_idle);
            pools.insert(server.row.pool);
        }
        self.pools = pools.len();
    }
}

fn is_logged_in(state: ClientState) -> bool {
    match state {
        ClientState::Idle | ClientState::Waiting | ClientState::Active => true,
        ClientState::Login | ClientState::Canceling => false,
    }
}
