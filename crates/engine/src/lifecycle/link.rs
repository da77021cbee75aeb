//! Links a server to a client, prepares it for the client, and takes it back.
//!
//! ```text
//!  link ── request ──┬─ granted ──► join ─► prepare ─┬─ nothing to do ─► ready
//!                    │               ▲               └─ ask the server … ─► ready
//!                    └─ queued … ────┘
//!  unlink ─► free ─┬─ reset first … ─┐
//!                  └─────────────────┴─► place (next client, park, or close)
//! ```

use config::PoolMode;
use wire::error_fields::ErrorFields;
use wire::{backend, cancel_key, frontend};

use crate::admission::pool::{Grant, role_changes};
use crate::client::{Client, ClientPhase, KeyForm, StatementNames};
use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::ahead::may_go_ahead;
use crate::lifecycle::apply::Applied;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::own_keys::{may_use_keys, no_keys, remark_own_keys};
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::reserved::drop_reserved;
use crate::own_error::OwnError;
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::server::{Preparation, Server, ServerPhase, Settling};
use crate::session::carried::{Carried, Order};
use crate::session::holding::end_hold;
use crate::shell::{Exchange, Io, OwnQuery};
use crate::vars::{Present, Slots, TrackedNames, Welcome};

/// Returns a NOTICE of Weir's own.
pub(crate) fn notice(text: &str) -> ErrorFields {
    ErrorFields::new("NOTICE", "00000", text)
}

/// Does this query return all settings to the server's defaults?
fn resets_all(query: &str) -> bool {
    let query = query.trim().trim_end_matches(';').trim_end();
    ["DISCARD ALL", "RESET ALL"].iter().any(|all| query.eq_ignore_ascii_case(all))
}

impl<X: Exchange> Engine<X> {
    /// Requests a server for a logged-in client.
    pub(crate) fn link(&mut self, id: ClientId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        let client = &self.clients[id];
        let Some(pool) = client.pool else { return Readable::NotYet };
        let (worker, values) = (self.context.worker, client.digest());
        let grant = self.pools.exchange.pool(pool, |pool| pool.request(worker, id, values, now));
        self.take_grant(id, pool, grant, now, io)
    }

    /// Acts on the pool's answer to a client without a server, which has waited since `since`.
    // Each transaction begins here. As a call it cost 0.3 % of one.
    #[inline(always)]
    pub(crate) fn take_grant(
        &mut self,
        id: ClientId,
        pool: PoolId,
        grant: Grant<X::Transport>,
        since: Micros,
        io: &mut impl Io<X>,
    ) -> Readable {
        match grant {
            Grant::Server(server) => {
                let server = self.attach(server, io);
                self.join(id, server, io)
            }
            Grant::Queued { ticket, open } => {
                let client = &mut self.clients[id];
                if !matches!(*client.phase, ClientPhase::Waiting(_)) {
                    client.while_waiting.notified = false;
                    client.begin_wait();
                }
                client.phase.queue(Waiter { client: id, pool, ticket, since });
                if open {
                    self.open_server(pool, io);
                }
                Readable::NotYet
            }
            Grant::Refused(_) | Grant::Closed(_) if self.leave_reader(id, pool) => Readable::NotYet,
            Grant::Refused(error) => {
                self.refuse_client(id, &error, io);
                Readable::NotYet
            }
            Grant::Closed(reason) => {
                self.disconnect(id, reason, io);
                Readable::NotYet
            }
        }
    }

