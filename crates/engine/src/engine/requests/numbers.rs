//! Whose sequence numbers `currval` and `lastval` would tell on a server that others have used
//! (`pool_mode = auto`). Nobody may be told a stranger's: where it could happen the server forgets
//! them first, and PostgreSQL answers 55000.
//!
//! What a client has drawn on its present server, and what others have, cannot be told apart. So
//! once somebody in a pool asks for numbers, every client's server forgets a stranger's before
//! that client's first message. Only of the very first question it is not known beforehand that it
//! will come: behind statements that may have drawn a number, what is there is taken to be theirs.

use sql::Signs;
use wire::frontend;

use super::Requests;
use crate::ledger::{Entry, Expect, Verb};
use crate::session::Numbers;
use crate::shell::Exchange;

const FORGET: &[u8] = b"DISCARD SEQUENCES";

impl<X: Exchange> Requests<'_, X> {
    /// A client that asks for numbers, or might, is about to be passed on.
    pub(super) fn guard_numbers(&mut self, asks: bool) {
        let Some(texts) = &mut self.texts else { return };
        texts.lore.asks_numbers |= asks;
        if !texts.lore.asks_numbers || self.server.numbers == Numbers::Of(self.client.serial) {
            return;
        }
        let is_between = self.server.ledger.is_at_rest() && self.server.status != b'E';
        if !is_between || self.server.draws {
            return;
        }
        if self.server.numbers != Numbers::Nobodys {
            frontend::query(self.out.insert(), FORGET);
            self.server.unnamed = 0;
            *self.serial += 1;
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = *self.serial;
            self.server.ledger.owe(entry);
        }
        self.server.numbers = Numbers::Of(self.client.serial);
    }

    /// A text with these signs has been passed on.
    pub(super) fn note_draws(&mut self, signs: Signs) {
        self.server.draws |= signs.intersects(Signs::DRAWS | Signs::OPAQUE);
    }
}
