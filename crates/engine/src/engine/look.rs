//! Reads one worker's connections and pools for the shell and for an operator.

use std::collections::HashMap;

use config::PoolMode;

use super::Engine;
use super::tables::{Clients, Servers};
use super::views::PoolViews;
use super::work;
use crate::cancel::requests::Cancels;
use crate::client::{Client, ClientPhase};
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::operator::failures::Failures;
use crate::operator::figures::{Figures, Tally};
use crate::operator::inspect::{busy_row, client_row};
use crate::operator::pulse::Pulse;
use crate::operator::report::{CancelRow, ClientState, Report};
use crate::operator::transactions::{Transaction, Transactions};
use crate::operator::waits::doing;
use crate::server::{Server, ServerPhase};
use crate::shell::Exchange;
use crate::vars::TrackedNames;

/// One worker's connections and pools, to be read.
#[derive(Debug)]
pub struct Look<'a> {
    pub(super) clients: &'a Clients,
    pub(super) servers: &'a Servers,
    views: &'a PoolViews,
    failures: &'a Failures,
    transactions: &'a Transactions,
    cancels: &'a Cancels,
    names: &'a TrackedNames,
    pub(super) work: &'a work::Queue,
}

impl<'a> Look<'a> {
    /// Returns the cluster for whose primary this server is.
    #[must_use]
    pub fn writer_of(&self, server: ServerId) -> Option<&'a str> {
        self.views.get(self.servers.get(server)?.pool)?.writer_of()
    }
}

impl<X: Exchange> Engine<X> {
    #[inline]
    pub fn look(&self) -> Look<'_> {
        let Self { clients, servers, pools, failures, transactions, cancels, work, .. } = self;
        let (views, names) = (&pools.views, &*self.context.names);
        Look { clients, servers, views, failures, transactions, cancels, names, work }
    }

    /// Returns everything that an operator may want to see of this worker.
    pub fn report(&mut self, now: Micros) -> Report {
        let known = self.pools.views.ids().into_iter();
        let epochs = known.map(|id| (id, self.pools.exchange.pool(id, |pool| pool.epoch())));
        let epochs: HashMap<PoolId, u64> = epochs.collect();
        let clients = self.clients.iter().map(|(id, client)| {
            let server = client.server.and_then(|on| self.servers.get(on));
            let mut row = client_row(id, client, server.map_or(0, |server| server.serial));
            if self.sessions.holds(id, client.serial) {
                row.state = ClientState::Waiting;
            }
            row
        });
        let look = self.look();
        let servers = self.servers.iter().map(|(on, server)| {
            let mut row =
                busy_row(on, server, look.client_at(server), look.pool_mode(server.pool), now);
            row.doomed |= epochs.get(&server.pool).is_some_and(|epoch| *epoch != server.epoch);
            row
        });
        Report {
            now,
            clients: clients.collect(),
            free_clients: self.clients.free_slots(),
            servers: servers.collect(),
            cancels: self.look().cancel_rows(),
            stats: self.pools.views.iter().map(|(id, view)| (id, view.stats)).collect(),
            watched: self.watch.as_ref().map(|watch| watch.watched()).unwrap_or_default(),
        }
    }
}

impl<'a> Look<'a> {
    /// The figures of this worker's pools. Costs a look at each client and each server.
    pub fn figures(&self, now: Micros) -> Figures {
        let places = self.views.iter().map(|(id, _)| id.0 as usize + 1).max().unwrap_or_default();
        let mut tally = Tally::new(places);
        for (_, client) in self.clients.iter() {
            tally.count_client(client);
        }
        for (_, server) in self.servers.iter() {
            tally.count_server(server, self.client_at(server), self.pool_mode(server.pool), now);
        }
        let pools = self.views.iter().map(|(id, view)| (id, tally.pool(id, view))).collect();
        Figures { clients: tally.clients_without_pool(), failures: *self.failures, pools }
    }

    /// Returns the servers that clients have, and that may not have more memory than their pools'
    /// `server_max_memory`.
    pub fn limited_in_memory(&self) -> impl Iterator<Item = (ServerId, &Server, u64)> {
        self.servers.iter().filter_map(|(id, server)| {
            let limit = self.views.get(server.pool)?.settings.server_max_memory;
            let is_used = matches!(*server.phase, ServerPhase::Linked) || server.is_attending();
            let counts = is_used && server.replication.is_none() && server.doomed.is_none();
            (limit > 0 && counts).then_some((id, &**server, limit))
        })
    }

    /// Returns the pulse of each pool that this worker knows.
    pub fn pulses(&self) -> Vec<(PoolId, Pulse)> {
        let new = |stats| Pulse { stats, ..Pulse::default() };
        let known = self.views.iter();
        let mut pulses: Vec<_> = known.map(|(id, view)| (id, new(view.stats))).collect();
        for (_, server) in self.servers.iter() {
            // Pools are in the order of their numbers.
            let at = pulses.binary_search_by_key(&server.pool.0, |(id, _)| id.0);
            let client = self.client_at(server).filter(|client| client.is_welcomed());
            if let (Some(client), Ok(at)) = (client, at) {
                pulses[at].1.count(doing(server, client).activity);
            }
        }
        pulses
    }

