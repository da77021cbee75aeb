//! Sends a request that a reader has refused to the writer. Nothing of the reader's answer has
//! reached the client, and a reader cannot change anything, so the request has had no effect. The
//! reader keeps the statements that it has prepared, and serves other clients.

use crate::engine::Engine;
use crate::ids::ServerId;
use crate::lifecycle::close_reason::CloseReason;
use crate::relay::kept_request::Outline;
use crate::relay::resend::may_resend;
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
    /// They are a refusal, and are in the server's stream. The writer can be asked.
    Refused,
    /// The reader has gone, and the request with it to another server.
    Lost,
}

impl Server {
    /// May this reader still refuse its client's request? Only if it has got a whole request: a
    /// client that keeps a reader may wait for the replies before a Flush.
    pub(crate) fn may_refuse(&self) -> bool {
        let outline = self.kept.as_deref().map(|kept| &kept.outline);
        matches!(self.phase, ServerPhase::Linked)
            && self.stream.remaining == 0
            && self.ledger.owes_whole_request()
            && !self.ledger.is_ambiguous()
            && outline.is_some_and(|of| of.asks_writer && self.ledger.is_unanswered(of.first))
    }
}

impl<X: Exchange> Engine<X> {
    /// Reads a reader's first replies to a request.
    pub(crate) fn judge_reader(
        &mut self,
        on: ServerId,
        bytes: &[u8],
        io: &mut impl Io<X>,
    ) -> Judged {
        let mode = self.mode_of(on);
        let server = &mut *self.servers[on.0 as usize];
        let joined = server.stream.take_joined(bytes);
        let is_held = joined.is_some();
        let is_read = server.kept.as_deref().is_some_and(|kept| kept.outline.is_read);
        let word = word(joined.as_deref().unwrap_or(bytes), is_read);
        let client = server.client.and_then(|id| self.clients.get(id.0 as usize));
        let may_move = client.is_some_and(|client| may_resend(client, server, mode));
        match word {
            Word::Leaves if may_move && server.may_be_replaced() => {
                self.lose_server(on, CloseReason::Lost, io);
                return Judged::Lost;
            }
            Word::Open | Word::Refuses if may_move => server.stream.hold_rest(joined, bytes, 0),
            Word::Open | Word::Answers | Word::Refuses | Word::Leaves => {
                if let Some(kept) = &mut server.kept {
                    kept.outline.asks_writer = false;
                }
                if is_held {
                    server.stream.hold_rest(joined, bytes, 0);
                }
                return Judged::Answers { is_held };
            }
        }
        if word == Word::Refuses { Judged::Refused } else { Judged::Held }
    }

    /// Takes the client from a reader that has refused its request, and sends the request to the
    /// writer.
    #[cold]
    pub(crate) fn ask_writer(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        let (Some(id), Some(kept)) = (server.client, server.kept.as_deref_mut()) else { return };
        let request = std::mem::take(&mut kept.bytes);
        kept.outline = Outline::default();
        self.answer_due(id, on, io);
        self.count_refused(id);
        let client = &mut self.clients[id.0 as usize];
        let server = &mut *self.servers[on.0 as usize];
        for entry in server.ledger.last_sent_first() {
            undo_for_client(entry, client);
        }
        server.lose_client(client.serial);
        server.enter(ServerPhase::Finishing);
        client.take_back(&request);
        // The refusal is in the reader's stream. It frees the reader.
        self.reply_bytes(on, &[], io);
        self.send_again(id, io);
    }
}
