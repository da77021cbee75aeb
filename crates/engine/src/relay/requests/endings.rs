//! Notes whether the client's requests may end its transaction, where that matters when the server is
//! lost ([`crate::settings::PoolSettings::keeps_clients`]).

use wire::{HEADER_LEN, Header};

use super::Requests;
use crate::relay::ending::Ending;
use crate::shell::Exchange;

impl<X: Exchange> Requests<'_, X> {
    /// The Query in front is passed on.
    #[inline(always)]
    pub(super) fn note_query_ending(&mut self, header: Header, available: usize) {
        if self.notes_endings() {
            self.add_query(header, available);
        }
    }

    /// A portal is bound to the client's statement of this name.
    #[inline(always)]
    pub(super) fn note_bound_ending(&mut self, name: &[u8]) {
        if self.notes_endings() {
            self.bind_statement(name);
        }
    }

    /// A portal is bound to a statement that Weir does not know.
    #[inline(always)]
    pub(super) fn note_unknown_ending(&mut self) {
        if self.notes_endings() {
            self.server.ledger.endings.bind(Ending::Commit);
        }
    }

    #[cold]
    fn add_query(&mut self, header: Header, available: usize) {
        let text = &self.input[self.at + HEADER_LEN..self.at + available];
        let is_whole = available == header.total;
        let ending = if is_whole { Ending::of(text) } else { Ending::Commit };
        self.server.ledger.endings.add(ending);
    }

    #[cold]
    fn bind_statement(&mut self, name: &[u8]) {
        let own = self.client.extended.as_deref();
        // A long text of the unnamed statement was not kept.
        let is_kept = own.is_some_and(|own| !name.is_empty() || own.unnamed.is_kept());
        let text = own.and_then(|own| own.text_of(name)).unwrap_or_default();
        let ending = if is_kept { Ending::of(text) } else { Ending::Commit };
        self.server.ledger.endings.bind(ending);
    }

    /// A request outside of a transaction may commit in any case.
    #[inline(always)]
    fn notes_endings(&self) -> bool {
        let server = &self.server;
        self.settings.keeps_clients && (!server.status.is_idle() || !server.ledger.is_at_rest())
    }
}
