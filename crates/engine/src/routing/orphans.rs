//! Requests while the cluster has no primary. Its standbys are those of the last primary, and nobody
//! may be promoted for a while.
//!
//! | request | runs on a standby |
//! |---|---|
//! | a read | while the standby is fresh enough: with `max_staleness = 0`, for ever |
//! | a request that asks for a standby | whatever the age of its data |
//! | a SET or RESET alone | always: it shows no data |
//! | `auth_query` | always |
//!
//! The standby must have the session's writes, and what the session has read, as ever. All other requests wait for the next primary.

use crate::client::Client;
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{PoolId, Waiter};
use crate::shell::Exchange;

impl<X: Exchange> Engine<X> {
    /// Routes the requests again that wait for the primary of this pool, if there is none: standbys may
    /// run some of them now.
    #[cold]
    pub(crate) fn ask_standbys(&mut self, pool: PoolId) {
        let routing = self.pools.views.get(pool).and_then(|view| view.settings.routing.as_deref());
        if !routing.is_some_and(|routing| routing.readers.are_orphaned()) {
            return;
        }
        let waits = |client: &Client| {
            let is_here = client.wait().is_some_and(|waiter| waiter.pool == pool);
            is_here
                && client.pool == Some(pool)
                && client.is_welcomed()
                && client.stream.holds_message()
                && !client.while_waiting.fails
                && !client.while_waiting.begins
        };
        let waiting = self.clients.ids_where(waits).into_iter();
        let mut waiting: Vec<_> =
            waiting.filter_map(|id| Some((self.clients[id].wait()?.ticket, id))).collect();
        waiting.sort_unstable_by_key(|(ticket, _)| *ticket);
        let worker = self.context.worker;
        for (_, id) in waiting {
            let client = &self.clients[id];
            let (serial, Some(Waiter { ticket, since, .. })) = (client.serial, client.wait())
            else {
                continue;
            };
            self.sessions.judge_without_primary(id, serial, since);
            self.pools.exchange.pool(pool, |pool| pool.forget(worker, ticket));
            self.clients[id].phase.leave_queue();
            self.work.push_back(Work::Route(id));
        }
    }
}
