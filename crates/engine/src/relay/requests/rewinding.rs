//! A statement stands in the middle of an input, and has to be asked about before it is used
//! (`relay/resend.rs`). What stands before it, often a BEGIN, waits with it: nothing of the input has
//! been sent yet, so all that was noted of it is taken back, and later it is dealt with from its
//! beginning.
//!
//! That happens once to an input. What else in it should be asked about is used as it is, or two
//! statements that have room for one could go on asking for ever.

use super::Requests;
use crate::relay::ledger::{Expect, Verb};
use crate::relay::undo::undo;
use crate::shell::Exchange;

impl<X: Exchange> Requests<'_, X> {
    /// Is the input one that can be dealt with once more? What it may leave on the server, and what
    /// was asked for our own sake, could not be taken back.
    pub(super) fn can_rewind(&self) -> bool {
        let server = &self.server;
        let is_clean =
            server.status == b'I' && !server.has_traces() && server.session.lent.is_empty();
        is_clean && self.begins && self.answers.is_empty() && !server.ledger.owes_us()
    }

    /// Can all of the input be taken back, to be dealt with once more on this very server? Traces that
    /// it has left there will be left again.
    pub(super) fn can_take_back(&self) -> bool {
        let server = &self.server;
        let is_ours = server.ledger.owes_us() || !server.session.lent.is_empty();
        let is_rewound = self.client.extended.as_ref().is_some_and(|own| own.rewound);
        self.begins && self.answers.is_empty() && !is_ours && !is_rewound
    }

    /// The message in front has to wait: nothing before it has happened, unless there was nothing.
    #[cold]
    pub(super) fn rewind(&mut self) {
        if !self.begins || self.server.ledger.is_untouched() {
            return;
        }
        let (server, client, stats) = (&mut *self.server, &mut *self.client, &mut *self.stats);
        let statements = &mut server.statements;
        let (unnamed, lent) = (&mut server.unnamed, &mut server.session.lent);
        server.ledger.take_back(&mut |entry| {
            let was_ours = entry.verb == Verb::Swallow;
            let was_made_up = matches!(entry.verb, Verb::Synthesize(_));
            stats.binds -= u64::from(entry.expect == Expect::Bind);
            if entry.expect == Expect::Parse {
                stats.client_parses -= u64::from(!was_ours);
                stats.server_parses -= u64::from(!was_made_up);
            }
            undo(entry, statements, unnamed, lent, Some(client));
        });
        client.extended.get_or_insert_default().rewound = true;
        self.out.clear();
        self.keeping = None;
        self.at = self.from;
    }
}
