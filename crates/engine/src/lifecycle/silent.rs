//! Servers at a node that does not answer Weir's own questions: the machine is frozen, or the
//! network drops everything. Such a connection may never end by itself.
//!
//! | the server | is given up |
//! |---|---|
//! | has a request that another server can run | `health_timeout` after the request |
//! | has another request, at a standby | the same |
//! | has another request, at the primary | `failover_wait` after the request and the loss |
//!
//! A node that answers a client, and only not Weir, is not silent for this client's server.

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::ids::{Micros, over};
use crate::routing::Place;
use crate::server::{Server, ServerPhase};
use crate::shell::Exchange;

/// The time that a silent server may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// The node does not answer since this moment.
    since: Micros,
    /// For a request that another server can run.
    movable: Micros,
    other: Micros,
}

impl Patience {
    /// Returns the time that a pool's servers may take, if their node is silent.
    pub(crate) fn of<X: Exchange>(pool: &mut OnePool<'_, X>) -> Option<Self> {
        let settings = &pool.view.settings;
        settings.cluster.as_ref()?;
        let (movable, failover_wait) = (settings.health_timeout, settings.failover_wait);
        let other = match pool.view.place {
            Place::Writer => failover_wait,
            Place::Reader(_) => movable,
        };
        let since = pool.lock(|pool| pool.silent_since())?;
        Some(Self { since, movable, other })
    }

    pub(crate) fn is_over(self, server: &Server, client: Option<&Client>, now: Micros) -> bool {
        let asked_at = match (&*server.phase, client) {
            (ServerPhase::Linked, Some(client)) if !server.ledger.owes_nothing() => {
                client.times.request_at()
            }
            (ServerPhase::Preparing(_), _) => server.times.asked_at(),
            (
                ServerPhase::Connecting(_)
                | ServerPhase::Login(_)
                | ServerPhase::Parked
                | ServerPhase::Linked
                | ServerPhase::Finishing
                | ServerPhase::Settling(_)
                | ServerPhase::Listening
                | ServerPhase::Attending { .. },
                _,
            ) => return false,
        };
        let begun = asked_at.max(server.times.replied_at());
        match server.may_be_replaced() {
            true => over(self.movable, begun, now),
            false => over(self.other, begun.max(self.since), now),
        }
    }
}
