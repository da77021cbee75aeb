//! Decides what happens to a server that has lost its client.
//!
//! ```text
//!  free ─┬─ has traces ────► Forget (DISCARD ALL) ─┐
//!        ├─ `reset_query` ─► Reset ────────────────┤
//!        ├─ a cancel request is under way: Cancel ─┤
//!        └──────────────────────────────────────────┴─► settled ─┬─ Explain, Unlisten … ─► settled
//!                                                                └─► place (`engine/placing.rs`), or close
//! ```

use config::PoolMode;

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::context::Context;
use crate::ids::ServerId;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::{Departure, TakenBack};
use crate::lifecycle::mark;
use crate::server::{Server, ServerPhase, Settling};
use crate::session::carried::Carried;
use crate::session::holding::end_hold;
use crate::session::verdict::FORGET;
use crate::shell::{Exchange, Io};

/// A server without a client.
pub(crate) struct Released<'a, X> {
    pub(crate) on: ServerId,
    pub(crate) server: &'a mut Server,
    pub(crate) pool: OnePool<'a, X>,
    pub(crate) context: &'a mut Context,
    /// The last client, if changes of parameters are unexplained and it is still there.
    pub(crate) last: Option<&'a mut Client>,
}

/// The point that a server without a client has reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cleaning {
    /// It has just lost its client, or a cancel request that it waited for is over.
    Begins,
    /// Its client has left.
    Left(Departure),
    /// It has answered one of Weir's own queries, or what it had sent before is read.
    GoesOn,
}

/// The state of a server without a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Close(CloseReason<'static>),
    /// One of Weir's own queries, or a cancel request, must be over first.
    NotYet,
    /// It has to reply to something first, which is cancelled.
    Cancels,
    /// It was to be opened for its client, and is not logged in.
    NotOpened,
    /// It was idle before, and is again.
    Marked,
    /// It is ready for the pool's lobby.
    Enlisted,
    /// Others may have it.
    Free,
}

/// Does this query return all settings to the server's defaults?
fn resets_all(query: &str) -> bool {
    let query = query.trim().trim_end_matches(';').trim_end();
    ["DISCARD ALL", "RESET ALL"].iter().any(|all| query.eq_ignore_ascii_case(all))
}

