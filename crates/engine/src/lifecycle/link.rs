//! A server is given to a client, prepared for it, and taken back.
//!
//! ```text
//!  link ── request ──┬─ granted ──► join ─► prepare ─┬─ nothing to do ─► ready
//!                    │               ▲               └─ ask the server … ─► ready
//!                    └─ queued … ────┘
//!  unlink ─► free ─┬─ reset first … ─┐
//!                  └─────────────────┴─► place (next client, park, or close)
//! ```

use crate::lifecycle::close_reason::CloseReason;
use crate::server::Settling;
use config::PoolMode;
use wire::error_fields::ErrorFields;
use wire::{backend, cancel_key, frontend};

use crate::admission::pool::Grant;
use crate::client::{Client, ClientPhase, KeyForm, StatementNames};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::server::{Preparation, ServerPhase};
use crate::session::carried::{Carried, Order};
use crate::shell::{Exchange, Io};
use crate::values::Values;
use crate::vars::{Present, Slots, Vars, Welcome};

/// So many keys are drawn for one with a process id of its own.
const KEYS_TRIED_MAX: usize = 8;

/// A notice of our own.
pub(crate) fn notice(text: &str) -> ErrorFields {
    ErrorFields::new("NOTICE", "00000", text)
}

/// May a client be read, now that something was done about its server?
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readable {
    /// It has a server, and nothing is in the way.
    Now,
    /// It waits, it has no server any more, or it has gone.
    NotYet,
}

impl<X: Exchange> Engine<X> {
    /// An authenticated client needs a server.
    pub(crate) fn link(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) -> Readable {
        let client = self.client(id);
        let Some(pool) = client.pool else { return Readable::NotYet };
        let (worker, values) = (self.worker, client.digest());
        let grant = self.exchange.pool(pool, |pool| pool.request(worker, id, values, now));
        self.take_grant(id, grant, now, now, io)
    }

