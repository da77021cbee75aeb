//! Passes a server's messages on. The ledger says who gets each message. Rows go through without
//! being looked at.

use std::sync::Arc;

use config::PoolMode;
use wire::error_fields::ErrorFields;
use wire::messages::{CommandComplete, NotificationResponse, ParameterStatus};
use wire::{HEADER_LEN, Header, backend};

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::ids::Micros;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::reserved;
use crate::notify::listening::Hearing;
use crate::relay::ledger::{Entry, Ledger, Owner, Settled};
use crate::relay::prepared::Shape;
use crate::relay::requests::write_reply;
use crate::relay::resend::may_resend;
use crate::relay::stream::Splice;
use crate::relay::undo::undo;
use crate::server::{Preparation, Server, ServerPhase};
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};
use crate::vars::{Slots, TrackedNames};

mod answered;
mod commands;
mod farewell;
mod parameters;
mod readers;
mod statements;

pub(crate) use answered::{Answered, Awaited, Done, await_boundary};
pub(crate) use readers::note_read;

/// Messages that Weir reads as a whole are gathered up to this length. A longer ErrorResponse is
/// passed on without being read.
const WHOLE_LEN_MAX: usize = 1 << 20;

/// PostgreSQL's warning that it has removed a setting is not longer.
const REMOVAL_LEN_MAX: usize = 4096;

/// Why the reading of an input stopped.
pub(crate) enum Stop {
    Incomplete,
    /// The settings that were sent ahead of the request are answered.
    Ahead,
    /// The server broke the protocol.
    Violation(String),
    /// The client has begun a transaction, which statement mode forbids.
    TransactionBlock,
    /// The server has announced its end (FATAL), and its client has been told.
    Farewell,
    /// The server has announced its end. Its client need not be told.
    Unheard,
}

/// News that concern more than the server's client.
#[derive(Clone, Copy, Default)]
pub(crate) struct News {
    /// The schema has changed, so texts may have another meaning from now on.
    pub(crate) schema_changed: bool,
    /// The server's node is no standby any more.
    pub(crate) left_recovery: bool,
    /// The server has reported that.
    pub(crate) promoted: bool,
    /// A state report has not the form that Weir knows.
    pub(crate) bad_report: bool,
    /// The server's own defaults of these parameters have changed.
    pub(crate) defaults: Slots,
}

impl News {
    /// Does anything of it concern the pool?
    #[inline(always)]
    pub(crate) fn concerns_pool(&self) -> bool {
        self.bad_report || self.promoted || !self.defaults.is_empty()
    }

    /// Applies what concerns the pool of the server.
    #[cold]
    pub(crate) fn tell_pool<X: Exchange>(
        self,
        pool: &mut OnePool<'_, X>,
        server: &mut Server,
        names: &TrackedNames,
        io: &mut impl Io<X>,
    ) {
        if self.bad_report {
            pool.view.note_bad_report(io);
        }
        if self.promoted || !self.defaults.is_empty() {
            pool.defaults_changed(server, self.defaults, self.promoted, names);
        }
    }
}

/// Returns the client that gets the server's replies, or else the client that is held back. A client
/// that is held back gets notifications only: PostgreSQL may send these at any time.
#[inline(always)]
fn receivers<'a>(
    server: &Server,
    client: Option<&'a mut Client>,
) -> (Option<&'a mut Client>, Option<&'a mut Client>) {
    match *server.phase {
        ServerPhase::Linked
        | ServerPhase::Preparing(
            Preparation::AwaitCancel
            | Preparation::Probe(_)
            | Preparation::HandOver
            | Preparation::Signal(_),
        ) => (client, None),
        ServerPhase::Preparing(Preparation::Unwind | Preparation::Renew | Preparation::Confirm) => {
            (None, client)
        }
        ServerPhase::Preparing(_) if server.is_pinned() => (None, client),
        ServerPhase::Connecting(_)
        | ServerPhase::Login(_)
        | ServerPhase::Parked
        | ServerPhase::Preparing(_)
        | ServerPhase::Finishing
        | ServerPhase::Settling(_)
        | ServerPhase::Listening
        | ServerPhase::Attending { .. } => (None, None),
    }
}

