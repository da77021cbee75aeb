//! Keeps `currval` and `lastval` from returning another client's numbers (`pool_mode = auto`). If
//! that could happen, Weir makes the server forget them first (DISCARD SEQUENCES). PostgreSQL then
//! answers 55000.
//!
//! On a server, this client's numbers and other clients' cannot be told apart. So Weir makes the
//! server forget other clients' numbers at two points:
//!
//! * before a watched text that may draw a number (`sequences.rs`), on the primary
//! * before each client's first message, once any client of the pool has asked for a number
//!
//! If the first question comes after any other text, the client's own numbers are forgotten as
//! well. If earlier messages are not answered yet, the server cannot forget, and the question is
//! refused. A question in a text that is passed on in parts is seen too late to refuse it.

use config::Unsupported;
use sql::{Seen, Signs};
use wire::frontend;

use super::Requests;
use super::statements::Name;
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::routing::Place;
use crate::session::state::Numbers;
use crate::shell::Exchange;

const FORGET: &[u8] = b"DISCARD SEQUENCES";

/// Sent in place of a text that could return another client's number.
pub(super) const NO_NUMBER: &[u8] = b"DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '55000', \
    MESSAGE = 'lastval and currval are not yet defined in this session'; END$weir$";

/// Bound in place of such a statement. PostgreSQL answers that this name does not exist.
const STRANGERS_NAME: &[u8] = b"weir_numbers_of_others";

impl<X: Exchange> Requests<'_, X> {
    /// A text is about to be passed on. It asks for numbers, or a later text may.
    pub(super) fn guard_numbers(&mut self, seen: Seen, text: &[u8]) {
        if !self.is_set_in_transaction(text) {
            self.guard_numbers_now(seen);
        }
    }

    pub(super) fn guard_numbers_now(&mut self, seen: Seen) {
        let Some(texts) = &mut self.texts else { return };
        texts.history.asks_numbers |= seen.signs.intersects(Signs::SEQUENCE);
        // A standby draws no number. It gets the request alone, so that it may still refuse it.
        let may_draw = self.place == Place::Writer && texts.is_watched(seen);
        if texts.history.asks_numbers || may_draw {
            self.forget_strangers();
        }
    }

    /// Is the text, which may be incomplete, a SET in a transaction? It asks for no number. SET
    /// TRANSACTION fails after any other statement of the transaction, so nothing is sent before
    /// it.
    pub(super) fn is_set_in_transaction(&self, text: &[u8]) -> bool {
        self.server.status.byte() == b'T' && is_lone_set(text)
    }

    /// A text is about to be executed.
    pub(super) fn note_draws(&mut self, seen: Seen) {
        let Some(texts) = &mut self.texts else { return };
        let asks = seen.signs.intersects(Signs::SEQUENCE);
        if asks {
            let drawn = std::mem::take(&mut self.server.session.own().drawn);
            texts.history.sequences.note_question(&drawn, self.server.session.last_draw, self.now);
        }
        if seen.draws != 0 {
            self.server.session.own().last_draw = seen.draws;
            // A standby draws no number, and its client may want to write next.
            let pins =
                self.settings.auto_unsupported == Unsupported::Pin && self.place == Place::Writer;
            // A client that asks keeps its server in any case.
            let is_kept = asks || self.server.keeps_numbers();
            if pins && !is_kept && texts.is_watched(seen) {
                self.server.session.own().drawn.add(seen.draws);
            }
        }
    }

    /// Makes the server forget other clients' numbers, if that is possible now.
    pub(super) fn forget_strangers(&mut self) {
        let is_between = self.server.ledger.is_untouched() && !self.server.status.is_failed();
        if self.server.session.numbers == Numbers::Of(self.client.serial) || !is_between {
            return;
        }
        if self.server.session.numbers != Numbers::Nobodys {
            frontend::query(self.out.insert(), FORGET);
            self.server.unnamed.destroy();
            *self.serial += 1;
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = *self.serial;
            self.server.ledger.owe(entry);
        }
        self.server.session.own().numbers = Numbers::Of(self.client.serial);
    }

    /// Could a text with these signs return another client's numbers?
    pub(super) fn tells_strangers(&self, signs: Signs) -> bool {
        self.texts.is_some()
            && signs.intersects(Signs::SEQUENCE)
            && !self.server.has_numbers_of(self.client.serial)
    }

    /// Returns the name for a Bind whose statement has these signs.
    pub(super) fn name_for_numbers(&self, name: Name, signs: Signs) -> Name {
        match self.tells_strangers(signs) {
            true => Name::Unknown(STRANGERS_NAME.to_vec()),
            false => name,
        }
    }
}

/// Is the text a SET and nothing else?
pub(super) fn is_lone_set(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let Some((word, rest)) = text.split_at_checked(3) else { return false };
    word.eq_ignore_ascii_case(b"set")
        && rest.first().is_some_and(u8::is_ascii_whitespace)
        && !rest.strip_suffix(b";").unwrap_or(rest).contains(&b';')
}
