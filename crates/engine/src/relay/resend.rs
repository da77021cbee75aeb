//! A request is sent once more: to another server, when the first was lost before it could have
//! done anything, or to the same one, when that refused a statement which another client had
//! prepared. What may be sent again, and why nothing else ever is, stands in `kept_request.rs`.
//!
//! ```text
//!                                      outdated
//!                                          ▼
//!  refused ─► Unwind (end of the batch) ─► Renew (close, parse, describe) ─┬─ same shape ─► again
//!                                                                          └─ other ─► the error
//! ```
//!
//! A request is also held back where it is not known what a server's copy of its statement returns,
//! but its client was told (`confirm_shape`): `Confirm` does as Renew, and then the request is
//! dealt with, or refused, by what is known. Where the client means something else by the text now,
//! the copy is not prepared anew but only described; if that fails the next question is about
//! what the client means now (`substitute.rs`).
//!
//! Neither can go on for ever: a request is sent again once, and a Bind is held back
//! [`QUESTIONS_MAX`] times.

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::link::Readable;
use config::PoolMode;
use wire::{backend, frontend};

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, ServerId, Waiter};
use crate::relay::kept_request::{
    KeptRequest, Outline, QUESTIONS_MAX, Refused, Used, changed_result,
};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::relay::prepared::{DOUBTFUL, Statement};
use crate::relay::requests::write_reply;
use crate::relay::substitute::substitute;
use crate::relay::undo::undo;
use crate::server::{Preparation, Server, ServerPhase};
use crate::shell::{Exchange, Io};

/// SQLSTATE of a statement that was cancelled, or timed out.
pub(crate) const QUERY_CANCELED: &[u8] = b"57014";

/// A session belongs to its server, all of it or what is pinned; and a request that has lost two
/// servers may be the reason.
pub(crate) fn may_resend(client: &Client, server: &Server, mode: PoolMode) -> bool {
    let has_session = mode == PoolMode::Session || server.session.pinned.is_some();
    !client.resent && client.replication.is_none() && !has_session
}

impl Server {
    /// Is what it was sent last without effect and without any answer, so that another server may
    /// be asked in its place?
    pub(crate) fn may_be_replaced(&self) -> bool {
        let Some(kept) = self.kept.as_deref() else { return false };
        let outline = &kept.outline;
        outline.first != 0
            && !outline.has_effect
            && self.ledger.is_unanswered(outline.first)
            && !self.stream.is_mid_message()
    }
}