/// One input from one server, on its way to the client.
pub(crate) struct Replies<'a, 'out> {
    input: &'out [u8],
    pub(crate) at: usize,
    pub(crate) out: Splice<'out>,
    client: Option<&'a mut Client>,
    /// A client that is held back. It gets notifications and nothing else.
    hearer: Option<&'a mut Client>,
    server: &'a mut Server,
    names: &'a TrackedNames,
    settings: &'a PoolSettings,
    now: Micros,
    /// The requests whose end the server owed before this input.
    requests: u32,
    /// The server has refused a statement. Its copy of the statement may be outdated.
    pub(crate) refused: bool,
    /// The server ends, and its client is told.
    farewell: bool,
    /// The settings that were sent ahead of the client's request are answered.
    ahead_answered: bool,
    pub(crate) news: News,
    pub(crate) transaction_ended: bool,
    /// Notifications that the listener forwards to other clients.
    pub(crate) notified: Vec<Arc<[u8]>>,
    /// Number of messages that were looked at.
    pub(crate) messages: u64,
}

impl<'a, 'out> Replies<'a, 'out> {
    #[inline(always)]
    pub(crate) fn new(
        input: &'out [u8],
        out: Splice<'out>,
        client: Option<&'a mut Client>,
        server: &'a mut Server,
        names: &'a TrackedNames,
        settings: &'a PoolSettings,
        now: Micros,
    ) -> Self {
        let (client, hearer) = receivers(server, client);
        Self {
            input,
            at: 0,
            out,
            client,
            hearer,
            requests: server.ledger.requests(),
            server,
            names,
            settings,
            now,
            refused: false,
            farewell: false,
            ahead_answered: false,
            news: News::default(),
            transaction_ended: false,
            notified: Vec::new(),
            messages: 0,
        }
    }
}

impl Replies<'_, '_> {
    #[inline(always)]
    pub(crate) fn run(&mut self) -> Stop {
        let stop = self.pass();
        self.note_pace();
        if self.transaction_ended
            && (!self.server.ledger.is_at_rest() || !self.server.status.is_idle())
            && let Some(client) = &mut self.client
        {
            // The next transaction has already begun.
            self.server.stages.follow_on(client);
            client.times.transaction_begins(self.now);
            self.server.leave_unjudged();
        }
        stop
    }

    /// Has a transaction ended in a pool with routing? Then returns the client's serial number.
    #[inline(always)]
    pub(crate) fn routed_end(&self) -> Option<u64> {
        let is_routed = self.transaction_ended && self.settings.routing.is_some();
        self.client.as_ref().filter(|_| is_routed).map(|client| client.serial)
    }

    fn pass(&mut self) -> Stop {
        let taken = self.server.stream.take_body(self.input);
        if taken > 0 && !self.server.stream.is_dropping() {
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
                self.server.stream.handled(header.total - available, false);
                continue;
            }
            self.messages += 1;
            let complete = available == header.total;
            if self.wants_whole(header) {
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
            self.server.stream.handled(header.total - available, !to_client);
            if self.farewell {
                return Stop::Farewell;
            }
            if self.ahead_answered {
                return Stop::Ahead;
            }
            self.write_due();
            rows_pass = self.rows_pass();
        }
    }

    /// Measures how fast the server answers a client that is ahead.
    #[inline(always)]
    fn note_pace(&mut self) {
        if self.server.ledger.is_deep(self.requests)
            && let Some(client) = &mut self.client
        {
            note_pace(client, &mut self.server.ledger, self.requests, self.now);
        }
    }

    /// A server that replicates or is pinned counts as session mode, whatever the pool's mode.
    fn mode(&self) -> PoolMode {
        match self.server.replication.is_some() || self.server.is_pinned() {
            true => PoolMode::Session,
            false => self.server.mode_in(self.settings.mode),
        }
    }

    /// Would a row go to the client now? Rows change nothing, so the answer holds until another
    /// message arrives.
    fn rows_pass(&self) -> bool {
        self.client.is_some() && self.server.ledger.rows_are_forwarded()
    }

