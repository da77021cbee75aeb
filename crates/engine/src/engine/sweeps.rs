//! Work on all clients or servers that something concerns: a reload, a lost node, a moved address, a
//! changed role, a limit of time.

use super::Engine;
use super::work::Work;
use crate::admission::pool::Pool;
use crate::client::{Client, ClientPhase, ReaderPlace};
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::silent::Patience;
use crate::login::auth::Awaited;
use crate::login::patience::{LOGIN_GRACE, OUTWAITED};
use crate::own_error::{Cause, OwnError};
use crate::routing::Place;
use crate::routing::choose::FULL_PATIENCE;
use crate::server::Server;
use crate::session::holding::{end_hold, is_idle};
use crate::session::pins::Pins;
use crate::shell::{Closing, Event, Exchange, Io, Mail};

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
        self.channels(id).move_to(new);
        Some(new)
    }

    /// Gives up the servers at silent nodes. Their clients are told, or get another server.
    pub(crate) fn give_up_silent(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        for pool in self.pools.views.ids() {
            let Some(patience) = Patience::of(&mut self.pools.one(pool)) else { continue };
            let is_over = |server: &Server| {
                let client = server.client.and_then(|id| self.clients.get(id));
                server.pool == pool && patience.is_over(server, client, now)
            };
            for server in self.servers.ids_where(|server| is_over(server)) {
                self.lose_server(server, CloseReason::NodeSilent, io);
            }
        }
    }

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
            self.work.push(Work::Route(id));
        }
    }

    /// Routes the reads again that wait for a fresher standby: the nodes were sampled, or time has
    /// passed.
    pub fn route_held_reads(&mut self, io: &mut impl Io<X>) {
        for (id, _) in self.sessions.take_held() {
            self.work.push(Work::Route(id));
        }
        self.finish(io);
    }

    /// Routes the requests again that have waited too long for a full pool of a reader. The time
    /// before they entered its queue does not count.
    pub(crate) fn leave_full_readers(&mut self, io: &mut impl Io<X>) {
        let (worker, now) = (self.context.worker, io.now());
        let has_waited = |client: &Client| {
            client.while_waiting.reader == ReaderPlace::Open
                && matches!(*client.phase, ClientPhase::Waiting(waiter)
                    if client.pool != Some(waiter.pool)
                        && now.saturating_sub(waiter.since) > FULL_PATIENCE)
        };
        for id in self.clients.ids_where(has_waited) {
            let Some(Waiter { pool, ticket, .. }) = self.clients[id].wait() else { continue };
            let is_over = |pool: &mut Pool<X::Transport>| {
                pool.is_used_up() && pool.has_waited(worker, ticket, FULL_PATIENCE, now)
            };
            if self.pools.exchange.pool(pool, is_over) {
                self.clients[id].while_waiting.reader = ReaderPlace::Left;
                self.leave_reader(id, pool);
            }
        }
        self.finish(io);
    }

    /// Ends holds of idle clients whose servers other clients wait for.
    pub(crate) fn end_long_holds(&mut self, io: &mut impl Io<X>) {
        let clients = self.clients.iter();
        let held =
            clients.filter_map(|(id, client)| Some((id, self.held_too_long(client, io.now())?)));
        for (id, on) in held.collect::<Vec<_>>() {
            let server = &*self.servers[on];
            let (pool, epoch) = (server.pool, server.epoch);
            let is_leaving = server.doomed.is_some() || self.context.drain.is_some();
            if is_leaving || self.pools.exchange.pool(pool, |pool| pool.misses_server(epoch)) {
                let server = &mut *self.servers[on];
                if let Some(view) = self.pools.views.get_mut(pool) {
                    end_hold(server, view);
                }
                // If the client also listens, its channels move to the listener first.
                if server.session.pinned.is_none() {
                    self.unlink(id, on, io);
                }
            }
        }
    }

    /// Returns the server that the client has kept longer than others may wait, without using it.
    /// Only a server that it keeps for no other reason, or while its channels move to the listener.
    fn held_too_long(&self, client: &Client, now: Micros) -> Option<ServerId> {
        let on = client.server.filter(|_| matches!(*client.phase, ClientPhase::Linked))?;
        let server = self.servers.get(on)?;
        let only_held = server.pins().without(Pins::LISTEN) == Pins::DRAWN;
        if !only_held || !is_idle(client, server) {
            return None;
        }
        let patience =
            self.pools.views.get(server.pool)?.history.sequences.patience(&server.session.drawn);
        (now.saturating_sub(client.request_at) > patience).then_some(on)
    }

    /// Checks proofs whose delay is over, the oldest client first.
    pub(crate) fn judge_held(&mut self, io: &mut impl Io<X>) {
        let is_held =
            |phase: &ClientPhase| matches!(phase, ClientPhase::Login(login) if login.held);
        let held = self.clients.iter().filter(|(_, client)| is_held(&client.phase));
        let mut held: Vec<_> = held.map(|(id, client)| (client.serial, id)).collect();
        held.sort_unstable();
        for (serial, id) in held {
            self.clients[id].login_mut().held = false;
            let step = self.door(id).go_on(io);
            self.after_login(id, step, io);
            let is_there = self.clients.get(id).is_some_and(|client| client.serial == serial);
            if is_there && !is_held(&self.clients[id].phase) {
                // Messages that it has sent meanwhile are still unread.
                io.resume_client(id);
            }
        }
    }

    pub(crate) fn free_places(&mut self, io: &mut impl Io<X>) {
        if std::mem::take(&mut self.context.places_wanted) {
            self.end_waits(
                |client| client.counted,
                &OwnError::new(Cause::TooManyClients, OUTWAITED),
                io,
            );
        }
    }

    pub(super) fn end_waits(
        &mut self,
        is_meant: impl Fn(&Client) -> bool,
        why: &OwnError<'_>,
        io: &mut impl Io<X>,
    ) {
        let (mut slow, mut held) = (Vec::new(), Vec::new());
        for (id, client) in self.clients.iter() {
            let ClientPhase::Login(login) = &*client.phase else { continue };
            if !is_meant(client) {
                continue;
            }
            let since = client.connected_at.max(login.challenged_at);
            if login.peer.local
                || login.step.awaits() == Awaited::Answer
                || io.now().saturating_sub(since) < LOGIN_GRACE
            {
                continue;
            }
            let out = if login.held { &mut held } else { &mut slow };
            out.push(id);
        }
        for id in if slow.is_empty() { held } else { slow } {
            self.disconnect_with(id, why, None, io);
        }
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

    /// Disconnects the clients that have logged in as another role than the pool's servers now have.
    /// A client in a transaction keeps its server until the end. A client whose login waits for a
    /// server gets one of the new role.
    pub(crate) fn review_role(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let changes = self.pools.exchange.pool(pool, |pool| pool.role_changes());
        if std::mem::replace(&mut self.pools.view(pool).role_changes, changes) == changes {
            return;
        }
        let old = self.clients.ids_where(|client| {
            client.pool == Some(pool)
                && client.role_changes != changes
                && client.is_welcomed()
                && matches!(*client.phase, ClientPhase::Idle | ClientPhase::Waiting(_))
        });
        for id in old {
            self.disconnect(id, CloseReason::RoleChanged, io);
        }
        io.close_lobby(pool, Closing::AfterTransaction, CloseReason::RoleChanged.text());
    }

    /// All servers of the pool are being replaced. Tells all workers, and doubts the servers of the
    /// same user in other pools.
    pub(crate) fn principal_changed(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let identity = self.pools.view(pool).identity.clone();
        let name = (identity.database.as_str(), identity.user.as_str());
        io.event(Event::PrincipalChanged { name });
        let is_writer = self.pools.view(pool).place == Place::Writer;
        if let Some(routing) = &self.pools.view(pool).settings.routing {
            // The change may be younger than this worker's `now`.
            routing.note_role_change(io.clock());
        }
        let mut changed = vec![pool];
        for other in self.pools.exchange.pool_ids() {
            let is_reader = self.pools.exchange.pool(other, |other| {
                if other.id == pool || other.key.user != identity.user {
                    return false;
                }
                other.owe_check(now);
                // A standby may not have the change yet. It is not used before it has, and its servers
                // are then replaced once more (`Pool::keep_up`).
                let follows = is_writer && other.key.database == identity.database;
                if follows {
                    other.follow_role(false);
                }
                follows
            });
            changed.extend(is_reader.then_some(other));
        }
        changed.into_iter().for_each(|pool| self.review_everywhere(pool));
    }

    /// Has all workers apply what has changed in the pool.
    pub(crate) fn review_everywhere(&mut self, pool: PoolId) {
        self.work.push(Work::Review(pool));
        self.pools.exchange.post_to_others(self.context.worker, || Mail::Review { pool });
    }
}
