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

use crate::admission::pool::{Grant, Pool, role_changes};
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::apply::Refused;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::own_keys::{may_use_keys, no_keys, remark_own_keys};
use crate::lifecycle::pair::{self, Pair};
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::prepare::{Answered, Prepared};
use crate::lifecycle::release::{Cleaning, Freed, Released};
use crate::lifecycle::while_waiting::Steps;
use crate::notify::listen::{Handed, Unread};
use crate::operator::timings::Timings;
use crate::own_error::OwnError;
use crate::routing::begun::has_begun;
use crate::server::{Preparation, Server, ServerPhase, ServerPurpose};
use crate::shell::{Exchange, Io};
use crate::vars::Welcome;

/// Before a client has its server.
impl<X: Exchange> Engine<X> {
    /// Requests a server for a logged-in client.
    pub(crate) fn link(&mut self, id: ClientId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        let client = &self.clients[id];
        let Some(pool) = client.pool.id() else { return Readable::NotYet };
        // A replication client has a server of its own. If there is no room for one, the server that it
        // gets later is replaced.
        if client.replication.is_some()
            && self.pools.exchange.pool(pool, Pool::reserve_own)
            && self.seats().take(pool, io)
        {
            self.clients[id].phase.prepare(Waiter::served(id, pool, now));
            let purpose = ServerPurpose::Replication { client: id };
            self.connect_server(pool, None, Some(purpose), io);
            return Readable::NotYet;
        }
        let client = &self.clients[id];
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
                    client.begin_wait();
                }
                client.phase.queue(Waiter { client: id, pool, ticket, since });
                if open {
                    self.open_server(pool, io);
                }
                Readable::NotYet
            }
            Grant::Refused(_) | Grant::Closed(_) if self.paths().leave_reader(id, pool) => {
                Readable::NotYet
            }
            Grant::Refused(error) => {
                self.disconnect(id, &error, io);
                Readable::NotYet
            }
            Grant::Closed(reason) => {
                self.disconnect(id, reason, io);
                Readable::NotYet
            }
        }
    }

    /// Gives the server to a client that has waited, or places it elsewhere if the client no longer
    /// waits.
    pub(crate) fn join_waiter(&mut self, waiter: Waiter, on: ServerId, io: &mut impl Io<X>) {
        let (id, pool) = (waiter.client, self.servers[on].pool);
        if !self.clients.waits(waiter, pool) {
            self.place(on, io);
        } else if self.clients[id].asks() {
            self.pair(id, on).ask_about_user(io);
        } else if self.clients[id].proves() {
            self.prove_by(id, on, io);
        } else if !self.clients[id].pool.is(pool) && self.paths().is_overtaken(id, pool, io.now()) {
            self.paths().leave_reader(id, pool);
            self.place(on, io);
        } else if self.join(id, on, io) == Readable::Now {
            self.go_on(id, io);
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
        let (client, half) = (&self.clients[id], &*self.servers[server]);
        let mut refusal: Option<OwnError<'static>> = None;
        if self.pools.has_another_role(client, half) {
            refusal = Some(CloseReason::RoleChanged.into());
        } else if half.own_keys {
            let settings = self.pools.settings(half.pool);
            if !may_use_keys(&self.context.config, settings, &client.identity.user) {
                remark_own_keys(id, client, settings, io);
                refusal = Some(no_keys());
            }
        }
        if let Some(why) = refusal {
            // The server goes to another client.
            self.disconnect(id, why, io);
            self.servers[server].phase.unpark();
            self.place(server, io);
            return Readable::NotYet;
        }
        let (client, half) = (&mut self.clients[id], &mut *self.servers[server]);
        pair::lend(id, client, server, half);
        let pool = half.pool;
        let waiter = client.phase.prepare(Waiter::served(id, pool, now));
        if !client.is_welcomed() {
            let welcome = half.welcome.clone();
            client.complete_vars(&welcome, &mut self.context);
            client.pool.welcomed_at(role_changes(half.epoch));
        }
        half.stages.link(waiter.since, now);
        self.pools.view(pool).assigned(now.saturating_sub(waiter.since));
        self.prepare(id, server, io)
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
        match self.pair(id, on).prepare(io) {
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
        let Some(id) = *server.client else { return };
        let readable = match step {
            Preparation::Hear
            | Preparation::Check
            | Preparation::Apply
            | Preparation::Reapply
            | Preparation::Statements
            | Preparation::Recount(_) => match self.pair(id, on).answered(io) {
                Answered::GoesOn(Prepared::Ready) => self.ready(id, on, io),
                Answered::GoesOn(Prepared::NotYet) => return,
                Answered::Lost(reason) | Answered::Refused(Refused::Lost(reason)) => {
                    return self.lose_server(on, reason, io);
                }
                Answered::Refused(Refused::Renewed) => {
                    let purpose = ServerPurpose::Settings { client: id };
                    return self.replace_server(on, CloseReason::SettingsRefused, purpose, io);
                }
                Answered::Refused(Refused::Denied { why, closes }) => {
                    self.disconnect(id, why.ending(), io);
                    if closes {
                        self.seats().close(on, CloseReason::InvalidParameter, io);
                    }
                    return;
                }
            },
            Preparation::TellPrincipal(_) => return,
            Preparation::Restore => match self.pair(id, on).restored(io) {
                Ok(()) => return,
                Err(why) => return self.answered(id, on, Err(why), io),
            },
            Preparation::Ask(_) => {
                let answer = self.servers[on].take_answer();
                return self.answered(id, on, answer, io);
            }
            // Nothing was asked, so the message itself does not matter. The cancel request may be
            // over now.
            Preparation::AwaitCancel if server.cancel.is_under_way() => return,
            Preparation::AwaitCancel | Preparation::Probe(_) => return self.judge(id, on, io),
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
                    self.disconnect(id, CloseReason::OutOfStep, io);
                    return self.seats().close(on, CloseReason::OutOfStep, io);
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
            if self.clients.get(id).is_some_and(|client| *client.server == Some(on)) {
                self.channels(id).pass_if_due(io);
            }
        }
    }

    /// The server is prepared: welcomes the client if it is new, and lets it send its request.
    pub(crate) fn ready(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) -> Readable {
        if !self.clients[id].is_welcomed() {
            let welcome = self.servers[on].welcome.clone();
            self.welcome(id, Some(on), &welcome, io);
            let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
            time_link(client, server, &mut self.transactions.timings, io.now());
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
        if self.clients[id].while_waiting.is_due(Steps::ANY) {
            let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
            time_link(client, server, &mut self.transactions.timings, io.now());
            if client.while_waiting.is_due(Steps::FAILS) {
                self.pair(id, on).fail_transaction(io);
                return Readable::NotYet;
            }
            if client.while_waiting.is_due(Steps::BEGINS) {
                let opening = self.sessions.of(id, client.serial).opening.clone();
                self.pair(id, on).begin_again(&opening, io);
                return Readable::NotYet;
            }
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
        let pool = client.pool.id().filter(|_| client.replication.is_none());
        let introduction: &[u8] = pool.map_or(&[], |pool| &self.pools.settings(pool).introduction);
        self.scratch.clear();
        client.greet(key, welcome, introduction, &self.context, &mut self.scratch);
        io.send_client(id, &self.scratch);
        self.keys.insert(key, id);
        if let Some(timings) = &mut self.transactions.timings {
            timings.welcome(client.serial, io.now());
        }
    }
}

/// After a client has used its server.
impl<X: Exchange> Engine<X> {
    /// Takes the server back from its client.
    pub(crate) fn unlink(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        pair::release(client, &mut self.servers[on]);
        client.resent.end();
        client.phase.unlink();
        if !client.stream.held().is_empty() && client.has_request_to_route() {
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
        self.release(on, Cleaning::Begins, io);
    }

    /// Decides what happens to a server without a client.
    pub(crate) fn release(&mut self, on: ServerId, cleaning: Cleaning, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let last = server.unexplained_client().and_then(|(id, serial)| {
            self.clients.get_mut(id).filter(|client| client.serial == serial)
        });
        let (pool, context) = (self.pools.known(server.pool), &mut self.context);
        let mut released = Released { on, server, pool, context, last };
        match released.go_on(cleaning, io) {
            Freed::Free => self.place(on, io),
            Freed::NotYet => {}
            Freed::Cancels => self.cancellation().send(on, None, io),
            Freed::NotOpened => self.open_failed(on, CloseReason::LeftDuringLogin, None, io),
            Freed::Marked => {
                let (pool, worker) = (self.servers[on].pool, self.context.worker);
                self.place(on, io);
                self.pools.exchange.pool(pool, |pool| pool.sort_last(worker));
            }
            Freed::Enlisted => self.seats().enlisted(on, io),
            Freed::Close(reason) => self.seats().close(on, reason, io),
        }
    }
}

/// Records that the client's server is prepared, if the client is timed (`connection_timings`).
#[cold]
fn time_link(
    client: &mut Client,
    server: &mut Server,
    timings: &mut Option<Box<Timings>>,
    now: Micros,
) {
    if !client.while_waiting.is_due(Steps::TIMED) {
        return;
    }
    let assigned_at = server.stages.assigned_at();
    let awaits_first = timings
        .as_mut()
        .is_some_and(|timings| timings.apply(client.serial, server.choice(), assigned_at, now));
    match awaits_first {
        true => server.stages.describe_any(),
        false => client.while_waiting.done(Steps::TIMED),
    }
}
