//! Work on all clients that something concerns: a reload, a server that cannot be reached.

use super::Engine;
use crate::client::ClientPhase;
use crate::ids::{ClientId, PoolId};
use crate::lifecycle::preparation::Readable;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// After a reload has changed the user (`user=`) of databases, moves the clients that have no
    /// server. The others follow as soon as they have none, so the next transaction runs as the new
    /// user, as with PgBouncer. In session mode a client keeps its server until it disconnects. A
    /// waiting client goes to the end of the new queue.
    pub(crate) fn move_clients(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        if self.pools.changed_user.is_empty() {
            return;
        }
        let is_free =
            |phase: &ClientPhase| matches!(phase, ClientPhase::Idle | ClientPhase::Waiting(_));
        let renamed = self.pools.changed_user.clone();
        let concerns = |pool: Option<PoolId>| pool.is_some_and(|pool| renamed.contains(&pool));
        for id in
            self.clients.ids_where(|client| is_free(&client.phase) && concerns(client.pool.id()))
        {
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
        let old = self.clients[id].pool.id()?;
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
        client.pool.enter(new, role_changes);
        self.channels(id).move_to(new);
        Some(new)
    }

    /// Routes the reads again that wait for a fresher standby: the nodes were sampled, or time has
    /// passed.
    pub fn route_held_reads(&mut self, io: &mut impl Io<X>) {
        self.paths().release_held();
        self.finish(io);
    }

    /// PostgreSQL cannot be reached now. The clients whose logins wait for a server are told what the
    /// last one has told.
    pub(crate) fn welcome_waiting(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let known = self.pools.exchange.pool(pool, |pool| {
            let fails = pool.failure.is_some() && !pool.settings.is_session();
            pool.welcome.clone().filter(|_| fails)
        });
        let Some(welcome) = known else { return };
        let worker = self.context.worker;
        let waits = self.clients.ids_where(|client| {
            !client.is_welcomed()
                && client.replication.is_none()
                && matches!(*client.phase, ClientPhase::Waiting(waiter) if waiter.pool == pool)
        });
        for id in waits {
            let client = &mut self.clients[id];
            client.complete_vars(&welcome, &mut self.context);
            self.welcome(id, None, &welcome, io);
            if !self.clients[id].stream.holds_message() {
                let waiter = self.clients[id].wait();
                self.clients[id].phase.leave_queue();
                if let Some(waiter) = waiter {
                    self.pools.exchange.pool(pool, |pool| pool.forget(worker, waiter.ticket));
                }
                io.resume_client(id);
            }
        }
    }
}
