//! Messages that name a prepared statement: Bind, Describe, Close. Weir replaces the client's name
//! by the server's. These functions are not inlined, because every message would get their large
//! stack frames.

use sql::Signs;
use wire::messages::{StatementOrPortal, bind_names};
use wire::{HEADER_LEN, Header, frontend};

use super::statements::{Name, Naming};
use super::texts::ANSWERED;
use super::{MessageAction, Requests};
use crate::relay::kept_request::CHANGED_NAME;
use crate::relay::ledger::{Entry, Expect, Reply, Undo, Verb};
use crate::relay::prepared::SERVER_NAME_PREFIX;
use crate::session::pins::Pins;
use crate::session::text_history::Called;
use crate::shell::Exchange;

/// No statement has the number 0.
const NO_STATEMENT: &[u8] = b"weir_0";

/// The maximum length in which the names in a Bind, Describe or Close must end.
const NAMES_LEN_MAX: usize = 65_536;

impl<'a, X: Exchange> Requests<'a, X> {
    #[inline(never)]
    pub(super) fn bind(
        &mut self,
        header: Header,
        available: usize,
    ) -> Result<MessageAction, String> {
        if !self.tracks() {
            self.note_unknown_ending();
            self.owe(Entry::new(Expect::Bind, Verb::Forward));
            return Ok(MessageAction::Pass);
        }
        self.stats.binds += 1;
        let input = self.input;
        let body = &input[self.at + HEADER_LEN.min(available)..self.at + available];
        let Some((portal, name, rest_at)) = bind_names(body) else {
            self.stats.binds -= 1;
            if available == header.total || available > NAMES_LEN_MAX {
                return Err("broken Bind packet".into());
            }
            return Ok(MessageAction::Hold);
        };
        if self.needs_more(name, header, available) {
            self.stats.binds -= 1;
            return Ok(MessageAction::Hold);
        }
        if self.awaits_used(name) {
            self.stats.binds -= 1;
            return Ok(MessageAction::Hold);
        }
        let mut entry = Entry::new(Expect::Bind, Verb::Forward);
        let mut used = None;
        self.undescribed = 0;
        let mut found = self.resolve(name, Naming::Bind);
        let signs = match &found {
            Name::AsItIs => self.see_bind(name, body),
            Name::Statement(found) => self.see_use(&found.used.statement, body),
            Name::Unknown(_) | Name::Outdated(_) | Name::Changed(_) => Signs::NONE,
        };
        if signs.intersects(ANSWERED) {
            if let Some(action) = self.bind_signal(header, body, &found, signs) {
                return Ok(action);
            }
            found = self.name_for_numbers(found, signs);
        }
        let action = match found {
            Name::Outdated(outdated) => {
                self.stats.binds -= 1;
                return Ok(MessageAction::Confirm(outdated));
            }
            Name::AsItIs => MessageAction::Pass,
            Name::Statement(found) => {
                let statement = &found.used.statement;
                let rest_len = header.total - HEADER_LEN - rest_at;
                frontend::bind_header(self.out.insert(), portal, &statement.server_name, rest_len);
                entry.verb = Verb::Replace;
                entry.statement = statement.id;
                if found.told.is_none() {
                    self.undescribed = statement.id;
                }
                used = Some(found);
                MessageAction::Head(HEADER_LEN + rest_at)
            }
            // PostgreSQL must fail the message, and so the messages that depend on it.
            Name::Changed(found) => {
                let rest_len = header.total - HEADER_LEN - rest_at;
                frontend::bind_header(self.out.insert(), portal, CHANGED_NAME, rest_len);
                entry.verb = Verb::Replace;
                entry.statement = found.used.statement.id;
                MessageAction::Head(HEADER_LEN + rest_at)
            }
            Name::Unknown(escaped) => {
                let rest_len = header.total - HEADER_LEN - rest_at;
                frontend::bind_header(self.out.insert(), portal, &escaped, rest_len);
                MessageAction::Head(HEADER_LEN + rest_at)
            }
        };
        self.note_discards(portal, name, used.as_ref());
        self.note_bound_ending(name);
        self.owe(entry);
        self.note_use(used);
        self.extended().repeats.bound();
        Ok(action)
    }

