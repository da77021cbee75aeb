//! Reads a reader's first replies, and takes a request from a reader that has refused it. The writer
//! gets the request next (`engine/routing.rs`). Nothing of the reader's answer has reached the client,
//! and a reader cannot change anything, so the request has had no effect. The reader keeps the
//! statements that it has prepared, and serves other clients.

use config::PoolMode;

use crate::client::Client;
use crate::ids::ClientId;
use crate::lifecycle::pair;
use crate::lifecycle::while_waiting::Steps;
use crate::relay::resend::{answer_due, may_resend};
use crate::relay::undo::undo_for_client;
use crate::routing::begun::note_opening;
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
        let refusable = self.kept.refusable();
        matches!(*self.phase, ServerPhase::Linked)
            && self.stream.remaining() == 0
            && self.ledger.owes_whole_request()
            && refusable.is_some_and(|first| self.ledger.is_unanswered(first))
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
        // A transaction that has failed has had no effect either.
        let word = word(joined.as_deref().unwrap_or(bytes), self.kept.only_reads());
        let may_move = client.is_some_and(|client| may_resend(client, self, mode));
        match word {
            Word::Leaves if may_move && self.may_be_replaced() => return Judged::Leaves,
            Word::Open | Word::Refuses(_) if may_move => self.stream.hold_rest(joined, bytes, 0),
            Word::Open | Word::Answers | Word::Opens(_) | Word::Refuses(_) | Word::Leaves => {
                if let Word::Opens(commands) = word {
                    note_opening(&mut self.kept, client, commands);
                }
                self.kept.accept();
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
    let (request, opening) = server.kept.take_refused();
    answer_due(id, server, io);
    for entry in server.ledger.last_sent_first() {
        undo_for_client(entry, client);
    }
    pair::release(client, server);
    server.phase.finish();
    client.take_back(&request);
    if opening.is_some() {
        client.while_waiting.plan(Steps::BEGINS);
    }
    opening
}
