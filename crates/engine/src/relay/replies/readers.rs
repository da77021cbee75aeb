//! The client that reads a server's replies.

use crate::client::Client;
use crate::server::{Preparation, Server, ServerPhase};

/// Returns the client that reads the server's replies, or the client that is held back. A client
/// that is held back gets notifications only: PostgreSQL may send these at any time.
#[inline(always)]
pub(super) fn reader_and_hearer<'a>(
    server: &Server,
    client: Option<&'a mut Client>,
) -> (Option<&'a mut Client>, Option<&'a mut Client>) {
    match server.phase {
        ServerPhase::Linked
        | ServerPhase::Preparing(
            Preparation::AwaitCancel
            | Preparation::Probe(_)
            | Preparation::HandOver
            | Preparation::Signal(_),
        ) => (client, None),
        ServerPhase::Preparing(Preparation::Unwind | Preparation::Renew | Preparation::Confirm) => {
            (None, client)
        }
        ServerPhase::Preparing(_) if server.is_pinned() => (None, client),
        ServerPhase::Connecting(_)
        | ServerPhase::Login(_)
        | ServerPhase::Parked
        | ServerPhase::Preparing(_)
        | ServerPhase::Finishing
        | ServerPhase::Settling(_)
        | ServerPhase::Listening => (None, None),
    }
}
