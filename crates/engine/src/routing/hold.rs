//! Reads that wait for a standby which is fresh enough: with `read_after_write = strict`, and with
//! `when_stale = wait`.
//!
//! The client is idle meanwhile, with its request in its stream, and is not read. The cold side
//! samples the nodes often, because a standby lacks what the read must see. After each sample it
//! tells the workers, which route the request again. After `stale_wait` the primary runs it.
//!
//! ```text
//!  route ─► no standby is fresh enough ─► held ─► a sample ─► route ─► a standby
//!                                          ▲        │
//!                                          └────────┴─► `stale_wait` is over ─► the primary
//! ```

use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId};
use crate::routing::why::Why;
use crate::shell::Exchange;

impl<X: Exchange> Engine<X> {
    /// Holds a read that no standby may run for this reason. Returns false if the primary runs it.
    pub(crate) fn hold_read(
        &mut self,
        id: ClientId,
        writer: PoolId,
        why: Why,
        (since, now): (Micros, Micros),
    ) -> bool {
        let routing =
            self.pools.views.get(writer).and_then(|view| view.settings.routing.as_deref());
        let Some(routing) = routing else { return false };
        let serial = self.clients[id].serial;
        let is_early = now.saturating_sub(since) < routing.rules.stale_wait;
        let waits = is_early && routing.rules.wait_for(why);
        let session = self.sessions.of(id, serial);
        let waits = waits || session.waits_ahead(why == Why::OwnRead, is_early, now);
        if waits {
            routing.readers.want_as_of(since);
            routing.readers.note_waiting();
            self.sessions.hold(id, serial, since);
        }
        waits
    }

    /// Does this client's read wait for a fresher standby? Then the client is not read.
    pub(crate) fn is_read_held(&self, id: ClientId) -> bool {
        let client = self.clients.get(id);
        client.is_some_and(|client| self.sessions.holds(id, client.serial))
    }
}
