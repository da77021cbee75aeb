//! What a server sends: the ledger says whose it is, and that is where it goes. Rows are passed on
//! as they come, unseen.

use crate::lifecycle::close_reason::CloseReason;
use std::sync::Arc;

use wire::error_fields::ErrorFields;
use wire::messages::{CommandComplete, NotificationResponse, ParameterStatus};
use wire::{HEADER_LEN, Header, backend};

use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{Micros, ServerId};
use crate::notify::listening::Hearing;
use crate::relay::ledger::{Entry, Ledger, Owner, Settled};
use crate::relay::prepared::Shape;
use crate::relay::requests::write_reply;
use crate::relay::resend::may_resend;
use crate::relay::stream::Splice;
use crate::relay::undo::undo;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::pins::Pins;
use crate::session::state::Numbers;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};
use crate::vars::TrackedNames;
use config::PoolMode;

mod parameters;
mod statements;

/// Messages that have to be seen as a whole are not gathered beyond this length. An ErrorResponse
/// that is longer goes through unseen.
const WHOLE_LEN_MAX: usize = 1 << 20;

/// Why the reading of an input stopped.
enum Stop {
    Incomplete,
    /// The server broke the protocol.
    Violation(String),
    /// The client has begun a transaction, in statement mode.
    TransactionBlock,
    /// The server has said that it ends (FATAL), and its client has been told.
    Farewell,
    /// The server has said that it ends; its client need not know.
    Unheard,
}

