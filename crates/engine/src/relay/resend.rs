//! Sends a request once more. There are two cases: the server was lost before the request had an
//! effect, or the server refused or lost a statement that a client had prepared. `kept_request.rs`
//! says which requests may be sent again, and why no others.
//!
//! ```text
//!                                      outdated
//!                                          ▼
//!  refused ─► Unwind (end of the batch) ─► Renew (close, parse, describe) ─┬─ same shape ─► again
//!                                                                          └─ other ─► the error
//! ```
//!
//! A request is also held back if Weir does not know whether the server's copy still returns what
//! the client was told (`confirm_shape`). `Confirm` prepares the statement again, as Renew does.
//! The result decides whether the request is handled or refused.
//!
//! If the client's text now has another meaning, the copy is only described. If that fails, Weir
//! asks about the new meaning next (`substitute.rs`).
//!
//! Both are limited (`repeats.rs`): a request is sent again once, and a Bind is held back twice.

use config::PoolMode;
use wire::sqlstate::QUERY_CANCELED;
use wire::{backend, frontend};

use crate::client::Client;
use crate::ids::{ClientId, Waiter};
use crate::lifecycle::pair::{self, Pair};
use crate::relay::batch_end::BatchEnd;
use crate::relay::kept_request::{Outline, Refused, Used};
use crate::relay::ledger::Expect;
use crate::relay::prepared::{DOUBTFUL, Statement};
use crate::relay::requests::write_reply;
use crate::relay::substitute::substitute;
use crate::relay::undo::undo;
use crate::server::{Preparation, Server, ServerPhase};
use crate::shell::{Exchange, Io};

/// The effect of the answers to Renew or Confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// No refused batch is held.
    Nothing,
    /// The batch is handled once more, after a new preparation if `prepares`.
    Again { prepares: bool },
    /// The client was told the error. Its batch ends like this.
    Refused(BatchEnd),
}

/// May a request move to another server? Not if the client's session, or a pin, belongs to this
/// one, and not if the client has got half a message from it. Not a second time either: the request
/// may be what ended two servers.
pub(crate) fn may_resend(client: &Client, server: &Server, mode: PoolMode) -> bool {
    let has_session = mode == PoolMode::Session || server.is_pinned();
    !client.resent.is_so()
        && client.replication.is_none()
        && !has_session
        && !server.stream.is_mid_message()
}

impl Client {
    /// Has left its server. The request is handled again, by another one.
    pub(crate) fn take_back(&mut self, request: &[u8]) {
        self.resent.note();
        self.await_nothing();
        self.phase.unlink();
        self.stream.put_back(request);
    }
}

impl Server {
    /// Has the last request had no effect and no answer, so that another server can take it?
    pub(crate) fn may_be_replaced(&self) -> bool {
        self.unanswered_request().is_some_and(Outline::may_move)
    }

    /// Can the last request have no effect at all, and has it no answer?
    pub(crate) fn has_harmless_request(&self) -> bool {
        self.unanswered_request().is_some_and(|outline| !outline.has_effect)
    }

