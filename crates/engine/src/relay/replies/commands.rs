//! The effects of completed commands, as their tags show them: schema changes, resets, discarded
//! statements and sequence numbers.

use config::PoolMode;

use super::Replies;
use crate::session::pins::Pins;
use crate::session::state::Numbers;

impl Replies<'_, '_> {
    /// A command is complete. Applies what its tag says.
    pub(super) fn command_complete(&mut self, tag: &[u8], serial: u64) {
        if tag == b"SET" && self.is_unread() {
            self.server.changes.set();
        }
        // Most tags are none of those below.
        let (b"IMPORT FOREIGN SCHEMA" | [b'A' | b'C' | b'D' | b'R', ..]) = tag else { return };
        if is_change_of_schema(tag) {
            self.news.schema_changed = true;
            self.server.changes.schema();
        }
        match tag {
            b"COMMIT PREPARED" => self.server.note_unseen_changes(),
            b"RESET" => {
                self.note_reset();
                self.server.was_reset(false, self.mode());
            }
            b"DISCARD SEQUENCES" => {
                self.numbers_discarded();
                if let Some(pinned) = self.server.pinned_mut() {
                    pinned.pins = pinned.pins.without(Pins::SEQUENCE);
                }
            }
            b"DISCARD ALL" => {
                self.note_reset();
                self.numbers_discarded();
                self.server.was_reset(true, self.mode());
                if let Some(pinned) = self.server.pinned_mut() {
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

    /// Does Weir learn from nothing but tags what the client's texts set?
    fn is_unread(&self) -> bool {
        matches!(self.server.mode, PoolMode::Transaction | PoolMode::Statement)
    }

    fn note_reset(&mut self) {
        if self.is_unread() {
            self.server.changes.reset();
        }
    }

    /// Nothing is left of the session. If the pool is in auto mode now, the client changes to auto
    /// mode as soon as no request is pending.
    fn end_session(&mut self) {
        let is_late = self.server.mode == PoolMode::Session && self.settings.is_auto();
        if !is_late || !self.server.ledger.only_awaits_ready() {
            return;
        }
        self.server.use_in(PoolMode::Auto);
        self.numbers_discarded();
        let Some(client) = &mut self.client else { return };
        *client.vars = self.server.vars.clone();
        // Reports of the reset values follow. The client keeps only the values of its login.
        let Some(session) = &client.session else { return };
        for slot in 0..self.names.len() {
            if session.startup.get(slot) != client.vars.get(slot) {
                client.vars.follow(slot);
            }
        }
    }

    /// Message `serial` has deallocated a statement by its name. If the statement was lent to the
    /// server, the client has lost it.
    fn statement_deallocated(&mut self, serial: u64) {
        let Some(session) = self.server.session.get_mut() else { return };
        let Some(name) = session.deallocations.take(serial) else { return };
        session.lent.remove(&name);
        let extended = self.client.as_mut().and_then(|client| client.extended.as_mut());
        let own = extended.map(|extended| &mut extended.statements);
        if let Some(own) = own
            && own.changed(&name).is_some_and(|since| since < serial)
        {
            own.remove(&name);
        }
    }

    /// All statements are gone, except those that were prepared after the message with that serial
    /// number.
    fn statements_discarded(&mut self, serial: u64) {
        self.server.statements.discard_before(serial);
        if let Some(session) = self.server.session.get_mut() {
            session.traces.deallocates = true;
            session.lent.retain(|_, lent| lent.since > serial);
        }
        if let Some(extended) = self.client.as_mut().and_then(|client| client.extended.as_mut()) {
            extended.statements.discard_before(serial);
        }
    }

    /// `currval` now returns only numbers that this client draws from here on.
    fn numbers_discarded(&mut self) {
        let own = self.client.as_ref().map(|client| Numbers::Of(client.serial));
        if let Some(session) = self.server.session.get_mut() {
            session.numbers = own.unwrap_or_default();
        }
    }
}

/// May a text have another meaning after this command? Changes by functions and by clients that do
/// not use Weir remain invisible here (see [`ServerSession::schema`]).
///
/// [`ServerSession::schema`]: crate::session::on_server::ServerSession
fn is_change_of_schema(tag: &[u8]) -> bool {
    [&b"CREATE "[..], b"ALTER ", b"DROP ", b"IMPORT "].iter().any(|word| tag.starts_with(word))
}