impl<X: Exchange> Released<'_, X> {
    /// Decides what happens to the server: close it, clean it, hold it back or pass it on.
    #[inline]
    pub(crate) fn go_on(&mut self, cleaning: Cleaning, io: &mut impl Io<X>) -> Freed {
        match cleaning {
            Cleaning::Begins => {
                self.server.times.given_back(io.now());
                self.free(io)
            }
            Cleaning::Left(left) => match self.take_back(left, io) {
                TakenBack::Waits => Freed::NotYet,
                TakenBack::Cancels => Freed::Cancels,
                TakenBack::Free => self.free(io),
                TakenBack::Unused => Freed::NotOpened,
                TakenBack::NotReady => Freed::Close(CloseReason::NotReady),
            },
            Cleaning::GoesOn if self.server.is_marking() => {
                mark::end(self.server).map_or(Freed::Marked, Freed::Close)
            }
            Cleaning::GoesOn if self.server.is_clean() => self.settled(io),
            Cleaning::GoesOn => {
                // A query has failed, or has left a transaction open.
                self.report_failed(io);
                Freed::Close(CloseReason::GotDirty)
            }
        }
    }

    /// Its client has left.
    fn take_back(&mut self, left: Departure, io: &mut impl Io<X>) -> TakenBack {
        self.server.times.given_back(io.now());
        let needs_success = self.pool.view.settings.needs_success;
        self.server.take_back(self.on, left, needs_success, io)
    }

    /// Must the server be closed because its client's last transaction has failed?
    #[inline(always)]
    fn has_failed(&mut self) -> bool {
        self.server.status.has_failed() && self.needs_success()
    }

    #[cold]
    fn needs_success(&mut self) -> bool {
        let needs_success = self.pool.view.settings.needs_success;
        if !needs_success {
            self.server.status.forgive();
        }
        needs_success
    }

    /// The server has just lost its client.
    #[inline(always)]
    fn free(&mut self, io: &mut impl Io<X>) -> Freed {
        let flushed = io.server_flushed(self.on);
        let server = &mut *self.server;
        server.phase.settle(Settling::Fresh);
        if let Some(reason) = *server.doomed {
            return Freed::Close(reason);
        }
        if server.replication.is_some() {
            return Freed::Close(CloseReason::ReplicationEnded);
        }
        if !flushed || !server.is_clean() {
            return Freed::Close(CloseReason::NotReady);
        }
        if self.has_failed() {
            return Freed::Close(CloseReason::TransactionFailed);
        }
        let server = &mut *self.server;
        if server.cancel.is_under_way() {
            // The server is examined again when the cancel request is over.
            server.phase.settle(Settling::Cancel);
            return Freed::NotYet;
        }
        if server.has_traces() {
            end_hold(server, self.pool.view);
            if server.has_traces() {
                return self.forget_session(io);
            }
        }
        let settings = &self.pool.view.settings;
        let mode = server.mode_in(settings.mode);
        if settings.resets(mode) {
            if server.has_foreign_settings() && mode == PoolMode::Auto {
                // Weir would not know which of the settings that query leaves.
                server.doubt_settings();
                return self.forget_session(io);
            }
            server.doubt_carried();
            server.phase.settle(Settling::Reset);
            // The replies tell whether the query discards the prepared statements.
            let reset = settings.reset_query.as_bytes();
            server.send_own_query(self.on, reset, self.context, io);
            return Freed::NotYet;
        }
        self.settled(io)
    }

    /// Discards the client's session state.
    fn forget_session(&mut self, io: &mut impl Io<X>) -> Freed {
        if !self.server.can_be_discarded() {
            return Freed::Close(CloseReason::StateCannotBeDiscarded);
        }
        self.server.phase.settle(Settling::Forget);
        self.server.send_own_query(self.on, FORGET, self.context, io);
        Freed::NotYet
    }

    /// Logs why one of Weir's own queries after the last client has failed.
    #[cold]
    fn report_failed(&mut self, io: &mut impl Io<X>) {
        if let ServerPhase::Settling(step) = &*self.server.phase
            && let Some(query) = step.own_query()
        {
            let error = self.server.own_error.take();
            self.pool.report_own_query(query, error, io);
        }
    }

    /// None of Weir's own queries is under way any more.
    #[inline]
    fn settled(&mut self, io: &mut impl Io<X>) -> Freed {
        let now = io.now();
        debug_assert!(self.server.client.is_none() && self.server.is_clean());
        if self.server.own_error.is_some() {
            self.report_failed(io);
            return Freed::Close(CloseReason::ResetFailed);
        }
        if self.has_failed() {
            return Freed::Close(CloseReason::TransactionFailed);
        }
        let (on, server) = (self.on, &mut *self.server);
        if let Some(reason) = *server.doomed {
            return Freed::Close(reason);
        }
        let phase = &*server.phase;
        let discards = matches!(phase, ServerPhase::Settling(Settling::Forget | Settling::Enlist));
        let resets = matches!(phase, ServerPhase::Settling(Settling::Reset));
        if discards || resets && resets_all(&self.pool.view.settings.reset_query) {
            self.pool.defaults_restored(server, &self.context.names);
        }
        if server.cancel.is_under_way() {
            server.phase.settle(Settling::Cancel);
            return Freed::NotYet;
        }
        if matches!(*server.phase, ServerPhase::Settling(Settling::Enlist)) {
            return Freed::Enlisted;
        }
        if matches!(*server.phase, ServerPhase::Settling(Settling::Explain)) {
            self.pool.explained(server, self.last.as_deref_mut(), &self.context.names);
        }
        if server.changes.unexplained().is_some() && self.pool.explain(on, server, self.context, io)
        {
            return Freed::NotYet;
        }
        if server.has_traces() {
            if !matches!(*server.phase, ServerPhase::Settling(Settling::Forget)) {
                return self.forget_session(io);
            }
            server.clear_session();
            return self.settled(io);
        }
        let session = server.session.get_mut();
        let was_disturbed = session.is_some_and(|own| std::mem::take(&mut own.disturbed));
        if was_disturbed && !server.vars.channels.is_empty() {
            server.vars.change(|vars| vars.channels = Carried::default());
            server.phase.settle(Settling::Unlisten);
            server.send_own_query(on, b"UNLISTEN *", self.context, io);
            return Freed::NotYet;
        }
        server.times.released(now);
        let (age, settings) = (server.times.age(now), &self.pool.view.settings);
        if server.uses >= settings.server_max_uses {
            return Freed::Close(CloseReason::MaxUses);
        }
        let old = age > settings.server_lifetime;
        if old && self.pool.lock(|pool| pool.age_out(now)) {
            return Freed::Close(CloseReason::LifetimeOver);
        }
        let number = server.password_number;
        if number.is_some() && self.pool.lock(|pool| pool.replaces_password(number)) {
            return Freed::Close(CloseReason::Obsolete);
        }
        Freed::Free
    }
}
