//! Chooses a pool for an idle client's request, and links the client there.

use config::Balance;
use sql::{Refusal, Verdict};

use crate::admission::one_pool::OnePool;
use crate::admission::pool::Grant;
use crate::client::{ClientPhase, ReaderPlace};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, Micros, NodeId, PoolId, ServerId};
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::preparation::Readable;
use crate::routing::Place;
use crate::routing::first_request::{FirstRequest, first_request};
use crate::routing::freshness::Need;
use crate::routing::readers::Readers;
use crate::routing::rules::{Drawn, Routing};
use crate::routing::sessions::Harmless;
use crate::routing::why::Why;
use crate::routing::wish::{Wish, token_of, wish_of};
use crate::shell::{Exchange, Io};
use crate::values::Digest;

/// Maximal number of texts whose verdicts a worker remembers, at 32 bytes each.
const VERDICTS_MAX: usize = 4096;

/// The time that a read waits for a reader's pool in which all servers are in use.
pub(crate) const FULL_PATIENCE: Micros = 10_000;

/// The decision about a request.
struct Choice {
    /// The nodes that may run it, or why the primary runs it.
    nodes: Result<Drawn, Why>,
    /// If the judges say that it changes no data.
    harmless: Option<Harmless>,
    /// Does it name the node?
    is_fixed: bool,
    /// The writes that it must see.
    need: Need,
}

impl Choice {
    fn primary(why: Why, harmless: Option<Harmless>) -> Self {
        Self { nodes: Err(why), harmless, is_fixed: true, need: Need::default() }
    }

    /// A SET alone needs no primary: a standby runs it while there is none.
    fn or_orphan(self, readers: &Readers) -> Self {
        let is_set = self.harmless == Some(Harmless::Set);
        match readers.stand_in().filter(|_| is_set) {
            Some(node) => Self { nodes: Ok(Drawn::One(node)), ..self },
            None => self,
        }
    }
}

impl<X: Exchange> Engine<X> {
    /// Does the server belong to a reader's pool?
    pub(crate) fn is_reader(&self, on: ServerId) -> bool {
        let pool = self.pools.views.get(self.servers[on].pool);
        pool.is_some_and(|view| view.place != Place::Writer)
    }

