//! Which statements a server has, and under which names: the part of a client's requests that makes
//! and finds prepared statements on whatever server it was given.

use std::sync::Arc;

use sql::Signs;
use wire::frontend;
use wire::messages::Parse;

use super::Requests;
use super::numbers::is_lone_set;
use super::texts::text_of;
use crate::relay::kept_request::{QUESTIONS_MAX, Used};
use crate::relay::ledger::{Entry, Expect, Reply, Undo, Verb};
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::{DOUBTFUL, Found, SERVER_NAME_PREFIX, Shape, Statement};
use crate::relay::substitute;
use crate::shell::Exchange;

/// A statement's name on the server.
pub(super) enum Name {
    AsItIs,
    Statement(Found),
    Unknown(Vec<u8>),
    /// What it returns on this server may not be what the client was told, and can be found out.
    Outdated(Used),
    /// What it returns on this server is not what the client was told.
    Changed(Found),
}

/// Of a message that names a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Bind,
    Describe,
}

impl<X: Exchange> Requests<'_, X> {
    /// What a text means that is parsed now.
    pub(super) fn parse_context(&self) -> ParseContext {
        substitute::parse_context(self.client, self.server, self.names, self.next_serial())
    }

    /// What has to be prepared in the statement's place, which the server has not got.
    #[cold]
    fn substitute(&mut self, statement: &Statement) -> Option<Arc<Statement>> {
        substitute::substitute(statement, self.client, self.server, self.names, self.exchange)
    }

    pub(super) fn parse_named(&mut self, parse: &Parse<'_>, context: ParseContext) {
        if let Some(found) = self.extended().statements.find(parse.name) {
            // Let the server itself say that the name is taken (42P05), after anything else that
            // is wrong with the text: under the existing name the message must fail.
            let existing = self.prepare(found.used.statement);
            frontend::parse(self.out.insert(), &existing.server_name, parse.sql, parse.types_raw);
            self.stats.server_parses += 1;
            let mut entry = Entry::new(Expect::Parse, Verb::Replace)
                .undo(Undo::Taken { name: parse.name.into() });
            entry.statement = existing.id;
            self.owe(entry);
            return;
        }
        let statement = self.exchange.intern(parse.sql, parse.types_raw, context);
        let name: Arc<[u8]> = parse.name.into();
        // In a failed transaction the server must have its say about the text; and while a
        // ReadyForQuery is awaited nobody knows whether this is one.
        let is_certain = self.server.status != b'E' && !self.server.ledger.awaits_ready();
        let serial;
        if is_certain && self.has(&statement) && !self.server.ledger.owes_many() {
            serial = self.next_serial();
            let undo =
                Undo::Parse { name: name.clone(), statement: statement.clone(), sent: false };
            self.owe(Entry::new(Expect::Parse, Verb::Synthesize(Reply::ParseComplete)).undo(undo));
        } else {
            // What it names is looked up when it is prepared, for its columns.
            self.lend_for(&statement);
            self.make_room(&statement);
            serial = self.next_serial();
            frontend::parse(self.out.insert(), &statement.server_name, parse.sql, parse.types_raw);
            self.stats.server_parses += 1;
            self.server.statements.insert(statement.clone(), serial);
            let undo = Undo::Parse { name: name.clone(), statement: statement.clone(), sent: true };
            let mut entry = Entry::new(Expect::Parse, Verb::Replace).undo(undo);
            entry.statement = statement.id;
            self.owe(entry);
        }
        self.extended().statements.insert(name, statement, serial);
    }

    /// See to it that the server knows the statement, or what stands for it there.
    pub(super) fn prepare(&mut self, statement: Arc<Statement>) -> Arc<Statement> {
        if self.has(&statement) {
            return statement;
        }
        let here = self.substitute(&statement).unwrap_or(statement);
        if !self.has(&here) {
            self.prepare_missing(&here);
        }
        here
    }

    fn prepare_missing(&mut self, statement: &Arc<Statement>) {
        // What it names is looked up when it is prepared, for its columns.
        self.lend_for(statement);
        self.make_room(statement);
        frontend::parse(
            self.out.insert(),
            &statement.server_name,
            &statement.sql,
            &statement.types,
        );
        self.stats.server_parses += 1;
        let serial = self.next_serial();
        self.server.statements.insert(statement.clone(), serial);
        let mut entry = Entry::new(Expect::Parse, Verb::Swallow)
            .undo(Undo::Prepare { statement: statement.clone() });
        entry.statement = statement.id;
        self.owe(entry);
    }

    /// The client is about to use a statement of which it was told that it returns something else
    /// than what is known of the server's copy, or there is none, or nothing is known of it. On a
    /// connection of its own the client would be told if the statement had changed: is that found
    /// out first? Where it cannot be, behind messages that were sent, nobody can say which of the two
    /// is old.
    fn asks_first(&mut self, statement: &Statement, copy: Option<Option<Shape>>) -> bool {
        let is_first = self.server.status != b'E' && self.server.ledger.is_untouched();
        let is_in_time = is_first || self.can_rewind();
        // What it names would have to be lent first.
        let can_ask = !statement.seen().signs.contains(Signs::PREPARED);
        let is_worth_it = match copy {
            Some(Some(_)) => true,
            // In other modes it costs no round trip, unless Weir itself has seen a change.
            Some(None) => self.texts.is_some(),
            None => self.texts.is_some() || self.exchange.is_outdated(statement),
        };
        let client = &self.client;
        let own = client.extended.as_ref();
        let was_put_off =
            own.is_some_and(|own| own.rewound || own.renewed || own.questions >= QUESTIONS_MAX);
        is_in_time && can_ask && is_worth_it && !was_put_off
    }

    /// Does the server have the statement, or will it by the time it gets to the next message? If
    /// so, what is known of its rows.
    fn copy_of(&mut self, statement: &Statement) -> Option<Option<Shape>> {
        let (statements, ledger) = (&mut self.server.statements, &self.server.ledger);
        let standing = statements.touch(statement.id)?;
        let is_sure = standing.since != DOUBTFUL && ledger.unsettled(standing.since).is_none();
        is_sure.then_some(standing.shape)
    }

    fn has(&mut self, statement: &Statement) -> bool {
        self.copy_of(statement).is_some()
    }

    /// What is used in place of a statement that the server has not got (`copy`), or of which its copy
    /// is known to return something else than the client was `told`: what the client means by it now,
    /// if that is another thing. With it, what is known of that on the server.
    fn replacement(
        &mut self,
        statement: &Statement,
        copy: Option<Option<Shape>>,
        told: Option<Shape>,
    ) -> Option<(Arc<Statement>, Option<Option<Shape>>)> {
        let is_other = |shape: Option<Shape>| told.is_some() && shape.is_some() && shape != told;
        if !copy.is_none_or(is_other) {
            return None;
        }
        let other = self.substitute(statement)?;
        let its_copy = self.copy_of(&other);
        let is_better =
            copy.is_none() || its_copy == Some(told) || self.asks_first(statement, its_copy);
        is_better.then_some((other, its_copy))
    }

    /// The statement is about to be prepared: the server must not have it, nor too many others.
    fn make_room(&mut self, statement: &Arc<Statement>) {
        let since = self.server.statements.since(statement.id);
        self.server.statements.remove(statement.id);
        let ledger = &self.server.ledger;
        let is_unsettled = since.is_some_and(|since| ledger.unsettled(since).is_some());
        if is_unsettled || ledger.awaits_ready() && ledger.concerns(statement.id) {
            self.close_message(statement, DOUBTFUL);
        } else if let Some(since) = since {
            self.close_message(statement, since);
        }
        let limit = self.settings.max_prepared_statements;
        // More than one, if a reload has lowered the limit.
        while let Some((old, since)) = self.server.statements.evict(limit) {
            let ledger = &self.server.ledger;
            let in_doubt = ledger.awaits_ready() && ledger.concerns(old.id);
            self.close_message(&old, if in_doubt { DOUBTFUL } else { since });
        }
    }

    fn close_message(&mut self, statement: &Arc<Statement>, since: u64) {
        frontend::close_statement(self.out.insert(), &statement.server_name);
        let undo = Undo::Evict { statement: statement.clone(), since };
        self.owe(Entry::new(Expect::Close, Verb::Swallow).undo(undo));
    }

    /// What the client's name for a statement is on this server. The statement is there
    /// afterwards, if there is one and it is not outdated.
    pub(super) fn resolve(&mut self, name: &[u8], naming: Naming) -> Name {
        if name.is_empty() {
            self.resolve_unnamed();
            return Name::AsItIs;
        }
        match self.extended().statements.find(name) {
            Some(mut found) => {
                // One that returned no rows still returns none, or PostgreSQL refuses it.
                let told = found.told.filter(|told| naming == Naming::Bind && *told != Shape::NONE);
                let mut copy = self.copy_of(&found.used.statement);
                let mut replaced = None;
                if let Some((other, shape)) = self.replacement(&found.used.statement, copy, told) {
                    copy = shape;
                    replaced = Some(std::mem::replace(&mut found.used.statement, other));
                }
                let statement = &found.used.statement;
                let may_surprise = told.is_some_and(|told| copy != Some(Some(told)));
                if may_surprise {
                    if self.asks_first(replaced.as_ref().unwrap_or(statement), copy) {
                        return Name::Outdated(found.used);
                    }
                    // A failed transaction refuses everything itself.
                    if matches!(copy, Some(Some(_))) && self.server.status != b'E' {
                        return Name::Changed(found);
                    }
                }
                if copy.is_none() {
                    if self.texts.is_some() {
                        // Before anything is owed for the statement's sake.
                        self.guard_numbers(statement.seen(), &statement.sql);
                    }
                    self.prepare_missing(statement);
                }
                Name::Statement(found)
            }
            // The server itself says that it does not exist (26000), in the client's words; but
            // one of our own names in a client's mouth must not find anything.
            None if name.starts_with(SERVER_NAME_PREFIX) => {
                let mut escaped = b"client's ".to_vec();
                escaped.extend_from_slice(name);
                Name::Unknown(escaped)
            }
            None => Name::AsItIs,
        }
    }

    /// The unnamed statement of the server must be this client's own.
    fn resolve_unnamed(&mut self) {
        if self.texts.is_some() {
            // It takes the unnamed statement along, which then is sent again.
            let is_set =
                self.server.status == b'T' && is_lone_set(text_of(&self.extended().unnamed_parse));
            if !is_set {
                let seen = self.extended().unnamed_seen;
                self.guard_numbers_now(seen);
            }
        }
        let own = self.extended().unnamed;
        if own != 0 && own == self.server.unnamed {
            return;
        }
        self.server.unnamed = own;
        if own != 0 && !self.extended().unnamed_parse.is_empty() {
            // If its batch fails before it, another one is still there.
            let serial = self.next_serial();
            let extended = self.extended();
            extended.unnamed_doubt = serial;
            let again = std::mem::take(&mut extended.unnamed_parse);
            self.out.insert().extend_from_slice(&again);
            self.extended().unnamed_parse = again;
            self.stats.server_parses += 1;
            self.owe(Entry::new(Expect::Parse, Verb::Swallow).undo(Undo::PrepareUnnamed));
        } else {
            // Somebody else's may be there.
            self.server.unnamed = 0;
            frontend::close_statement(self.out.insert(), b"");
            self.owe(Entry::new(Expect::Close, Verb::Swallow));
        }
    }
}
