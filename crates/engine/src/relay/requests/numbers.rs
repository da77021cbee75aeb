//! Whose sequence numbers `currval` and `lastval` would tell on a server that others have used
//! (`pool_mode = auto`). Nobody may be told a stranger's: where it could happen the server forgets
//! them first, and PostgreSQL answers 55000.
//!
//! What a client has drawn on its present server, and what others have, cannot be told apart. So a
//! client's server forgets a stranger's before a text that may draw a number and is watched
//! (`sequences.rs`); and once somebody in a pool asks for numbers, before each client's first message. Of
//! a first question behind any other text it is not known beforehand that it will come: the client's
//! own numbers are forgotten with the others. Where the server cannot forget
//! before it is asked, behind messages that are not answered yet, the question is refused; unless it
//! stands in a text that is passed on in parts, of which that is known too late.

use config::Unsupported;
use sql::{Seen, Signs};
use wire::frontend;

use super::Requests;
use super::statements::Name;
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::session::state::Numbers;
use crate::shell::Exchange;

const FORGET: &[u8] = b"DISCARD SEQUENCES";

/// Sent in place of a text that asks for what may be a stranger's.
pub(super) const NO_NUMBER: &[u8] = b"DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '55000', \
    MESSAGE = 'lastval and currval are not yet defined in this session'; END$weir$";

/// Bound in place of a statement that does; PostgreSQL says that there is none of this name.
const STRANGERS_NAME: &[u8] = b"weir_numbers_of_others";

impl<X: Exchange> Requests<'_, X> {
    /// A text is about to be passed on. It asks for numbers, or another one may behind it.
    pub(super) fn guard_numbers(&mut self, seen: Seen, text: &[u8]) {
        if !self.is_set_in_transaction(text) {
            self.guard_numbers_now(seen);
        }
    }

    pub(super) fn guard_numbers_now(&mut self, seen: Seen) {
        let Some(texts) = &mut self.texts else { return };
        texts.history.asks_numbers |= seen.signs.intersects(Signs::SEQUENCE);
        if texts.history.asks_numbers || texts.is_watched(seen) {
            self.forget_strangers();
        }
    }

    /// Is the text, of which the rest may be missing, a SET in a transaction? It asks for no number, and
    /// SET TRANSACTION fails when anything else has run in the transaction: nothing is sent before it.
    pub(super) fn is_set_in_transaction(&self, text: &[u8]) -> bool {
        self.server.status == b'T' && is_lone_set(text)
    }

    /// A text is about to be run.
    pub(super) fn note_draws(&mut self, seen: Seen) {
        let Some(texts) = &mut self.texts else { return };
        let asks = seen.signs.intersects(Signs::SEQUENCE);
        if asks {
            let drawn = std::mem::take(&mut self.server.session.drawn);
            texts.history.sequences.note_question(&drawn, self.server.session.last_draw, self.now);
        }
        if seen.draws != 0 {
            self.server.session.last_draw = seen.draws;
            let pins = self.settings.auto_unsupported == Unsupported::Pin;
            // A client that asks keeps its server in any case.
            let is_kept = asks || self.server.keeps_numbers();
            if pins && !is_kept && texts.is_watched(seen) {
                self.server.session.drawn.add(seen.draws);
            }
        }
    }

    /// The server forgets what others have drawn, if that is possible now.
    pub(super) fn forget_strangers(&mut self) {
        let is_between = self.server.ledger.is_untouched() && self.server.status != b'E';
        if self.server.session.numbers == Numbers::Of(self.client.serial) || !is_between {
            return;
        }
        if self.server.session.numbers != Numbers::Nobodys {
            frontend::query(self.out.insert(), FORGET);
            self.server.unnamed = 0;
            *self.serial += 1;
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = *self.serial;
            self.server.ledger.owe(entry);
        }
        self.server.session.numbers = Numbers::Of(self.client.serial);
    }

    /// Would a text with these signs be told what others have drawn?
    pub(super) fn tells_strangers(&self, signs: Signs) -> bool {
        self.texts.is_some()
            && signs.intersects(Signs::SEQUENCE)
            && !self.server.has_numbers_of(self.client.serial)
    }

    /// What a Bind is to name, whose statement has been looked at.
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
