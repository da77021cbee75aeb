//! Carries out an operator's orders in one worker. The pools have been changed already, under their
//! locks; here the sockets follow.

use crate::admission::pool::{Gate, Parked};
use crate::client::Client;
use crate::engine::Engine;
use crate::engine::tables::Servers;
use crate::ids::{PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::{log_server_closing, purpose_of};
use crate::notify::connection::{unfit, unfit_to_listen};
use crate::operator::standing::Standing;
use crate::server::ServerPurpose;
use crate::shell::{Closing, Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Applies changes of pools: closes parked servers and logins that are of no use now,
    /// disconnects clients that cannot be served, and serves those that can.
    pub fn review(&mut self, io: &mut impl Io<X>) {
        self.move_clients(io);
        for pool in self.listeners.pools() {
            let step = self.pool_listeners().review(pool, io);
            self.follow_listener(step, io);
        }
        self.finish(io);
        for id in self.pools.views.ids() {
            let settings = self.pools.exchange.pool(id, |pool| pool.settings.clone());
            if settings.cluster.is_some() {
                self.pools.view(id).settings = settings;
                self.cut_servers(id, io);
            }
            self.review_pool(id, io);
            self.finish(io);
        }
    }

    /// Applies changes of one pool.
    pub(crate) fn review_pool(&mut self, id: PoolId, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        let (gate, condemned) =
            self.pools.exchange.pool(id, |pool| (pool.gate(), pool.take_condemned(worker)));
        self.close_parked(condemned, io);
        self.end_logins(id, io);
        self.review_attending(id, io);
        self.review_role(id, io);
        if let Gate::Closed(reason) = gate {
            self.turn_away(id, reason, io);
        }
        if gate == Gate::NoPrimary {
            self.ask_standbys(id);
        }
        self.welcome_waiting(id, io);
        self.serve_backlog(id, io);
        let open = self
            .pools
            .exchange
            .pool(id, |pool| pool.oldest_waiter(worker).is_some() && pool.reserve_opening(now));
        if open {
            self.open_server(id, io);
        }
    }

    /// Closes the busy servers at a node that is not the primary of the pool's cluster any more.
    fn cut_servers(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        for (server, standing) in standings(&self.servers, pool) {
            // An earlier step of this loop may have closed it.
            let Some(epoch) = self.servers.get(server).map(|server| server.epoch) else {
                continue;
            };
            let is_open = standing == Standing::LoggedIn;
            if is_open && self.pools.exchange.pool(pool, |pool| pool.is_cut(epoch)) {
                self.lose_server(server, CloseReason::PrimaryChanged, io);
            }
        }
        self.finish(io);
    }

    /// Drops all clients and servers of these databases, whatever they are doing. Their pools must
    /// be closed, or the clients would come back.
    pub fn kill(&mut self, dies: impl Fn(&str) -> bool, io: &mut impl Io<X>) {
        let worker = self.context.worker;
        for id in self.pools.views.ids() {
            if !dies(&self.pools.view(id).identity.database) {
                continue;
            }
            let parked = self.pools.exchange.pool(id, |pool| pool.take_home(worker));
            let parked = parked.into_iter().map(|server| (server, CloseReason::DatabaseRemoved));
            self.close_parked(parked.collect(), io);
            // A client that leaves a busy server ends it, and the log would have that reason.
            let is_busy = |client: &Client| {
                let on = client.server.and_then(|on| self.servers.get(on));
                client.pool == Some(id) && on.is_some_and(|server| !server.is_clean())
            };
            for client in self.clients.ids_where(is_busy) {
                self.disconnect(client, CloseReason::DatabaseRemoved, io);
            }
            self.finish(io);
            for (server, standing) in standings(&self.servers, id) {
                // An earlier step of this loop may have closed this server.
                match standing {
                    _ if !self.servers.contains(server) => {}
                    Standing::Login { .. } => {
                        self.end_login(server, CloseReason::DatabaseRemoved, io);
                    }
                    Standing::LoggedIn => {
                        self.lose_server(server, CloseReason::DatabaseRemoved, io);
                    }
                }
            }
            for client in self.clients.ids_where(|client| client.pool == Some(id)) {
                self.disconnect(client, CloseReason::DatabaseRemoved, io);
            }
            io.close_lobby(id, Closing::AtOnce, CloseReason::DatabaseRemoved.text());
            self.finish(io);
        }
    }

    /// Forgets pools that have neither clients nor servers. Their numbers may be used again.
    pub fn forget_pools(&mut self, pools: &[PoolId]) {
        for id in pools {
            self.pools.views.remove(*id);
            self.transactions.forget(*id);
            self.listeners.forget_pool(*id);
            self.watch.iter_mut().for_each(|watch| watch.forget_pool(*id));
        }
        self.pools.changed_user.retain(|id| !pools.contains(id));
        self.pools.exchange.pools_forgotten();
    }

    /// Gives the servers that were parked while the pool was held to the clients that waited.
    fn serve_backlog(&mut self, id: PoolId, io: &mut impl Io<X>) {
        let worker = self.context.worker;
        while let Some((waiter, server)) =
            self.pools.exchange.pool(id, |pool| pool.match_waiting(worker))
        {
            let server = self.attach(server, io);
            self.join_waiter(waiter.client, server, io);
        }
    }

    fn turn_away(&mut self, pool: PoolId, why: CloseReason<'_>, io: &mut impl Io<X>) {
        let waits = |client: &Client| client.wait().is_some_and(|waiter| waiter.pool == pool);
        for id in self.clients.ids_where(waits) {
            if !self.leave_reader(id, pool) {
                self.disconnect(id, why, io);
            }
        }
    }

    pub(crate) fn close_parked(
        &mut self,
        parked: Vec<(Parked<X::Transport>, CloseReason<'static>)>,
        io: &mut impl Io<X>,
    ) {
        for (server, reason) in parked {
            let server = self.attach(server, io);
            self.servers[server].phase.unpark();
            self.close_server(server, reason, io);
        }
    }

    /// Ends logins of servers that may not be used any more.
    fn end_logins(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        for (server, standing) in standings(&self.servers, pool) {
            let Standing::Login { listens } = standing else { continue };
            let epoch = self.servers[server].epoch;
            let why = self.pools.exchange.pool(pool, |pool| match listens {
                true => unfit_to_listen(pool, epoch),
                false => unfit(pool, epoch),
            });
            if let Some(why) = why {
                self.end_login(server, why, io);
            }
        }
    }

    /// Ends a login on Weir's own decision, which says nothing about the pool.
    fn end_login(&mut self, id: ServerId, why: CloseReason<'_>, io: &mut impl Io<X>) {
        let now = io.now();
        let server = self.servers.remove(id);
        log_server_closing(id, &server, &self.pools.view(server.pool).identity, why, io);
        io.close_server(id);
        self.pools.opening_ended();
        let (pool, epoch, serial) = (server.pool, server.epoch, server.serial);
        let purpose = purpose_of(server.phase);
        let listens = matches!(purpose, Some(ServerPurpose::Listen));
        if let Some(ServerPurpose::Attend { .. }) = purpose {
            self.attending_ended(pool, epoch, serial, false, io);
        }
        let open = self.pools.one(pool).login_lost(epoch, listens, now);
        if listens {
            self.listeners.forget((now, 0), &mut self.pools.one(pool));
        }
        if open {
            self.open_server(pool, io);
        }
        self.feed(io);
    }
}

/// Returns the servers of a pool. Logins for one client alone are left out, because they belong to
/// the client.
fn standings(servers: &Servers, pool: PoolId) -> Vec<(ServerId, Standing)> {
    let own = servers.iter().filter(|(_, server)| server.pool == pool);
    own.filter_map(|(id, server)| Some((id, Standing::of(server)?))).collect()
}
