//! No client is given a server against the operator's orders: none of a closed or paused pool, and
//! none that RECONNECT has replaced.

use std::collections::{HashMap, HashSet};

use engine::Engine;
use engine::ids::PoolId;
use engine::pool::Gate;
use engine::report::ServerState;

use super::World;
use crate::exchange::SimExchange;
use crate::net::Place;

/// The state after the last step.
#[derive(Default)]
pub(super) struct Links {
    /// Each client's server, by their places in the net.
    linked: HashMap<usize, usize>,
    /// Clients to which a server is on its way.
    promised: HashSet<usize>,
    closed: HashSet<PoolId>,
    /// When the servers of each pool were last to be replaced.
    pub(super) replaced: HashMap<PoolId, u64>,
}

impl World {
    pub(super) fn check_links(&mut self) -> Result<(), String> {
        let shared = self.shared.borrow();
        let (mut linked, mut promised) = (HashMap::new(), HashSet::new());
        for (at, socket) in self.net.clients.iter().enumerate() {
            let Some(slot) = socket.slot else { continue };
            if shared.is_on_its_way(socket.worker, slot.0) {
                promised.insert(at);
            }
            let Some(on) = self.engines[socket.worker].look().server_of(slot) else { continue };
            // Without a socket, its login waits for a password.
            let on = self.net.server_slots[socket.worker].get(&on.0).copied();
            match on {
                Some(on) => _ = linked.insert(at, on),
                None => _ = promised.insert(at),
            }
            let was_on = self.links.linked.get(&at).copied();
            let is_new = (on.is_none() || was_on != on) && !self.links.promised.contains(&at);
            let who = &self.clients[at].who;
            let forced = self.setup.forced_user(&who.database);
            let pool = shared.pools.iter().find(|pool| who.is_of(&pool.key, forced));
            let Some(pool) = pool.filter(|_| is_new) else { continue };
            // A login that began before may be tried once more, on another connection.
            let is_in_login = on.is_none_or(|on| self.net.servers[on].backend.is_in_login());
            if self.links.closed.contains(&pool.id) && !(was_on.is_some() && is_in_login) {
                return Err(format!("client {at} was given server {on:?} of a closed pool"));
            }
            let replaced = self.links.replaced.get(&pool.id);
            if let (Some(on), Some(moment)) = (on, replaced)
                && self.net.servers[on].opened_at <= *moment
            {
                return Err(format!("client {at} was given server {on}, which is obsolete"));
            }
        }
        let closed = shared.pools.iter().filter(|pool| pool.gate() != Gate::Open);
        let closed = closed.map(|pool| pool.id).collect();
        (self.links.linked, self.links.promised, self.links.closed) = (linked, promised, closed);
        Ok(())
    }

    /// Called when nothing can happen and all orders have arrived. They have been carried out, and
    /// no work waits for the next tick.
    pub(super) fn check_orders(&mut self) -> Result<(), String> {
        let logins = self.logins_for_all();
        let shared = self.shared.borrow();
        let under_way = shared.mail.iter().any(|queue| !queue.is_empty())
            || self.orders.iter().any(|orders| !orders.is_empty());
        if under_way {
            return Ok(());
        }
        let parked = self.net.servers.iter().enumerate().filter_map(|(at, server)| {
            let Place::Detached { pool, .. } = server.place else { return None };
            Some((at, pool))
        });
        for (at, pool) in parked.chain(logins) {
            let replaced = self.links.replaced.get(&pool);
            let opened_at = self.net.servers[at].opened_at;
            let is_obsolete = replaced.is_some_and(|moment| opened_at <= *moment);
            if is_obsolete || shared.pools[pool.0 as usize].gate() != Gate::Open {
                return Err(format!("server {at} stays although nobody may have it"));
            }
        }
        for pool in shared.pools.iter().filter(|pool| pool.gate() == Gate::Open) {
            let limits = &shared.limits;
            let is_busy = limits.openings() >= limits.openings_max && limits.will_be_fed(pool.id);
            let is_held_up = pool.failure.is_some() || self.setup.is_limited() || is_busy;
            if pool.waiting_total() > 0 && pool.counts().0 == 0 && !is_held_up {
                return Err(format!("nobody opens a server for who waits in {:?}", pool.key));
            }
        }
        Ok(())
    }

    /// Returns the servers whose login goes on and concerns not one client alone, with their pools.
    fn logins_for_all(&mut self) -> Vec<(usize, PoolId)> {
        if self.links.replaced.is_empty() && self.links.closed.is_empty() {
            return Vec::new();
        }
        let (now, slots) = (self.net.now, &self.net.server_slots);
        let of_worker = |(engine, slots): (&mut Engine<SimExchange>, &HashMap<u32, usize>)| {
            let rows = engine.report(now).servers.into_iter();
            let logins = rows.filter(|row| row.state == ServerState::Login && row.client == 0);
            logins.filter_map(|row| Some((*slots.get(&row.slot?.0)?, row.pool))).collect::<Vec<_>>()
        };
        self.engines.iter_mut().zip(slots).flat_map(of_worker).collect()
    }
}
