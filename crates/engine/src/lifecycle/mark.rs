//! The mark of servers that have been idle for a while (`mark_pooled_servers`): an `application_name`
//! that pg_stat_activity shows.
//!
//! ```text
//!  parked for [`IDLE`] ─► Settling(Mark): SET application_name ─► parked again, where it was
//!                                                             └─► a client waits: as after a release
//! ```
//!
//! The server has reported the new value, so its next client's own value is set as any other that
//! differs. A marked server is known by its value alone, also in the process that takes over.

use crate::admission::pool::{Parked, Pool};
use crate::context::Context;
use crate::ids::{Micros, ServerId, WorkerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::server::{Server, Settling};
use crate::shell::{Exchange, Io};
use crate::vars::APPLICATION_NAME;

const MARK: &[u8] = b"pooled";
const SET: &[u8] = b"SET application_name = 'pooled';";
/// A server that has been idle for less is not marked, so a busy pool pays nothing.
const IDLE: Micros = 1_000_000;

/// Takes an idle server that is to be marked.
pub(crate) fn take_unmarked<T>(
    pool: &mut Pool<T>,
    worker: WorkerId,
    now: Micros,
) -> Option<Parked<T>> {
    pool.take_resting(worker, |Parked { server, .. }| {
        // A server of another kind may not report the parameter.
        now.saturating_sub(server.times.released_at()) >= IDLE
            && server.vars.get(APPLICATION_NAME).is_some_and(|name| name != MARK)
    })
}

/// Marks a server that has no client and is clean.
pub(crate) fn begin<X: Exchange>(
    on: ServerId,
    server: &mut Server,
    context: &mut Context,
    io: &mut impl Io<X>,
) {
    server.phase.settle(Settling::Mark);
    server.send_own_query(on, SET, context, io);
}

/// The server has answered, and owes nothing. Returns why it must be closed, if it must.
#[cold]
pub(crate) fn end(server: &mut Server) -> Option<CloseReason<'static>> {
    if let Some(reason) = *server.doomed {
        return Some(reason);
    }
    // It would be asked again and again.
    if server.own_error.take().is_some() || server.vars.get(APPLICATION_NAME) != Some(MARK) {
        return Some(CloseReason::Text("server refused application_name"));
    }
    None
}