    /// Gives the server to a client that has waited.
    pub(crate) fn join_waiter(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        if self.clients[id].asks() {
            self.ask_on(id, on, io);
        } else if self.clients[id].proves() {
            self.prove_by(id, on, io);
        } else if self.is_overtaken(id, on, io.now()) {
            let pool = self.servers[on].pool;
            self.leave_reader(id, pool);
            self.place(on, io);
        } else if self.join(id, on, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// Does the same, or places the server elsewhere if the client no longer waits.
    pub(crate) fn join_or_place(&mut self, waiter: Waiter, on: ServerId, io: &mut impl Io<X>) {
        let pool = self.servers[on].pool;
        match self.is_waiting(waiter, pool) {
            true => self.join_waiter(waiter.client, on, io),
            false => self.place(on, io),
        }
    }

    /// Links the client and the server, and prepares the server.
    pub(crate) fn join(&mut self, id: ClientId, server: ServerId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        if self.clients[id].replication.is_some() {
            self.replace_by_own(id, server, io);
            return Readable::NotYet;
        }
        if self.has_another_role(id, server) {
            return self.bar_from(id, server, CloseReason::RoleChanged.into(), io);
        }
        let (half, user) = (&*self.servers[server], &self.clients[id].identity.user);
        if half.own_keys
            && !may_use_keys(&self.context.config, self.pools.settings(half.pool), user)
        {
            let settings = self.pools.settings(half.pool);
            remark_own_keys(id, &self.clients[id], settings, io);
            return self.bar_from(id, server, no_keys(), io);
        }
        let (client, half) = (&mut self.clients[id], &mut *self.servers[server]);
        pair::link(id, client, server, half);
        let pool = half.pool;
        let waiter = client.phase.prepare(Waiter::served(id, pool, now));
        if !client.is_welcomed() {
            let Server { epoch, ref welcome, .. } = *self.servers[server];
            let welcome = welcome.clone();
            let client = &mut self.clients[id];
            client.complete_vars(&welcome, &mut self.context);
            self.clients[id].role_changes = role_changes(epoch);
        }
        self.servers[server].stages.link(waiter.since, now);
        self.pools.view(pool).assigned(now.saturating_sub(waiter.since));
        self.prepare(id, server, io)
    }

    /// Disconnects a client that may not use this server. The server goes to another one.
    #[cold]
    fn bar_from(
        &mut self,
        id: ClientId,
        on: ServerId,
        why: OwnError<'_>,
        io: &mut impl Io<X>,
    ) -> Readable {
        self.disconnect(id, why, io);
        self.servers[on].phase.unpark();
        self.place(on, io);
        Readable::NotYet
    }

    /// Does everything that must be known or done before the client's bytes may be forwarded.
    pub(crate) fn prepare(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) -> Readable {
        let client = &self.clients[id];
        let server = &*self.servers[on];
        if !client.is_welcomed() && self.mode_of(on) != PoolMode::Session {
            // The client only waited for a first server to exist: it is welcomed without keeping
            // it.
            return self.ready(id, on, io);
        }
        let is_begun = matches!(*server.phase, ServerPhase::Preparing(_));
        if !is_begun && io.take_news(on) {
            self.servers[on].phase.prepare(Preparation::Hear);
            return Readable::NotYet;
        }
        let settings = self.pools.settings(server.pool);
        let checked =
            is_begun && !matches!(*server.phase, ServerPhase::Preparing(Preparation::Hear));
        // Lending the server only for a login greeting does not prove that the connection is alive.
        let silent_for = io.now().saturating_sub(server.times.replied_at);
        if !checked && !settings.check_query.is_empty() && silent_for > settings.check_delay {
            let query = settings.check_query.trim().to_owned();
            self.servers[on].phase.prepare(Preparation::Check);
            self.send_own_query(on, query.as_bytes(), io);
            return Readable::NotYet;
        }
        if !client.vars.is(&server.vars) {
            let client = &mut self.clients[id];
            follow_reports(client, server, &self.context.names);
            let order = client.order();
            if let Some(sql) = self.difference(id, on, order) {
                // The library does not notice a text that is invalid in the client's encoding.
                if sql.is_ascii()
                    && may_go_ahead(&self.clients[id], &self.servers[on])
                    && let Some(ahead) = self.servers[on].ahead_mut()
                {
                    ahead.put_off(sql);
                    return self.ready(id, on, io);
                }
                self.servers[on].phase.prepare(Preparation::Apply);
                self.send_own_query(on, &sql, io);
                return Readable::NotYet;
            }
            let (client, server) = (&self.clients[id], &self.servers[on]);
            if client.vars.prepared != server.vars.prepared {
                return self.prepare_statements(id, on, io);
            }
            let vars = client.vars.clone();
            self.servers[on].vars = vars;
        }
        self.ready(id, on, io)
    }

    /// Returns the SQL that gives the server the client's values, if they differ.
    pub(crate) fn difference(
        &mut self,
        id: ClientId,
        on: ServerId,
        order: Order,
    ) -> Option<Vec<u8>> {
        let defaults = self.known_defaults(id, on);
        let (client, server) = (&self.clients[id], &*self.servers[on]);
        // RESET would undo the settings of `connect_query`.
        let can_reset = self.pools.settings(server.pool).connect_query.is_empty();
        let given = if can_reset { client.given } else { Slots::ALL };
        let at_login = &server.welcome.vars;
        let present = Present { vars: &server.vars, at_login, defaults: &defaults, given };
        client.vars.difference(&present, &self.context.names, order)
    }

    /// Continues the preparation after a reply to Weir's own message.
    pub(crate) fn prepared(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let ServerPhase::Preparing(step) = &*server.phase else { return };
        if let Preparation::TellPrincipal(_) = step {
            return self.principal_told(on, io);
        }
        let Some(id) = server.client else { return };
        let readable = match step {
            Preparation::Hear if !server.is_clean() => {
                return self.lose_server(on, CloseReason::GotDirty, io);
            }
            Preparation::Hear => self.prepare(id, on, io),
            Preparation::TellPrincipal(_) => return,
            Preparation::Restore => return self.restored(on, io),
            Preparation::Ask(_) => {
                let answer = self.servers[on].take_answer();
                return self.answered(on, answer, io);
            }
            // Nothing was asked, so the message itself does not matter. The cancel request may be
            // over now.
            Preparation::AwaitCancel if server.cancel.is_some() => return,
            Preparation::AwaitCancel => return self.judge(id, on, io),
            Preparation::Probe(_) => return self.probed(on, io),
            // `reply_bytes` goes on.
            Preparation::Ahead(_) => return,
            Preparation::HandOver => self.handed_over(id, on, io),
            Preparation::Signal(_) => return self.may_signal(id, on, io),
            Preparation::Unwind => return self.renew(on, Preparation::Renew, io),
            Preparation::Renew | Preparation::Confirm => self.renewed(on, io),
            Preparation::Check if server.own_error.is_some() || !server.is_clean() => {
                let server = &mut *self.servers[on];
                let error = server.own_error.take();
                self.pools.one(server.pool).report_own_query(OwnQuery::Check, error, io);
                return self.lose_server(on, CloseReason::CheckFailed, io);
            }
            Preparation::Check => {
                server.times.released_at = io.now();
                self.prepare(id, on, io)
            }
            Preparation::Apply | Preparation::Reapply if server.own_error.is_some() => {
                let is_again = matches!(step, Preparation::Reapply);
                let client = &mut self.clients[id];
                match drop_reserved(id, client, &mut self.servers[on], io) {
                    true => self.prepare(id, on, io),
                    false if is_again => return self.refused(id, on, io),
                    false => return self.apply_otherwise(id, on, io),
                }
            }
            Preparation::Apply | Preparation::Reapply => match self.applied(id, on, io) {
                Applied::Outdated => self.prepare(id, on, io),
                Applied::InEffect => self.prepare_statements(id, on, io),
            },
            Preparation::Statements => self.statements_prepared(id, on, io),
            Preparation::Recount(_) => self.recounted(id, on, io),
            Preparation::Fail => self.transaction_failed(id, on, io),
            Preparation::Begin => self.begun_again(id, on, io),
        };
        if readable == Readable::Now {
            self.go_on(id, io);
            if self.clients.get(id).is_some_and(|client| client.server == Some(on)) {
                self.channels(id).pass_if_due(io);
            }
        }
    }

    /// Completes the preparation: the client may send its request.
    pub(crate) fn ready(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) -> Readable {
        if !self.clients[id].is_welcomed() {
            let welcome = self.servers[on].welcome.clone();
            self.welcome(id, Some(on), &welcome, io);
            if self.mode_of(on) != PoolMode::Session {
                if self.clients[id].stream.holds_message() {
                    // The client has already sent a request for the server.
                    return self.prepare(id, on, io);
                }
                self.unlink(id, on, io);
                return Readable::NotYet;
            }
            // It was not queued for its first transaction, which may come much later.
            self.servers[on].stages.clear();
        }
        if self.clients[id].while_waiting.fails {
            return self.fail_transaction(on, io);
        }
        if self.clients[id].while_waiting.begins {
            return self.begin_again(id, on, io);
        }
        let tracks = self.pools.settings(self.servers[on].pool).tracks_statements(self.mode_of(on));
        let server = &mut *self.servers[on];
        server.phase.link();
        server.stages.apply(io.now());
        let client = &mut self.clients[id];
        client.phase.link();
        let has_statements = client.extended.as_ref().is_some_and(|own| own.has_statements());
        client.statement_names = match tracks || has_statements {
            true => StatementNames::Translated,
            false => StatementNames::Own,
        };
        if let Some(session) = &mut client.session {
            session.refusals = 0;
        }
        Readable::Now
    }

    /// Tells the client that it is logged in. In session mode the cancel key has the server's
    /// process id, which programs compare with `pg_backend_pid()`. The secret is always Weir's own.
    pub(crate) fn welcome(
        &mut self,
        id: ClientId,
        on: Option<ServerId>,
        welcome: &Welcome,
        io: &mut impl Io<X>,
    ) {
        let peer = u16::try_from(self.context.config.global.peer_id).unwrap_or(0);
        let client = &self.clients[id];
        let process_id = on
            .filter(|_| peer == 0)
            .filter(|on| client.replication.is_some() || self.mode_of(*on) == PoolMode::Session)
            .map(|on| self.servers[on].key.pid);
        let key = self.keys.draw(peer, process_id, io);
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let news = &self.context.config.global.login_notify_message;
        backend::authentication_ok(&mut out);
        let client = &self.clients[id];
        welcome.write(&client.vars, &self.context.names, &mut out);
        if client.replication.is_none()
            && let Some(pool) = client.pool
        {
            out.extend_from_slice(&self.pools.settings(pool).introduction);
        }
        let client = &mut self.clients[id];
        client.key = key;
        let mut secret = (key as u32).to_be_bytes().to_vec();
        if client.key_form == KeyForm::Long {
            secret.extend_from_slice(&cancel_key::tag(&self.context.seed, key));
        }
        backend::backend_key_data(&mut out, (key >> 32) as u32, &secret);
        if !news.is_empty() {
            backend::notice(&mut out, &notice(news));
        }
        backend::ready_for_query(&mut out, b'I');
        io.send_client(id, &out);
        self.scratch = out;
        self.keys.insert(key, id);
    }

    /// Has the server run one query of Weir's own.
    pub(crate) fn send_own_query(&mut self, on: ServerId, sql: &[u8], io: &mut impl Io<X>) {
        self.servers[on].send_own_queries(on, [sql].into_iter(), &mut self.context, io);
    }

    /// Takes the server back from its client.
    pub(crate) fn unlink(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        pair::release(client, &mut self.servers[on]);
        client.resent = false;
        client.phase.unlink();
        if !client.stream.held.is_empty() {
            self.route_later(id);
        }
        if !self.pools.changed_user.is_empty() {
            self.follow_rename(id);
        }
        io.resume_client(id);
        if self.clients[id].session.is_some() {
            self.tell_untold(id, io);
        }
        self.free(on, io);
    }

    /// Decides what happens to a server that has lost its client: close it, clean it, hold it back
    /// or pass it on.
    pub(crate) fn free(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let flushed = io.server_flushed(on);
        let server = &mut *self.servers[on];
        server.phase.settle(Settling::Fresh);
        if let Some(reason) = server.doomed {
            return self.close_server(on, reason, io);
        }
        if server.replication.is_some() {
            return self.close_server(on, CloseReason::ReplicationEnded, io);
        }
        if !flushed || !server.is_clean() {
            return self.close_server(on, CloseReason::NotReady, io);
        }
        if server.cancel.is_some() {
            // The server is examined again when the cancel request is over.
            server.phase.settle(Settling::Cancel);
            return;
        }
        if server.has_traces() {
            if let Some(view) = self.pools.views.get_mut(server.pool) {
                end_hold(server, view);
            }
            if server.has_traces() {
                return self.forget_session(on, io);
            }
        }
        let server = &*self.servers[on];
        let (pool, is_foreign) = (server.pool, server.has_foreign_settings());
        let settings = self.pools.settings(pool);
        let mode = self.servers[on].mode_in(settings.mode);
        if settings.resets(mode) {
            let reset = settings.reset_query.clone();
            let server = &mut *self.servers[on];
            if is_foreign && mode == PoolMode::Auto {
                // Weir would not know which of the settings that query leaves.
                server.doubt_settings();
                return self.forget_session(on, io);
            }
            server.doubt_carried();
            server.phase.settle(Settling::Reset);
            // The replies tell whether the query discards the prepared statements.
            return self.send_own_query(on, reset.as_bytes(), io);
        }
        self.settled(on, io);
    }

    /// Closes a server on which a query after its last client has failed, or has left a transaction
    /// open.
    #[cold]
    pub(crate) fn reset_failed(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        if let ServerPhase::Settling(step) = &*self.servers[on].phase
            && let Some(query) = step.own_query()
        {
            let server = &mut *self.servers[on];
            let error = server.own_error.take();
            self.pools.one(server.pool).report_own_query(query, error, io);
        }
        self.close_server(on, reason, io);
    }

    /// Makes the server available: none of Weir's own queries is under way either.
    pub(crate) fn settled(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let now = io.now();
        let server = &mut *self.servers[on];
        debug_assert!(server.client.is_none() && server.is_clean());
        if server.own_error.is_some() {
            return self.reset_failed(on, CloseReason::ResetFailed, io);
        }
        if let Some(reason) = server.doomed {
            return self.close_server(on, reason, io);
        }
        let (phase, pool) = (&*server.phase, server.pool);
        let discards = matches!(phase, ServerPhase::Settling(Settling::Forget | Settling::Enlist));
        let resets = matches!(phase, ServerPhase::Settling(Settling::Reset));
        if discards || resets && resets_all(&self.pools.settings(pool).reset_query) {
            self.defaults_restored(on);
        }
        let server = &mut *self.servers[on];
        if server.cancel.is_some() {
            server.phase.settle(Settling::Cancel);
            return;
        }
        if matches!(*server.phase, ServerPhase::Settling(Settling::Enlist)) {
            return self.enlisted(on, io);
        }
        if matches!(*server.phase, ServerPhase::Settling(Settling::Explain)) {
            self.explained(on);
        }
        if self.servers[on].changes.is_some() && self.explain(on, io) {
            return;
        }
        let server = &mut *self.servers[on];
        if server.has_traces() {
            return match matches!(*server.phase, ServerPhase::Settling(Settling::Forget)) {
                true => self.session_forgotten(on, io),
                false => self.forget_session(on, io),
            };
        }
        let session = server.session.get_mut();
        let was_disturbed = session.is_some_and(|own| std::mem::take(&mut own.disturbed));
        if was_disturbed && !server.vars.channels.is_empty() {
            server.vars.change(|vars| vars.channels = Carried::default());
            server.phase.settle(Settling::Unlisten);
            return self.send_own_query(on, b"UNLISTEN *", io);
        }
        server.times.released_at = now;
        let (pool, age) = (server.pool, now.saturating_sub(server.times.connected_at));
        let old = age > self.pools.settings(pool).server_lifetime;
        if old && self.pools.exchange.pool(pool, |pool| pool.age_out(now)) {
            return self.close_server(on, CloseReason::LifetimeOver, io);
        }
        self.place(on, io);
    }
}

impl Server {
    /// Sends simple Queries of Weir's own. Each may fail alone. The server owes no reply, and its
    /// client does not see the replies.
    pub(crate) fn send_own_queries<'a, X: Exchange>(
        &mut self,
        on: ServerId,
        texts: impl Iterator<Item = &'a [u8]>,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        debug_assert!(self.is_clean(), "a message of ours into a client's conversation");
        let mut messages = Vec::new();
        for sql in texts {
            frontend::query(&mut messages, sql);
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = context.next_serial();
            self.ledger.owe(entry);
        }
        self.own_error = None;
        self.times.asked_at = io.now();
        self.unnamed = 0;
        io.send_server(on, &messages);
    }

    /// Sends messages of Weir's own while the client is held back. `statement` is the number of the
    /// statement that they concern, or 0.
    pub(crate) fn ask<X: Exchange>(
        &mut self,
        on: ServerId,
        expected: &[Expect],
        statement: u64,
        messages: &[u8],
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        for expect in expected {
            let mut entry = Entry::new(*expect, Verb::Internal);
            entry.serial = context.next_serial();
            entry.statement = statement;
            self.ledger.owe(entry);
        }
        if !messages.is_empty() {
            io.send_server(on, messages);
        }
    }
}

/// Adapts a client's values to a server of another version, which may report more parameters or
/// fewer.
#[inline]
fn follow_reports(client: &mut Client, server: &Server, names: &TrackedNames) {
    let startup = client.session.as_deref_mut().map(|session| &mut session.startup);
    for vars in std::iter::once(&mut client.vars).chain(startup) {
        if !vars.are_tracked_by(&server.vars) {
            vars.change(|vars| vars.carry_unreported(&server.vars, names));
        }
        if !server.vars.are_tracked_by(vars) {
            vars.change(|vars| vars.track_reported(&server.welcome.vars, names));
        }
    }
}
