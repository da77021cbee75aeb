//! Prepares and finds a client's statements on whichever server the client has.

use std::sync::Arc;

use sql::Signs;
use wire::frontend;
use wire::messages::Parse;

use super::Requests;
use super::numbers::is_lone_set;
use crate::relay::kept_request::Used;
use crate::relay::ledger::{Entry, Expect, Reply, Undo, Verb};
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::{DOUBTFUL, Found, SERVER_NAME_PREFIX, Shape, Statement};
use crate::relay::substitute;
use crate::relay::unnamed::Bring;
use crate::shell::Exchange;

/// The name on the server that replaces a client's statement name.
pub(super) enum Name {
    AsItIs,
    Statement(Found),
    Unknown(Vec<u8>),
    /// The statement may return other rows than the client was told. Weir can find out.
    Outdated(Used),
    /// The statement returns other rows than the client was told.
    Changed(Found),
}

/// The kind of message that names a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Bind,
    Describe,
}

impl<X: Exchange> Requests<'_, X> {
    /// Returns the meaning of a text that is parsed now.
    pub(super) fn parse_context(&self) -> ParseContext {
        substitute::parse_context(self.client, self.server, self.names, self.next_serial())
    }

    /// Returns the statement to prepare in place of this one, which the server does not have.
    #[cold]
    fn substitute(&mut self, statement: &Statement) -> Option<Arc<Statement>> {
        substitute::substitute(statement, self.client, self.server, self.names, self.exchange)
    }

    pub(super) fn parse_named(&mut self, parse: &Parse<'_>, context: ParseContext) {
        if let Some(found) = self.extended().statements.find(parse.name) {
            // The name is in use. The server itself reports that (42P05), after any error in the
            // text: so the Parse is sent under the existing name.
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
        // In a failed transaction, the server must judge the text. While a ReadyForQuery is
        // pending, Weir does not know whether the transaction has failed.
        let is_certain = !self.server.status.is_failed() && !self.server.ledger.awaits_ready();
        let serial;
        if is_certain && self.has(&statement) && !self.server.ledger.owes_many() {
            serial = self.next_serial();
            let undo =
                Undo::Parse { name: name.clone(), statement: statement.clone(), sent: false };
            self.owe(Entry::new(Expect::Parse, Verb::Synthesize(Reply::ParseComplete)).undo(undo));
        } else {
            // PostgreSQL looks up the statements that the text names when it prepares the text.
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

    /// Prepares the statement on the server if necessary. Returns it, or its substitute on this
    /// server.
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
        // PostgreSQL looks up the statements that the text names when it prepares the text.
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

    /// Does Weir ask about a statement before the client uses it? The server's copy is missing, or
    /// may not return what the client was told. On a direct connection, PostgreSQL would report a
    /// changed statement. After unanswered messages Weir cannot ask, so nothing is known about the
    /// copy's age.
    fn asks_first(&mut self, statement: &Statement, copy: Option<Option<Shape>>) -> bool {
        let is_first = !self.server.status.is_failed() && self.server.ledger.is_untouched();
        let is_in_time = is_first || self.can_rewind();
        // Statements that the text names would have to be lent first.
        let can_ask = !statement.seen().signs.contains(Signs::PREPARED);
        let is_worth_it = match copy {
            Some(Some(_)) => true,
            // In other modes, Weir asks only if it has seen a schema change, to save the round
            // trip.
            Some(None) => self.texts.is_some(),
            None => self.texts.is_some() || self.exchange.is_outdated(statement),
        };
        let client = &self.client;
        let own = client.extended.as_ref();
        let may_ask = own.is_none_or(|own| own.repeats.may_ask());
        is_in_time && can_ask && is_worth_it && may_ask
    }

    /// Will the server have the statement when it reads the next message? If so, returns what is
    /// known of its rows.
    fn copy_of(&mut self, statement: &Statement) -> Option<Option<Shape>> {
        let (statements, ledger) = (&mut self.server.statements, &self.server.ledger);
        let standing = statements.touch(statement.id)?;
        let is_sure = standing.since != DOUBTFUL && ledger.unsettled(standing.since).is_none();
        is_sure.then_some(standing.shape)
    }

    fn has(&mut self, statement: &Statement) -> bool {
        self.copy_of(statement).is_some()
    }

    /// Returns the substitute for a statement that the server lacks (`copy`), or whose copy is
    /// known not to return what the client was `told`. The substitute has the client's current
    /// meaning. None if the meaning is the same. Also returns what is known of the substitute on
    /// the server.
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

    /// The statement is about to be prepared. Closes it on the server, and others if there are too
    /// many.
    fn make_room(&mut self, statement: &Arc<Statement>) {
        let ledger = &self.server.ledger;
        let in_doubt = ledger.awaits_ready() && ledger.concerns(statement.id);
        if self.server.statements.remove(statement.id).is_some() || in_doubt {
            self.close_message(statement);
        }
        let limit = self.settings.max_prepared_statements;
        // More than one is evicted if a reload has lowered the limit.
        while let Some(old) = self.server.statements.evict(limit) {
            self.close_message(&old);
        }
    }

    fn close_message(&mut self, statement: &Arc<Statement>) {
        frontend::close_statement(self.out.insert(), &statement.server_name);
        let undo = Undo::Evict { statement: statement.clone() };
        self.owe(Entry::new(Expect::Close, Verb::Swallow).undo(undo));
    }

    /// Translates the client's statement name for this server. Afterwards the server has the
    /// statement, unless the client has no such statement or its copy is outdated.
    pub(super) fn resolve(&mut self, name: &[u8], naming: Naming) -> Name {
        if name.is_empty() {
            self.resolve_unnamed();
            return Name::AsItIs;
        }
        match self.extended().statements.find(name) {
            Some(mut found) => {
                // A statement that returned no rows still returns none, or PostgreSQL refuses it.
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
                    // In a failed transaction, PostgreSQL refuses every statement itself.
                    if matches!(copy, Some(Some(_))) && !self.server.status.is_failed() {
                        return Name::Changed(found);
                    }
                }
                if copy.is_none() {
                    if self.texts.is_some() {
                        // This comes before any entry for the statement.
                        self.guard_numbers(statement.seen(), &statement.sql);
                    }
                    self.prepare_missing(statement);
                }
                Name::Statement(found)
            }
            // The server itself reports that the name does not exist (26000), as the client wrote
            // it. But a client must not reach a statement by Weir's own name for it.
            None if name.starts_with(SERVER_NAME_PREFIX) => {
                let mut escaped = b"client's ".to_vec();
                escaped.extend_from_slice(name);
                Name::Unknown(escaped)
            }
            None => Name::AsItIs,
        }
    }

    /// Makes the server's unnamed statement this client's own.
    fn resolve_unnamed(&mut self) {
        if self.texts.is_some() {
            // Forgetting the numbers destroys the unnamed statement, which is then sent again.
            let is_set =
                self.server.status.byte() == b'T' && is_lone_set(self.extended().unnamed.text());
            if !is_set {
                let seen = self.extended().unnamed.seen();
                self.guard_numbers_now(seen);
            }
        }
        let serial = self.next_serial();
        let own = self.client.extended_mut();
        match own.unnamed.bring(&mut self.server.unnamed, serial) {
            Bring::Nothing => {}
            Bring::Parse => {
                self.out.insert().extend_from_slice(own.unnamed.message());
                self.stats.server_parses += 1;
                self.owe(Entry::new(Expect::Parse, Verb::Swallow).undo(Undo::PrepareUnnamed));
            }
            Bring::Close => {
                frontend::close_statement(self.out.insert(), b"");
                self.owe(Entry::new(Expect::Close, Verb::Swallow));
            }
        }
    }
}
