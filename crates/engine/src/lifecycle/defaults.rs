//! Tells new clients what servers report: PostgreSQL's defaults after a reload of its configuration, and
//! the end of recovery. A client's own values do not count as defaults.
//!
//! ```text
//!  a server without a client is asked, or DISCARD ALL has run ─┐
//!  auto mode: a state report says that it is the default ──────┼─► the server's welcome, the pool's
//!  RESET before a client, or after one, changes nothing ───────┘
//! ```

use std::sync::Arc;

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, ServerId};
use crate::server::{RECOVERY, Server, Settling};
use crate::shell::{Exchange, Io};
use crate::values::Values;
use crate::vars::{Slots, TrackedNames, Welcome};

impl<X: Exchange> OnePool<'_, X> {
    /// The server's present values of these parameters are its defaults. `promoted`: it has reported
    /// that it is no standby any more.
    #[cold]
    pub(crate) fn defaults_changed(
        &mut self,
        server: &mut Server,
        slots: Slots,
        promoted: bool,
        names: &TrackedNames,
    ) {
        let mut welcome = (*server.welcome).clone();
        if promoted {
            welcome.learn(RECOVERY, b"off", names);
        }
        for slot in slots.each(names.len()) {
            if let Some(value) = server.vars.get(slot)
                && welcome.vars.get(slot) != Some(value)
            {
                welcome.vars.change(|vars| vars.set(slot, value));
            }
        }
        self.renew_welcome(server, welcome);
    }

    /// The server has no client, and the session of the last one was discarded.
    pub(crate) fn defaults_restored(&mut self, server: &mut Server, names: &TrackedNames) {
        let is_same = server.vars.tracked().eq(server.welcome.vars.tracked());
        if !is_same && self.view.settings.connect_query.is_empty() {
            self.defaults_changed(server, Slots::ALL, false, names);
        }
    }

    fn renew_welcome(&mut self, server: &mut Server, welcome: Welcome) {
        if server.welcome.is(&welcome) {
            return;
        }
        let (epoch, welcome) = (server.epoch, Arc::new(welcome));
        server.welcome = self.lock(|pool| pool.learn_welcome(epoch, welcome));
    }

    /// Returns defaults of the pool's servers, if the client was perhaps told one that is not this
    /// server's.
    pub(crate) fn known_defaults(
        &mut self,
        client: &Client,
        server: &Server,
        names: &TrackedNames,
    ) -> Vec<Values> {
        let at_login = &server.welcome.vars;
        let is_other = |slot: usize| {
            let value = client.vars.get(slot);
            !client.vars.given().has(slot)
                && value != server.vars.get(slot)
                && value != at_login.get(slot)
        };
        // Other hosts may have other defaults.
        let is_one = self.view.settings.targets.len() == 1;
        if !is_one || !(0..names.len()).any(is_other) {
            return Vec::new();
        }
        self.lock(|pool| pool.defaults.iter().cloned().collect())
    }

    /// Sends RESET of the parameters that the last client may have set, or a reload. Returns false if
    /// there are none.
    pub(crate) fn explain(
        &self,
        on: ServerId,
        server: &mut Server,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) -> bool {
        let Some(unexplained) = server.changes.unexplained() else { return false };
        let mut sql = Vec::new();
        for slot in unexplained.slots.each(context.names.len()) {
            sql.extend_from_slice(format!("RESET {};", context.names.name(slot)).as_bytes());
        }
        if sql.is_empty() || !self.view.settings.connect_query.is_empty() {
            // `connect_query` may have set them, and RESET would undo that.
            server.changes.take_unexplained();
            return false;
        }
        server.phase.settle(Settling::Explain);
        server.send_own_query(on, &sql, context, io);
        true
    }

    /// The parameters that RESET has not changed have new defaults. `client`, if it is still there, was
    /// the last one: it follows them.
    pub(crate) fn explained(
        &mut self,
        server: &mut Server,
        client: Option<&mut Client>,
        names: &TrackedNames,
    ) {
        let Some(unexplained) = server.changes.take_unexplained() else { return };
        if let Some(client) = client {
            for slot in unexplained.slots.each(names.len()) {
                if client.vars.get(slot) == server.vars.get(slot) {
                    client.vars.follow(slot);
                }
            }
        }
        self.defaults_changed(server, unexplained.slots, false, names);
        server.phase.settle(Settling::Fresh);
    }
}

impl Server {
    /// Returns the client, with its serial number, whose changes of parameters are unexplained.
    pub(crate) fn unexplained_client(&self) -> Option<(ClientId, u64)> {
        self.changes.unexplained().map(|unexplained| unexplained.client)
    }
}