impl<X: Exchange> Engine<X> {
    pub(crate) fn reply_bytes(
        &mut self,
        on: ServerId,
        bytes: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on.0 as usize];
        let id = server.client;
        let client = id.and_then(|id| self.clients.get_mut(id.0 as usize));
        let Some(view) = self.pools.get_mut(server.pool) else { return };
        view.stats.sent += bytes.len() as u64;
        let joined = server.stream.take_joined(bytes);
        let input = joined.as_deref().unwrap_or(bytes);
        let whole = server.stream.at_boundary();
        // While the client is held back no answer can be meant for it, but what it hears of on a
        // server that it keeps or is working with may come at any time.
        let (client, hearer) = match server.phase {
            ServerPhase::Linked
            | ServerPhase::Preparing(
                Preparation::AwaitCancel
                | Preparation::Probe(_)
                | Preparation::HandOver
                | Preparation::Signal(_),
            ) => (client, None),
            ServerPhase::Preparing(
                Preparation::Unwind | Preparation::Renew | Preparation::Confirm,
            ) => (None, client),
            ServerPhase::Preparing(_) if server.session.pinned.is_some() => (None, client),
            _ => (None, None),
        };
        let mut replies = Replies {
            input,
            at: 0,
            out: Splice::new(input, &mut self.scratch),
            client,
            hearer,
            server,
            names: &self.names,
            settings: &view.settings,
            refused: false,
            farewell: false,
            schema_changed: false,
            transaction_ended: false,
            notified: Vec::new(),
            messages: 0,
        };
        let stop = replies.run();
        let (used, refused) = (replies.at, replies.refused);
        self.messages += replies.messages;
        let notified = std::mem::take(&mut replies.notified);
        if replies.transaction_ended
            && !replies.server.ledger.is_at_rest()
            && let Some(client) = &mut replies.client
        {
            // There is another one behind it.
            client.transaction_at = now;
        }
        if replies.schema_changed {
            // Before anybody can have heard of it.
            self.exchange.schema_changed();
        }
        let out = replies.out.finish();
        // Whoever begins a transaction where there are none is not told that it has begun.
        let unheard = whole && matches!(stop, Stop::TransactionBlock);
        if let (Some(id), false) = (id, out.is_empty() || unheard) {
            io.send_client(id, out);
        }
        match stop {
            Stop::Incomplete => {
                if used < input.len() {
                    server.stream.hold_rest(joined, bytes, used);
                }
                if refused {
                    self.hold_refused(on, now, io);
                }
                if !notified.is_empty() {
                    self.spread(on, &notified);
                }
                self.after_replies(on, now, io);
            }
            Stop::Violation(why) => self.lose_server(on, CloseReason::Said(&why), now, io),
            Stop::TransactionBlock => {
                self.lose_server(on, CloseReason::TransactionBlock, now, io);
            }
            Stop::Unheard => self.lose_server(on, CloseReason::Lost, now, io),
            Stop::Farewell => self.server_left(on, now, io),
        }
    }

    /// All that came is dealt with: where does the server stand now?
    fn after_replies(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on.0 as usize];
        if matches!(server.phase, ServerPhase::Finishing) && server.ledger.in_copy() {
            // It waits for data, which nobody will send, and while it does it heeds no cancel.
            return self.close_server(on, CloseReason::NotReady, now, io);
        }
        if !server.ledger.is_at_rest() || !server.stream.at_boundary() {
            return self.go_on_answered(on, now, io);
        }
        match server.phase {
            ServerPhase::Preparing(_) => self.prepared(on, now, io),
            // A cancel request under way is waited for there.
            ServerPhase::Finishing => self.free(on, now, io),
            ServerPhase::Settling(_) => {
                if server.is_clean() {
                    self.settled(on, now, io);
                } else {
                    self.close_server(on, CloseReason::GotDirty, now, io);
                }
            }
            ServerPhase::Linked => self.query_done(on, now, io),
            ServerPhase::Listening => self.listener_answered(on, now, io),
            ServerPhase::Parked | ServerPhase::Connecting(_) | ServerPhase::Login(_) => {}
        }
    }

    /// What the server's client wants to say next may have waited for no more than what is answered.
    #[cold]
    fn go_on_answered(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server(on);
        let Some(id) = server.client else { return };
        if server.phase.is_signaling()
            && server.ledger.last().is_none()
            && server.stream.at_boundary()
        {
            return self.may_signal(id, on, now, io);
        }
        let awaits = self.client(id).extended.as_ref().map_or(0, |own| own.awaits);
        let waits = matches!(server.phase, ServerPhase::Linked) && awaits != 0;
        // In a copy the server waits for what the client says.
        if waits && (server.ledger.has_answered(awaits) || server.ledger.in_copy()) {
            self.go_on(id, io);
        }
    }

    /// The server owes its client nothing more. Is the transaction over too?
    pub(crate) fn query_done(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on.0 as usize];
        let Some(id) = server.client else { return };
        let Some(view) = self.pools.get_mut(server.pool) else { return };
        let client = &mut self.clients[id.0 as usize];
        view.stats.query_time += now.saturating_sub(client.request_at);
        client.request_at = now;
        let mut awaits_answer = false;
        if let Some(own) = &mut client.extended {
            own.renewed = false;
            own.statements.forget_closes();
            awaits_answer = own.awaits != 0;
        }
        if server.status != b'I' {
            return self.go_on_answered(on, now, io);
        }
        if client.transaction_at != 0 {
            view.stats.transaction_time += now.saturating_sub(client.transaction_at);
            client.transaction_at = 0;
        }
        if awaits_answer {
            return self.go_on_answered(on, now, io);
        }
        // In the middle of a message of the client's the rest of it belongs to this server.
        // Where the replies still to come cannot be counted they are this client's, as long as it
        // stays; nobody else gets the server.
        let keeps = server.mode_in(view.settings.mode) == PoolMode::Session
            || server.replication.is_some()
            || server.ledger.is_ambiguous();
        if keeps || client.stream.is_mid_message() {
            return;
        }
        if server.has_traces() {
            server.session.traces.put_off = false;
            self.review_hold(on, now);
            if self.server(on).has_traces() {
                return self.judge(id, on, now, io);
            }
        }
        self.unlink(id, on, now, io);
    }
}

/// One input of one server under way to its client.
struct Replies<'a> {
    input: &'a [u8],
    at: usize,
    out: Splice<'a>,
    client: Option<&'a mut Client>,
    /// A client that is held back: it is told of notifications, and of nothing else.
    hearer: Option<&'a mut Client>,
    server: &'a mut Server,
    names: &'a TrackedNames,
    settings: &'a PoolSettings,
    /// The server has refused a statement that may only be too old.
    refused: bool,
    /// The server ends, and its client is being told.
    farewell: bool,
    /// Texts may mean something else from now on.
    schema_changed: bool,
    transaction_ended: bool,
    /// Notifications that the listener has for others.
    notified: Vec<Arc<[u8]>>,
    /// How many messages were looked at.
    messages: u64,
}

