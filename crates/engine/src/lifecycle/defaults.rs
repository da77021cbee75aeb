//! Tells new clients what servers report: PostgreSQL's defaults after a reload of its configuration, and
//! the end of recovery. A client's own values do not count as defaults.
//!
//! ```text
//!  a server without a client is asked, or DISCARD ALL has run ─┐
//!  auto mode: a state report says that it is the default ──────┼─► the server's welcome, the pool's
//!  RESET before a client, or after one, changes nothing ───────┘
//! ```

use std::sync::Arc;

use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::server::{RECOVERY, Settling};
use crate::shell::{Exchange, Io};
use crate::values::Values;
use crate::vars::{Slots, Welcome};

impl<X: Exchange> Engine<X> {
    /// The server's present values of these parameters are its defaults. `promoted`: it has reported
    /// that it is no standby any more.
    #[cold]
    pub(crate) fn defaults_changed(&mut self, on: ServerId, slots: Slots, promoted: bool) {
        let names = self.context.names.clone();
        let server = &*self.servers[on];
        let (vars, mut welcome) = (server.vars.clone(), (*server.welcome).clone());
        if promoted {
            welcome.learn(RECOVERY, b"off", &names);
        }
        for slot in slots.each(names.len()) {
            if let Some(value) = vars.get(slot)
                && welcome.vars.get(slot) != Some(value)
            {
                welcome.vars.change(|vars| vars.set(slot, value));
            }
        }
        self.renew_welcome(on, welcome);
    }

    /// The server has no client, and the session of the last one was discarded.
    pub(crate) fn defaults_restored(&mut self, on: ServerId) {
        let server = &*self.servers[on];
        let is_same = server.vars.tracked().eq(server.welcome.vars.tracked());
        if !is_same && self.pools.settings(server.pool).connect_query.is_empty() {
            self.defaults_changed(on, Slots::ALL, false);
        }
    }

    fn renew_welcome(&mut self, on: ServerId, welcome: Welcome) {
        let server = &mut *self.servers[on];
        if server.welcome.is(&welcome) {
            return;
        }
        let (epoch, welcome) = (server.epoch, Arc::new(welcome));
        server.welcome =
            self.pools.exchange.pool(server.pool, |pool| pool.learn_welcome(epoch, welcome));
    }

    /// Returns defaults of the pool's servers, if the client was perhaps told one that is not this
    /// server's.
    pub(crate) fn known_defaults(&mut self, id: ClientId, on: ServerId) -> Vec<Values> {
        let (client, server) = (&self.clients[id], &*self.servers[on]);
        let at_login = &server.welcome.vars;
        let is_other = |slot: usize| {
            let value = client.vars.get(slot);
            !client.given.has(slot) && value != server.vars.get(slot) && value != at_login.get(slot)
        };
        // Other hosts may have other defaults.
        let is_one = self.pools.settings(server.pool).targets.len() == 1;
        if !is_one || !(0..self.context.names.len()).any(is_other) {
            return Vec::new();
        }
        let pool = server.pool;
        self.pools.exchange.pool(pool, |pool| pool.defaults.iter().cloned().collect())
    }

    /// Sends RESET of the parameters that the last client may have set, or a reload. Returns false if
    /// there are none.
    pub(crate) fn explain(&mut self, on: ServerId, io: &mut impl Io<X>) -> bool {
        let changes = self.servers[on].changes.as_ref();
        let Some(unexplained) = changes.and_then(|changes| changes.unexplained.as_ref()) else {
            return false;
        };
        let mut sql = Vec::new();
        for slot in unexplained.slots.each(self.context.names.len()) {
            sql.extend_from_slice(format!("RESET {};", self.context.names.name(slot)).as_bytes());
        }
        let pool = self.servers[on].pool;
        if sql.is_empty() || !self.pools.settings(pool).connect_query.is_empty() {
            // `connect_query` may have set them, and RESET would undo that.
            self.servers[on].changes = None;
            return false;
        }
        self.servers[on].phase.settle(Settling::Explain);
        self.send_own_query(on, &sql, io);
        true
    }

    /// The parameters that RESET has not changed have new defaults, which the client follows.
    pub(crate) fn explained(&mut self, on: ServerId) {
        let changes = self.servers[on].changes.take();
        let Some(unexplained) = changes.and_then(|changes| changes.unexplained) else { return };
        let ((id, serial), vars) = (unexplained.client, self.servers[on].vars.clone());
        let client = self.clients.get_mut(id).filter(|client| client.serial == serial);
        if let Some(client) = client {
            for slot in unexplained.slots.each(self.context.names.len()) {
                if client.vars.get(slot) == vars.get(slot) {
                    client.given.remove(slot);
                }
            }
        }
        self.defaults_changed(on, unexplained.slots, false);
        self.servers[on].phase.settle(Settling::Fresh);
    }
}
