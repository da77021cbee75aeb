//! Which request of a client is kept, in case that it has to be sent once more. What for is told
//! in `kept_request.rs`. Most requests end as soon as it is known what they do: nothing of them is copied.

use wire::Header;

use super::{HEADER_LEN, Requests};
use crate::relay::kept_request::{KEPT_LEN_MAX, Outline, is_lone_begin};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::relay::prepared::Found;
use crate::server::Server;
use crate::shell::Exchange;

/// A BEGIN with all its options is no longer than this, in bytes.
const BEGIN_LEN_MAX: usize = 128;

/// The request in progress, as far as it stands in one input.
#[derive(Debug)]
pub(super) struct Keeping {
    /// Where its part of the input begins.
    from: usize,
    /// Did the request begin in this input?
    begun_here: bool,
    outline: Outline,
}

impl Keeping {
    /// A request that began in an earlier input goes on.
    pub(super) fn go_on(server: &Server) -> Option<Self> {
        let kept = server.kept.as_deref()?;
        let first = kept.outline.first;
        (first != 0 && server.ledger.owes(first)).then(|| Self {
            from: 0,
            begun_here: false,
            outline: kept.outline.clone(),
        })
    }
}

impl<X: Exchange> Requests<'_, X> {
    /// A message is about to be owed an answer.
    pub(super) fn note(&mut self, entry: &Entry) {
        if let Verb::Synthesize(_) = entry.verb {
            return;
        }
        let server = &self.server;
        // What Weir asks in front of it (`numbers.rs`) is no part of the request.
        if self.keeping.is_none()
            && self.may_keep
            && server.status == b'I'
            && (server.ledger.is_untouched() || server.ledger.owes_only_us())
        {
            let outline = Outline { first: entry.serial, ..Outline::default() };
            self.keeping = Some(Keeping { from: self.at, begun_here: true, outline });
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.outline.has_effect |= match entry.expect {
                Expect::Query | Expect::FunctionCall | Expect::Bind | Expect::Execute => true,
                // No copy without a Query or an Execute.
                Expect::Parse
                | Expect::Describe
                | Expect::Close
                | Expect::Sync
                | Expect::CopyEnd => false,
            };
        }
    }

    /// The message just entered is a Query: a request that is a lone BEGIN has no effect.
    pub(super) fn note_begin(&mut self, header: Header, available: usize) {
        let serial = *self.serial;
        if let Some(keeping) = &mut self.keeping
            && keeping.outline.first == serial
            && available == header.total
            && header.total <= BEGIN_LEN_MAX
        {
            let text = &self.input[self.at + HEADER_LEN..self.at + header.total];
            keeping.outline.has_effect = !is_lone_begin(text);
        }
    }

    /// The message just entered uses a statement.
    pub(super) fn note_use(&mut self, found: Option<Found>) {
        let Some(Found { name, used, .. }) = found else { return };
        let serial = *self.serial;
        let first = self.server.ledger.first().unwrap_or(serial);
        self.extended().note_name(serial, name, first);
        if let Some(keeping) = &mut self.keeping
            && keeping.outline.first == serial
        {
            keeping.outline.uses = Some(used);
        }
    }

    /// How a statement is described: the client may know half of the answer already.
    pub(super) fn describe_verb(&mut self) -> Verb {
        let kept = self.server.kept.as_deref_mut();
        match kept.is_some_and(|kept| std::mem::take(&mut kept.parameters_given)) {
            true => Verb::Continue,
            false => Verb::Replace,
        }
    }

    /// The input is dealt with: remember what may be needed. Returns where in it the request
    /// begins, if it begins in it.
    #[inline(always)]
    pub(super) fn keep(&mut self) -> Option<usize> {
        let Keeping { from, begun_here, outline } = self.keeping.take()?;
        let bytes = &self.input[from..self.at];
        if outline.is_worth_keeping() {
            let kept = &mut **self.server.kept.get_or_insert_default();
            if begun_here {
                kept.bytes.clear();
            }
            kept.outline = outline;
            if kept.bytes.len() + bytes.len() > KEPT_LEN_MAX {
                kept.outline = Outline::default();
            } else {
                kept.bytes.extend_from_slice(bytes);
            }
        } else if let Some(kept) = &mut self.server.kept {
            kept.outline = Outline::default();
        }
        begun_here.then_some(from)
    }
}
