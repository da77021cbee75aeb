//! Chooses a pool for an idle client's request, and links the client there.

use config::AccessPolicy;

use crate::admission::pool::Grant;
use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::link::Readable;
use crate::routing::Place;
use crate::routing::first_request::{FirstRequest, first_request};
use crate::settings::PoolKey;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Is a request of this pool's client read before the client is linked?
    #[inline]
    pub(crate) fn routes(&self, pool: Option<PoolId>) -> bool {
        pool.and_then(|pool| self.pools.get(pool)).is_some_and(|view| view.settings.routes)
    }

    /// Is the server at a reader's node?
    pub(crate) fn is_reader(&self, on: ServerId) -> bool {
        let pool = self.pools.get(self.server(on).pool);
        pool.is_some_and(|view| view.place != Place::Writer)
    }

    /// Reads bytes of an idle client in a pool with routing. An incomplete request is kept.
    pub(crate) fn route_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let Some(writer) = self.client(id).pool else { return };
        debug_assert!(
            self.exchange.pool(writer, |pool| pool.settings.routes),
            "bytes were read from a client that has no server"
        );
        let client = self.client_mut(id);
        // The rest of a message that is dropped belongs to no request.
        let bytes = &bytes[client.stream.take_body(bytes)..];
        let joined = client.stream.take_joined(bytes);
        let input = joined.as_deref().unwrap_or(bytes);
        let pool = match first_request(input) {
            FirstRequest::Whole(len) => self.route(writer, &input[..len]),
            FirstRequest::Unjudged => writer,
            FirstRequest::Partial => return client.stream.hold_rest(joined, bytes, 0),
            FirstRequest::Terminate => return self.drop_client(id, Leaving::Goodbye, io),
        };
        self.client_mut(id).request_at = io.now();
        let readable = self.link_routed(id, pool, io);
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
        match (readable, joined) {
            (Readable::Now, None) => self.request_bytes(id, bytes, io),
            (Readable::Now, joined @ Some(_)) => {
                client.stream.hold_rest(joined, bytes, 0);
                self.request_bytes(id, &[], io);
            }
            (Readable::NotYet, joined) => client.stream.hold_rest(joined, bytes, 0),
        }
    }

    /// Routes what a client has sent ahead, now that it has no server. Half a message waits for the
    /// rest.
    #[cold]
    pub(crate) fn route_later(&mut self, id: ClientId) {
        let client = self.client_mut(id);
        client.await_nothing();
        if client.stream.holds_message() {
            self.work.push_back(Work::Route(id));
        }
    }

    /// Continues such a client with the bytes that it has sent ahead.
    pub(crate) fn route_held(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id.0 as usize) else { return };
        if matches!(client.phase, ClientPhase::Idle) && self.routes(client.pool) {
            self.route_bytes(id, &[], io);
        }
    }

    /// Returns the pool for a request of a client of `writer`.
    fn route(&mut self, writer: PoolId, request: &[u8]) -> PoolId {
        match self.exchange.route(writer, request) {
            Place::Writer => writer,
            reader @ Place::Reader(_) => self.pool_at(writer, reader),
        }
    }

    /// Returns the pool of the same database and user at another place.
    fn pool_at(&mut self, writer: PoolId, place: Place) -> PoolId {
        // A server there would need a client's password, which is not kept.
        if self.config.access == AccessPolicy::ProvenByServer {
            return writer;
        }
        let view = self.view(writer);
        if let Some((_, known)) = view.readers.iter().find(|(of, _)| *of == place) {
            return *known;
        }
        let key = PoolKey {
            database: view.identity.database.clone(),
            user: view.identity.user.clone(),
            place,
        };
        let Some(entry) = self.config.database(&key.database) else { return writer };
        let reader = self.pool_of(&entry, &key);
        self.teach_reader(writer, reader);
        self.view(writer).readers.push((place, reader));
        reader
    }

    /// Copies the writer's login secret and parameters to a new reader pool.
    fn teach_reader(&mut self, writer: PoolId, reader: PoolId) {
        let (welcome, secret, minor_version, may_ask_report) = self.exchange.pool(writer, |pool| {
            let secret = pool.server_secret.clone();
            (pool.welcome.clone(), secret, pool.minor_version, pool.may_ask_report)
        });
        self.exchange.pool(reader, |pool| {
            if pool.welcome.is_none() {
                (pool.welcome, pool.server_secret) = (welcome, secret);
                (pool.minor_version, pool.may_ask_report) = (minor_version, may_ask_report);
            }
        });
    }

    /// Links the client to a server of this pool, or of the writer if the pool refuses.
    fn link_routed(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) -> Readable {
        let now = io.now();
        if self.client(id).pool == Some(pool) {
            return self.link(id, io);
        }
        let (worker, values) = (self.worker, self.client(id).digest());
        match self.exchange.pool(pool, |pool| pool.request(worker, id, values, now)) {
            Grant::Refused(_) | Grant::Closed(_) => self.link(id, io),
            grant @ (Grant::Server(_) | Grant::Queued { .. }) => {
                self.take_grant(id, pool, grant, now, io)
            }
        }
    }
}
