//! Parse messages. A named statement becomes one of Weir's. The Parse of the unnamed statement is
//! passed on and remembered.

use sql::Seen;
use wire::messages::Parse;
use wire::{HEADER_LEN, Header, frontend};

use super::texts::{REMEMBERED_LEN_MAX, Sent, TextCheck};
use super::{BROKEN_PARSE, MessageAction, Requests};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::server::Server;
use crate::shell::Exchange;

/// An unnamed Parse up to this length is remembered, because its Bind may come in another
/// transaction, on another server. Auto mode also remembers longer ones.
const UNNAMED_KEPT_LEN_MAX: usize = 16_384;

impl<X: Exchange> Requests<'_, X> {
    pub(super) fn parse(
        &mut self,
        header: Header,
        available: usize,
    ) -> Result<MessageAction, String> {
        if !self.tracks() {
            self.owe(Entry::new(Expect::Parse, Verb::Forward));
            return Ok(MessageAction::Pass);
        }
        let whole = available == header.total;
        if available <= HEADER_LEN {
            // A message without even the end of a name never becomes complete.
            return if whole { Err(BROKEN_PARSE.into()) } else { Ok(MessageAction::Hold) };
        }
        let unnamed = self.input[self.at + HEADER_LEN] == 0;
        if unnamed {
            if !whole && header.total <= UNNAMED_KEPT_LEN_MAX {
                return Ok(MessageAction::Hold);
            }
            self.stats.client_parses += 1;
            return self.parse_unnamed(header, available);
        }
        if !whole {
            return Ok(MessageAction::Hold);
        }
        let input = self.input;
        let body = &input[self.at + HEADER_LEN..self.at + header.total];
        let parse = Parse::decode(body).map_err(|_| BROKEN_PARSE.to_owned())?;
        if self.awaits_name(parse.name) {
            return Ok(MessageAction::Hold);
        }
        // The context before the text's own changes.
        let context = self.parse_context();
        let mut parse = parse;
        match self.see(parse.sql, Sent::Parse) {
            TextCheck::Pass(_) => {}
            TextCheck::Hold => return Ok(MessageAction::Hold),
            TextCheck::Replace(sql) => {
                parse = Parse { sql, types_raw: frontend::NO_TYPES, ..parse }
            }
        }
        self.stats.client_parses += 1;
        self.parse_named(&parse, context);
        Ok(MessageAction::Replaced)
    }

    fn parse_unnamed(&mut self, header: Header, available: usize) -> Result<MessageAction, String> {
        let whole = available == header.total;
        let (seen, replaced) = match self.see_parse(header, available)? {
            TextCheck::Pass(seen) => (seen, None),
            TextCheck::Hold => return Ok(MessageAction::Hold),
            TextCheck::Replace(text) => (Seen::default(), Some(text)),
        };
        self.stats.server_parses += 1;
        let serial = self.next_serial();
        // In auto mode, a Parse that arrives in parts is remembered while it is passed on.
        let kept_len_max =
            if self.texts.is_some() { REMEMBERED_LEN_MAX } else { UNNAMED_KEPT_LEN_MAX };
        let input = self.input;
        let message = &input[self.at..];
        // A refused text is refused in every place that uses it.
        let kept = match replaced {
            Some(text) => {
                let mut refusal = Vec::new();
                frontend::parse(&mut refusal, b"", text, frontend::NO_TYPES);
                refusal
            }
            None if whole && header.total <= kept_len_max => message[..header.total].to_vec(),
            None => Vec::new(),
        };
        let Server { unnamed, ledger, .. } = &mut *self.server;
        let own = self.client.extended_mut();
        let undo = own.unnamed.parse(serial, seen, kept, unnamed, ledger);
        self.owe(Entry::new(Expect::Parse, Verb::Forward).undo(undo));
        Ok(match replaced {
            None => MessageAction::Pass,
            Some(text) => {
                frontend::parse(self.out.insert(), b"", text, frontend::NO_TYPES);
                MessageAction::Replaced
            }
        })
    }
}