impl<X: Exchange> Engine<X> {
    /// The server is lost. If its client's request has had no effect and no answer, another server
    /// gets it. False if the client has to be told.
    pub(crate) fn resend_kept(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> bool {
        let server = self.server(on);
        let Some(id) = server.client else { return false };
        if !server.may_be_replaced() || !may_resend(self.client(id), server, self.mode_of(on)) {
            return false;
        }
        let kept = self.server_mut(on).kept.as_deref_mut();
        let request = kept.map(|kept| std::mem::take(&mut kept.bytes)).unwrap_or_default();
        self.move_request(id, on, request, reason, now, io);
        true
    }

    /// The server has not got one byte of this, the whole request of its client.
    pub(crate) fn resend(
        &mut self,
        id: ClientId,
        on: ServerId,
        request: Vec<u8>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        if may_resend(self.client(id), self.server(on), self.mode_of(on)) {
            self.move_request(id, on, request, CloseReason::Lost, now, io);
        }
        // Else the loss of the socket is about to be reported, and the client will be told.
    }

    /// The client asks anew, with the same bytes, on another server.
    fn move_request(
        &mut self,
        id: ClientId,
        on: ServerId,
        request: Vec<u8>,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let client = &mut self.clients[id.0 as usize];
        let server = &mut *self.servers[on.0 as usize];
        // What stands before the request needs no server: its turn has come.
        let mut due = Vec::new();
        while let Some(reply) = server.ledger.next_synthesized() {
            write_reply(reply, &mut due);
        }
        if !due.is_empty() {
            io.send_client(id, &due);
        }
        let statements = &mut server.statements;
        let (unnamed, lent) = (&mut server.unnamed, &mut server.session.lent);
        server.ledger.abandon(&mut |entry| {
            undo(entry, statements, unnamed, lent, Some(client));
        });
        server.client = None;
        client.server = None;
        client.resent = true;
        client.await_nothing();
        client.phase = ClientPhase::Idle;
        client.stream.put_back(&request);
        self.close_server(on, reason, now, io);
        if self.clients.contains(id.0 as usize) && self.link(id, now, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// The server has refused the statement that its client's batch begins with. The client is
    /// held back until it is known why.
    pub(crate) fn hold_refused(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        let Some(id) = server.client else { return };
        server.phase = ServerPhase::Preparing(Preparation::Unwind);
        server.times.asked_at = now;
        server.own_error = None;
        let refused = server.kept.as_deref().and_then(|kept| kept.refused.as_ref());
        let synced = refused.is_some_and(|refused| refused.synced);
        let waiter = Waiter { client: id, ticket: 0, since: now };
        let client = self.client_mut(id);
        client.phase = ClientPhase::Preparing(waiter);
        // A message of which the server has a part is discarded by it, whatever the rest is: also half a
        // CopyData behind the Sync. The client's rest follows what is sent again, or is discarded as well.
        let mut messages = Vec::new();
        if client.stream.is_mid_message() {
            messages.resize(client.stream.remaining, 0);
            client.stream.dropping = true;
        }
        let mut expected = &[][..];
        if !synced {
            frontend::sync(&mut messages);
            expected = &[Expect::Sync];
        }
        self.ask(on, expected, 0, &messages, io);
    }

    /// The statement may not return on this server what the client was told that it returns. The
    /// client's request is held back until it is known what it does return there.
    pub(crate) fn confirm_shape(
        &mut self,
        id: ClientId,
        on: ServerId,
        used: Used,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = self.server_mut(on);
        let kept = &mut **server.kept.get_or_insert_default();
        let refused =
            Refused { error: changed_result(), was_older: false, synced: false, shape: None };
        let outline = Outline { uses: Some(used), ..Outline::default() };
        *kept = KeptRequest { outline, refused: Some(refused), ..KeptRequest::default() };
        server.times.asked_at = now;
        server.own_error = None;
        let waiter = Waiter { client: id, ticket: 0, since: now };
        let client = self.client_mut(id);
        client.phase = ClientPhase::Preparing(waiter);
        let own = client.extended.get_or_insert_default();
        debug_assert!(own.questions < QUESTIONS_MAX, "a Bind is held back again and again");
        own.questions += 1;
        self.renew(on, Preparation::Confirm, io);
    }

    /// A server that waits for its client is about to get one more statement.
    fn make_room(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let limit = self.settings(self.server(on).pool).max_prepared_statements;
        let mut messages = Vec::new();
        let mut closed = 0;
        while let Some((old, _)) = self.server_mut(on).statements.evict(limit) {
            frontend::close_statement(&mut messages, &old.server_name);
            closed += 1;
        }
        self.ask(on, &vec![Expect::Close; closed], 0, &messages, io);
    }

    /// The server waits for more, the refused batch at its end if there was one: have the statement
    /// prepared anew, or what it means by now.
    pub(crate) fn renew(&mut self, on: ServerId, step: Preparation, io: &mut impl Io<X>) {
        let server = &*self.servers[on.0 as usize];
        let used = server.kept.as_deref().and_then(|kept| kept.outline.uses.clone());
        let (Some(id), Some(Used { mut statement, .. })) = (server.client, used) else { return };
        let client = &self.clients[id.0 as usize];
        if let Some(other) = substitute(&statement, client, server, &self.names, &mut self.exchange)
        {
            if server.statements.is_sure(statement.id) {
                return self.describe_copy(on, step, &statement, io);
            }
            statement = other;
        }
        if server.statements.since(statement.id).is_none() {
            self.make_room(on, io);
        }
        let server = self.server_mut(on);
        let kept = server.kept.as_deref_mut();
        if let Some(used) = kept.and_then(|kept| kept.outline.uses.as_mut()) {
            used.statement = statement.clone();
        }
        server.phase = ServerPhase::Preparing(step);
        // It stays in doubt until the answer is there: the client may leave before that.
        server.statements.insert(statement.clone(), DOUBTFUL);
        let mut messages = Vec::new();
        frontend::close_statement(&mut messages, &statement.server_name);
        frontend::parse(&mut messages, &statement.server_name, &statement.sql, &statement.types);
        frontend::describe_statement(&mut messages, &statement.server_name);
        frontend::sync(&mut messages);
        let expected = [Expect::Close, Expect::Parse, Expect::Describe, Expect::Sync];
        self.ask(on, &expected, statement.id, &messages, io);
    }

    /// The server's copy of a statement is what its client meant when it was prepared, and that is not
    /// what it would mean now: the copy only has to tell what it returns.
    fn describe_copy(
        &mut self,
        on: ServerId,
        step: Preparation,
        statement: &Statement,
        io: &mut impl Io<X>,
    ) {
        self.server_mut(on).phase = ServerPhase::Preparing(step);
        let mut messages = Vec::new();
        frontend::describe_statement(&mut messages, &statement.server_name);
        frontend::sync(&mut messages);
        self.ask(on, &[Expect::Describe, Expect::Sync], statement.id, &messages, io);
    }

    /// Messages of our own on a server that is held back from its client.
    pub(crate) fn ask(
        &mut self,
        on: ServerId,
        expected: &[Expect],
        statement: u64,
        messages: &[u8],
        io: &mut impl Io<X>,
    ) {
        for expect in expected {
            let mut entry = Entry::new(*expect, Verb::Internal);
            entry.serial = self.next_serial();
            entry.statement = statement;
            self.server_mut(on).ledger.owe(entry);
        }
        if !messages.is_empty() {
            io.send_server(on, messages);
        }
    }

    /// The statement has been prepared anew, if that can be. The client is readable if its batch is
    /// to be dealt with once more, or what else it has sent.
    pub(crate) fn renewed(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) -> Readable {
        let serial = self.next_serial();
        let server = &mut *self.servers[on.0 as usize];
        let failed = server.own_error.take().is_some();
        let (Some(id), Some(kept)) = (server.client, server.kept.as_deref_mut()) else {
            return Readable::NotYet;
        };
        let (Some(refused), Some(used)) = (kept.refused.take(), kept.outline.uses.take()) else {
            return Readable::NotYet;
        };
        let client = &mut self.clients[id.0 as usize];
        let given = client.extended.as_ref().and_then(|own| own.statements.shape(used.since));
        let is_the_same = match given {
            Some(shape) => refused.shape == Some(shape),
            None => refused.was_older,
        };
        let confirms = matches!(server.phase, ServerPhase::Preparing(Preparation::Confirm));
        let was_prepared = !server.statements.is_sure(used.statement.id);
        let again = match failed {
            // Nothing was asked yet: PostgreSQL's own words are had by asking, unless a transaction
            // has failed already, or it was not to be waited for any longer.
            true => {
                let is_cancelled = refused.error.sqlstate() == QUERY_CANCELED;
                confirms && server.status != b'E' && !is_cancelled
            }
            false => confirms || is_the_same,
        };
        let statement = used.statement.id;
        if failed {
            server.statements.doubt(statement);
        } else {
            if was_prepared {
                server.statements.insert(used.statement, serial);
            }
            if let Some(shape) = refused.shape {
                server.statements.set_shape(statement, serial, shape);
            }
        }
        if again {
            // Part of the answer may be the client's already: no other server can give the rest. And
            // what has just been prepared, or cannot be, is not asked about once more.
            client.resent |= !confirms;
            let own = client.extended.get_or_insert_default();
            own.renewed = !confirms;
            if confirms && was_prepared {
                own.questions = QUESTIONS_MAX;
            }
            kept.parameters_given = kept.bytes.first() == Some(&frontend::DESCRIBE);
            client.stream.put_back(&std::mem::take(&mut kept.bytes));
            return self.ready(id, on, now, io);
        }
        self.pass_refusal_on(id, on, &refused, now, io);
        // What was held of the batch is to be discarded up to its Sync.
        if refused.synced { Readable::NotYet } else { Readable::Now }
    }

    fn pass_refusal_on(
        &mut self,
        id: ClientId,
        on: ServerId,
        refused: &Refused,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let mut out = Vec::new();
        backend::error(&mut out, &refused.error);
        if refused.synced {
            backend::ready_for_query(&mut out, b'I');
        }
        io.send_client(id, &out);
        let _ = self.ready(id, on, now, io);
        // It may keep its server, and goes on there.
        io.resume_client(id);
        if refused.synced {
            self.query_done(on, now, io);
        } else {
            self.server_mut(on).ledger.skip_to_sync();
        }
    }
}
