//! Restores a client's settings on a server. The client's bytes are held back until the server has
//! accepted the settings. If the server refuses them, nothing of the client's request has run.
//!
//! ```text
//!  prepare ─► Apply ─┬─ taken ─► ready
//!                    └─ refused ─► Reapply ─┬─ taken ─► ready; the order is remembered
//!                                           ├─ refused by a used server ─► a new one ─► Apply …
//!                                           └─ refused by a new server ─► the error
//! ```
//!
//! A server may accept a setting as one user and refuse it as another, or accept it only in the
//! other order (`carried::Order`). It may also refuse a setting because of earlier clients:
//! `temp_buffers` cannot change once a temporary table has been used. A new server may accept it
//! then, so Weir replaces the used one. If the new server is lost, or busy with a message, the client
//! may get another used one.
//!
//! If a new server refuses the settings, or [`REFUSALS_MAX`] servers have, the client is
//! disconnected, as if its server were lost. The next transaction would fail as well, and without the
//! setting a statement could mean something else.

use config::PoolMode;
use wire::error_fields::ErrorFields;
use wire::sqlstate::INVALID_PARAMETER_VALUE;

use crate::admission::pool::Gate;
use crate::ids::Waiter;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Ending;
use crate::lifecycle::pair::{self, Pair};
use crate::lifecycle::prepare::{Answered, Prepared};
use crate::operator::remarks::remark;
use crate::server::{Preparation, ServerPhase};
use crate::session::on_server::Past;
use crate::session::state::Session;
use crate::session::verdict::report_changes;
use crate::shell::{Exchange, Io, Weight};
use crate::values::Values;
use crate::vars::Slots;

/// Maximal number of used servers that are closed because they refuse a client's settings for one request.
/// A client with an impossible setting must not close the servers of its pool one after another.
const REFUSALS_MAX: u8 = 3;

/// The state of the client's values after the server has accepted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// They are in effect.
    InEffect,
    /// The server's own values have changed in the meantime, so the client's must be set again.
    Outdated,
}

impl Session {
    /// May a server that refuses the client's settings be replaced?
    fn may_renew(&self) -> bool {
        self.refusals + 1 < REFUSALS_MAX
    }
}

/// Returns the error as PostgreSQL sends it at a login.
fn as_fatal(mut error: ErrorFields) -> ErrorFields {
    for code in [b'S', b'V'] {
        if error.get(code).is_some() {
            error.replace(code, "FATAL");
        }
    }
    error
}

/// The consequence of values that a server refuses in every order.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The server is closed, and another one may accept them.
    Lost(CloseReason<'static>),
    /// The server is replaced by a new one for this client.
    Renewed,
    /// The client is disconnected. `closes`: the server is closed, too; otherwise it serves others.
    Denied { why: Denied, closes: bool },
}

/// The reason to disconnect the client.
#[derive(Debug)]
pub(crate) enum Denied {
    /// PostgreSQL's error, as at a login with such a startup packet.
    AsAtLogin(ErrorFields),
    /// A text for the client and the log.
    Session(String),
    InvalidParameter,
}

