//! Prepares a server for its client: everything that must be known or done before the client's bytes may
//! be forwarded.
//!
//! ```text
//!  prepare ─► Hear? ─► Check? ─► Apply? (`apply.rs`) ─► Statements? (`statements.rs`) ─► ready
//! ```
//!
//! Each step asks the server. The server's replies lead to `answered`, which takes the next step.

use config::PoolMode;

use crate::client::{Client, StatementNames};
use crate::ids::Micros;
use crate::lifecycle::ahead::may_go_ahead;
use crate::lifecycle::apply::{Applied, Refused};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair::Pair;
use crate::lifecycle::reserved::drop_reserved;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::carried::Order;
use crate::shell::{Exchange, Io, OwnQuery};
use crate::vars::{Present, Slots, TrackedNames};

/// The state of a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prepared {
    /// The server was asked, or must be heard first.
    NotYet,
    /// Nothing is left to do.
    Ready,
}

/// The effect of the server's reply on a preparation.
#[derive(Debug)]
pub(crate) enum Answered {
    GoesOn(Prepared),
    /// The server refuses the client's values in every order.
    Refused(Refused),
    /// The server cannot serve the client.
    Lost(CloseReason<'static>),
}

impl<X: Exchange> Pair<'_, X> {
    /// Does everything that must be known or done before the client's bytes may be forwarded.
    pub(crate) fn prepare(&mut self, io: &mut impl Io<X>) -> Prepared {
        let on = self.on;
        if !self.client.is_welcomed() && self.mode() != PoolMode::Session {
            // The client only waited for a first server to exist: it is welcomed without keeping
            // it.
            return Prepared::Ready;
        }
        let server = &mut *self.server;
        let is_begun = matches!(*server.phase, ServerPhase::Preparing(_));
        if !is_begun && io.take_news(on) {
            server.phase.prepare(Preparation::Hear);
            return Prepared::NotYet;
        }
        let settings = &self.pool.view.settings;
        let checked =
            is_begun && !matches!(*server.phase, ServerPhase::Preparing(Preparation::Hear));
        // Lending the server only for a login greeting does not prove that the connection is alive.
        let silent_for = io.now().saturating_sub(server.times.replied_at());
        if !checked && !settings.check_query.is_empty() && silent_for > settings.check_delay {
            server.phase.prepare(Preparation::Check);
            let query = settings.check_query.trim().as_bytes();
            server.send_own_query(on, query, self.context, io);
            return Prepared::NotYet;
        }
        if !self.client.vars.is(&server.vars) {
            follow_reports(self.client, server, &self.context.names);
            if let Some(sql) = self.difference(self.client.order()) {
                let server = &mut *self.server;
                // The library does not notice a text that is invalid in the client's encoding.
                if sql.is_ascii()
                    && may_go_ahead(self.client, server)
                    && let Some(ahead) = server.ahead_mut()
                {
                    ahead.put_off(sql);
                    return Prepared::Ready;
                }
                server.phase.prepare(Preparation::Apply);
                server.send_own_query(on, &sql, self.context, io);
                return Prepared::NotYet;
            }
            if self.client.vars.prepared != self.server.vars.prepared {
                return self.prepare_statements(io);
            }
            self.server.vars = self.client.vars.clone();
        }
        Prepared::Ready
    }

    /// Returns the SQL that gives the server the client's values, if they differ.
    pub(crate) fn difference(&mut self, order: Order) -> Option<Vec<u8>> {
        let names = &self.context.names;
        let defaults = self.pool.known_defaults(self.client, self.server, names);
        let (client, server) = (&*self.client, &*self.server);
        // RESET would undo the settings of `connect_query`.
        let can_reset = self.pool.view.settings.connect_query.is_empty();
        let given = if can_reset { client.vars.given() } else { Slots::ALL };
        let at_login = &server.welcome.vars;
        let present = Present { vars: &server.vars, at_login, defaults: &defaults, given };
        client.vars.difference(&present, names, order)
    }

    /// Continues the preparation after the server's reply.
    pub(crate) fn answered(&mut self, io: &mut impl Io<X>) -> Answered {
        let (client, server) = (&mut *self.client, &mut *self.server);
        let ServerPhase::Preparing(step) = &*server.phase else {
            return Answered::GoesOn(Prepared::NotYet);
        };
        let prepared = match step {
            Preparation::Hear if !server.is_clean() => {
                return Answered::Lost(CloseReason::GotDirty);
            }
            Preparation::Hear => self.prepare(io),
            Preparation::Check if server.own_error.is_some() || !server.is_clean() => {
                let error = server.own_error.take();
                self.pool.report_own_query(OwnQuery::Check, error, io);
                return Answered::Lost(CloseReason::CheckFailed);
            }
            Preparation::Check => {
                server.times.released(io.now());
                self.prepare(io)
            }
            Preparation::Apply | Preparation::Reapply if server.own_error.is_some() => {
                let is_again = matches!(step, Preparation::Reapply);
                match drop_reserved(self.id, client, server, io) {
                    true => self.prepare(io),
                    false if is_again => return Answered::Refused(self.refused(io)),
                    false => return self.apply_otherwise(io),
                }
            }
            Preparation::Apply | Preparation::Reapply => match self.applied(io) {
                Applied::Outdated => self.prepare(io),
                Applied::InEffect => self.prepare_statements(io),
            },
            Preparation::Statements => self.statements_prepared(io),
            Preparation::Recount(_) => return self.recounted(),
            // Steps of other machines.
            Preparation::TellPrincipal(_)
            | Preparation::Restore
            | Preparation::Ask(_)
            | Preparation::AwaitCancel
            | Preparation::Probe(_)
            | Preparation::Ahead(_)
            | Preparation::HandOver
            | Preparation::Signal(_)
            | Preparation::Unwind
            | Preparation::Renew
            | Preparation::Confirm
            | Preparation::Fail
            | Preparation::Begin => Prepared::NotYet,
        };
        Answered::GoesOn(prepared)
    }

    /// Completes the preparation: the client may send its request.
    #[inline]
    pub(crate) fn begin(&mut self, now: Micros) {
        let tracks = self.pool.view.settings.tracks_statements(self.mode());
        let (client, server) = (&mut *self.client, &mut *self.server);
        server.phase.link();
        server.stages.apply(now);
        client.phase.link();
        let has_statements = client.extended.as_ref().is_some_and(|own| own.has_statements());
        client.statement_names = match tracks || has_statements {
            true => StatementNames::Translated,
            false => StatementNames::Own,
        };
        if let Some(session) = &mut client.session {
            session.refusals = 0;
        }
    }
}

/// Adapts a client's values to a server of another version, which may report more parameters or
/// fewer.
#[inline]
fn follow_reports(client: &mut Client, server: &Server, names: &TrackedNames) {
    let startup = client.session.as_deref_mut().map(|session| &mut session.startup);
    for vars in std::iter::once(&mut *client.vars).chain(startup) {
        if !vars.are_tracked_by(&server.vars) {
            vars.change(|vars| vars.carry_unreported(&server.vars, names));
        }
        if !server.vars.are_tracked_by(vars) {
            vars.change(|vars| vars.track_reported(&server.welcome.vars, names));
        }
    }
}
