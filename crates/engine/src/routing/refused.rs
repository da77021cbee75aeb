//! Sends a request that a reader has refused to the writer. Nothing of the reader's answer has
//! reached the client, and a reader cannot change anything, so the request has had no effect. The
//! reader keeps the statements that it has prepared, and serves other clients.

use wire::frontend;

use crate::engine::Engine;
use crate::ids::ServerId;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair;
use crate::relay::ledger::Expect;
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
    /// The reader has gone, and the request with it to another server.
    Lost,
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
        let server = &mut *self.servers[on];
        let joined = server.stream.take_joined(bytes);
        let is_held = joined.is_some();
        let outline = server.kept.as_deref().map(|kept| &kept.outline);
        // A transaction that has failed has had no effect either.
        let is_read = outline.is_some_and(|own| own.is_read || own.opening.is_some());
        let word = word(joined.as_deref().unwrap_or(bytes), is_read);
        let client = server.client.and_then(|id| self.clients.get(id));
        let may_move = client.is_some_and(|client| may_resend(client, server, mode));
        match word {
            Word::Leaves if may_move && server.may_be_replaced() => {
                self.lose_server(on, CloseReason::Lost, io);
                return Judged::Lost;
            }
            Word::Open | Word::Refuses(_) if may_move => server.stream.hold_rest(joined, bytes, 0),
            Word::Open | Word::Answers | Word::Opens(_) | Word::Refuses(_) | Word::Leaves => {
                if let Some(kept) = &mut server.kept {
                    if let Word::Opens(commands) = word {
                        kept.note_opening(client, commands);
                    }
                    kept.outline.asks_writer = false;
                }
                if is_held {
                    server.stream.hold_rest(joined, bytes, 0);
                }
                return Judged::Answers { is_held };
            }
        }
        match word {
            Word::Refuses(status) => Judged::Refused(status),
            Word::Open | Word::Answers | Word::Opens(_) | Word::Leaves => Judged::Held,
        }
    }

    /// Takes the client from a reader that has refused its request, and sends the request to the
    /// writer. The reader has this transaction status then.
    #[cold]
    pub(crate) fn ask_writer(&mut self, on: ServerId, status: u8, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let (Some(id), Some(kept)) = (server.client, server.kept.as_deref_mut()) else { return };
        let request = std::mem::take(&mut kept.bytes);
        let outline = std::mem::take(&mut kept.outline);
        answer_due(id, &mut self.servers[on], io);
        self.count_refused(id);
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        for entry in server.ledger.last_sent_first() {
            undo_for_client(entry, client);
        }
        pair::release(client, server);
        server.phase.finish();
        client.take_back(&request);
        if let Some(opening) = outline.opening {
            client.while_waiting.begins = true;
            let serial = client.serial;
            self.sessions.of(id, serial).opening = opening;
        }
        if status != b'I' {
            let mut rollback = Vec::new();
            frontend::query(&mut rollback, b"ROLLBACK");
            self.ask(on, &[Expect::Query], 0, &rollback, io);
        }
        // The refusal is in the reader's stream. It frees the reader.
        self.reply_bytes(on, &[], io);
        self.send_again(id, io);
    }
}
