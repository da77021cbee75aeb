//! Reads the requests of idle clients in pools with routing, and links the clients where `routing`
//! chooses.

use super::Engine;
use super::pools::Pools;
use super::tables::{Clients, Servers};
use super::work::{Queue, Work};
use crate::admission::pool::Grant;
use crate::client::ClientPhase;
use crate::context::Context;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::preparation::Readable;
use crate::relay::ledger::Expect;
use crate::routing::choose::{Route, Router, is_full};
use crate::routing::refused::take_from_reader;
use crate::routing::rules::Routing;
use crate::routing::why::Why;
use crate::routing::{FirstRequest, Place, Sessions, first_request};
use crate::shell::{Exchange, Io};
use crate::values::Digest;

/// The clients of pools with routing, and what decides about their requests.
pub(super) struct Paths<'a, X> {
    pub(super) context: &'a mut Context,
    pub(super) clients: &'a mut Clients,
    pub(super) servers: &'a mut Servers,
    pub(super) pools: &'a mut Pools<X>,
    pub(super) sessions: &'a mut Sessions,
    pub(super) verdicts: &'a mut Option<Box<sql::Cache<Option<sql::Verdict>>>>,
    pub(super) work: &'a mut Queue,
}

impl<X: Exchange> Paths<'_, X> {
    /// Returns the router of a client whose pool is `writer`.
    fn router(&mut self, id: ClientId, writer: PoolId) -> Router<'_, X> {
        let client = &mut self.clients[id];
        Router {
            session: self.sessions.of(id, client.serial),
            client,
            writer: self.pools.one(writer),
            context: self.context,
            verdicts: self.verdicts,
        }
    }

    /// Returns the pool for a request of a client of `writer`, and when the request has arrived. None:
    /// it waits for a fresher standby.
    fn route(
        &mut self,
        id: ClientId,
        writer: PoolId,
        request: &[u8],
        io: &impl Io<X>,
    ) -> Option<(PoolId, Micros)> {
        let mut router = self.router(id, writer);
        let (since, need) = router.arrival(io);
        let pool = match router.route(request, since, io.now(), need) {
            Route::Writer => writer,
            Route::Ordered(node) => self.pools.at(self.context, writer, Place::Reader(node)),
            Route::Drawn { drawn, is_fixed } => {
                let node = self.pools.pick(writer, drawn);
                let pool = self.pools.at(self.context, writer, Place::Reader(node));
                let mut router = self.router(id, writer);
                router.go_to(node, is_fixed);
                if pool != writer {
                    router.session.expect(None);
                }
                pool
            }
            Route::Held => {
                let serial = self.clients[id].serial;
                self.sessions.hold(id, serial, since);
                return None;
            }
        };
        Some((pool, since))
    }

    /// Judges a request of a client that has kept its server. Returns false if it is not judged. If only
    /// drawn numbers keep the server, a read there is no write, and no reason to doubt the catalogs.
    /// Other state may give the text another meaning.
    // Not inlined: most workers have no verdicts.
    #[inline(never)]
    pub(super) fn judge_kept(&mut self, id: ClientId, bytes: &[u8], now: Micros) -> bool {
        let client = &self.clients[id];
        let is_held = client.server.is_some_and(|on| {
            let server = &*self.servers[on];
            let is_at_rest = server.ledger.is_at_rest() && server.status.is_idle();
            is_at_rest && server.keeps_only_numbers() && !self.pools.is_reader(server.pool)
        });
        let is_whole = client.stream.at_boundary();
        let writer =
            client.pool.id().filter(|pool| is_held && is_whole && self.pools.routes(Some(*pool)));
        let Some((writer, FirstRequest::Whole(len))) =
            writer.map(|own| (own, first_request(bytes)))
        else {
            return false;
        };
        self.router(id, writer).judge_kept(&bytes[..len], now);
        true
    }

    /// Notes that `len` bytes of an idle client's requests were handled together.
    #[inline]
    pub(super) fn note_handled(&mut self, id: ClientId, len: usize) {
        let Some(client) = self.clients.get(id) else { return };
        if !self.pools.routes(client.pool.id()) {
            return;
        }
        let last = client.server.map(|on| self.servers[on].ledger.last_end());
        let session = self.sessions.of(id, client.serial);
        session.note_server(false);
        if session.is_due()
            && let Some(last) = last
        {
            session.handled(len, last);
        }
    }

    /// Requests a server of a reader's pool for the client. None: the client's own pool serves it.
    fn ask_reader(
        &mut self,
        id: ClientId,
        pool: PoolId,
        now: Micros,
    ) -> Option<(PoolId, Grant<X::Transport>)> {
        let client = &mut self.clients[id];
        let writer = client.pool.id().filter(|writer| *writer != pool)?;
        let (serial, values) = (client.serial, client.digest());
        let place = client.while_waiting.come_to_reader();
        match self.request(id, pool, values, now) {
            Grant::Refused(_) | Grant::Closed(_) => None,
            Grant::Queued { ticket, open: false }
                if is_full(&mut self.pools.one(pool), place, now) =>
            {
                let worker = self.context.worker;
                self.pools.exchange.pool(pool, |pool| pool.forget(worker, ticket));
                let need = self.sessions.of(id, serial).need;
                let (node, other) = self.pools.elsewhere(self.context, writer, pool, need, now)?;
                self.router(id, writer).go_to(node, false);
                Some((other, self.request(id, other, values, now)))
            }
            grant @ (Grant::Server(_) | Grant::Queued { .. }) => Some((pool, grant)),
        }
    }

    /// Asks the pool of a standby for a server, which the standby has logged in with the present role.
    fn request(
        &mut self,
        id: ClientId,
        pool: PoolId,
        values: Option<Digest>,
        now: Micros,
    ) -> Grant<X::Transport> {
        let worker = self.context.worker;
        let changed_at = self.pools.role_change_at(self.clients[id].pool.id(), pool);
        let (is_replaced, grant) = self
            .pools
            .exchange
            .pool(pool, |pool| (pool.keep_up(changed_at), pool.request(worker, id, values, now)));
        if is_replaced {
            let review = self.pools.review_everywhere(pool, worker);
            self.work.push(review);
        }
        grant
    }

    /// Must a client that has waited for a server of another pool than its own be routed again? While
    /// it waited, the pool's node may have been lost, or may have fallen too far behind.
    pub(crate) fn is_overtaken(&mut self, id: ClientId, pool: PoolId, now: Micros) -> bool {
        let client = &self.clients[id];
        let Some(Place::Reader(node)) = self.pools.views.get(pool).map(|view| view.place) else {
            return false;
        };
        let session = self.sessions.of(id, client.serial);
        let need = session.need;
        let routing = self.pools.routing(client.pool.id());
        let changed_at = routing.map_or(0, Routing::role_changed_at);
        // A pool that has stopped routing has no reads on standbys.
        let is_overtaken = routing.is_none_or(|routing| routing.node(node, need, now).is_err())
            || changed_at != 0 && self.pools.exchange.pool(pool, |pool| pool.is_behind(changed_at));
        session.note_server(is_overtaken);
        is_overtaken
    }

    /// Routes a client's request again, because the reader's pool does not serve the client. Returns
    /// false if the pool is not a reader's.
    #[cold]
    pub(crate) fn leave_reader(&mut self, id: ClientId, pool: PoolId) -> bool {
        let client = self.clients.get_mut(id).filter(|client| client.may_leave_reader(pool));
        let Some(client) = client else { return false };
        let (serial, waiter) = (client.serial, client.wait());
        let since = waiter.map_or(client.times.request_at(), |waiter| waiter.since);
        self.sessions.judge_again(id, serial, since);
        if let Some(waiter) = waiter {
            let worker = self.context.worker;
            self.pools.exchange.pool(pool, |pool| pool.forget(worker, waiter.ticket));
        }
        self.clients[id].phase.leave_queue();
        self.work.push(Work::Route(id));
        true
    }

    /// Takes the client from a reader that has refused its request. The reader has this transaction
    /// status then. The request goes to the writer.
    #[cold]
    pub(super) fn take_from_reader(
        &mut self,
        on: ServerId,
        status: u8,
        io: &mut impl Io<X>,
    ) -> Option<ClientId> {
        let server = &mut *self.servers[on];
        let id = (*server.client)?;
        let client = &mut self.clients[id];
        let opening = take_from_reader(id, client, server, io);
        if let Some(routing) = self.pools.routing(client.pool.id()) {
            routing.counts.add(Why::Refused);
        }
        if let Some(opening) = opening {
            self.sessions.of(id, client.serial).opening = opening;
        }
        if status != b'I' {
            let mut rollback = Vec::new();
            wire::frontend::query(&mut rollback, b"ROLLBACK");
            server.ask(on, &[Expect::Query], 0, &rollback, self.context, io);
        }
        Some(id)
    }
}

