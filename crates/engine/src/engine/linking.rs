//! Links clients and servers, and parts them. `lifecycle` decides what a server needs before its client
//! may use it, and after it has.
//!
//! ```text
//!  link ── request ──┬─ granted ──► join ─► prepare ─┬─ nothing to do ─► ready
//!                    │               ▲               └─ ask the server … ─► prepared ─► ready
//!                    └─ queued … ────┘
//!  unlink ─► free ─┬─ reset first … ─► settled ─┐
//!                  └────────────────────────────┴─► place (next client, park, or close)
//! ```

use config::PoolMode;

use crate::admission::pool::{Grant, role_changes};
use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::ahead::Ahead;
use crate::lifecycle::apply::{Denied, Refused};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::own_keys::{may_use_keys, no_keys, remark_own_keys};
use crate::lifecycle::pair::{self, Pair};
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::prepare::{Answered, Prepared};
use crate::lifecycle::release::{Freed, Released};
use crate::notify::listen::{Handed, Unread};
use crate::own_error::OwnError;
use crate::routing::begun::has_begun;
use crate::server::{Preparation, ServerPhase, ServerPurpose};
use crate::shell::{Exchange, Io};
use crate::vars::Welcome;

/// Before a client has its server.
impl<X: Exchange> Engine<X> {
    /// Requests a server for a logged-in client.
    pub(crate) fn link(&mut self, id: ClientId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        let client = &self.clients[id];
        let Some(pool) = client.pool else { return Readable::NotYet };
        let (worker, values) = (self.context.worker, client.digest());
        let grant = self.pools.exchange.pool(pool, |pool| pool.request(worker, id, values, now));
        self.take_grant(id, pool, grant, now, io)
    }

    /// Acts on the pool's answer to a client without a server, which has waited since `since`.
    // Each transaction begins here. As a call it cost 0.3 % of one.
    #[inline(always)]
    pub(crate) fn take_grant(
        &mut self,
        id: ClientId,
        pool: PoolId,
        grant: Grant<X::Transport>,
        since: Micros,
        io: &mut impl Io<X>,
    ) -> Readable {
        match grant {
            Grant::Server(server) => {
                let server = self.servers.attach(server, &mut self.pools, io);
                self.join(id, server, io)
            }
            Grant::Queued { ticket, open } => {
                let client = &mut self.clients[id];
                if !matches!(*client.phase, ClientPhase::Waiting(_)) {
                    client.while_waiting.notified = false;
                    client.begin_wait();
                }
                client.phase.queue(Waiter { client: id, pool, ticket, since });
                if open {
                    self.open_server(pool, io);
                }
                Readable::NotYet
            }
            Grant::Refused(_) | Grant::Closed(_) if self.rerouting().leave_reader(id, pool) => {
                Readable::NotYet
            }
            Grant::Refused(error) => {
                self.refuse_client(id, &error, io);
                Readable::NotYet
            }
            Grant::Closed(reason) => {
                self.disconnect(id, reason, io);
                Readable::NotYet
            }
        }
    }

