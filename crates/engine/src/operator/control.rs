//! What an operator orders, as far as this worker's sockets are concerned. The pools have been
//! told already, under their locks; here is done what follows from it.

use crate::admission::pool::{Gate, Parked};
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::server::Settling;
use crate::server::{Server, ServerPhase};
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Pools were closed, opened or renewed: parked servers and logins that are of no use now
    /// end, who waits in vain is told, and who may be served again gets a server.
    pub fn review(&mut self, now: Micros, io: &mut impl Io<X>) {
        self.move_clients(now, io);
        self.review_listeners(now, io);
        self.finish(now, io);
        let worker = self.worker;
        for id in self.known_pools() {
            let (gate, condemned) =
                self.exchange.pool(id, |pool| (pool.gate(), pool.take_condemned(worker)));
            self.close_parked(condemned, now, io);
            self.end_logins(id, now, io);
            if let Gate::Closed(reason) = gate {
                self.turn_away(id, reason.text(), now, io);
            }
            self.serve_backlog(id, now, io);
            let open = self
                .exchange
                .pool(id, |pool| pool.oldest_waiter(worker).is_some() && pool.reserve_opening(now));
            if open {
                self.open_server(id, now, io);
            }
            self.finish(now, io);
        }
    }

    /// All clients and servers of these databases are dropped, whatever they are doing. Their
    /// pools are closed, or nobody would stay away.
    pub fn kill(&mut self, dies: impl Fn(&str) -> bool, now: Micros, io: &mut impl Io<X>) {
        let worker = self.worker;
        for id in self.known_pools() {
            if !dies(&self.view(id).identity.database) {
                continue;
            }
            let parked = self.exchange.pool(id, |pool| pool.take_home(worker));
            let parked = parked.into_iter().map(|server| (server, CloseReason::DatabaseRemoved));
            self.close_parked(parked.collect(), now, io);
            // Who leaves a server with work to do ends it, which is what the log tells of it.
            let is_busy = |client: &Client| {
                let on = client.server.and_then(|on| self.servers.get(on.0 as usize));
                client.pool == Some(id) && on.is_some_and(|server| !server.is_clean())
            };
            for client in self.clients_where(is_busy) {
                self.disconnect(client, CloseReason::DatabaseRemoved.text(), now, io);
            }
            self.finish(now, io);
            for (server, is_login) in self.servers_of(id) {
                // One may have gone with another.
                match is_login {
                    _ if !self.servers.contains(server.0 as usize) => {}
                    true => self.end_login(server, CloseReason::DatabaseRemoved, now, io),
                    false => self.lose_server(server, CloseReason::DatabaseRemoved, now, io),
                }
            }
            for client in self.clients_where(|client| client.pool == Some(id)) {
                self.disconnect(client, CloseReason::DatabaseRemoved.text(), now, io);
            }
            self.finish(now, io);
        }
    }

    pub fn client_ids(&self) -> impl Iterator<Item = ClientId> {
        self.clients.iter().map(|(slot, _)| ClientId(slot as u32))
    }

    pub fn server_ids(&self) -> impl Iterator<Item = ServerId> {
        self.servers.iter().map(|(slot, _)| ServerId(slot as u32))
    }

    /// The moment at which nothing of the client is half read. What it has said that waits for answers
    /// goes on when these are read.
    pub fn client_at_rest(&self, id: ClientId) -> bool {
        self.clients.get(id.0 as usize).is_none_or(|client| match client.phase {
            ClientPhase::Login(_) => false,
            _ => client.awaits_answer() || client.stream.at_boundary(),
        })
    }

    /// The moment at which nothing of the server is half read.
    pub fn server_at_rest(&self, id: ServerId) -> bool {
        self.servers.get(id.0 as usize).is_none_or(|server| match server.phase {
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => false,
            _ => server.stream.at_boundary(),
        })
    }

    /// Has it said all it was asked for?
    pub fn owes_nothing(&self, id: ServerId) -> bool {
        self.servers.get(id.0 as usize).is_none_or(|server| server.ledger.owes_nothing())
    }

    /// These pools are no more; they have neither clients nor servers. Their numbers may be others'
    /// later.
    pub fn forget_pools(&mut self, pools: &[PoolId]) {
        for id in pools {
            self.pools.remove(*id);
            self.listeners.remove(id);
        }
        self.changed_user.retain(|id| !pools.contains(id));
        self.exchange.pools_forgotten();
    }

    pub(crate) fn known_pools(&self) -> Vec<PoolId> {
        self.pools.iter().map(|(id, _)| id).collect()
    }

    pub(crate) fn clients_where(&self, test: impl Fn(&Client) -> bool) -> Vec<ClientId> {
        let chosen = self.clients.iter().filter(|(_, client)| test(client));
        chosen.map(|(slot, _)| ClientId(slot as u32)).collect()
    }

    /// With each: is it a login that has not come to its end? Those that are opened for
    /// one client alone are left out, for they are the client's and not the pool's.
    fn servers_of(&self, pool: PoolId) -> Vec<(ServerId, bool)> {
        let kind = |server: &Server| match &server.phase {
            ServerPhase::Connecting(login) | ServerPhase::Login(login) => {
                login.purpose.is_none().then_some(true)
            }
            _ => Some(false),
        };
        let own = self.servers.iter().filter(|(_, server)| server.pool == pool);
        own.filter_map(|(slot, server)| Some((ServerId(slot as u32), kind(server)?))).collect()
    }

    /// The pool was held: who waited meanwhile gets what was parked meanwhile.
    fn serve_backlog(&mut self, id: PoolId, now: Micros, io: &mut impl Io<X>) {
        let worker = self.worker;
        while let Some((waiter, server)) = self.exchange.pool(id, |pool| pool.match_waiting(worker))
        {
            let server = self.attach(server, io);
            self.join_waiter(waiter.client, server, now, io);
        }
    }

    fn turn_away(&mut self, pool: PoolId, why: &str, now: Micros, io: &mut impl Io<X>) {
        let waits = |client: &Client| client.wait().is_some_and(|(waits_for, _)| waits_for == pool);
        for id in self.clients_where(waits) {
            self.disconnect(id, why, now, io);
        }
    }

    pub(crate) fn close_parked(
        &mut self,
        parked: Vec<(Parked<X::Transport>, CloseReason<'static>)>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        for (server, reason) in parked {
            let server = self.attach(server, io);
            self.server_mut(server).phase = ServerPhase::Settling(Settling::Fresh);
            self.close_server(server, reason, now, io);
        }
    }

    /// Logins that lead to a server nobody may have.
    fn end_logins(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        for (server, is_login) in self.servers_of(pool) {
            if !is_login {
                continue;
            }
            let epoch = self.server(server).epoch;
            let why = self.exchange.pool(pool, |pool| match pool.gate() {
                Gate::Paused => Some(CloseReason::Paused),
                Gate::Closed(reason) => Some(reason),
                Gate::Open | Gate::Held => {
                    (pool.epoch() != epoch).then_some(CloseReason::ConnectStringChanged)
                }
            });
            if let Some(why) = why {
                self.end_login(server, why, now, io);
            }
        }
    }

    /// By our own wish, so that nothing is to be learnt from it.
    fn end_login(&mut self, id: ServerId, why: CloseReason<'_>, now: Micros, io: &mut impl Io<X>) {
        let server = self.servers.remove(id.0 as usize);
        self.log_server_closing(id, &server, why, now, io);
        io.close_server(id);
        self.opening_ended();
        let (pool, epoch) = (server.pool, server.epoch);
        let open = self.exchange.pool(pool, |pool| {
            pool.opening_ended(epoch);
            pool.reserve_opening(now)
        });
        self.vacate(pool, now);
        if open {
            self.open_server(pool, now, io);
        }
        self.feed(now, io);
    }
}