/// Requests.
impl<X: Exchange> Engine<X> {
    #[inline]
    pub(super) fn paths(&mut self) -> Paths<'_, X> {
        Paths {
            context: &mut self.context,
            clients: &mut self.clients,
            servers: &mut self.servers,
            pools: &mut self.pools,
            sessions: &mut self.sessions,
            verdicts: &mut self.verdicts,
            work: &mut self.work,
        }
    }

    /// Reads bytes of an idle client in a pool with routing. An incomplete request is kept.
    pub(super) fn route_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let now = io.now();
        let Some(writer) = self.clients[id].pool.id() else { return };
        debug_assert!(
            self.pools.exchange.pool(writer, |pool| pool.settings.routing.is_some()),
            "bytes were read from a client that has no server"
        );
        let client = &mut self.clients[id];
        // The rest of a message that is dropped belongs to no request.
        let bytes = &bytes[client.stream.take_body(bytes)..];
        let joined = client.stream.take_joined(bytes);
        let input = joined.as_deref().unwrap_or(bytes);
        let (pool, since) = match first_request(input) {
            FirstRequest::Whole(len) => match self.paths().route(id, writer, &input[..len], io) {
                Some((pool, since)) => (pool, since.min(now)),
                None => return self.clients[id].stream.hold_rest(joined, bytes, 0),
            },
            FirstRequest::Unjudged => {
                self.paths().router(id, writer).leave_unjudged();
                (writer, now)
            }
            FirstRequest::Partial => return client.stream.hold_rest(joined, bytes, 0),
            FirstRequest::Terminate => return self.disconnect(id, Leaving::Goodbye, io),
        };
        self.clients[id].times.request_came(since);
        let len = input.len();
        let readable = match self.paths().ask_reader(id, pool, now) {
            Some((pool, grant)) => self.take_grant(id, pool, grant, now, io),
            None => self.link(id, io),
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        if since < now {
            client.phase.count_wait_from(since);
        }
        match (readable, joined) {
            (Readable::Now, None) => self.request_bytes(id, bytes, io),
            (Readable::Now, joined @ Some(_)) => {
                client.stream.hold_rest(joined, bytes, 0);
                self.request_bytes(id, &[], io);
            }
            (Readable::NotYet, joined) => return client.stream.hold_rest(joined, bytes, 0),
        }
        self.paths().note_handled(id, len);
    }

    /// Routes the bytes that a client without a server has sent ahead.
    pub(super) fn route_held(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id) else { return };
        match *client.phase {
            ClientPhase::Idle => {}
            ClientPhase::Failed(_) => {
                let serial = client.serial;
                self.sessions.release(id, serial);
                return self.failed_bytes(id, &[], io);
            }
            ClientPhase::Login(_)
            | ClientPhase::Waiting(_)
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Canceling { .. } => return,
        }
        // It is not read since it waits for a reader that does not serve it.
        io.resume_client(id);
        match self.pools.routes(client.pool.id()) {
            true => self.route_bytes(id, &[], io),
            // Its pool has stopped routing.
            false => {
                let (serial, has_request) = (client.serial, client.stream.holds_message());
                let first = self.sessions.release(id, serial);
                if has_request {
                    self.serve(id, io);
                }
                if let Some((since, _)) = first
                    && let Some(client) = self.clients.get_mut(id)
                {
                    client.phase.count_wait_from(since);
                }
            }
        }
    }
}
