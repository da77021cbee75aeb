//! Lends protocol statements to SQL. A client's statement is on its server under a name of Weir's,
//! so SQL that uses the client's name would not find it. PostgreSQL has one namespace for both.
//!
//! Before a text with `EXECUTE name`, `DEALLOCATE name` or `PREPARE name`, Weir prepares the
//! statement under the client's own name as well: it is *lent*. After the transaction, Weir asks
//! the server whether the statement still exists, and deallocates it (`session/verdict.rs`).
//!
//! In a failed transaction nothing can be prepared. PostgreSQL rejects the SQL anyway.
//!
//! The client loses its name when a command tag reports a DEALLOCATE of it
//! (`session::Deallocations`). If no tag reports it (a function ran it), or if the name is
//! uncertain, the client has the name until the transaction ends.

use sql::{Signs, Verb};
use wire::frontend;

use super::Requests;
use crate::relay::ledger::{Entry, Expect, Undo, Verb as ReplyVerb};
use crate::relay::prepared::SERVER_NAME_PREFIX;
use crate::session::state::Lent;
use crate::session::text_history::Called;
use crate::shell::Exchange;

/// Lent in place of a statement that only has to exist. It can be prepared even if the statement's
/// tables are gone. If it is executed, it reports that the statement does not exist.
const PLACEHOLDER: &[u8] = b"DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '26000', MESSAGE = \
    'this prepared statement does not exist'; END$weir$";

impl<X: Exchange> Requests<'_, X> {
    /// A text that may name prepared statements is about to be passed on.
    pub(super) fn lend(&mut self, text: &[u8]) {
        let has_names = self.client.extended.as_ref().is_some_and(|own| !own.statements.is_empty());
        if !has_names || self.server.ledger.in_copy() {
            return;
        }
        let standard = self.has_standard_strings();
        self.lend_reading(text, standard);
        if text.contains(&b'\\') {
            self.lend_reading(text, !standard);
        }
    }

    /// `standard`: see [`sql::scan`].
    fn lend_reading(&mut self, text: &[u8], standard: bool) {
        let first = self.next_serial();
        for statement in sql::statements(text, standard) {
            let by_name =
                matches!(statement.verb, Verb::Execute | Verb::Deallocate | Verb::Prepare);
            if let (true, Some(written)) = (by_name, statement.name.and_then(|at| text.get(at))) {
                let is_executed = statement.verb == Verb::Execute;
                self.lend_one(&sql::identifier(written), is_executed, text, first);
            }
        }
    }

    /// `first`: the first message that belongs to this text.
    fn lend_one(&mut self, name: &[u8], is_executed: bool, text: &[u8], first: u64) {
        let lent = self.server.session.lent.get(name);
        let has_open_batch = self.server.ledger.has_open_batch();
        // The placeholder is from an earlier text that has not deallocated it. Weir has waited for
        // any text that could.
        let is_void = lent.is_some_and(|lent| {
            is_executed && lent.is_placeholder && lent.since < first && !has_open_batch
        });
        let is_there = self.server.vars.prepared.get(name).is_some() || lent.is_some();
        let is_there = is_there && !is_void;
        // The client cannot use one of Weir's names. Other letters depend on the encoding.
        if is_there || name.starts_with(SERVER_NAME_PREFIX) || !name.is_ascii() {
            return;
        }
        let Some(found) = self.extended().statements.find(name) else { return };
        let statement = found.used.statement;
        let (sql, types) = match is_executed {
            true => (&*statement.sql, &*statement.types),
            false => (PLACEHOLDER, frontend::NO_TYPES),
        };
        if is_void {
            frontend::close_statement(self.out.insert(), name);
            *self.serial += 1;
            let mut close = Entry::new(Expect::Close, ReplyVerb::Internal);
            close.serial = *self.serial;
            self.server.ledger.owe(close);
        }
        frontend::parse(self.out.insert(), name, sql, types);
        self.stats.server_parses += 1;
        self.server.suspect(Signs::PREPARED, Called::default(), None);
        if is_executed && statement.seen().signs.intersects(Signs::SETTINGS | Signs::OPAQUE) {
            self.server.note_settings(|names| names.note(&statement.sql, true));
        }
        let since = self.next_serial();
        let is_placeholder = !is_executed && !text.contains(&b'\\');
        let undo = Undo::Lend { name: found.name.clone() };
        self.server.session.own().lent.insert(found.name, Lent { since, is_placeholder });
        if has_open_batch {
            // If the Parse fails, the client's message would have failed, too.
            return self.owe(Entry::new(Expect::Parse, ReplyVerb::Swallow).undo(undo));
        }
        // If the Parse fails, the text is executed all the same.
        frontend::sync(self.out.insert());
        let parse = Entry::new(Expect::Parse, ReplyVerb::Internal).undo(undo);
        for mut entry in [parse, Entry::new(Expect::Sync, ReplyVerb::Internal)] {
            *self.serial += 1;
            entry.serial = *self.serial;
            self.server.ledger.owe(entry);
        }
    }
}