    /// What the pool says to a client without a server, which has waited since `since`.
    pub(crate) fn take_grant(
        &mut self,
        id: ClientId,
        grant: Grant<X::Transport>,
        since: Micros,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Readable {
        match grant {
            Grant::Server(server) => {
                let server = self.attach(server, io);
                self.join(id, server, now, io)
            }
            Grant::Queued { ticket, open } => {
                let client = self.client_mut(id);
                if !matches!(client.phase, ClientPhase::Waiting(_)) {
                    client.while_waiting.notified = false;
                    client.begin_wait();
                }
                client.phase = ClientPhase::Waiting(Waiter { client: id, ticket, since });
                if let (true, Some(pool)) = (open, client.pool) {
                    self.open_server(pool, now, io);
                }
                Readable::NotYet
            }
            Grant::Refused(error) => {
                self.refuse_client(id, &error, now, io);
                Readable::NotYet
            }
            Grant::Closed(reason) => {
                self.disconnect(id, reason.text(), now, io);
                Readable::NotYet
            }
        }
    }

    /// A client that has waited gets this server.
    pub(crate) fn join_waiter(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        if self.asks(id) {
            self.ask_on(id, on, now, io);
        } else if self.proves(id) {
            self.prove_by(id, on, now, io);
        } else if self.join(id, on, now, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// The same, or the server goes elsewhere if the client does not wait any more.
    pub(crate) fn join_or_place(
        &mut self,
        waiter: Waiter,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let pool = self.server(on).pool;
        match self.is_waiting(waiter, pool) {
            true => self.join_waiter(waiter.client, on, now, io),
            false => self.place(on, now, io),
        }
    }

    /// Is this waiter's client still there, in that very wait? Each pool counts its tickets for
    /// itself, and in place of the client there may be another one.
    pub(crate) fn is_waiting(&self, waiter: Waiter, pool: PoolId) -> bool {
        let client = self.clients.get(waiter.client.0 as usize);
        let wait = client.and_then(Client::wait);
        wait.is_some_and(|(of, own)| of == pool && own.ticket == waiter.ticket)
    }

    /// The two belong together from now on.
    pub(crate) fn join(
        &mut self,
        id: ClientId,
        server: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Readable {
        if self.client(id).replication.is_some() {
            self.replace_by_own(id, server, now, io);
            return Readable::NotYet;
        }
        let client = self.client_mut(id);
        debug_assert!(client.server.is_none(), "a client was given a second server");
        let waiter = match client.phase {
            ClientPhase::Waiting(waiter) => waiter,
            _ => Waiter { client: id, ticket: 0, since: now },
        };
        client.server = Some(server);
        client.phase = ClientPhase::Preparing(waiter);
        let half = self.server_mut(server);
        debug_assert!(half.client.is_none(), "a server was given to a second client");
        debug_assert!(half.is_clean(), "a dirty server was given to a client");
        half.client = Some(id);
        let (pool, welcome) = (half.pool, half.welcome.clone());
        if !self.client(id).is_welcomed() {
            self.complete_vars(id, &welcome);
        }
        let stats = self.stats(pool);
        stats.assignments += 1;
        stats.wait_time += now.saturating_sub(waiter.since);
        self.prepare(id, server, now, io)
    }

    /// The link hook: whatever has to be known or done before the client's bytes may follow.
    pub(crate) fn prepare(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Readable {
        let client = &self.clients[id.0 as usize];
        let server = &self.servers[on.0 as usize];
        if !client.is_welcomed() && self.mode_of(on) != PoolMode::Session {
            // It only waited to see a first server: it is welcomed and goes without.
            return self.ready(id, on, now, io);
        }
        let is_begun = matches!(server.phase, ServerPhase::Preparing(_));
        if !is_begun && io.take_news(on) {
            self.server_mut(on).phase = ServerPhase::Preparing(Preparation::Hear);
            return Readable::NotYet;
        }
        let settings = self.settings(server.pool);
        let checked =
            is_begun && !matches!(server.phase, ServerPhase::Preparing(Preparation::Hear));
        // Who has it in between for nothing but a welcome does not show that it lives.
        let silent_for = now.saturating_sub(server.times.replied_at);
        if !checked && !settings.check_query.is_empty() && silent_for > settings.check_delay {
            let query = settings.check_query.trim().to_owned();
            self.server_mut(on).phase = ServerPhase::Preparing(Preparation::Check);
            self.send_own_query(on, query.as_bytes(), now, io);
            return Readable::NotYet;
        }
        if !client.vars.is(&server.vars) {
            self.follow_reports(id, on);
            let (client, server) = (&self.clients[id.0 as usize], &self.servers[on.0 as usize]);
            if let Some(sql) = self.difference(id, on, client.order()) {
                self.server_mut(on).phase = ServerPhase::Preparing(Preparation::Apply);
                self.send_own_query(on, &sql, now, io);
                return Readable::NotYet;
            }
            if client.vars.prepared != server.vars.prepared {
                return self.prepare_statements(id, on, now, io);
            }
            let vars = client.vars.clone();
            self.server_mut(on).vars = vars;
        }
        self.ready(id, on, now, io)
    }

    /// The SQL that gives the server the client's values.
    pub(crate) fn difference(&self, id: ClientId, on: ServerId, order: Order) -> Option<Vec<u8>> {
        let (client, server) = (self.client(id), self.server(on));
        // What connect_query has set RESET would undo; and in other modes it is not known what the
        // client has set.
        let can_reset =
            server.mode == PoolMode::Auto && self.settings(server.pool).connect_query.is_empty();
        let given = if can_reset { client.given } else { Slots::ALL };
        let present = Present { vars: &server.vars, at_login: &server.welcome.vars, given };
        client.vars.difference(&present, &self.names, order)
    }

    /// A message of ours during preparation was answered.
    pub(crate) fn prepared(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        let ServerPhase::Preparing(step) = &server.phase else { return };
        let Some(id) = server.client else { return };
        let readable = match step {
            Preparation::Hear if !server.is_clean() => {
                return self.lose_server(on, CloseReason::GotDirty, now, io);
            }
            Preparation::Hear => self.prepare(id, on, now, io),
            Preparation::Restore => return self.restored(on, now, io),
            Preparation::Ask(_) => return self.answered(on, now, io),
            // Whatever it has said, it was not asked; but while it did the request may have ended.
            Preparation::AwaitCancel if server.cancel.is_some() => return,
            Preparation::AwaitCancel => return self.judge(id, on, now, io),
            Preparation::Probe(_) => return self.probed(on, now, io),
            Preparation::HandOver => self.handed_over(id, on, now, io),
            Preparation::Signal(_) => return self.may_signal(id, on, now, io),
            Preparation::Unwind => return self.renew(on, Preparation::Renew, io),
            Preparation::Renew | Preparation::Confirm => self.renewed(on, now, io),
            Preparation::Check if server.own_error.take().is_some() => {
                return self.lose_server(on, CloseReason::CheckFailed, now, io);
            }
            Preparation::Check => {
                server.times.released_at = now;
                self.prepare(id, on, now, io)
            }
            Preparation::Apply if server.own_error.is_some() => {
                return self.apply_otherwise(id, on, now, io);
            }
            Preparation::Reapply if server.own_error.is_some() => {
                return self.refused(id, on, now, io);
            }
            Preparation::Apply | Preparation::Reapply => {
                self.applied(id, on, io);
                self.prepare_statements(id, on, now, io)
            }
            Preparation::Statements => self.statements_prepared(id, on, now, io),
            Preparation::Recount(_) => self.recounted(id, on, now, io),
        };
        if readable == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// Nothing is in the way any more.
    pub(crate) fn ready(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Readable {
        if !self.client(id).is_welcomed() {
            let welcome = self.server(on).welcome.clone();
            self.welcome(id, Some(on), &welcome, io);
            if self.mode_of(on) != PoolMode::Session {
                if self.client(id).stream.holds_message() {
                    // It has a use for the server already.
                    return self.prepare(id, on, now, io);
                }
                self.unlink(id, on, now, io);
                return Readable::NotYet;
            }
        }
        let tracks = self.settings(self.server(on).pool).tracks_statements(self.mode_of(on));
        self.server_mut(on).phase = ServerPhase::Linked;
        let client = self.client_mut(id);
        client.phase = ClientPhase::Linked;
        let has_statements = client.extended.as_ref().is_some_and(|own| own.has_statements());
        client.statement_names = match tracks || has_statements {
            true => StatementNames::Translated,
            false => StatementNames::Own,
        };
        if let Some(session) = &mut client.session {
            session.renews = false;
        }
        Readable::Now
    }

    /// Values that the client did not give are those of the pool: it will be told so, and they are
    /// what it must find on every server.
    pub(crate) fn complete_vars(&mut self, id: ClientId, welcome: &Welcome) {
        let client = self.client(id);
        let own = &client.vars;
        let all = match own.is_empty() {
            true => welcome.vars.clone(),
            false => {
                let mut own = Vars::clone(own);
                own.carry_unreported(&welcome.vars, &self.names);
                Values::new(own.or(&welcome.vars))
            }
        };
        self.client_mut(id).vars = self.shared_vars.share(all);
    }

    /// A server of another version may not report what those did that the client has met, or report
    /// what they did not.
    fn follow_reports(&mut self, id: ClientId, on: ServerId) {
        let server = &self.servers[on.0 as usize];
        let (client, names) = (&mut self.clients[id.0 as usize], &self.names);
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

    /// The client is told that it is logged in. In session mode it is shown its server's process
    /// id, which programs compare with pg_backend_pid(); the secret always is ours.
    pub(crate) fn welcome(
        &mut self,
        id: ClientId,
        on: Option<ServerId>,
        welcome: &Welcome,
        io: &mut impl Io<X>,
    ) {
        let peer = u16::try_from(self.config.global.peer_id).unwrap_or(0);
        let mut key = self.new_key(peer, io);
        let client = &self.clients[id.0 as usize];
        if peer == 0
            && let Some(on) = on
            && (client.replication.is_some() || self.mode_of(on) == PoolMode::Session)
        {
            key = (u64::from(self.server(on).process_id) << 32) | (key & 0xffff_ffff);
        }
        while key == 0 || self.keys.contains_key(&key) {
            key = (key & !0xffff_ffff) | u64::from((key as u32).wrapping_add(4));
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let news = &self.config.global.login_notify_message;
        backend::authentication_ok(&mut out);
        let client = &self.clients[id.0 as usize];
        welcome.write(&client.vars, &self.names, &mut out);
        if client.replication.is_none()
            && let Some(pool) = client.pool
        {
            out.extend_from_slice(&self.settings(pool).introduction);
        }
        let client = &mut self.clients[id.0 as usize];
        client.key = key;
        let mut secret = (key as u32).to_be_bytes().to_vec();
        if client.key_form == KeyForm::Long {
            secret.extend_from_slice(&cancel_key::tag(&self.seed, key));
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

    /// A key whose process id no other client of this worker has, if that can be: among peers there are
    /// few.
    fn new_key(&self, peer: u16, io: &mut impl Io<X>) -> u64 {
        let mut key = 0;
        for _ in 0..KEYS_TRIED_MAX {
            let mut random = [0; 8];
            io.random(&mut random);
            key = u64::from_be_bytes(random) & 0x7fff_ffff_ffff_ffff;
            // Among peers a key tells whose it is, and there is no room for a server's process id.
            if peer > 0 {
                key = cancel_key::of_peer(key, peer);
            }
            key = cancel_key::of_no_process(key);
            if self.told((key >> 32) as u32).next().is_none() {
                break;
            }
        }
        key
    }

    /// A simple Query of our own, on a server that owes nothing. Its replies are nobody's.
    pub(crate) fn send_own_query(
        &mut self,
        on: ServerId,
        sql: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.send_own_queries(on, std::iter::once(sql), now, io);
    }

    /// The same for several, each of which may fail by itself.
    pub(crate) fn send_own_queries<'a>(
        &mut self,
        on: ServerId,
        texts: impl Iterator<Item = &'a [u8]>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = &mut self.servers[on.0 as usize];
        debug_assert!(server.is_clean(), "a message of ours into a client's conversation");
        let mut messages = Vec::new();
        for sql in texts {
            frontend::query(&mut messages, sql);
            self.serial += 1;
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = self.serial;
            server.ledger.owe(entry);
        }
        server.own_error = None;
        server.times.asked_at = now;
        server.unnamed = 0;
        io.send_server(on, &messages);
    }

    /// The client gives its server back.
    pub(crate) fn unlink(&mut self, id: ClientId, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let client = self.client_mut(id);
        client.server = None;
        client.resent = false;
        client.phase = ClientPhase::Idle;
        let serial = client.serial;
        let server = self.server_mut(on);
        server.lose_client(serial);
        if !self.changed_user.is_empty() {
            self.follow_rename(id);
        }
        io.resume_client(id);
        if self.client(id).session.is_some() {
            self.tell_untold(id, now, io);
        }
        self.free(on, now, io);
    }

    /// The release verdict on a server that has lost its client: close it, clean it, hold it back
    /// or pass it on.
    pub(crate) fn free(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let flushed = io.server_flushed(on);
        let server = self.server_mut(on);
        server.phase = ServerPhase::Settling(Settling::Fresh);
        if let Some(reason) = server.doomed {
            return self.close_server(on, reason, now, io);
        }
        if server.replication.is_some() {
            return self.close_server(on, CloseReason::ReplicationEnded, now, io);
        }
        if !flushed || !server.is_clean() {
            return self.close_server(on, CloseReason::NotReady, now, io);
        }
        if server.cancel.is_some() {
            // Looked at again when the cancel request is over.
            server.phase = ServerPhase::Settling(Settling::Cancel);
            return;
        }
        if server.has_traces() {
            self.end_hold(on);
            if self.server(on).has_traces() {
                return self.forget_session(on, now, io);
            }
        }
        let server = self.server(on);
        let (pool, is_foreign) = (server.pool, server.has_foreign_settings());
        let settings = self.settings(pool);
        let mode = self.server(on).mode_in(settings.mode);
        if settings.resets(mode) {
            let reset = settings.reset_query.clone();
            let server = self.server_mut(on);
            if is_foreign && mode == PoolMode::Auto {
                // What that query leaves of them would not be known.
                server.doubt_settings();
                return self.forget_session(on, now, io);
            }
            server.doubt_carried();
            server.phase = ServerPhase::Settling(Settling::Reset);
            // Whether it discards the statements is told by its replies, not guessed.
            return self.send_own_query(on, reset.as_bytes(), now, io);
        }
        self.settled(on, now, io);
    }

    /// Nothing of ours is under way on this server either: it may be used again.
    pub(crate) fn settled(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        debug_assert!(server.client.is_none() && server.is_clean());
        if server.own_error.take().is_some() {
            return self.close_server(on, CloseReason::ResetFailed, now, io);
        }
        if let Some(reason) = server.doomed {
            return self.close_server(on, reason, now, io);
        }
        if server.cancel.is_some() {
            server.phase = ServerPhase::Settling(Settling::Cancel);
            return;
        }
        if server.has_traces() {
            return match server.phase {
                ServerPhase::Settling(Settling::Forget) => self.session_forgotten(on, now, io),
                _ => self.forget_session(on, now, io),
            };
        }
        if std::mem::take(&mut server.disturbed) && !server.vars.channels.is_empty() {
            server.vars.change(|vars| vars.channels = Carried::default());
            server.phase = ServerPhase::Settling(Settling::Unlisten);
            return self.send_own_query(on, b"UNLISTEN *", now, io);
        }
        server.times.released_at = now;
        let (pool, age) = (server.pool, now.saturating_sub(server.times.connected_at));
        let old = age > self.settings(pool).server_lifetime;
        if old && self.exchange.pool(pool, |pool| pool.age_out(now)) {
            return self.close_server(on, CloseReason::LifetimeOver, now, io);
        }
        self.place(on, now, io);
    }
}