    /// Gives the server to a client that has waited.
    pub(crate) fn join_waiter(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        if self.clients[id].asks() {
            self.ask_on(id, on, io);
        } else if self.clients[id].proves() {
            self.prove_by(id, on, io);
        } else if self.is_overtaken(id, on, io.now()) {
            let pool = self.servers[on].pool;
            self.rerouting().leave_reader(id, pool);
            self.place(on, io);
        } else if self.join(id, on, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// Does the same, or places the server elsewhere if the client no longer waits.
    pub(crate) fn join_or_place(&mut self, waiter: Waiter, on: ServerId, io: &mut impl Io<X>) {
        let pool = self.servers[on].pool;
        match self.clients.waits(waiter, pool) {
            true => self.join_waiter(waiter.client, on, io),
            false => self.place(on, io),
        }
    }

    /// Links the client and the server, and prepares the server.
    pub(crate) fn join(&mut self, id: ClientId, server: ServerId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        if self.clients[id].replication.is_some() {
            // A replication client has a server of its own.
            let served = Waiter::served(id, self.servers[server].pool, now);
            self.clients[id].phase.prepare(served);
            let purpose = ServerPurpose::Replication { client: id };
            self.replace_server(server, CloseReason::Evicted, purpose, io);
            return Readable::NotYet;
        }
        if self.pools.has_another_role(&self.clients[id], &self.servers[server]) {
            return self.bar_from(id, server, CloseReason::RoleChanged.into(), io);
        }
        let (half, user) = (&*self.servers[server], &self.clients[id].identity.user);
        if half.own_keys
            && !may_use_keys(&self.context.config, self.pools.settings(half.pool), user)
        {
            let settings = self.pools.settings(half.pool);
            remark_own_keys(id, &self.clients[id], settings, io);
            return self.bar_from(id, server, no_keys(), io);
        }
        let (client, half) = (&mut self.clients[id], &mut *self.servers[server]);
        pair::link(id, client, server, half);
        let pool = half.pool;
        let waiter = client.phase.prepare(Waiter::served(id, pool, now));
        if !client.is_welcomed() {
            let welcome = half.welcome.clone();
            client.complete_vars(&welcome, &mut self.context);
            client.role_changes = role_changes(half.epoch);
        }
        half.stages.link(waiter.since, now);
        self.pools.view(pool).assigned(now.saturating_sub(waiter.since));
        self.prepare(id, server, io)
    }

    /// Disconnects a client that may not use this server. The server goes to another one.
    #[cold]
    fn bar_from(
        &mut self,
        id: ClientId,
        on: ServerId,
        why: OwnError<'_>,
        io: &mut impl Io<X>,
    ) -> Readable {
        self.disconnect(id, why, io);
        self.servers[on].phase.unpark();
        self.place(on, io);
        Readable::NotYet
    }

    /// Gives the client the new server that was opened for it.
    pub(crate) fn apply_to_new(
        &mut self,
        id: ClientId,
        on: ServerId,
        rest: &[u8],
        io: &mut impl Io<X>,
    ) {
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        let pool = server.pool;
        pair::part(client, server);
        client.phase.unlink();
        if !rest.is_empty() {
            // The server has already sent something. Weir reads that first, and the client requests
            // a server again.
            self.begin_use(on, rest, io);
            if self.link(id, io) == Readable::Now {
                self.go_on(id, io);
            }
            return;
        }
        if self.join(id, on, io) == Readable::Now {
            self.go_on(id, io);
        }
        self.go_on_opening(pool, io);
    }
}

/// While a server is prepared for its client.
impl<X: Exchange> Engine<X> {
    #[inline]
    pub(crate) fn pair(&mut self, id: ClientId, on: ServerId) -> Pair<'_, X> {
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        let (pool, context) = (self.pools.known(server.pool), &mut self.context);
        Pair { id, client, on, server, pool, context }
    }

    pub(crate) fn prepare(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) -> Readable {
        let prepared = self.pair(id, on).prepare(io);
        self.go_on_preparing(id, on, prepared, io)
    }

    #[inline]
    fn go_on_preparing(
        &mut self,
        id: ClientId,
        on: ServerId,
        prepared: Prepared,
        io: &mut impl Io<X>,
    ) -> Readable {
        match prepared {
            Prepared::Ready => self.ready(id, on, io),
            Prepared::NotYet => Readable::NotYet,
        }
    }

    /// Continues the preparation after a reply to Weir's own message.
    pub(crate) fn prepared(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let ServerPhase::Preparing(step) = &*server.phase else { return };
        if let Preparation::TellPrincipal(_) = step {
            return self.principal_told(on, io);
        }
        let Some(id) = server.client else { return };
        let readable = match step {
            Preparation::Hear
            | Preparation::Check
            | Preparation::Apply
            | Preparation::Reapply
            | Preparation::Statements
            | Preparation::Recount(_) => match self.pair(id, on).answered(io) {
                Answered::GoesOn(prepared) => self.go_on_preparing(id, on, prepared, io),
                Answered::Refused => return self.refused(id, on, io),
                Answered::Lost(reason) => return self.lose_server(on, reason, io),
            },
            Preparation::TellPrincipal(_) => return,
            Preparation::Restore => return self.restored(on, io),
            Preparation::Ask(_) => {
                let answer = self.servers[on].take_answer();
                return self.answered(on, answer, io);
            }
            // Nothing was asked, so the message itself does not matter. The cancel request may be
            // over now.
            Preparation::AwaitCancel if server.cancel.is_some() => return,
            Preparation::AwaitCancel => return self.judge(id, on, io),
            Preparation::Probe(_) => return self.probed(on, io),
            // `reply_bytes` goes on.
            Preparation::Ahead(_) => return,
            Preparation::HandOver => match self.channels(id).handed_over(io) {
                Ok(Handed::Nothing) => Readable::Now,
                Ok(Handed::Again) => self.prepare(id, on, io),
                Ok(Handed::Over) => return self.unlink(id, on, io),
                Err(Unread) => return self.disconnect(id, Unread::WHY, io),
            },
            Preparation::Signal(_) => {
                let told = self.cancellation().may_signal(id, on, io);
                return self.follow_request(told, io);
            }
            Preparation::Unwind => return self.pair(id, on).renew(Preparation::Renew, io),
            Preparation::Renew | Preparation::Confirm => self.renewed(id, on, io),
            Preparation::Fail => {
                if !self.clients[id].begin_failed(&mut self.servers[on], io.now()) {
                    self.disconnect_from(id, on, CloseReason::OutOfStep, io);
                    return self.close_server(on, CloseReason::OutOfStep, io);
                }
                self.ready(id, on, io)
            }
            Preparation::Begin => {
                let client = &mut self.clients[id];
                let session = self.sessions.of(id, client.serial);
                if !has_begun(client, &mut self.servers[on], session) {
                    // The client's request is not run.
                    return self.pair(id, on).fail_transaction(io);
                }
                self.ready(id, on, io)
            }
        };
        if readable == Readable::Now {
            self.go_on(id, io);
            if self.clients.get(id).is_some_and(|client| client.server == Some(on)) {
                self.channels(id).pass_if_due(io);
            }
        }
    }

    /// The server refuses the client's values in every order.
    fn refused(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let (why, closes) = match self.pair(id, on).refused(io) {
            Refused::Lost(reason) => return self.lose_server(on, reason, io),
            Refused::Renewed => {
                let purpose = ServerPurpose::Settings { client: id };
                return self.replace_server(on, CloseReason::SettingsRefused, purpose, io);
            }
            Refused::Denied { why, closes } => (why, closes),
        };
        match why {
            Denied::AsAtLogin(error) => self.refuse_client(id, &error, io),
            Denied::Session(text) => self.disconnect(id, text, io),
            Denied::InvalidParameter => self.disconnect(id, CloseReason::InvalidParameter, io),
        }
        if closes {
            self.settled(on, io);
        }
    }

    /// The server is prepared: welcomes the client if it is new, and lets it send its request.
    pub(crate) fn ready(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) -> Readable {
        if !self.clients[id].is_welcomed() {
            let welcome = self.servers[on].welcome.clone();
            self.welcome(id, Some(on), &welcome, io);
            if self.pools.mode_of(&self.servers[on]) != PoolMode::Session {
                if self.clients[id].stream.holds_message() {
                    // The client has already sent a request for the server.
                    return self.prepare(id, on, io);
                }
                self.unlink(id, on, io);
                return Readable::NotYet;
            }
            // It was not queued for its first transaction, which may come much later.
            self.servers[on].stages.clear();
        }
        let client = &self.clients[id];
        if client.while_waiting.fails {
            self.pair(id, on).fail_transaction(io);
            return Readable::NotYet;
        }
        if client.while_waiting.begins {
            let opening = self.sessions.of(id, client.serial).opening.clone();
            self.pair(id, on).begin_again(&opening, io);
            return Readable::NotYet;
        }
        self.pair(id, on).begin(io.now());
        Readable::Now
    }

    /// Tells the client that it is logged in. In session mode the cancel key has the server's
    /// process id, which programs compare with `pg_backend_pid()`.
    pub(crate) fn welcome(
        &mut self,
        id: ClientId,
        on: Option<ServerId>,
        welcome: &Welcome,
        io: &mut impl Io<X>,
    ) {
        let peer = u16::try_from(self.context.config.global.peer_id).unwrap_or(0);
        let client = &mut self.clients[id];
        let process_id = on.filter(|_| peer == 0).map(|on| &*self.servers[on]).filter(|server| {
            client.replication.is_some() || self.pools.mode_of(server) == PoolMode::Session
        });
        let process_id = process_id.map(|server| server.key.pid);
        let key = self.keys.draw(peer, process_id, io);
        let pool = client.pool.filter(|_| client.replication.is_none());
        let introduction: &[u8] = pool.map_or(&[], |pool| &self.pools.settings(pool).introduction);
        self.scratch.clear();
        client.greet(key, welcome, introduction, &self.context, &mut self.scratch);
        io.send_client(id, &self.scratch);
        self.keys.insert(key, id);
    }

    /// The server has answered settings that were sent with a request. Returns Now if replies to the
    /// request follow.
    pub(crate) fn ahead_answered(&mut self, on: ServerId, io: &mut impl Io<X>) -> Readable {
        let Some(id) = self.servers[on].client else { return Readable::NotYet };
        match self.pair(id, on).ahead_answered(io) {
            Ahead::Taken => {
                self.go_on(id, io);
                Readable::Now
            }
            Ahead::Refused => {
                self.move_ahead(on, CloseReason::SettingsRefused, io);
                Readable::NotYet
            }
        }
    }

    /// Sends the request to another server, since this one has not run it.
    pub(crate) fn move_ahead(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let Some(id) = server.client else { return };
        let Some(request) = server.phase.take_request() else { return };
        self.move_request(id, on, &request, reason, io);
    }
}

/// After a client has used its server.
impl<X: Exchange> Engine<X> {
    /// Takes the server back from its client.
    pub(crate) fn unlink(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        pair::release(client, &mut self.servers[on]);
        client.resent = false;
        client.phase.unlink();
        if !client.stream.held.is_empty() && client.has_request_to_route() {
            self.work.push(Work::Route(id));
        }
        if !self.pools.changed_user.is_empty() {
            self.follow_rename(id);
        }
        io.resume_client(id);
        if self.clients[id].session.is_some()
            && let Err(Unread) = self.channels(id).tell_untold(io)
        {
            self.disconnect(id, Unread::WHY, io);
        }
        self.free(on, io);
    }