impl Denied {
    pub(crate) fn ending(&self) -> Ending<'_> {
        match self {
            Self::AsAtLogin(error) => error.into(),
            Self::Session(text) => text.as_str().into(),
            Self::InvalidParameter => CloseReason::InvalidParameter.into(),
        }
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// Records that the server has accepted the client's values.
    pub(crate) fn applied(&mut self, io: &mut impl Io<X>) -> Applied {
        let names = &self.context.names;
        let defaults = self.pool.known_defaults(self.client, self.server, names);
        let (client, server) = (&mut *self.client, &mut *self.server);
        // The client takes over PostgreSQL's spelling of the values. Otherwise every link would set
        // them again.
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
        // A value that equals the server's default was not set. If a reload of the server's
        // configuration has changed that default, the value that the client gave is set now.
        let by_itself = &server.welcome.vars;
        let changed_there = |slot: &usize| {
            let value = own.get(*slot).filter(|_| client.vars.given().has(*slot));
            value.is_some() && value == by_itself.get(*slot) && value != vars.get(*slot)
        };
        let changed_there: Vec<_> = (0..names.len()).filter(changed_there).collect();
        for &slot in &changed_there {
            own.get(slot).into_iter().for_each(|value| wanted.change(|vars| vars.set(slot, value)));
        }
        // A client without a value of its own follows the server's default, which RESET has shown.
        let mut followed = Slots::default();
        for slot in 0..names.len() {
            let value = own.get(slot);
            let is_known = |known: &Values| known.get(slot) == value;
            let is_reset = value == by_itself.get(slot) || defaults.iter().any(is_known);
            if !client.vars.given().has(slot) && is_reset && vars.get(slot) != value {
                followed.add(slot);
            }
        }
        let follows = !followed.is_empty() && self.pool.view.settings.connect_query.is_empty();
        if client.is_welcomed() && (server.mode == PoolMode::Auto || follows) {
            report_changes(self.id, &own, &wanted, names, io);
        }
        server.vars = self.context.shared_vars.share(vars);
        *client.vars = self.context.shared_vars.share(wanted);
        if follows {
            self.pool.defaults_changed(server, followed, false, &self.context.names);
        }
        let is_otherwise = matches!(*server.phase, ServerPhase::Preparing(Preparation::Reapply));
        // Once per transaction. If the server changes the value again, the client keeps the
        // server's value.
        let again = !changed_there.is_empty() && !server.context_change.is_possible();
        if !changed_there.is_empty() {
            server.has_changed_by_itself();
        }
        let order = client.order().other();
        if is_otherwise && let Some(session) = &mut client.session {
            session.order = Some(order);
        }
        if again { Applied::Outdated } else { Applied::InEffect }
    }

    /// Sets the client's values in the other order, after the server has refused the usual one.
    pub(crate) fn apply_otherwise(&mut self, io: &mut impl Io<X>) -> Answered {
        let (order, has_session) = (self.client.order(), self.client.session.is_some());
        let usual = self.difference(order);
        match self.difference(order.other()) {
            Some(sql) if usual.as_ref() != Some(&sql) && has_session => {
                self.server.phase.prepare(Preparation::Reapply);
                self.server.send_own_query(self.on, &sql, self.context, io);
                Answered::GoesOn(Prepared::NotYet)
            }
            _ => Answered::Refused(self.refused(io)),
        }
    }

    /// Deals with a server that refuses the client's values in every order.
    pub(super) fn refused(&mut self, io: &mut impl Io<X>) -> Refused {
        let error = self.server.own_error.take().unwrap_or_default();
        let text = error.message().into_owned();
        let is_open = self.pool.lock(|pool| pool.gate() == Gate::Open);
        let (id, client, server) = (self.id, &mut *self.client, &mut *self.server);
        // A client with state on this server cannot move to another one.
        let stays = server.has_traces();
        let may_move = !stays && server.session.past == Past::Used;
        // Another server has accepted these values, so a new one may.
        if let Some(session) = client.session.as_mut().filter(|own| may_move && own.may_renew()) {
            if !is_open {
                // The pool gives out no servers now: the client waits and tries again later.
                return Refused::Lost(CloseReason::SettingsRefused);
            }
            session.refusals += 1;
            let since = client.phase.prepared_since().unwrap_or_else(|| io.now());
            client.phase.hold_back(Waiter::served(id, server.pool, since));
            pair::part(client, server);
            return Refused::Renewed;
        }
        // No server accepts an invalid value of a parameter that PostgreSQL reports. A used server may
        // refuse another setting, or to undo one, because of earlier clients.
        let is_invalid = error.sqlstate() == INVALID_PARAMETER_VALUE.as_bytes();
        let is_reported = client.session.is_none() && client.vars.carried.is_empty();
        let is_by_value = is_invalid && is_reported && server.is_as_opened();
        let is_unused = server.session.past == Past::New;
        // A refused query has changed nothing, since it was one transaction.
        let is_good = server.is_clean() && (is_by_value || is_unused);
        if !stays && client.session.is_none() && !server.is_as_opened() {
            // The refusal may come from another client's settings that could not be undone.
            return Refused::Lost(CloseReason::SettingsNotUndone);
        }
        if is_good {
            // It is freed when the client has left, as after a transaction.
            server.phase.link();
        }
        let message = format!("varcache_apply failed: ERROR: {text}");
        remark(id, client, Weight::Error, &message, io);
        let why = match client.session.is_some() {
            true => Denied::Session(format!("server refused session settings: {text}")),
            false if server.mode == PoolMode::Auto => Denied::AsAtLogin(as_fatal(error)),
            false => Denied::InvalidParameter,
        };
        Refused::Denied { why, closes: !is_good }
    }
}