    /// Returns the outline of the last request, if nothing of it is answered.
    fn unanswered_request(&self) -> Option<&Outline> {
        let outline = self.kept.outline()?;
        let is_unanswered = outline.first != 0
            && self.ledger.is_unanswered(outline.first)
            && !self.stream.is_mid_message();
        is_unanswered.then_some(outline)
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// The server is lost. If its client's request has had no effect and no answer, it is taken for
    /// another server.
    pub(crate) fn take_kept(&mut self) -> Option<Vec<u8>> {
        let (client, server) = (&*self.client, &*self.server);
        if !server.may_be_replaced() || !may_resend(client, server, self.mode()) {
            return None;
        }
        Some(self.server.kept.take_bytes())
    }

    /// Takes the client from its lost server. Another server gets the same bytes.
    pub(crate) fn take_request_back(&mut self, request: &[u8], io: &mut impl Io<X>) {
        answer_due(self.id, self.server, io);
        abandon(self.client, self.server);
        pair::part(self.client, self.server);
        self.client.take_back(request);
    }

    /// The server has refused the statement that begins its client's batch. The client is held back
    /// until the cause is known.
    pub(crate) fn hold_refused(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let (client, server) = (&mut *self.client, &mut *self.server);
        server.phase.ask(Preparation::Unwind);
        server.begin_to_ask(now);
        let is_synced = server.kept.refused_end() == Some(BatchEnd::Synced);
        client.phase.hold_back(Waiter::served(self.id, server.pool, now));
        // The server discards a half-sent message, whatever its rest is. So Weir fills it up with
        // zeros and drops the client's rest, even of a CopyData after the Sync.
        let mut messages = Vec::new();
        if client.stream.is_mid_message() {
            messages.resize(client.stream.remaining(), 0);
            client.stream.drop_rest();
        }
        let mut expected = &[][..];
        if !is_synced {
            frontend::sync(&mut messages);
            expected = &[Expect::Sync];
        }
        server.ask(self.on, expected, 0, &messages, self.context, io);
    }

    /// The statement may not return on this server what the client was told. The request is held
    /// back until Weir knows.
    pub(crate) fn confirm_shape(&mut self, used: Used, io: &mut impl Io<X>) {
        let now = io.now();
        let (client, server) = (&mut *self.client, &mut *self.server);
        server.kept.confirm(used);
        server.begin_to_ask(now);
        client.phase.hold_back(Waiter::served(self.id, server.pool, now));
        client.extended_mut().repeats.ask();
        self.renew(Preparation::Confirm, io);
    }

    /// Evicts statements, before the server gets one more.
    fn make_room(&mut self, io: &mut impl Io<X>) {
        let limit = self.pool.view.settings.max_prepared_statements;
        let mut messages = Vec::new();
        let mut closed = 0;
        while let Some(old) = self.server.statements.evict(limit) {
            frontend::close_statement(&mut messages, &old.server_name);
            closed += 1;
        }
        self.server.ask(self.on, &vec![Expect::Close; closed], 0, &messages, self.context, io);
    }

    /// The server is ready for the next message: the refused batch, if any, is over. Prepares the
    /// statement again, or its current meaning.
    pub(crate) fn renew(&mut self, step: Preparation, io: &mut impl Io<X>) {
        let (client, server) = (&*self.client, &*self.server);
        let used = server.kept.outline().and_then(|outline| outline.uses.clone());
        let Some(Used { mut statement, .. }) = used else { return };
        let names = &self.context.names;
        if let Some(other) = substitute(&statement, client, server, names, self.pool.exchange) {
            if server.statements.is_sure(statement.id) {
                return self.describe_copy(step, &statement, io);
            }
            statement = other;
        }
        if server.statements.since(statement.id).is_none() {
            self.make_room(io);
        }
        let server = &mut *self.server;
        server.kept.substitute(&statement);
        server.phase.ask(step);
        // The statement stays in doubt until the answer arrives: the client may leave before that.
        server.statements.insert(statement.clone(), DOUBTFUL);
        let mut messages = Vec::new();
        frontend::close_statement(&mut messages, &statement.server_name);
        frontend::parse(&mut messages, &statement.server_name, &statement.sql, &statement.types);
        frontend::describe_statement(&mut messages, &statement.server_name);
        frontend::sync(&mut messages);
        let expected = [Expect::Close, Expect::Parse, Expect::Describe, Expect::Sync];
        server.ask(self.on, &expected, statement.id, &messages, self.context, io);
    }

    /// The server's copy has the meaning from when it was prepared, and the client's text now has
    /// another. So the copy is not prepared again: it is only asked what it returns.
    fn describe_copy(&mut self, step: Preparation, statement: &Statement, io: &mut impl Io<X>) {
        self.server.phase.ask(step);
        let mut messages = Vec::new();
        frontend::describe_statement(&mut messages, &statement.server_name);
        frontend::sync(&mut messages);
        let expected = [Expect::Describe, Expect::Sync];
        self.server.ask(self.on, &expected, statement.id, &messages, self.context, io);
    }

    /// The answers to Renew or Confirm are complete.
    pub(crate) fn renewed(&mut self, io: &mut impl Io<X>) -> Renewed {
        let serial = self.context.next_serial();
        let mode = self.mode();
        let (client, server) = (&mut *self.client, &mut *self.server);
        let failed = server.own_error.take().is_some();
        let Some((refused, used)) = server.kept.end_refusal() else { return Renewed::Nothing };
        let given = client.extended.as_ref().and_then(|own| own.statements.shape(used.since));
        let is_the_same = match given {
            Some(shape) => refused.shape == Some(shape),
            None => refused.was_older || refused.is_lost,
        };
        let confirms = matches!(*server.phase, ServerPhase::Preparing(Preparation::Confirm));
        let was_prepared = !server.statements.is_sure(used.statement.id);
        let again = match failed {
            // Weir sent nothing of the client's request yet. Sending it makes PostgreSQL report its
            // own error, unless the transaction has already failed or the query was cancelled.
            true => {
                let is_cancelled = refused.error.sqlstate() == QUERY_CANCELED.as_bytes();
                confirms && !server.status.is_failed() && !is_cancelled
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
            // The client may already have part of the answer, so no other server can give the rest.
            // A statement that was just prepared, or that cannot be, is not asked about again.
            if !confirms {
                client.resent.note();
            }
            let repeats = &mut client.extended_mut().repeats;
            repeats.again(!confirms);
            if confirms && was_prepared {
                repeats.ask_no_more();
            }
            client.stream.put_back(&server.kept.take_again(refused.is_lost));
            // A reload may have changed the server's values meanwhile.
            return Renewed::Again { prepares: server.is_as_prepared(mode) };
        }
        self.pass_refusal_on(&refused, io);
        Renewed::Refused(refused.end)
    }

    fn pass_refusal_on(&mut self, refused: &Refused, io: &mut impl Io<X>) {
        let mut out = Vec::new();
        backend::error(&mut out, &refused.error);
        if refused.end == BatchEnd::Synced {
            backend::ready_for_query(&mut out, b'I');
        }
        io.send_client(self.id, &out);
    }
}

/// Forgets the requests that the lost server has not answered. They count as messages without an
/// effect.
pub(crate) fn abandon(client: &mut Client, server: &mut Server) {
    let statements = &mut server.statements;
    let (unnamed, session) = (&mut server.unnamed, &mut server.session);
    server.ledger.abandon(&mut |entry| undo(entry, statements, unnamed, session, Some(client)));
}

impl Server {
    /// Has it run nothing of its client's since it was prepared for the client? `mode` is the mode in
    /// which it is used.
    fn is_as_prepared(&self, mode: PoolMode) -> bool {
        self.status.is_idle() && !self.has_traces() && mode != PoolMode::Session
    }
}

/// Gives the client the made-up replies before its request. They need no server, so they are due
/// now.
pub(crate) fn answer_due<X: Exchange>(id: ClientId, server: &mut Server, io: &mut impl Io<X>) {
    let mut due = Vec::new();
    for reply in server.ledger.take_due() {
        write_reply(reply, &mut due);
    }
    if !due.is_empty() {
        io.send_client(id, &due);
    }
}
