//! Decides which request of a client is kept, so that it can be sent again. `kept_request.rs` says
//! why. Most requests are not copied at all: their effect is known before they end.

use wire::Header;

use super::{HEADER_LEN, Requests};
use crate::relay::kept_request::{Outline, is_lone_begin};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::relay::prepared::Found;
use crate::routing::Place;
use crate::server::Server;
use crate::shell::Exchange;

/// A BEGIN with all its options is no longer than this, in bytes.
const BEGIN_LEN_MAX: usize = 128;

/// The part of the current request that is in one input.
#[derive(Debug)]
pub(super) struct Keeping {
    /// The beginning of this part in the input.
    from: usize,
    /// Did the request begin in this input?
    begun_here: bool,
    outline: Outline,
}

impl Keeping {
    /// Continues a request that began in an earlier input.
    pub(super) fn go_on(server: &Server) -> Option<Self> {
        let outline = server.kept.outline()?;
        let first = outline.first;
        (first != 0 && server.ledger.owes(first)).then(|| Self {
            from: 0,
            begun_here: false,
            outline: outline.clone(),
        })
    }
}

impl<X: Exchange> Requests<'_, X> {
    /// A message that the server will answer is about to be entered.
    pub(super) fn note(&mut self, entry: &Entry) {
        if let Verb::Synthesize(_) = entry.verb {
            return;
        }
        let server = &self.server;
        // Weir's own query before the request (`numbers.rs`) is not part of it.
        if self.keeping.is_none()
            && server.status.is_idle()
            && (server.ledger.is_untouched() || server.ledger.owes_only_us())
        {
            let asks_writer =
                self.may_move && self.place != Place::Writer && server.ledger.is_untouched();
            let outline = Outline {
                first: entry.serial,
                has_effect: !self.may_move,
                asks_writer,
                is_read: self.is_judged_read,
                ..Outline::default()
            };
            self.keeping = Some(Keeping { from: self.at, begun_here: true, outline });
        }
        if self.place != Place::Writer {
            self.note_in_transaction(entry.serial);
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.outline.has_effect |= match entry.expect {
                Expect::Query | Expect::FunctionCall | Expect::Bind | Expect::Execute => true,
                // There is no copy without a Query or an Execute.
                Expect::Parse
                | Expect::Describe
                | Expect::Close
                | Expect::Sync
                | Expect::CopyEnd
                | Expect::Count => false,
            };
        }
    }

    /// In a transaction on a reader, keeps a request before which nothing was read.
    #[cold]
    fn note_in_transaction(&mut self, serial: u64) {
        let server = &mut *self.server;
        let opening = server.kept.take_opening();
        let Some(opening) = opening.filter(|_| self.keeping.is_none()) else { return };
        if self.may_move && server.status.byte() == b'T' && server.ledger.is_untouched() {
            let outline = Outline {
                first: serial,
                has_effect: true,
                asks_writer: true,
                opening: Some(opening),
                ..Outline::default()
            };
            self.keeping = Some(Keeping { from: self.at, begun_here: true, outline });
        }
    }

    /// The message just entered is a Query. A request that is a lone BEGIN has no effect.
    #[inline(always)]
    pub(super) fn note_begin(&mut self, header: Header, available: usize) {
        let serial = *self.serial;
        if let Some(keeping) = &mut self.keeping
            && keeping.outline.first == serial
            && keeping.outline.opening.is_none()
            && available == header.total
            && header.total <= BEGIN_LEN_MAX
        {
            let text = &self.input[self.at + HEADER_LEN..self.at + header.total];
            keeping.outline.has_effect = !(self.may_move && is_lone_begin(text));
        }
    }

    /// The message just entered uses a statement.
    pub(super) fn note_use(&mut self, found: Option<Found>) {
        let Some(Found { name, used, .. }) = found else { return };
        let serial = *self.serial;
        let first = self.server.ledger.first().unwrap_or(serial);
        self.extended().names_used.note(serial, name, first);
        if let Some(keeping) = &mut self.keeping
            && keeping.outline.first == serial
            && keeping.outline.opening.is_none()
        {
            keeping.outline.uses = Some(used);
        }
    }

    /// Returns how a Describe is answered. The client may already have the first half of the
    /// answer.
    pub(super) fn describe_verb(&mut self) -> Verb {
        match self.server.kept.take_parameters_given() {
            true => Verb::Continue,
            false => Verb::Replace,
        }
    }

    /// The input is handled. Keeps the request if it may be needed. Returns where the request
    /// begins, if it begins in this input.
    #[inline(always)]
    pub(super) fn keep(&mut self) -> Option<usize> {
        let Keeping { from, begun_here, outline } = self.keeping.take()?;
        let bytes = &self.input[from..self.at];
        // Another server would need the transaction first.
        let may_go_alone = outline.opening.is_none();
        self.server.kept.keep(outline, bytes, begun_here);
        (begun_here && may_go_alone).then_some(from)
    }
}
