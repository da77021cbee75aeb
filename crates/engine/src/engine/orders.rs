//! Carries out an operator's orders in one worker. The pools have been changed already, under their
//! locks; here the sockets follow.

use crate::admission::pool::Gate;
use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::operator::standing::Standing;
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
                // The busy servers at a node that is not the primary of the cluster any more.
                for server in self.servers.logged_in(id) {
                    // An earlier step of this loop may have closed it.
                    let Some(epoch) = self.servers.get(server).map(|server| server.epoch) else {
                        continue;
                    };
                    if self.pools.exchange.pool(id, |pool| pool.is_cut(epoch)) {
                        self.lose_server(server, CloseReason::PrimaryChanged, io);
                    }
                }
                self.finish(io);
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
        self.seats().close_parked(condemned, io);
        for (server, why) in self.seats().unfit_logins(id) {
            self.end_login(server, why, io);
        }
        self.seats().review_attending(id, io);
        if let Some(former) = self.pools.role_changed(id, &self.clients) {
            for client in former {
                self.disconnect(client, CloseReason::RoleChanged, io);
            }
            io.close_lobby(id, Closing::AfterTransaction, CloseReason::RoleChanged.text());
        }
        if let Gate::Closed(reason) = gate {
            let waits = |client: &Client| client.wait().is_some_and(|waiter| waiter.pool == id);
            for client in self.clients.ids_where(waits) {
                if !self.paths().leave_reader(client, id) {
                    self.disconnect(client, reason, io);
                }
            }
        }
        if gate == Gate::NoPrimary {
            self.paths().ask_standbys(id);
        }
        self.welcome_waiting(id, io);
        // The servers that were parked while the pool was held go to the clients that waited.
        while let Some((waiter, server)) =
            self.pools.exchange.pool(id, |pool| pool.match_waiting(worker))
        {
            let server = self.servers.attach(server, &mut self.pools, io);
            self.join_waiter(waiter, server, io);
        }
        let open = self
            .pools
            .exchange
            .pool(id, |pool| pool.oldest_waiter(worker).is_some() && pool.reserve_opening(now));
        if open {
            self.open_server(id, io);
        }
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
            self.seats().close_parked(parked.collect(), io);
            // A client that leaves a busy server ends it, and the log would have that reason.
            let is_busy = |client: &Client| {
                let on = client.server.and_then(|on| self.servers.get(on));
                client.pool.is(id) && on.is_some_and(|server| !server.is_clean())
            };
            for client in self.clients.ids_where(is_busy) {
                self.disconnect(client, CloseReason::DatabaseRemoved, io);
            }
            self.finish(io);
            for (server, standing) in self.servers.standings(id) {
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
            for client in self.clients.ids_where(|client| client.pool.is(id)) {
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

    /// Ends a login on Weir's own decision, which says nothing about the pool.
    fn end_login(&mut self, id: ServerId, why: CloseReason<'_>, io: &mut impl Io<X>) {
        if let Some(pool) = self.seats().end_login(id, why, io) {
            self.open_server(pool, io);
        }
        self.seats().feed(io);
    }
}