    /// Reads bytes of an idle client in a pool with routing. An incomplete request is kept.
    pub(crate) fn route_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let now = io.now();
        let Some(writer) = self.clients[id].pool else { return };
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
            FirstRequest::Whole(len) => match self.route(id, writer, &input[..len], io) {
                Some((pool, since)) => (pool, since.min(now)),
                None => return self.clients[id].stream.hold_rest(joined, bytes, 0),
            },
            FirstRequest::Unjudged => (self.not_routed(id, writer), now),
            FirstRequest::Partial => return client.stream.hold_rest(joined, bytes, 0),
            FirstRequest::Terminate => return self.drop_client(id, Leaving::Goodbye, io),
        };
        self.clients[id].request_at = since;
        let readable = self.link_routed(id, pool, io);
        let Some(client) = self.clients.get_mut(id) else { return };
        if since < now {
            client.phase.count_wait_from(since);
        }
        let len = input_len(joined.as_deref(), bytes);
        match (readable, joined) {
            (Readable::Now, None) => self.request_bytes(id, bytes, io),
            (Readable::Now, joined @ Some(_)) => {
                client.stream.hold_rest(joined, bytes, 0);
                self.request_bytes(id, &[], io);
            }
            (Readable::NotYet, joined) => return client.stream.hold_rest(joined, bytes, 0),
        }
        self.note_handled(id, len);
    }

    /// Reads bytes of a client that has kept its server. If only drawn numbers keep it, a read there is
    /// no write, and no reason to doubt the catalogs. Other state may give the text another meaning.
    // Not inlined: most workers have no verdicts.
    #[inline(never)]
    pub(crate) fn kept_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let client = &self.clients[id];
        let (pool, serial) = (client.pool, client.serial);
        let is_held = client.server.is_some_and(|on| {
            let server = &*self.servers[on];
            let is_at_rest = server.ledger.is_at_rest() && server.status == b'I';
            is_at_rest && server.keeps_only_numbers() && !self.is_reader(on)
        });
        let is_whole = client.stream.at_boundary();
        let writer = pool.filter(|pool| is_held && is_whole && self.pools.routes(Some(*pool)));
        let Some((writer, FirstRequest::Whole(len))) =
            writer.map(|own| (own, first_request(bytes)))
        else {
            return self.request_bytes(id, bytes, io);
        };
        let now = io.now();
        let kind = self.choose(id, writer, &bytes[..len], (now, now), None).harmless;
        self.sessions.of(id, serial).expect(kind.map(|kind| (kind, len)));
        self.request_bytes(id, bytes, io);
        self.note_handled(id, bytes.len());
    }

    /// Routes the requests that a client has sent ahead, now that it has no server. A partial
    /// message is kept until the rest arrives.
    #[cold]
    pub(crate) fn route_later(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.await_nothing();
        if client.stream.holds_message() {
            self.work.push_back(Work::Route(id));
        }
    }

    /// Routes the bytes that such a client has sent ahead.
    pub(crate) fn route_held(&mut self, id: ClientId, io: &mut impl Io<X>) {
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
        match self.pools.routes(client.pool) {
            true => self.route_bytes(id, &[], io),
            // Its pool has stopped routing.
            false => {
                let (serial, has_request) = (client.serial, client.stream.holds_message());
                let first = self.sessions.release(id, serial);
                if has_request {
                    self.send_again(id, io);
                }
                if let Some((since, _)) = first
                    && let Some(client) = self.clients.get_mut(id)
                {
                    client.phase.count_wait_from(since);
                }
            }
        }
    }

    /// Routes a client's request again, because the reader's pool does not serve the client. No
    /// server has got a byte of the request. Returns false if the pool is not a reader's.
    #[cold]
    pub(crate) fn leave_reader(&mut self, id: ClientId, pool: PoolId) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        match *client.phase {
            ClientPhase::Idle | ClientPhase::Waiting(_) => {}
            ClientPhase::Login(_)
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Failed(_)
            | ClientPhase::Canceling { .. } => return false,
        }
        if client.pool.is_none_or(|own| own == pool) {
            return false;
        }
        let (serial, waiter) = (client.serial, client.wait());
        let since = waiter.map_or(client.request_at, |waiter| waiter.since);
        self.sessions.judge_again(id, serial, since);
        if let Some(waiter) = waiter {
            let worker = self.context.worker;
            self.pools.exchange.pool(pool, |pool| pool.forget(worker, waiter.ticket));
        }
        self.clients[id].phase.leave_queue();
        self.work.push_back(Work::Route(id));
        true
    }

    /// Notes that `len` bytes of an idle client's requests were handled together.
    #[inline]
    pub(crate) fn note_handled(&mut self, id: ClientId, len: usize) {
        let Some(client) = self.clients.get(id) else { return };
        if !self.pools.routes(client.pool) {
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

    /// Counts a request of this client that a reader has refused.
    pub(crate) fn count_refused(&self, id: ClientId) {
        if let Some(routing) = self.routing_of(id) {
            routing.counts.add(Why::Refused);
        }
    }

    /// Notes a write of each of these clients. They come from the process before an online restart,
    /// and may have written there.
    pub(crate) fn suppose_writes(&mut self, clients: &[ClientId], io: &mut impl Io<X>) {
        let now = io.clock();
        for id in clients {
            let Some(client) = self.clients.get(*id) else { continue };
            let Some(view) = client.pool.and_then(|pool| self.pools.views.get(pool)) else {
                continue;
            };
            if view.settings.reads.is_some() {
                let session = self.sessions.of(*id, client.serial);
                session.wrote.note(now);
                session.doubted_at = now;
            }
            if let Some(routing) = &view.settings.routing {
                routing.note_write(now);
                routing.catalog.doubt(now);
            }
        }
    }

    fn routing_of(&self, id: ClientId) -> Option<&Routing> {
        let view = self.pools.views.get(self.clients.get(id)?.pool?)?;
        view.settings.routing.as_deref()
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
        let serial = self.clients[id].serial;
        let first = self.sessions.release(id, serial);
        let since = match first {
            Some((since, _)) => since,
            None => self.pools.view(writer).arrival(io),
        };
        let is_late = self.sessions.of(id, serial).take_late();
        if let Some(place) = self.pools.exchange.route(writer, request) {
            self.sessions.of(id, serial).is_judged_read = place != Place::Writer;
            let pool = match place {
                Place::Writer => writer,
                Place::Reader(_) if is_late => writer,
                reader @ Place::Reader(_) => self.pools.at(&self.context, writer, reader),
            };
            return Some((pool, since));
        }
        let first = first.and_then(|(_, need)| need);
        let Choice { nodes, harmless, is_fixed, need } =
            self.choose(id, writer, request, (since, io.now()), first);
        self.sessions.of(id, serial).need = need;
        let nodes = if is_late { nodes.and(Err(Why::Full)) } else { nodes };
        if let Err(why) = nodes
            && !is_late
            && self.hold_read(id, writer, why, (since, io.now()))
        {
            return None;
        }
        if let Some(routing) = self.routing_of(id) {
            routing.counts.add(nodes.err().unwrap_or(Why::Read));
            if nodes == Err(Why::OwnRead) {
                routing.readers.want_as_of(need.shown.at);
            }
        }
        let node = nodes.ok().map(|drawn| self.pools.pick(writer, drawn));
        let place = &mut self.clients[id].while_waiting.reader;
        *place = match *place {
            _ if is_fixed => ReaderPlace::Fixed,
            ReaderPlace::Left => ReaderPlace::Left,
            ReaderPlace::Fixed | ReaderPlace::Open => ReaderPlace::Open,
        };
        let pool =
            node.map_or(writer, |node| self.pools.at(&self.context, writer, Place::Reader(node)));
        if let Some(node) = node {
            self.go_to(id, node, is_fixed);
        }
        let session = self.sessions.of(id, serial);
        session.is_judged_read = harmless.is_some_and(|kind| kind != Harmless::Doubted);
        session.expect(harmless.filter(|_| pool == writer).map(|kind| (kind, request.len())));
        Some((pool, since))
    }

    /// Sends a request to the writer without judging it.
    fn not_routed(&mut self, id: ClientId, writer: PoolId) -> PoolId {
        let serial = self.clients[id].serial;
        self.sessions.of(id, serial).expect(None);
        if let Some(routing) = self.routing_of(id) {
            routing.counts.add(Why::Long);
        }
        writer
    }

    /// Chooses nodes for a request that has arrived at `since`, or says why the primary runs it.
    /// `first`: the need of a request that was judged before.
    fn choose(
        &mut self,
        id: ClientId,
        writer: PoolId,
        request: &[u8],
        (since, now): (Micros, Micros),
        first: Option<Need>,
    ) -> Choice {
        let schema = self.pools.exchange.schema();
        let random = scatter(self.context.next_serial());
        let doubted_at = self.sessions.doubted_at(id, self.clients[id].serial);
        let (client, view) = (&self.clients[id], self.pools.views.get(writer));
        let Some(routing) = view.and_then(|view| view.settings.routing.as_deref()) else {
            return Choice::primary(Why::NoStandby, None);
        };
        let verdicts = self.verdicts.get_or_insert_with(|| {
            let seed = u64::from_le_bytes(*self.context.seed.first_chunk().unwrap_or(&[0; 8]));
            Box::new(sql::Cache::new(!seed, VERDICTS_MAX))
        });
        let catalog = &routing.catalog;
        let judge = |text: &[u8]| match verdicts.judge(text, Some(&catalog.view), catalog.number) {
            _ if routing.rules.lists_text(text) => Err(Why::List),
            Verdict::ReadOnlyTransaction if catalog.has_serializable => {
                Ok(Verdict::Refused(Refusal::Serializable))
            }
            verdict @ (Verdict::Read | Verdict::ReadOnlyTransaction | Verdict::Refused(_)) => {
                Ok(verdict)
            }
        };
        let asked = wish_of(client, request, &routing.rules, judge);
        let may_judge = catalog.may_judge(schema, doubted_at);
        let harmless = asked.harmless.map(|kind| if may_judge { kind } else { Harmless::Doubted });
        let wish = match asked.place {
            Ok(Wish::Standby) if !may_judge => Err(Why::Catalogs),
            place => place,
        };
        let session = self.sessions.of(id, client.serial);
        let stay = session.node(&routing.stays);
        let mut need = first.unwrap_or_else(|| routing.need(session.wrote, session.shown, since));
        let (wish, token) = match wish.and_then(|wish| Ok((wish, token_of(client)?))) {
            Ok(found) => found,
            Err(why) => return Choice::primary(why, harmless).or_orphan(&routing.readers),
        };
        need.token = token;
        need.any_age =
            routing.readers.are_orphaned() && matches!(wish, Wish::Hinted | Wish::Node(_));
        let nodes = match wish {
            Wish::Node(name) => match routing.readers.named(name) {
                Some(node) => routing.node(node, need, now).map(|()| Drawn::One(node)),
                None => Err(Why::Hint),
            },
            Wish::Standby | Wish::Hinted => match routing.rules.balance {
                Balance::Session => routing.node_of_session(stay, need, now, random),
                Balance::Statement => routing.draw(need, now, random),
            },
        };
        if token > 0 && nodes.is_err() {
            // Weir does not know when it was written.
            routing.readers.want_as_of(now);
        }
        Choice { nodes, harmless, is_fixed: matches!(wish, Wish::Node(_)), need }
    }

    /// Returns the pool of a request that would wait in this full one: that of another node, or the
    /// writer.
    #[cold]
    fn pool_elsewhere(&mut self, id: ClientId, full: PoolId, now: Micros) -> Option<PoolId> {
        let client = &self.clients[id];
        let (writer, serial) = (client.pool?, client.serial);
        let Place::Reader(node) = self.pools.view(full).place else { return None };
        let need = self.sessions.of(id, serial).need;
        let others: Vec<_> = self.routing_of(id)?.others(node, need, now).collect();
        for other in others {
            let pool = self.pools.at(&self.context, writer, Place::Reader(other));
            if pool != writer && !self.pools.exchange.pool(pool, |pool| pool.is_used_up()) {
                self.go_to(id, other, false);
                return Some(pool);
            }
        }
        self.routing_of(id)?.counts.add(Why::Full);
        Some(writer)
    }

    /// Must a client that has waited for a server of a reader be routed again? While it waited, the
    /// node may have been lost, or may have fallen too far behind.
    pub(crate) fn is_overtaken(&mut self, id: ClientId, on: ServerId, now: Micros) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let pool = self.servers[on].pool;
        if client.pool == Some(pool) {
            return false;
        }
        let Some(Place::Reader(node)) = self.pools.views.get(pool).map(|view| view.place) else {
            return false;
        };
        let serial = client.serial;
        let need = self.sessions.need(id, serial);
        let routing = self.routing_of(id);
        let changed_at = routing.map_or(0, Routing::role_changed_at);
        // A pool that has stopped routing has no reads on standbys.
        let is_overtaken = routing.is_none_or(|routing| routing.node(node, need, now).is_err())
            || changed_at != 0 && self.pools.exchange.pool(pool, |pool| pool.is_behind(changed_at));
        self.sessions.of(id, serial).note_server(is_overtaken);
        is_overtaken
    }

    /// Notes that a standby gets the client's request. `is_fixed`: the request names it, so the session
    /// does not stay there.
    fn go_to(&mut self, id: ClientId, node: NodeId, is_fixed: bool) {
        let client = &self.clients[id];
        let view = client.pool.and_then(|pool| self.pools.views.get(pool));
        let Some(routing) = view.and_then(|view| view.settings.routing.as_deref()) else { return };
        let session = self.sessions.of(id, client.serial);
        if let Some(reader) = routing.readers.get(node) {
            session.goes_to((node, reader.life()));
        }
        if !is_fixed && routing.rules.balance == Balance::Session {
            session.stay_with(node, &routing.stays);
        }
    }

    /// Links the client to a server of this pool, or of the writer if the pool refuses.
    fn link_routed(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        if self.clients[id].pool == Some(pool) {
            return self.link(id, io);
        }
        let (worker, values) = (self.context.worker, self.clients[id].digest());
        let place = self.clients[id].while_waiting.reader;
        if place == ReaderPlace::Left {
            self.clients[id].while_waiting.reader = ReaderPlace::Open;
        }
        match self.request_of_reader(id, pool, values, now) {
            Grant::Refused(_) | Grant::Closed(_) => self.link(id, io),
            Grant::Queued { ticket, open: false }
                if is_full(&mut self.pools.one(pool), place, now) =>
            {
                self.pools.exchange.pool(pool, |pool| pool.forget(worker, ticket));
                match self.pool_elsewhere(id, pool, now) {
                    Some(other) if self.clients[id].pool != Some(other) => {
                        let grant = self.request_of_reader(id, other, values, now);
                        self.take_grant(id, other, grant, now, io)
                    }
                    Some(_) | None => self.link(id, io),
                }
            }
            grant @ (Grant::Server(_) | Grant::Queued { .. }) => {
                self.take_grant(id, pool, grant, now, io)
            }
        }
    }
}

