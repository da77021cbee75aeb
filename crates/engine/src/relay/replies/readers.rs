//! Replies in pools with reads on standbys.

use super::Replies;
use crate::ids::Micros;
use crate::routing::Session;
use crate::routing::rules::Routing;
use crate::session::on_server::SchemaChanges;

/// A client has read on a reader. `left_recovery`: the reader's node was promoted, so a text with a
/// hint may have written there. This counts for the pool of the client, not for that of the reader.
pub(crate) fn note_read(
    session: &mut Session,
    routing: Option<&Routing>,
    left_recovery: bool,
    now: Micros,
) {
    session.has_read(now);
    if let Some(routing) = routing.filter(|_| left_recovery) {
        session.wrote.note(now);
        routing.note_write(now);
    }
}

impl Replies<'_, '_> {
    /// Notes the end of a transaction in a pool with routing. It may have written.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_routed_end(&mut self, session: &mut Session, now: Micros) {
        let Some(routing) = self.settings.routing.as_deref() else { return };
        let (last, is_over) = (self.server.ledger.last_end(), self.server.ledger.is_at_rest());
        let mut is_doubtful = false;
        if let Some(session) = self.server.session.get_mut() {
            is_doubtful = session.schema == SchemaChanges::MayBeUnseen;
            // Otherwise the next transaction has begun, which may be the one that does.
            if is_over {
                session.schema = SchemaChanges::Seen;
            }
        }
        session.ended(last, is_doubtful, routing, now);
    }
}