impl Replies<'_> {
    fn run(&mut self) -> Stop {
        let taken = self.server.stream.take_body(self.input);
        if taken > 0 && !self.server.stream.dropping {
            self.out.pass(0, taken);
        }
        self.at = taken;
        self.write_due();
        let mut rows_pass = self.rows_pass();
        loop {
            let rest = &self.input[self.at..];
            let header = match Header::parse(rest) {
                Ok(Some(header)) => header,
                Ok(None) => return Stop::Incomplete,
                Err(error) => return Stop::Violation(error.to_string()),
            };
            let available = rest.len().min(header.total);
            if is_row(header.code) && rows_pass {
                self.out.pass(self.at, self.at + available);
                self.at += available;
                self.server.stream.remaining = header.total - available;
                self.server.stream.dropping = false;
                continue;
            }
            self.messages += 1;
            let complete = available == header.total;
            if self.wants_whole(header.code) {
                if header.total > WHOLE_LEN_MAX && !may_be_long(header.code) {
                    return Stop::Violation("overlong message from server".into());
                }
                if !complete && header.total <= WHOLE_LEN_MAX {
                    return Stop::Incomplete;
                }
            }
            let body = &rest[HEADER_LEN..available];
            let to_client = match self.message(header.code, body, complete) {
                Ok(Owner::Client) => self.client.is_some(),
                Ok(Owner::Nobody) => false,
                Err(stop) => return stop,
            };
            if to_client {
                self.out.pass(self.at, self.at + available);
            }
            self.at += available;
            self.server.stream.remaining = header.total - available;
            self.server.stream.dropping = !to_client;
            if self.farewell {
                return Stop::Farewell;
            }
            self.write_due();
            rows_pass = self.rows_pass();
        }
    }

    /// Whoever replicates has a session, whatever the pool's mode is, and so has who is pinned.
    fn mode(&self) -> PoolMode {
        match self.server.replication.is_some() || self.server.session.pinned.is_some() {
            true => PoolMode::Session,
            false => self.server.mode_in(self.settings.mode),
        }
    }

    /// Would a row be the client's now? Rows change nothing, so this holds until another message
    /// comes.
    fn rows_pass(&self) -> bool {
        self.client.is_some() && self.server.ledger.rows_are_forwarded()
    }

    /// Must the pooler read this message as a whole?
    fn wants_whole(&self, code: u8) -> bool {
        match code {
            backend::PARAMETER_STATUS
            | backend::ERROR
            | backend::READY_FOR_QUERY
            | backend::COMMAND_COMPLETE => true,
            backend::ROW_DESCRIPTION => {
                self.server.ledger.describes_statement() || self.server.phase.collects_columns()
            }
            backend::DATA_ROW => self.server.phase.collects_rows(),
            backend::NOTIFICATION => {
                matches!(self.server.phase, ServerPhase::Listening)
                    || self.client.as_ref().is_some_and(|client| client.session.is_some())
                    || self.hearer.is_some()
            }
            _ => false,
        }
    }

    fn message(&mut self, code: u8, body: &[u8], complete: bool) -> Result<Owner, Stop> {
        match code {
            backend::PARAMETER_STATUS => {
                let status = ParameterStatus::decode(body)
                    .map_err(|error| Stop::Violation(error.to_string()))?;
                Ok(self.parameter_status(&status))
            }
            backend::NOTICE => Ok(self.server.ledger.bystander()),
            // Not of the ledger: it answers nothing.
            backend::NOTIFICATION => Ok(self.notification(body)),
            backend::ERROR => self.error(body, complete),
            _ => self.reply(code, body),
        }
    }

    #[cold]
    fn notification(&mut self, body: &[u8]) -> Owner {
        if matches!(self.server.phase, ServerPhase::Listening) {
            self.notified.push(body.into());
            return Owner::Nobody;
        }
        self.server.disturbed |= self.server.client.is_none();
        let is_held_back = self.hearer.is_some();
        let Some(client) = self.client.as_deref_mut().or(self.hearer.as_deref_mut()) else {
            return Owner::Client;
        };
        let Ok(said) = NotificationResponse::decode(body) else { return Owner::Client };
        let is_own = said.pid == self.server.process_id;
        let mut pid = said.pid;
        if let Some(session) = &mut client.session {
            let heard = session.listening.as_mut().map(|own| own.hear_server(&said, is_own));
            if heard == Some(Hearing::Drop) {
                return Owner::Nobody;
            }
            // The client knows another number than its server's for its own.
            if is_own {
                pid = client.process_id();
            }
        }
        if pid == said.pid && !is_held_back {
            return Owner::Client;
        }
        backend::notification(self.out.insert(), pid, said.channel, said.payload);
        Owner::Nobody
    }

    fn reply(&mut self, code: u8, body: &[u8]) -> Result<Owner, Stop> {
        let settled = self.settle(code).map_err(Stop::Violation)?;
        if settled.owner == Owner::Nobody {
            if let Some(Some(answer)) = self.server.phase.auth_answer() {
                answer.message(code, body);
            } else if let Some(Some(probe)) = self.server.phase.probe() {
                probe.message(code, body);
            }
        }
        match code {
            backend::READY_FOR_QUERY => {
                let status = body.first().copied().unwrap_or_default();
                if body.len() != 1 || !matches!(status, b'I' | b'T' | b'E') {
                    return Err(Stop::Violation("malformed ReadyForQuery".into()));
                }
                self.server.status = status;
                if status == b'I' {
                    self.transaction_ended |= settled.owner == Owner::Client;
                    // What was prepared meanwhile may have known either schema; and it may have
                    // been rolled back.
                    self.schema_changed |= std::mem::take(&mut self.server.changes_schema);
                }
                if status != b'I'
                    && settled.owner == Owner::Client
                    && self.mode() == PoolMode::Statement
                {
                    return Err(Stop::TransactionBlock);
                }
            }
            backend::COMMAND_COMPLETE => {
                let tag = CommandComplete::decode(body).map_or(&b""[..], |done| done.tag);
                if settled.owner == Owner::Client && !self.server.session.traces.is_empty() {
                    self.server.session.traces.outcome.completed(tag);
                }
                self.command_complete(tag, settled.serial);
            }
            backend::ROW_DESCRIPTION | backend::NO_DATA if settled.statement != 0 => {
                let shape = match code {
                    backend::NO_DATA => Some(Shape::NONE),
                    _ => Shape::of_rows(body),
                };
                self.described(&settled, shape);
            }
            backend::PARSE_COMPLETE if settled.taken.is_some() => {
                // It went through although the name was taken when it was sent: the server's
                // statement of that name is not what we believe.
                self.server.doomed = Some(CloseReason::OutOfStep);
                self.server.statements.remove(settled.statement);
            }
            _ => {}
        }
        Ok(settled.owner)
    }

    /// A command has done what its tag says.
    fn command_complete(&mut self, tag: &[u8], serial: u64) {
        // Nearly all are none of those below.
        let Some(b'A' | b'C' | b'D' | b'R') = tag.first() else { return };
        if is_change_of_schema(tag) {
            self.schema_changed = true;
            self.server.changes_schema = true;
        }
        match tag {
            b"RESET" => self.server.was_reset(false, self.mode()),
            b"DISCARD SEQUENCES" => {
                self.numbers_discarded();
                if let Some(pinned) = &mut self.server.session.pinned {
                    pinned.pins = pinned.pins.without(Pins::SEQUENCE);
                }
            }
            b"DISCARD ALL" => {
                self.numbers_discarded();
                self.server.was_reset(true, self.mode());
                if let Some(pinned) = &mut self.server.session.pinned {
                    pinned.pins = pinned.pins.lasting();
                }
                self.statements_discarded(serial);
                self.end_session();
            }
            b"DEALLOCATE ALL" => self.statements_discarded(serial),
            b"DEALLOCATE" => self.statement_deallocated(serial),
            _ => {}
        }
    }

    /// Nothing is left of the session. If the pool is in auto mode by now that is the client's, too,
    /// as soon as nothing more is on its way to the server.
    fn end_session(&mut self) {
        let is_late = self.server.mode == PoolMode::Session && self.settings.is_auto();
        if !is_late || !self.server.ledger.only_awaits_ready() {
            return;
        }
        self.server.mode = PoolMode::Auto;
        if let Some(client) = &mut self.client {
            client.vars = self.server.vars.clone();
        }
    }

    /// Message `serial` has deallocated a statement by its name. If that was lent to the server, the
    /// client has lost it.
    fn statement_deallocated(&mut self, serial: u64) {
        let Some(name) = self.server.session.deallocations.take(serial) else { return };
        self.server.session.lent.remove(&name);
        let extended = self.client.as_mut().and_then(|client| client.extended.as_mut());
        let own = extended.map(|extended| &mut extended.statements);
        if let Some(own) = own
            && own.changed(&name).is_some_and(|since| since < serial)
        {
            own.remove(&name);
        }
    }

    /// All statements are gone but those that were made behind the message with that serial number.
    fn statements_discarded(&mut self, serial: u64) {
        self.server.session.traces.deallocates = true;
        self.server.statements.discard_before(serial);
        self.server.session.lent.retain(|_, lent| lent.since > serial);
        if let Some(extended) = self.client.as_mut().and_then(|client| client.extended.as_mut()) {
            extended.statements.discard_before(serial);
        }
    }

    /// What the client draws from now on is all there is.
    fn numbers_discarded(&mut self) {
        let own = self.client.as_ref().map(|client| Numbers::Of(client.serial));
        self.server.session.numbers = own.unwrap_or_default();
    }

    fn error(&mut self, body: &[u8], complete: bool) -> Result<Owner, Stop> {
        let fields = ErrorFields::decode(body).ok().filter(|_| complete);
        let ends = fields.as_ref().is_some_and(ErrorFields::ends_session);
        let moves = |client: &&mut Client| may_resend(client, self.server, self.mode());
        if ends && self.client.as_ref().is_some_and(moves) && self.server.may_be_replaced() {
            return Err(Stop::Unheard);
        }
        let settled = self.settle(backend::ERROR).map_err(Stop::Violation)?;
        if settled.owner == Owner::Nobody {
            match fields {
                Some(fields) => self.own_error(fields),
                None => self.server.own_error = Some(String::new()),
            }
            return Ok(Owner::Nobody);
        }
        let is_farewell = settled == Settled::unowed();
        // A client that has had its answers is about to lose this server anyway.
        let is_done = self.mode() != PoolMode::Session && self.server.is_clean();
        if is_farewell && (self.client.is_none() || is_done) {
            self.server.doomed = Some(CloseReason::GotDirty);
            return Ok(Owner::Nobody);
        }
        if self.client.is_none() {
            return Ok(Owner::Nobody);
        }
        self.farewell = ends;
        self.server.session.traces.outcome.doubtful = true;
        if settled.statement != 0
            && let Some(fields) = fields
        {
            return Ok(self.statement_error(fields, &settled));
        }
        Ok(Owner::Client)
    }

    /// Show a message to the ledger; undo what it makes void.
    fn settle(&mut self, code: u8) -> Result<Settled, String> {
        self.write_due();
        let Server { ledger, statements, unnamed, session, .. } = &mut *self.server;
        let client = &mut self.client;
        ledger
            .reply(code, &mut |entry: Entry| {
                undo(entry, statements, unnamed, &mut session.lent, client.as_deref_mut())
            })
            .map_err(|error| error.to_string())
    }

    /// Made-up replies, unless the message before them is not at its end yet.
    // Asked for behind each message, and hardly ever anything: a call would cost 3 % of a transaction.
    #[inline(always)]
    fn write_due(&mut self) {
        let ledger: &mut Ledger = &mut self.server.ledger;
        if self.server.stream.remaining > 0 || ledger.awaits_server() {
            return;
        }
        while let Some(reply) = ledger.next_synthesized() {
            write_reply(reply, self.out.insert());
        }
    }
}

/// The bulk of what servers send.
fn is_row(code: u8) -> bool {
    matches!(code, backend::DATA_ROW | backend::COPY_DATA)
}

/// Messages that are read as a whole, but if they are too long go through unseen.
fn may_be_long(code: u8) -> bool {
    matches!(code, backend::ERROR | backend::ROW_DESCRIPTION)
}

/// Can a text mean something else behind this command? What a function does to the schema, or
/// somebody who is not our client, does not show.
fn is_change_of_schema(tag: &[u8]) -> bool {
    [&b"CREATE "[..], b"ALTER ", b"DROP "].iter().any(|word| tag.starts_with(word))
}