    #[inline(never)]
    pub(super) fn describe(
        &mut self,
        header: Header,
        available: usize,
    ) -> Result<MessageAction, String> {
        let mut entry = Entry::new(Expect::Describe, Verb::Forward);
        if !self.tracks() {
            self.owe(entry);
            return Ok(MessageAction::Pass);
        }
        let Some(named) = self.whole(header, available, "broken Describe packet")? else {
            return Ok(MessageAction::Hold);
        };
        let mut action = MessageAction::Pass;
        let mut used = None;
        if named.kind == b'S' && self.awaits_used(named.name) {
            return Ok(MessageAction::Hold);
        }
        if named.kind == b'S' {
            match self.resolve(named.name, Naming::Describe) {
                Name::AsItIs | Name::Outdated(_) | Name::Changed(_) => {}
                Name::Statement(found) => {
                    let statement = &found.used.statement;
                    self.lend_for(statement);
                    frontend::describe_statement(self.out.insert(), &statement.server_name);
                    entry.verb = self.describe_verb();
                    entry.statement = statement.id;
                    used = Some(found);
                    action = MessageAction::Replaced;
                }
                Name::Unknown(escaped) => {
                    frontend::describe_statement(self.out.insert(), &escaped);
                    action = MessageAction::Replaced;
                }
            }
        }
        if named.kind == b'P' {
            entry.statement = self.undescribed;
        }
        self.owe(entry);
        self.note_use(used);
        Ok(action)
    }

    #[inline(never)]
    pub(super) fn close(
        &mut self,
        header: Header,
        available: usize,
    ) -> Result<MessageAction, String> {
        let entry = Entry::new(Expect::Close, Verb::Forward);
        if !self.tracks() {
            self.owe(entry);
            return Ok(MessageAction::Pass);
        }
        let Some(named) = self.whole(header, available, "broken Close packet")? else {
            return Ok(MessageAction::Hold);
        };
        if named.kind != b'S' {
            self.owe(entry);
            return Ok(MessageAction::Pass);
        }
        if named.name.is_empty() {
            self.owe_without_unnamed(entry);
            return Ok(MessageAction::Pass);
        }
        if self.awaits_name(named.name) {
            return Ok(MessageAction::Hold);
        }
        if self.is_prepared_by_sql(named.name) {
            self.client.session_mut();
            self.server.suspect(Signs::PREPARED, Called::default(), Some(b""));
            self.owe(entry);
            return Ok(MessageAction::Pass);
        }
        // Other clients may use the statement, so only the client's name is removed. Closing a name
        // that does not exist is no error.
        let own = self.client.extended.as_ref();
        let is_own = own.is_some_and(|own| own.statements.find(named.name).is_some());
        let session = self.server.session.get_mut().filter(|_| is_own);
        let lent = session.and_then(|session| session.lent.remove(named.name));
        let mut entry = match lent.is_some() || self.server.ledger.owes_many() {
            false => Entry::new(Expect::Close, Verb::Synthesize(Reply::CloseComplete)),
            true => {
                let name = if lent.is_some() { named.name } else { NO_STATEMENT };
                frontend::close_statement(self.out.insert(), name);
                entry
            }
        };
        let (serial, first) = (self.next_serial(), self.server.ledger.first());
        let own = &mut self.extended().statements;
        if let Some((name, statement, since)) = own.remove(named.name) {
            own.note_close(&name, serial, first.unwrap_or(serial));
            entry = entry.undo(Undo::Close { name, statement, since, lent });
        }
        self.owe(entry);
        Ok(MessageAction::Replaced)
    }

    /// May the client have prepared this name by SQL's PREPARE only? Then the server has the
    /// statement under the same name.
    fn is_prepared_by_sql(&self, name: &[u8]) -> bool {
        let by_sql = Signs::PREPARED | Signs::OPAQUE;
        let own = self.client.extended.as_ref();
        let pins = self.server.pins();
        self.texts.is_some()
            && !name.starts_with(SERVER_NAME_PREFIX)
            && own.is_none_or(|own| own.statements.find(name).is_none())
            && (self.server.session.traces.signs.intersects(by_sql)
                || pins.contains(Pins::PREPARED)
                || pins.contains(Pins::UNVERIFIED)
                || self.server.vars.prepared.get(name).is_some())
    }

    /// Decodes a Describe or Close. None if it is incomplete.
    fn whole(
        &self,
        header: Header,
        available: usize,
        broken: &str,
    ) -> Result<Option<StatementOrPortal<'a>>, String> {
        if header.total > NAMES_LEN_MAX {
            return Err(broken.to_owned());
        }
        if available < header.total {
            return Ok(None);
        }
        let input = self.input;
        let body = &input[self.at + HEADER_LEN..self.at + header.total];
        StatementOrPortal::decode(body).map(Some).map_err(|_| broken.to_owned())
    }
}
