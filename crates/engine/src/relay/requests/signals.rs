//! Calls of `pg_cancel_backend` and `pg_terminate_backend` with a process id that a client got from
//! Weir at login (`pool_mode = auto`). PostgreSQL has no such process. So Weir signals the other
//! client itself (`cancel/signal.rs`), while the caller is held back. In place of the call,
//! PostgreSQL gets a text that returns the answer. `docs/decisions/014-weir-signals-its-clients.md`
//! says why Weir does not replace the process id by that of the other client's server.
//!
//! ```text
//!                    ┌─ the client's own id ─► PostgreSQL's own call, on itself
//!  a call in front ──┼─ decided ─► answered
//!                    ├─ all of the input can be taken back ─► begin_signal
//!                    └─ answers are owed ─► they are waited for ─► begin_signal
//! ```

use sql::{Seen, Signs};
use wire::messages::{bind_names, parameter_count};
use wire::{HEADER_LEN, Header, frontend};

use super::numbers::NO_NUMBER;
use super::statements::Name;
use super::texts::NotPassed;
use super::{MessageAction, Requests};
use crate::cancel::call::{INT4, call_of};
use crate::cancel::signaling::{answer, on_itself};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::relay::prepared::Statement;
use crate::shell::Exchange;

impl<X: Exchange> Requests<'_, X> {
    /// Handles a Query whose text has one of the signs of `ANSWERED`.
    #[cold]
    pub(super) fn see_answered(&mut self, seen: Seen, text: &[u8]) -> Result<Seen, NotPassed> {
        if self.tells_strangers(seen.signs) {
            return Err(NotPassed::Replace(Box::new(NO_NUMBER.to_vec())));
        }
        if !seen.signs.contains(Signs::SIGNALS) {
            return Ok(seen);
        }
        self.signal(text, None).map(|()| seen)
    }

    /// Handles a Bind of a statement with one of the signs `ANSWERED`. None if the Bind is passed
    /// on normally.
    #[cold]
    #[inline(never)]
    pub(super) fn bind_signal(
        &mut self,
        header: Header,
        body: &[u8],
        named: &Name,
        signs: Signs,
    ) -> Option<MessageAction> {
        let is_whole = body.len() == header.total - HEADER_LEN;
        if !is_whole || !signs.contains(Signs::SIGNALS) {
            return None;
        }
        let (text, types) = self.text_of_name(named)?;
        match self.signal(&text, Some((&types, body))) {
            Ok(()) => None,
            Err(NotPassed::Hold) => {
                self.stats.binds -= 1;
                Some(MessageAction::Hold)
            }
            Err(NotPassed::Replace(text)) => {
                let types = declared(&types, parameter_count(body));
                let context = self.parse_context();
                let statement = self.exchange.intern(&text, &types, context);
                let statement = self.prepare(statement);
                Some(self.bind_answer(header, body, &statement))
            }
        }
    }

    /// Returns the text and the parameter types of a statement that is about to be bound.
    fn text_of_name(&self, named: &Name) -> Option<(Vec<u8>, Vec<u8>)> {
        match named {
            Name::Statement(found) => {
                let statement = &found.used.statement;
                Some((statement.sql.to_vec(), statement.types.to_vec()))
            }
            Name::AsItIs => {
                let parse = self.client.extended.as_ref()?.unnamed.kept()?;
                Some((parse.sql.to_vec(), parse.types_raw.to_vec()))
            }
            Name::Unknown(_) | Name::Outdated(_) | Name::Changed(_) => None,
        }
    }

    /// Binds this statement in place of the one that the Bind names.
    fn bind_answer(&mut self, header: Header, body: &[u8], statement: &Statement) -> MessageAction {
        let Some((portal, name, rest_at)) = bind_names(body) else { return MessageAction::Pass };
        let rest_len = header.total - HEADER_LEN - rest_at;
        frontend::bind_header(self.out.insert(), portal, &statement.server_name, rest_len);
        let mut entry = Entry::new(Expect::Bind, Verb::Replace);
        entry.statement = statement.id;
        self.note_discards(portal, name, None);
        self.owe(entry);
        self.extended().repeats.bound();
        MessageAction::Head(HEADER_LEN + rest_at)
    }

    /// Handles a text that may be a call. `bind`: the parameter types, and the body of the Bind.
    /// Ok: it is no call for Weir. Otherwise it is held until the owed replies have arrived or the
    /// call is decided ([`Requests::call`]).
    fn signal(&mut self, text: &[u8], bind: Option<(&[u8], &[u8])>) -> Result<(), NotPassed> {
        let replace = |text| Err(NotPassed::Replace(Box::new(text)));
        let Some((call, column)) = call_of(text, bind) else { return Ok(()) };
        let server = &self.server;
        // A failed transaction refuses everything. A copy ends with an error.
        if server.status.is_failed() || server.ledger.in_copy() {
            return Ok(());
        }
        if self.client.process_id() == call.process_id {
            return replace(on_itself(call, &column));
        }
        if let Some(own) = &mut self.client.extended
            && let Some((decided, verdict)) = own.signaling.take_decided()
            && decided == call
        {
            // The signal was sent, so the call must not be taken back and repeated.
            own.repeats.rewind();
            let answer = answer(call, verdict, &column, server.version());
            return answer.map_or(Ok(()), replace);
        }
        if server.ledger.is_untouched() || self.can_take_back() {
            self.call = Some(call);
            return Err(NotPassed::Hold);
        }
        match server.ledger.last() {
            Some(last) => self.await_answer(last),
            // In the middle of a batch, and everything so far is answered.
            None => self.call = Some(call),
        }
        Err(NotPassed::Hold)
    }
}

/// Returns the parameter types for the text that replaces a call. The text uses no parameter, but
/// must have the same number of them.
fn declared(types: &[u8], parameters: Option<u16>) -> Vec<u8> {
    match types {
        [0, 0] | [0, 1, 0, 0, 0, 0] if parameters == Some(1) => {
            [&[0, 1][..], &INT4.to_be_bytes()].concat()
        }
        types => types.to_vec(),
    }
}
