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

use crate::ids::Micros;
use crate::routing::rules::Routing;
use crate::routing::sessions::Session;
use crate::routing::why::Why;

/// Must a read wait that no standby may run for this reason? Otherwise the primary runs it.
pub(super) fn must_wait(
    routing: &Routing,
    session: &mut Session,
    why: Why,
    since: Micros,
    now: Micros,
) -> bool {
    let is_early = now.saturating_sub(since) < routing.rules.stale_wait;
    let waits = is_early && routing.rules.wait_for(why);
    let waits = waits || session.waits_ahead(why == Why::OwnRead, is_early, now);
    if waits {
        routing.readers.want_as_of(since);
        routing.readers.note_waiting();
    }
    waits
}
