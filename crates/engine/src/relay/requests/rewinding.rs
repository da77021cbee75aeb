//! Takes back the messages before a statement about which Weir has to ask first
//! (`relay/resend.rs`). Nothing of the input has been sent yet. So Weir undoes its records of these
//! messages, often a BEGIN, and later handles the input from its beginning.
//!
//! This happens once per input. Other doubtful statements of the input are used as they are.
//! Otherwise two statements that evict each other could cause an endless loop.

use super::Requests;
use crate::relay::ledger::{Expect, Verb};
use crate::relay::undo::undo;
use crate::shell::Exchange;

impl<X: Exchange> Requests<'_, X> {
    /// Can the input be handled once more? Not if it has left traces on the server or made Weir
    /// send queries of its own: these cannot be undone.
    pub(super) fn can_rewind(&self) -> bool {
        let server = &self.server;
        let is_clean =
            server.status.is_idle() && !server.has_traces() && server.session.lent.is_empty();
        is_clean && self.begins && self.answers.is_empty() && !server.ledger.owes_us()
    }

    /// Can the whole input be taken back and handled once more on this same server? Its traces need
    /// not be undone, since it leaves them again.
    pub(super) fn can_take_back(&self) -> bool {
        let server = &self.server;
        let is_ours = server.ledger.owes_us() || !server.session.lent.is_empty();
        let is_rewound = self.client.extended.as_ref().is_some_and(|own| own.repeats.is_rewound());
        self.begins && self.answers.is_empty() && !is_ours && !is_rewound
    }

    /// The message in front has to wait. Undoes all messages before it.
    #[cold]
    pub(super) fn rewind(&mut self) {
        if !self.begins || self.server.ledger.is_untouched() {
            return;
        }
        let (server, client, stats) = (&mut *self.server, &mut *self.client, &mut *self.stats);
        let statements = &mut server.statements;
        let (unnamed, session) = (&mut server.unnamed, &mut server.session);
        server.ledger.take_back(&mut |entry| {
            let was_ours = entry.verb == Verb::Swallow;
            let was_made_up = matches!(entry.verb, Verb::Synthesize(_));
            stats.binds -= u64::from(entry.expect == Expect::Bind);
            if entry.expect == Expect::Parse {
                stats.client_parses -= u64::from(!was_ours);
                stats.server_parses -= u64::from(!was_made_up);
            }
            undo(entry, statements, unnamed, session, Some(client));
        });
        client.extended_mut().repeats.rewind();
        self.out.clear();
        self.keeping = None;
        self.at = self.from;
    }
}
