//! Reads a reader's first replies, and takes a request from a reader that has refused it. The writer
//! gets the request next (`engine/routing.rs`). Nothing of the reader's answer has reached the client,
//! and a reader cannot change anything, so the request has had no effect. The reader keeps the
//! statements that it has prepared, and serves other clients.

use config::PoolMode;

use crate::client::{Client, Steps};
use crate::ids::ClientId;
use crate::lifecycle::pair;
use crate::relay::resend::{answer_due, may_resend};
use crate::relay::undo::undo_for_client;
use crate::routing::refusal::{Word, word};
use crate::server::{Server, ServerPhase};
use crate::shell::{Exchange, Io};

/// The treatment of a reader's first replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// They are held until more of them arrives.
    Held,
    /// They are passed on.
    Answers {
        /// Are they in the server's stream, and no longer in the input?
        is_held: bool,
    },
    /// They are a refusal, and are in the server's stream. The writer can be asked. The reader has
    /// this transaction status then.
    Refused(u8),
    /// The reader ends. Another server can take the request.
    Leaves,
}

impl Server {
    /// May this reader still refuse its client's request? Only if it has got a whole request: a
    /// client that keeps a reader may wait for the replies before a Flush.
    pub(crate) fn may_refuse(&self) -> bool {
        let outline = self.kept.as_deref().map(|kept| &kept.outline);
        matches!(*self.phase, ServerPhase::Linked)
            && self.stream.remaining == 0
            && self.ledger.owes_whole_request()
            && outline.is_some_and(|of| of.asks_writer && self.ledger.is_unanswered(of.first))
    }

    /// Reads a reader's first replies to a request of this client. `mode` is the mode in which the
    /// reader is used.
    pub(crate) fn judge_reader(
        &mut self,
        client: Option<&Client>,
        mode: PoolMode,
        bytes: &[u8],
    ) -> Judged {
        let joined = self.stream.take_joined(bytes);
        let is_held = joined.is_some();
        let outline = self.kept.as_deref().map(|kept| &kept.outline);
        // A transaction that has failed has had no effect either.
        let is_read = outline.is_some_and(|own| own.is_read || own.opening.is_some());
        let word = word(joined.as_deref().unwrap_or(bytes), is_read);
        let may_move = client.is_some_and(|client| may_resend(client, self, mode));
        match word {
            Word::Leaves if may_move && self.may_be_replaced() => return Judged::Leaves,
            Word::Open | Word::Refuses(_) if may_move => self.stream.hold_rest(joined, bytes, 0),
            Word::Open | Word::Answers | Word::Opens(_) | Word::Refuses(_) | Word::Leaves => {
                if let Some(kept) = &mut self.kept {
                    if let Word::Opens(commands) = word {
                        kept.note_opening(client, commands);
                    }
                    kept.outline.asks_writer = false;
                }
                if is_held {
                    self.stream.hold_rest(joined, bytes, 0);
                }
                return Judged::Answers { is_held };
            }
        }
        match word {
            Word::Refuses(status) => Judged::Refused(status),
            Word::Open | Word::Answers | Word::Opens(_) | Word::Leaves => Judged::Held,
        }
    }
}

/// Takes the client and its request from a reader that has refused the request. Returns the texts
/// that have begun the client's transaction, if it is in one.
pub(crate) fn take_from_reader<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    server: &mut Server,
    io: &mut impl Io<X>,
) -> Option<Box<[u8]>> {
    let kept = server.kept.as_deref_mut().map(|kept| {
        let outline = std::mem::take(&mut kept.outline);
        (std::mem::take(&mut kept.bytes), outline.opening)
    });
    let (request, opening) = kept.unwrap_or_default();
    answer_due(id, server, io);
    for entry in server.ledger.last_sent_first() {
        undo_for_client(entry, client);
    }
    pair::release(client, server);
    server.phase.finish();
    client.take_back(&request);
    if opening.is_some() {
        client.while_waiting.steps.set(Steps::BEGINS, true);
    }
    opening
}
