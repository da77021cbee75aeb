//! Notes facts for the shell: new connections, a new configuration, a successor. None of them leads to
//! work at once.

use std::sync::Arc;

use config::Config;

use super::Engine;
use super::pools::Pools;
use super::tables::{Clients, Servers};
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, Identity, Micros, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::auth::{Credentials, Login, Peer};
use crate::operator::timings::Timings;
use crate::operator::transactions::Transactions;
use crate::server::LoginStage;
use crate::shell::Exchange;
use crate::watch::Watch;

/// Sets data of a worker for the shell.
#[derive(Debug)]
pub struct Notes<'a, X> {
    context: &'a mut Context,
    clients: &'a mut Clients,
    servers: &'a mut Servers,
    pools: &'a mut Pools<X>,
    credentials: &'a mut Credentials,
    nobody: &'a Arc<Identity>,
    transactions: &'a mut Transactions,
    watch: &'a mut Option<Box<Watch>>,
    warms_pools: &'a mut bool,
}

impl<X: Exchange> Engine<X> {
    #[inline]
    pub fn notes(&mut self) -> Notes<'_, X> {
        Notes {
            context: &mut self.context,
            clients: &mut self.clients,
            servers: &mut self.servers,
            pools: &mut self.pools,
            credentials: &mut self.credentials,
            nobody: &self.nobody,
            transactions: &mut self.transactions,
            watch: &mut self.watch,
            warms_pools: &mut self.warms_pools,
        }
    }
}

impl<X: Exchange> Notes<'_, X> {
    /// Adds a new connection. Returns None if the table is full; then no error can be sent.
    pub fn accept(&mut self, peer: Peer, connected_at: Micros) -> Option<ClientId> {
        if self.clients.is_full() {
            return None;
        }
        let login = Login::new(peer, self.nobody.clone());
        let serial = self.pools.exchange.next_connection();
        Some(self.clients.insert(Client::new(serial, login, connected_at)))
    }

    /// Notes that the socket of a new server is connected, before TLS.
    pub fn server_reached(&mut self, id: ServerId) {
        let server = self.servers.get_mut(id);
        if let Some(login) = server.and_then(|server| server.phase.connecting_mut()) {
            login.stage = LoginStage::Reached;
        }
    }

    /// Notes that the process of this server has too much memory: the server is closed when it is free.
    pub fn server_is_large(&mut self, serial: u64) {
        let mut servers = self.servers.iter_mut();
        if let Some((_, server)) = servers.find(|(_, server)| server.serial == serial) {
            server.doomed.retire(CloseReason::MaxMemory);
        }
    }

    /// Applies a new configuration, which the pools have already.
    pub fn set_config(&mut self, config: Arc<Config>) {
        *self.warms_pools = true;
        *self.watch = Watch::configured(self.watch.take(), &config);
        let timings = &mut self.transactions.timings;
        *timings = Timings::configured(timings.take(), config.global.connection_timings);
        self.context.reload(config);
        self.credentials.clear();
        self.pools.exchange.limits(|limits| limits.guesses.clear());
        for (id, view) in self.pools.views.iter_mut() {
            let settings = self.pools.exchange.pool(id, |pool| pool.settings.clone());
            if settings.forced_user {
                self.pools.changed_user.retain(|pool| *pool != id);
            } else if view.settings.forced_user {
                self.pools.changed_user.push(id);
            }
            view.settings = settings;
        }
    }

    /// Notes that another process has taken over. This one may serve some clients for long still.
    pub fn note_successor(&mut self) {
        self.context.has_successor = true;
    }
}