    /// Returns the transactions that this worker remembers, the oldest first.
    pub fn transactions(&self) -> Vec<Transaction> {
        self.transactions.all()
    }

    /// Returns the client's server, for the shell's back-pressure.
    #[inline]
    pub fn server_of(&self, id: ClientId) -> Option<ServerId> {
        *self.clients.get(id)?.server
    }

    /// Is the client still logging in?
    #[inline]
    pub fn is_logging_in(&self, id: ClientId) -> bool {
        let client = self.clients.get(id);
        client.is_some_and(|client| matches!(*client.phase, ClientPhase::Login(_)))
    }

    #[inline]
    pub fn client_of(&self, id: ServerId) -> Option<ClientId> {
        *self.servers.get(id)?.client
    }

    /// Returns the client that receives what the server sends now, and that may be slow. Replies to
    /// Weir's own queries wait for no client.
    #[inline]
    pub fn receiver_of(&self, id: ServerId) -> Option<ClientId> {
        let server = self.servers.get(id)?;
        server.client.filter(|_| matches!(*server.phase, ServerPhase::Linked))
    }

    #[inline]
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Returns the largest number of bytes kept of an incomplete message.
    pub fn held_bytes(&self) -> usize {
        let clients = self.clients.iter().map(|(_, client)| client.stream.held().len());
        let servers = self.servers.iter().map(|(_, server)| server.stream.held().len());
        clients.chain(servers).max().unwrap_or_default()
    }

    /// Returns the number of servers in use. A listener is not counted, because shutdown does not
    /// wait for it.
    pub fn busy_servers(&self) -> usize {
        let listens = |server: &Server| matches!(*server.phase, ServerPhase::Listening);
        self.servers.iter().filter(|(_, server)| !listens(server)).count()
    }

    pub fn client_ids(&self) -> impl Iterator<Item = ClientId> + use<'a> {
        self.clients.ids()
    }

    pub fn server_ids(&self) -> impl Iterator<Item = ServerId> + use<'a> {
        self.servers.ids()
    }

    /// Is no message of the client half read?
    #[inline]
    pub fn client_at_rest(&self, id: ClientId) -> bool {
        self.clients.get(id).is_none_or(Client::is_read_whole)
    }

    /// Is no message of the server half read?
    #[inline]
    pub fn server_at_rest(&self, id: ServerId) -> bool {
        self.servers.get(id).is_none_or(|server| server.is_read_whole())
    }

    /// Has the server sent all replies?
    #[inline]
    pub fn owes_nothing(&self, id: ServerId) -> bool {
        self.servers.get(id).is_none_or(|server| server.ledger.owes_nothing())
    }

    fn client_at(&self, server: &Server) -> Option<&'a Client> {
        self.clients.get((*server.client)?)
    }

    fn pool_mode(&self, pool: PoolId) -> Option<PoolMode> {
        self.views.get(pool).map(|view| view.settings.mode)
    }

    /// Returns the names of the tracked parameters.
    pub fn tracked_names(&self) -> &'a TrackedNames {
        self.names
    }

    /// Does `Restart::export` write the complete state of this client? A transaction may be open.
    pub fn may_move(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let view = client.pool.id().and_then(|pool| self.views.get(pool));
        client.may_move(view, client.server.map(|on| &*self.servers[on]))
    }

    /// Has every logged-in server come to rest or been released? Servers of clients that stay are
    /// ignored, and replication servers, because their stream has no end.
    pub fn has_come_to_rest(&self, stays: impl Fn(ClientId, Option<ServerId>) -> bool) -> bool {
        self.servers.iter().all(|(on, server)| match *server.phase {
            ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => true,
            ServerPhase::Linked => {
                server.replication.is_some()
                    || server.client.is_some_and(|id| self.may_move(id) || stays(id, Some(on)))
            }
            ServerPhase::Parked
            | ServerPhase::Preparing(_)
            | ServerPhase::Finishing
            | ServerPhase::Settling(_) => false,
        })
    }

    /// Will this client come to rest when its query ends?
    pub fn may_come_to_rest(&self, id: ClientId) -> bool {
        self.clients.get(id).is_some_and(Client::may_come_to_rest)
    }

    /// May Weir stop reading from this client, so that it comes to rest?
    pub fn client_can_stop(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else { return true };
        client.can_stop(client.server.map(|on| &*self.servers[on]))
    }

    /// Returns the requests on their way to servers and peers, the oldest first.
    pub fn cancel_rows(&self) -> Vec<CancelRow> {
        self.cancels.rows(|on, serial| {
            let server = self.servers.get(on).filter(|server| server.serial == serial)?;
            Some(server.pool)
        })
    }
}
