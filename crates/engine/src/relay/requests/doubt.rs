//! Waits for answers that decide what a statement name means. An error undoes what its batch has
//! prepared and closed, and `DISCARD ALL` removes all names. PostgreSQL knows the outcome when it
//! reads the next message. Weir must know before it sends that message, so it waits for the answer.
//! So it never runs a statement that a direct connection would not have run.
//!
//! Within a batch, only its own `DISCARD` or `DEALLOCATE` is in doubt: after an error, the server
//! discards the rest of the batch anyway. PostgreSQL keeps the answer back until the batch ends, so
//! Weir sends a Flush.

use std::sync::Arc;

use sql::{Seen, Signs, Verb};
use wire::{HEADER_LEN, Header, frontend};

use super::Requests;
use crate::relay::discarding::Discards;
use crate::relay::parse_context;
use crate::relay::prepared::{Found, SERVER_NAME_PREFIX};
use crate::shell::Exchange;

/// Words in texts that remove prepared statements.
const DISCARDING: [&[u8]; 2] = [b"discard", b"deallocate"];

impl<X: Exchange> Requests<'_, X> {
    /// Must the message in front, which names a statement, wait for an answer?
    #[inline]
    pub(super) fn awaits_name(&mut self, name: &[u8]) -> bool {
        self.may_await() && self.awaits_change_of(name)
    }

    /// Must a message that uses the statement wait for an answer? Its text may name other
    /// statements.
    #[inline]
    pub(super) fn awaits_used(&mut self, name: &[u8]) -> bool {
        self.may_await() && (self.awaits_change_of(name) || self.awaits_names_of(name))
    }

    #[inline]
    fn may_await(&self) -> bool {
        let ledger = &self.server.ledger;
        ledger.may_unsettle() && !ledger.in_copy()
    }

    #[cold]
    fn awaits_change_of(&mut self, name: &[u8]) -> bool {
        let own = self.client.extended.as_ref();
        let changed = own.and_then(|own| match name {
            b"" => own.unnamed.doubt(),
            _ => own.statements.changed(name),
        });
        let Some(serial) = changed.and_then(|changed| self.server.ledger.unsettled(changed)) else {
            return false;
        };
        self.await_answer(serial);
        true
    }

    /// Must the statement wait because of the names in its text?
    #[cold]
    fn awaits_names_of(&mut self, name: &[u8]) -> bool {
        if self.texts.is_none() {
            return false;
        }
        let Some(own) = &self.client.extended else { return false };
        if name.is_empty() {
            let names_others = own.unnamed.seen().signs.contains(Signs::PREPARED);
            let text = names_others.then(|| own.unnamed.text().to_vec());
            return text.is_some_and(|text| self.awaits_names_in(&text));
        }
        let used = own.statements.find(name).map(|found| found.used.statement);
        let used = used.filter(|used| used.seen().signs.contains(Signs::PREPARED));
        used.is_some_and(|used| self.awaits_names_in(&used.sql))
    }

    /// Must a text that may name prepared statements wait for an answer?
    pub(super) fn awaits_names_in(&mut self, text: &[u8]) -> bool {
        let has_names =
            self.client.extended.as_ref().is_some_and(|own| !own.statements.is_surely_empty());
        if !has_names || !self.may_await() {
            return false;
        }
        let standard = self.has_standard_strings();
        sql::statements(text, standard).into_iter().any(|statement| {
            let by_name =
                matches!(statement.verb, Verb::Execute | Verb::Deallocate | Verb::Prepare);
            let written = statement.name.filter(|_| by_name).and_then(|at| text.get(at));
            let name = written.map(sql::identifier);
            name.is_some_and(|name| {
                !name.starts_with(SERVER_NAME_PREFIX) && self.awaits_name(&name)
            })
        })
    }

    pub(super) fn await_answer(&mut self, serial: u64) {
        if !self.server.ledger.is_in_ended_batch(serial) {
            frontend::flush(self.out.insert());
        }
        self.extended().awaited.begin(serial);
    }

    /// May the Query in front discard prepared statements? False if the client has none.
    pub(super) fn query_discards(&self, seen: Seen, header: Header, available: usize) -> bool {
        let own = self.client.extended.as_ref();
        if own.is_none_or(|own| own.statements.is_empty()) {
            return false;
        }
        if available < header.total {
            return true;
        }
        let text = &self.input[self.at + HEADER_LEN..self.at + header.total];
        self.may_discard(seen) && says_discard(text)
    }

    /// The Query in front may discard statements. It has been entered in the ledger.
    pub(super) fn note_query_discards(&mut self, header: Header, available: usize) {
        let by = *self.serial;
        self.server.ledger.note_discard(by);
        if self.texts.is_none() || available < header.total {
            return;
        }
        let text = &self.input[self.at + HEADER_LEN..self.at + header.total];
        for name in self.deallocated(text.strip_suffix(&[0]).unwrap_or(text)) {
            self.note_deallocation(by, name);
        }
    }

    fn note_deallocation(&mut self, by: u64, name: Option<Arc<[u8]>>) {
        let first = self.server.ledger.first().unwrap_or(by);
        if let Some(session) = self.server.session.get_mut() {
            session.deallocations.note(by, name, first);
        }
    }

    /// The names that the text deallocates one by one; None for a name that the client has not
    /// prepared through the protocol. Empty if the text can be read in two ways.
    fn deallocated(&self, text: &[u8]) -> Vec<Option<Arc<[u8]>>> {
        let Some(own) = self.client.extended.as_ref().filter(|_| !text.contains(&b'\\')) else {
            return Vec::new();
        };
        let all = sql::statements(text, true).filter(|one| one.verb == Verb::Deallocate);
        let names = all.map(|one| {
            let name = sql::identifier(text.get(one.name?)?);
            own.statements.find(&name).map(|found| found.name)
        });
        names.collect()
    }

    /// Executing the portal that is bound now may discard prepared statements.
    pub(super) fn note_discards(&mut self, portal: &[u8], name: &[u8], used: Option<&Found>) {
        let Some(own) = &self.client.extended else { return };
        if own.statements.is_empty() {
            return;
        }
        let discards = match used {
            Some(found) => {
                let statement = &found.used.statement;
                let says = || says_discard(&statement.sql);
                *statement.discards.get_or_init(says) && self.may_discard(statement.seen())
            }
            None if !name.is_empty() => false,
            // A long text was not kept.
            None if !own.unnamed.is_kept() => own.unnamed.exists(),
            None => self.may_discard(own.unnamed.seen()) && says_discard(own.unnamed.text()),
        };
        if !discards && own.discarding.is_empty() {
            return;
        }
        let deallocates = match used {
            _ if !discards || !portal.is_empty() || self.texts.is_none() => None,
            Some(found) => self.sole_deallocated(&found.used.statement.sql),
            None => self.sole_deallocated(own.unnamed.text()),
        };
        let is_fresh = self.server.status.is_idle() && self.server.ledger.owes_nothing();
        let discarding = &mut self.extended().discarding;
        if is_fresh {
            discarding.begin();
        }
        match portal.is_empty() {
            true => discarding.bind_unnamed(discards, deallocates),
            false => discarding.bind_named(discards),
        }
    }

    /// An Execute has been entered in the ledger. Its portal's name is not examined.
    pub(super) fn note_execute(&mut self) {
        let Some(own) = &mut self.client.extended else { return };
        let name = match own.discarding.execute() {
            Discards::Nothing => return,
            Discards::Name(name) => Some(name),
            Discards::Any => None,
        };
        let by = *self.serial;
        self.server.ledger.note_discard(by);
        if name.is_some() {
            self.note_deallocation(by, name);
        }
    }

    fn sole_deallocated(&self, text: &[u8]) -> Option<Arc<[u8]>> {
        match &mut *self.deallocated(text) {
            [name] => name.take(),
            _ => None,
        }
    }

    /// May a text with these signs discard statements? Always, if texts are not examined.
    fn may_discard(&self, seen: Seen) -> bool {
        let signs = Signs::DISCARD | Signs::PREPARED | Signs::OPAQUE;
        self.texts.is_none() || seen.signs.intersects(signs)
    }
}

fn says_discard(text: &[u8]) -> bool {
    DISCARDING.iter().any(|word| parse_context::contains(text, word))
}
