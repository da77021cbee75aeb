//! Requests that wait for a server of one node, and are routed again: another node may run them.

use super::routing::Paths;
use super::work::Work;
use crate::admission::pool::Pool;
use crate::client::{Client, ClientPhase};
use crate::ids::{Micros, PoolId, Waiter};
use crate::lifecycle::while_waiting::Steps;
use crate::routing::choose::FULL_PATIENCE;
use crate::shell::Exchange;

impl<X: Exchange> Paths<'_, X> {
    /// Routes the requests again that have waited too long for a full pool of a reader. The time
    /// before they entered its queue does not count.
    pub(super) fn leave_full_readers(&mut self, now: Micros) {
        let worker = self.context.worker;
        let has_waited = |client: &Client| {
            client.while_waiting.may_leave_reader()
                && matches!(*client.phase, ClientPhase::Waiting(waiter)
                    if !client.pool.is(waiter.pool)
                        && now.saturating_sub(waiter.since) > FULL_PATIENCE)
        };
        for id in self.clients.ids_where(has_waited) {
            let Some(Waiter { pool, ticket, .. }) = self.clients[id].wait() else { continue };
            let is_over = |pool: &mut Pool<X::Transport>| {
                pool.is_used_up() && pool.has_waited(worker, ticket, FULL_PATIENCE, now)
            };
            if self.pools.exchange.pool(pool, is_over) {
                self.clients[id].while_waiting.leave_reader();
                self.leave_reader(id, pool);
            }
        }
    }

    /// Routes the requests again that wait for the primary of this pool, if there is none: standbys may
    /// run some of them now.
    #[cold]
    pub(super) fn ask_standbys(&mut self, pool: PoolId) {
        let routing = self.pools.views.get(pool).and_then(|view| view.settings.routing.as_deref());
        if !routing.is_some_and(|routing| routing.readers.are_orphaned()) {
            return;
        }
        let waits = |client: &Client| {
            let is_here = client.wait().is_some_and(|waiter| waiter.pool == pool);
            is_here
                && client.pool.is(pool)
                && client.is_welcomed()
                && client.stream.holds_message()
                && !client.while_waiting.is_due(Steps::FAILS | Steps::BEGINS)
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
            self.work.push(Work::Route(id));
        }
    }

    /// Routes the reads again that wait for a fresher standby.
    pub(super) fn release_held(&mut self) {
        self.work.extend(self.sessions.take_held().into_iter().map(|(id, _)| Work::Route(id)));
    }
}