    #[inline]
    fn released(&mut self, on: ServerId) -> Released<'_, X> {
        let server = &mut *self.servers[on];
        let last = server.unexplained_client().and_then(|(id, serial)| {
            self.clients.get_mut(id).filter(|client| client.serial == serial)
        });
        let (pool, context) = (self.pools.known(server.pool), &mut self.context);
        Released { on, server, pool, context, last }
    }

    /// Decides what happens to a server that has lost its client: close it, clean it, hold it back
    /// or pass it on.
    pub(crate) fn free(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let flushed = io.server_flushed(on);
        let freed = self.released(on).free(flushed, io);
        self.go_on_releasing(on, freed, io);
    }

    /// Makes the server available: none of Weir's own queries is under way either.
    pub(crate) fn settled(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let freed = self.released(on).settled(io);
        self.go_on_releasing(on, freed, io);
    }

    #[inline]
    fn go_on_releasing(&mut self, on: ServerId, freed: Freed, io: &mut impl Io<X>) {
        match freed {
            Freed::Free => self.place(on, io),
            Freed::NotYet => {}
            Freed::Enlisted => self.seats().enlisted(on, io),
            Freed::Close(reason) => self.close_server(on, reason, io),
        }
    }

    /// Closes a server on which a query after its last client has failed, or has left a transaction
    /// open.
    #[cold]
    pub(crate) fn reset_failed(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        self.released(on).report_failed(io);
        self.close_server(on, reason, io);
    }
}