    /// Must Weir read this message as a whole?
    fn wants_whole(&self, header: Header) -> bool {
        match header.code {
            backend::PARAMETER_STATUS
            | backend::ERROR
            | backend::READY_FOR_QUERY
            | backend::COMMAND_COMPLETE => true,
            backend::NOTICE => {
                self.server.mode == PoolMode::Auto && header.total <= REMOVAL_LEN_MAX
            }
            backend::ROW_DESCRIPTION => {
                self.server.ledger.describes_statement() || self.server.phase.collects_columns()
            }
            backend::DATA_ROW => self.server.phase.collects_rows(),
            backend::NOTIFICATION => {
                matches!(*self.server.phase, ServerPhase::Listening)
                    || self.client.as_ref().is_some_and(|client| client.session.is_some())
                    || self.hearer.is_some()
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn message(&mut self, code: u8, body: &[u8], complete: bool) -> Result<Owner, Stop> {
        match code {
            backend::PARAMETER_STATUS => {
                let status = ParameterStatus::decode(body)
                    .map_err(|error| Stop::Violation(error.to_string()))?;
                Ok(self.parameter_status(&status))
            }
            backend::NOTICE => Ok(self.notice(body)),
            // The ledger is not asked: a notification answers nothing.
            backend::NOTIFICATION => Ok(self.notification(body)),
            backend::ERROR => self.error(body, complete),
            _ => self.reply(code, body),
        }
    }

    /// A client at rest that may only ask for a number gets no notice of its server's end.
    fn notice(&self, body: &[u8]) -> Owner {
        match &self.client {
            Some(client) if self.server.is_only_held(client) => Owner::Nobody,
            Some(client)
                if self.server.mode == PoolMode::Auto
                    && reserved::is_removal(body)
                    && !reserved::concerns(body, client, self.server) =>
            {
                Owner::Nobody
            }
            _ => self.server.ledger.bystander(),
        }
    }

    #[cold]
    fn notification(&mut self, body: &[u8]) -> Owner {
        if matches!(*self.server.phase, ServerPhase::Listening) {
            self.notified.push(body.into());
            return Owner::Nobody;
        }
        if let Some(session) = self.server.session.get_mut() {
            session.disturbed |= self.server.client.is_none();
        }
        let is_held_back = self.hearer.is_some();
        let Some(client) = self.client.as_deref_mut().or(self.hearer.as_deref_mut()) else {
            return Owner::Client;
        };
        let Ok(said) = NotificationResponse::decode(body) else { return Owner::Client };
        let is_own = said.pid == self.server.key.pid;
        let mut pid = said.pid;
        if let Some(session) = &mut client.session {
            let heard = session.listening.as_mut().map(|own| own.hear_server(&said, is_own));
            if heard == Some(Hearing::Drop) {
                return Owner::Nobody;
            }
            // The client was told another process id at login than its server's.
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
        let settled = self.ask_ledger(code).map_err(Stop::Violation)?;
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
                self.server.status.ready(status, settled.owner == Owner::Client);
                self.server.times.query_begins(self.now);
                let is_ahead =
                    matches!(*self.server.phase, ServerPhase::Preparing(Preparation::Ahead(_)));
                self.ahead_answered = is_ahead && settled.owner == Owner::Nobody;
                if status == b'I' {
                    self.transaction_ended |= settled.owner == Owner::Client;
                    // A statement that was prepared in between may have seen either schema, and the
                    // change may have been rolled back.
                    if let Some((schema, reported)) = self.server.changes.end_transaction() {
                        self.news.schema_changed |= schema;
                        self.explain(&reported);
                    }
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
                if settled.owner == Owner::Client {
                    self.server.status.succeeds();
                    self.server.note_completed(tag);
                }
                self.command_complete(tag, settled.serial);
            }
            backend::PORTAL_SUSPENDED | backend::FUNCTION_CALL_RESPONSE => {
                if let Some(session) = self.server.session.get_mut() {
                    session.traces.outcome.ran = true;
                }
            }
            backend::ROW_DESCRIPTION | backend::NO_DATA if settled.statement != 0 => {
                let shape = match code {
                    backend::NO_DATA => Some(Shape::NONE),
                    _ => Shape::of_rows(body),
                };
                self.described(&settled, shape);
            }
            backend::PARSE_COMPLETE if settled.taken.is_some() => {
                // The Parse succeeded although Weir believed that the name was in use. So Weir's
                // record of the server's statements is wrong.
                self.server.doomed.condemn(CloseReason::OutOfStep);
                self.server.statements.remove(settled.statement);
            }
            _ => {}
        }
        Ok(settled.owner)
    }

    fn error(&mut self, body: &[u8], complete: bool) -> Result<Owner, Stop> {
        let fields = ErrorFields::decode(body).ok().filter(|_| complete);
        let ends = fields.as_ref().is_some_and(ErrorFields::ends_session);
        let moves = |client: &&mut Client| may_resend(client, self.server, self.mode());
        if ends && self.client.as_ref().is_some_and(moves) && self.server.may_be_replaced() {
            return Err(Stop::Unheard);
        }
        if ends && self.is_outlived(fields.as_ref()) {
            return Err(Stop::Unheard);
        }
        let is_executed = self.server.ledger.rows_are_forwarded();
        let settled = self.ask_ledger(backend::ERROR).map_err(Stop::Violation)?;
        if settled.owner == Owner::Nobody {
            match fields {
                Some(fields) => self.own_error(fields),
                None => self.keep_own_error(ErrorFields::default()),
            }
            return Ok(Owner::Nobody);
        }
        let is_farewell = settled == Settled::unowed();
        // After its last answer, the client gives this server back anyway.
        let is_held = self.client.as_ref().is_some_and(|client| self.server.is_only_held(client));
        let is_done = is_held || (self.mode() != PoolMode::Session && self.server.is_clean());
        if is_farewell && (self.client.is_none() || is_done) {
            self.server.doomed.condemn(CloseReason::GotDirty);
            return Ok(Owner::Nobody);
        }
        if self.client.is_none() {
            return Ok(Owner::Nobody);
        }
        self.farewell = ends;
        self.server.note_failed(is_executed);
        let owner = match fields {
            Some(fields) if settled.statement != 0 => self.statement_error(fields, &settled),
            Some(_) | None => Owner::Client,
        };
        // The client does not see an error after which its request is sent again.
        if !self.refused {
            self.server.status.error();
        }
        Ok(owner)
    }

    /// Shows a message to the ledger, and undoes the messages that it makes void.
    fn ask_ledger(&mut self, code: u8) -> Result<Settled, String> {
        self.write_due();
        let Server { ledger, statements, unnamed, session, .. } = &mut *self.server;
        let client = &mut self.client;
        ledger
            .reply(code, &mut |entry: Entry| {
                undo(entry, statements, unnamed, session, client.as_deref_mut())
            })
            .map_err(|error| error.to_string())
    }

    /// Writes the made-up replies that are due, unless the message before them is incomplete.
    // Inlined: it runs after each message and rarely writes. A call cost 3 % of a transaction.
    #[inline(always)]
    fn write_due(&mut self) {
        let ledger: &mut Ledger = &mut self.server.ledger;
        if self.server.stream.remaining() > 0 || ledger.awaits_server() {
            return;
        }
        while let Some(reply) = ledger.next_synthesized() {
            write_reply(reply, self.out.insert());
        }
    }
}

/// The server has answered some of the requests of a client that is ahead. `before` were under way.
#[cold]
fn note_pace(client: &mut Client, ledger: &mut Ledger, before: u32, now: Micros) {
    let pace = &mut client.extended.get_or_insert_default().pace;
    pace.note(before.saturating_sub(ledger.requests()), before, now);
    ledger.set_depth(pace.depth);
}

/// Most of what servers send.
fn is_row(code: u8) -> bool {
    matches!(code, backend::DATA_ROW | backend::COPY_DATA)
}

/// Messages that Weir reads as a whole unless they are too long. Longer ones go through unread.
fn may_be_long(code: u8) -> bool {
    matches!(code, backend::ERROR | backend::NOTICE | backend::ROW_DESCRIPTION)
}
