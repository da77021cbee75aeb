//! A reload has changed the user (`user=`) whom a database logs in to its servers as. That is another
//! pool. Clients move to it as soon as they have no server: with their next transaction they meet
//! servers of the new user, as with PgBouncer. A session keeps its server to its end.

use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId};
use crate::lifecycle::link::Readable;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Clients that have no server move at once; who waits goes to the end of the new queue.
    pub(crate) fn move_clients(&mut self, now: Micros, io: &mut impl Io<X>) {
        if self.changed_user.is_empty() {
            return;
        }
        let is_free =
            |phase: &ClientPhase| matches!(phase, ClientPhase::Idle | ClientPhase::Waiting(_));
        let renamed = self.changed_user.clone();
        let concerns = |pool: Option<PoolId>| pool.is_some_and(|pool| renamed.contains(&pool));
        for id in self.clients_where(|client| is_free(&client.phase) && concerns(client.pool)) {
            let worker = self.worker;
            if let Some((pool, waiter)) = self.client(id).wait() {
                self.exchange.pool(pool, |pool| pool.forget(worker, waiter.ticket));
                self.client_mut(id).phase = ClientPhase::Idle;
                let Some(pool) = self.follow_rename(id) else { continue };
                let values = self.client(id).digest();
                let grant = self.exchange.pool(pool, |pool| pool.request(worker, id, values, now));
                if self.take_grant(id, grant, waiter.since, now, io) == Readable::Now {
                    self.go_on(id, io);
                }
            } else {
                self.follow_rename(id);
            }
        }
    }

    /// The pool of the client, which has no server, from now on.
    pub(crate) fn follow_rename(&mut self, id: ClientId) -> Option<PoolId> {
        let old = self.client(id).pool?;
        if !self.changed_user.contains(&old) {
            return Some(old);
        }
        let identity = self.client(id).identity.clone();
        // A database that is gone is dropped with its clients.
        let Some(new) = self.find_pool(&identity.database, &identity.user) else {
            return Some(old);
        };
        self.exchange.pool(old, |pool| pool.clients -= 1);
        self.exchange.pool(new, |pool| pool.enter());
        self.client_mut(id).pool = Some(new);
        self.move_listening(id, new);
        Some(new)
    }
}
