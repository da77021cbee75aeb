//! Begins a transaction again on the writer, if a reader refuses its first statement.
//!
//! BEGIN READ ONLY goes to a reader. A standby refuses statements that the primary runs in a READ ONLY
//! transaction, such as NOTIFY, LISTEN or LOCK. If the client has read nothing yet, no result can
//! differ: Weir rolls back the reader's transaction, and the writer begins one with the same texts.
//! Their replies have been given, so the client gets only those to the refused request.
//!
//! ```text
//!  BEGIN ─► [SET LOCAL, SAVEPOINT, Parse …] ─► refused ─► writer: Begin (the texts) ─► the request
//!                │
//!                └─ a row, another command, a reported parameter ─► the transaction stays
//! ```

use crate::client::Client;
use crate::lifecycle::pair::Pair;
use crate::lifecycle::while_waiting::Steps;
use crate::relay::kept_request::Kept;
use crate::routing::sessions::Session;
use crate::routing::wish::each_text;
use crate::server::{Preparation, Server};
use crate::shell::{Exchange, Io};

/// A transaction with longer texts before its first read stays on its reader.
const OPENING_LEN_MAX: usize = 1024;

/// Ends a statement, also behind a comment.
const END: &[u8] = b"\n;\n";

/// The kept request has begun a transaction, or has read nothing in it. Its commands are complete.
pub(super) fn note_opening(kept: &mut Kept, client: Option<&Client>, commands: usize) {
    let known = client.and_then(|client| client.extended.as_deref());
    let Some((request, mut opening)) = kept.take_texts_before() else { return };
    if commands > 0 {
        let mut texts = 0;
        let walked = each_text(request, known, |text| {
            texts += 1;
            opening.extend_from_slice(text);
            opening.extend_from_slice(END);
        });
        // Each text was run once. If there are others, their order is not known.
        if walked.is_err() || texts != commands {
            return;
        }
    }
    if (1..=OPENING_LEN_MAX).contains(&opening.len()) {
        kept.open(opening);
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// Begins the client's transaction on this server with these texts. Everything else is prepared.
    #[cold]
    pub(crate) fn begin_again(&mut self, opening: &[u8], io: &mut impl Io<X>) {
        self.server.phase.prepare(Preparation::Begin);
        self.server.send_own_query(self.on, opening, self.context, io);
    }
}

/// The server has answered the texts that begin the client's transaction. Returns whether the
/// transaction has begun.
pub(crate) fn has_begun(client: &mut Client, server: &mut Server, session: &mut Session) -> bool {
    server.own_error.take();
    // The texts may have set something for the transaction.
    server.context_change.note();
    if let Some(session) = server.session.get_mut() {
        session.may_set = true;
    }
    client.while_waiting.done(Steps::BEGINS);
    session.opening = Box::default();
    !server.status.is_idle()
}