impl<X: Exchange> Engine<X> {
    /// Asks the pool of a standby for a server, which the standby has logged in with the present role.
    fn request_of_reader(
        &mut self,
        id: ClientId,
        pool: PoolId,
        values: Option<Digest>,
        now: Micros,
    ) -> Grant<X::Transport> {
        let (worker, place) = (self.context.worker, self.pools.view(pool).place);
        let changed_at = match (self.routing_of(id), place) {
            (Some(routing), Place::Reader(node)) => routing.role_change_at(node),
            (Some(_) | None, _) => 0,
        };
        let (is_replaced, grant) = self
            .pools
            .exchange
            .pool(pool, |pool| (pool.keep_up(changed_at), pool.request(worker, id, values, now)));
        if is_replaced {
            self.review_everywhere(pool);
        }
        grant
    }
}

fn input_len(joined: Option<&[u8]>, bytes: &[u8]) -> usize {
    joined.unwrap_or(bytes).len()
}

/// Spreads a counter over all numbers (SplitMix64).
fn scatter(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Is this reader's pool too full for a request with this place?
fn is_full<X: Exchange>(pool: &mut OnePool<'_, X>, place: ReaderPlace, now: Micros) -> bool {
    pool.lock(|pool| match place {
        ReaderPlace::Fixed => false,
        ReaderPlace::Open => pool.is_full(FULL_PATIENCE, now),
        ReaderPlace::Left => pool.is_used_up(),
    })
}
