//! What becomes of a client's settings when a server is asked to take them. The client's bytes are
//! held until it has, so nothing has run if it does not.
//!
//! ```text
//!  prepare ─► Apply ─┬─ taken ─► ready
//!                    └─ refused ─► Reapply ─┬─ taken ─► ready; the order is remembered
//!                                           └─ refused ─► a new server ─► Apply … ─► the error
//! ```
//!
//! A setting may be refused as one user and taken as another, in one order and not in the other
//! (`carried::Order`); or on a server where others have done something before (`temp_buffers`, once
//! there was a temporary table), and not on a new one. Who is refused there, too, has lost its
//! session, and is told so as one is told of a lost connection: with the next transaction it would
//! be no better, and without the setting a statement could mean something else.

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::link::Readable;
use config::PoolMode;

use crate::admission::pool::Gate;
use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, ServerId, Waiter};
use crate::server::{Preparation, ServerPhase, ServerPurpose};
use crate::shell::{Event, Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// The server has taken the client's values.
    pub(crate) fn applied(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let (client, server) = (&self.clients[id.0 as usize], &self.servers[on.0 as usize]);
        // PostgreSQL's own spelling of the values is the client's from now on; otherwise every link
        // would set them anew.
        let mut vars = server.vars.clone();
        let own = client.vars.clone();
        if vars.carried != own.carried
            || vars.prepared != own.prepared
            || vars.channels != own.channels
        {
            vars.change(|vars| {
                vars.carried = own.carried.clone();
                vars.channels = own.channels.clone();
                vars.prepared = vars.prepared.shared_with(&own.prepared);
            });
        }
        let mut wanted = vars.clone();
        if wanted.prepared != own.prepared {
            wanted.change(|vars| vars.prepared = own.prepared.clone());
        }
        // What the server has by itself it was not asked to set. If that is another value now, since its
        // configuration was reloaded, the client's own is what the client has given, and is set when it
        // is next given a server.
        let by_itself = &server.welcome.vars;
        let changed_there = |slot: &usize| {
            let value = own.get(*slot).filter(|_| client.given.has(*slot));
            value.is_some() && value == by_itself.get(*slot) && value != vars.get(*slot)
        };
        let changed_there: Vec<_> = (0..self.names.len()).filter(changed_there).collect();
        for &slot in &changed_there {
            own.get(slot).into_iter().for_each(|value| wanted.change(|vars| vars.set(slot, value)));
        }
        if client.is_welcomed() && server.mode == PoolMode::Auto {
            self.report_changes(id, &own, &wanted, io);
        }
        let (vars, wanted) = (self.shared_vars.share(vars), self.shared_vars.share(wanted));
        let server = self.server_mut(on);
        server.vars = vars;
        let is_otherwise = matches!(server.phase, ServerPhase::Preparing(Preparation::Reapply));
        if !changed_there.is_empty() {
            server.has_changed_by_itself();
        }
        let client = self.client_mut(id);
        client.vars = wanted;
        let order = client.order().other();
        if is_otherwise && let Some(session) = &mut client.session {
            session.order = Some(order);
        }
    }

    /// The server has refused them. In another order it may take them.
    pub(crate) fn apply_otherwise(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let client = self.client(id);
        let (order, has_session) = (client.order(), client.session.is_some());
        let usual = self.difference(id, on, order);
        match self.difference(id, on, order.other()) {
            Some(sql) if usual.as_ref() != Some(&sql) && has_session => {
                self.server_mut(on).phase = ServerPhase::Preparing(Preparation::Reapply);
                self.send_own_query(on, &sql, now, io);
            }
            _ => self.refused(id, on, now, io),
        }
    }

    /// The server does not take the client's values.
    pub(crate) fn refused(&mut self, id: ClientId, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let client = &mut self.clients[id.0 as usize];
        let server = &mut self.servers[on.0 as usize];
        let error = server.own_error.take().unwrap_or_default();
        let is_open = self.exchange.pool(server.pool, |pool| pool.gate() == Gate::Open);
        // What it has on this server would not be on another one.
        let stays = server.has_traces();
        // Another server has taken them, so a new one may.
        if let Some(session) = client.session.as_mut().filter(|own| !own.renews && !stays) {
            if !is_open {
                // Nobody is given a server now: it waits, and tries again.
                return self.lose_server(on, CloseReason::SettingsRefused, now, io);
            }
            session.renews = true;
            let since = match client.phase {
                ClientPhase::Preparing(waiter) => waiter.since,
                _ => now,
            };
            client.phase = ClientPhase::Preparing(Waiter { client: id, ticket: 0, since });
            let purpose = ServerPurpose::Settings { client: id };
            return self.replace_server(on, CloseReason::SettingsRefused, purpose, now, io);
        }
        if !stays && !server.is_as_opened() {
            // Perhaps it does not give up what another client has set.
            return self.lose_server(on, CloseReason::SettingsNotUndone, now, io);
        }
        server.doomed = Some(CloseReason::InvalidParameter);
        let has_session = client.session.is_some();
        let message = format!("varcache_apply failed: ERROR: {error}");
        io.event(Event::ServerComplaint { message: &message });
        match has_session {
            true => self.disconnect(id, &format!("session settings are refused: {error}"), now, io),
            false => self.disconnect(id, CloseReason::InvalidParameter.text(), now, io),
        }
        self.settled(on, now, io);
    }

    /// The new server is there.
    pub(crate) fn apply_to_new(
        &mut self,
        id: ClientId,
        on: ServerId,
        rest: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let pool = self.server(on).pool;
        self.server_mut(on).client = None;
        self.client_mut(id).server = None;
        if !rest.is_empty() {
            // News before it is anybody's: it is looked at first, and the client asks once more.
            self.begin_use(on, rest, now, io);
            if self.link(id, now, io) == Readable::Now {
                self.go_on(id, io);
            }
            return;
        }
        if self.join(id, on, now, io) == Readable::Now {
            self.go_on(id, io);
        }
        self.go_on_opening(pool, now, io);
    }
}
