//! Moves clients to another pool after a reload has changed the user (`user=`) of a database. A
//! client moves as soon as it has no server, so its next transaction runs as the new user, as with
//! PgBouncer. In session mode a client keeps its server until it disconnects.

use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::ids::{ClientId, PoolId};
use crate::lifecycle::preparation::Readable;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Moves the clients that have no server. A waiting client goes to the end of the new queue.
    pub(crate) fn move_clients(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        if self.pools.changed_user.is_empty() {
            return;
        }
        let is_free =
            |phase: &ClientPhase| matches!(phase, ClientPhase::Idle | ClientPhase::Waiting(_));
        let renamed = self.pools.changed_user.clone();
        let concerns = |pool: Option<PoolId>| pool.is_some_and(|pool| renamed.contains(&pool));
        for id in self.clients.ids_where(|client| is_free(&client.phase) && concerns(client.pool)) {
            let worker = self.context.worker;
            if let Some(waiter) = self.clients[id].wait() {
                self.pools.exchange.pool(waiter.pool, |pool| pool.forget(worker, waiter.ticket));
                self.clients[id].phase.leave_queue();
                let Some(pool) = self.follow_rename(id) else { continue };
                let values = self.clients[id].digest();
                let grant =
                    self.pools.exchange.pool(pool, |pool| pool.request(worker, id, values, now));
                if self.take_grant(id, pool, grant, waiter.since, io) == Readable::Now {
                    self.go_on(id, io);
                }
            } else {
                self.follow_rename(id);
            }
        }
    }

    /// Moves a client without a server to its new pool, if its user was changed. Returns the
    /// client's pool.
    pub(crate) fn follow_rename(&mut self, id: ClientId) -> Option<PoolId> {
        let old = self.clients[id].pool?;
        if !self.pools.changed_user.contains(&old) {
            return Some(old);
        }
        let identity = self.clients[id].identity.clone();
        // If the database is removed, its clients are dropped elsewhere.
        let Some(new) = self.pools.find(&self.context, &identity.database, &identity.user) else {
            return Some(old);
        };
        self.pools.exchange.pool(old, |pool| pool.clients -= 1);
        let role_changes = self.pools.exchange.pool(new, |pool| {
            pool.enter();
            pool.role_changes()
        });
        let client = &mut self.clients[id];
        (client.pool, client.role_changes) = (Some(new), role_changes);
        self.move_listening(id, new);
        Some(new)
    }
}
