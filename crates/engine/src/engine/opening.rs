//! Servers that are opened, for a pool or for one client: what follows from their logins.

use wire::error_fields::ErrorFields;
use wire::sqlstate::INVALID_PASSWORD;

use super::Engine;
use super::losses::read_again;
use super::work::Work;
use crate::admission::pool::OPENING_MAX;
use crate::admission::seat::Opening;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::{log_server_closing, purpose_of};
use crate::lifecycle::open::{NewServer, Outcome};
use crate::lifecycle::open_failure::OpenFailure;
use crate::lifecycle::own_keys::may_use_keys;
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::replicate::begin_replication;
use crate::operator::failures::ServerFailure;
use crate::server::{Server, ServerPhase, ServerPurpose};
use crate::shell::{Event, Exchange, Io, Issued, Mail};

const NOTHING_PROVEN: &str = "the server did not ask for a password, so its login does not check one; \
                              to allow this, set auth_type = trust in a configuration file";

impl<X: Exchange> Engine<X> {
    /// Returns a server that logs in.
    pub(super) fn new_server(&mut self, id: ServerId) -> NewServer<'_, X> {
        let server = &mut *self.servers[id];
        let client = server.client.map(|client| &self.clients[client]);
        let pool = self.pools.one(server.pool);
        NewServer { id, server, client, context: &mut self.context, pool }
    }

    /// Opens a server whose place in the pool and seat are already taken.
    ///
    /// `epoch` is that of the connection whose place the new one takes; None if the place is only
    /// reserved.
    pub(crate) fn connect_server(
        &mut self,
        pool: PoolId,
        epoch: Option<u64>,
        purpose: Option<ServerPurpose>,
        io: &mut impl Io<X>,
    ) {
        let serial = self.pools.exchange.next_connection();
        self.pools.learn_from_others(pool);
        let mut one = self.pools.one(pool);
        let client = purpose.as_ref().and_then(ServerPurpose::client);
        let may_use_keys = client.is_none_or(|id| {
            let user = &self.clients[id].identity.user;
            may_use_keys(&self.context.config, &one.view.settings, user)
        });
        let (server, target) = one.begin_login(serial, epoch, purpose, may_use_keys, io);
        let id = self.servers.insert(Box::new(server));
        if let Some(client) = client {
            pair::link(client, &mut self.clients[client], id, &mut self.servers[id]);
        }
        let identity = &one.view.identity;
        io.event(Event::ServerOpening { server: id, name: (&identity.database, &identity.user) });
        let Some(target) = target else {
            return self.open_failed(id, CloseReason::NoHost, None, io);
        };
        match self.new_server(id).await_password(&target) {
            Some(wanted) => io.ask_password(id, serial, wanted),
            None => {
                let view = self.pools.one(pool).view;
                io.connect(id, &target, &view.settings.tls, view.writer_of());
            }
        }
    }

    /// Connects this server, whose password is known, unless its login has ended meanwhile.
    pub(super) fn connect(
        &mut self,
        id: ServerId,
        serial: u64,
        issued: Result<Issued, String>,
        io: &mut impl Io<X>,
    ) {
        if self.servers.get(id).is_none_or(|server| server.serial != serial) {
            return;
        }
        match self.new_server(id).take_password(issued, io.now()) {
            Ok(Some(target)) => {
                let pool = self.servers[id].pool;
                let view = self.pools.one(pool).view;
                io.connect(id, &target, &view.settings.tls, view.writer_of());
            }
            Ok(None) => {}
            Err(why) => self.open_failed(id, CloseReason::Text(&why), None, io),
        }
    }

    /// Closes a server and opens another one in its seat, for one client alone.
    pub(crate) fn replace_server(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        purpose: ServerPurpose,
        io: &mut impl Io<X>,
    ) {
        let server = self.seats().end_connection(on, reason, io);
        self.pools.one(server.pool).keep_place(server.epoch);
        self.connect_server(server.pool, None, Some(purpose), io);
    }

    pub(super) fn server_login_bytes(&mut self, id: ServerId, bytes: &[u8], io: &mut impl Io<X>) {
        match self.new_server(id).bytes(bytes, io) {
            Outcome::Wait => {}
            Outcome::LoggedIn(rest) => {
                self.opened(id, &rest, io);
                self.seats().feed(io);
            }
            // Another connection is opened in place of this one.
            Outcome::Again(decline) => {
                let mut server = self.servers.remove(id);
                if let Some(client) = *server.client {
                    pair::part(&mut self.clients[client], &mut server);
                }
                let mut pool = self.pools.one(server.pool);
                let why = CloseReason::Text(decline.text());
                log_server_closing(id, &server, &pool.view.identity, why, io);
                io.close_server(id);
                pool.lock(|pool| decline.remember(pool));
                let Server { pool, epoch, .. } = *server;
                // If the pool's servers were replaced meanwhile, no client may get the new one either.
                self.connect_server(pool, Some(epoch), purpose_of(server.phase), io);
            }
            Outcome::Invalid => self.open_failed(id, CloseReason::BadPacket, None, io),
            Outcome::Failed(why, error) => {
                self.open_failed(id, CloseReason::Text(&why), error, io);
            }
        }
    }

    /// Completes the login. `rest` followed it, and may be the beginning of a message, so it is
    /// read before a client gets the server.
    fn opened(&mut self, id: ServerId, rest: &[u8], io: &mut impl Io<X>) {
        let now = io.now();
        let mut login = self.new_server(id).end_login(now);
        match login.purpose {
            Some(ServerPurpose::Replication { client }) => {
                let (half, server) = (&mut self.clients[client], &mut *self.servers[id]);
                let pool = server.pool;
                begin_replication(half, server, &mut self.pools.one(pool), &login.welcome, now);
                self.welcome(client, Some(id), &login.welcome, io);
                self.go_on(client, io);
                if !rest.is_empty() && self.servers.contains(id) {
                    self.reply_bytes(id, rest, io);
                }
                return self.go_on_opening(pool, io);
            }
            Some(ServerPurpose::Listen) => {
                return self.listener_opened(id, login.welcome, rest, io);
            }
            Some(ServerPurpose::Attend { ticket }) if login.reports => {
                return self.seats().attending_opened(id, login.welcome, ticket, io);
            }
            Some(ServerPurpose::Attend { .. }) => self.seats().found_no_library(id, io),
            Some(ServerPurpose::Proof { .. } | ServerPurpose::Settings { .. }) | None => {}
        }
        self.new_server(id).enter_pool(&mut login, io);
        let server = &*self.servers[id];
        // The client that the server was opened for, if it is still there.
        let (pool, client) = (server.pool, *server.client);
        let proves = matches!(login.purpose, Some(ServerPurpose::Proof { .. }));
        if let Some(client) = client {
            pair::part(&mut self.clients[client], &mut self.servers[id]);
            if proves && !login.challenged {
                self.disconnect(client, NOTHING_PROVEN, io);
                return self.seats().close(id, CloseReason::NothingProven, io);
            }
            if !proves {
                self.clients[client].phase.unlink();
            }
            if !proves && rest.is_empty() {
                if self.join(client, id, io) == Readable::Now {
                    self.go_on(client, io);
                }
                return self.go_on_opening(pool, io);
            }
        }
        match rest.is_empty() {
            true => self.place(id, io),
            false => self.reply_bytes(id, rest, io),
        }
        self.go_on_opening(pool, io);
        match client {
            None => {}
            Some(client) if !proves => self.serve(client, io),
            Some(client) if self.clients[client].wants_console(&self.context.config) => {
                self.authenticated(client, io);
            }
            Some(client) => self.enter_pool(client, pool, io),
        }
    }

    /// Opens further servers, since a login has ended or some time has passed.
    pub(crate) fn go_on_opening(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        for _ in 0..OPENING_MAX {
            let reserved = self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now));
            // If one server gets no seat, the next would not get one either.
            if !reserved || self.open_server(pool, io) == Opening::NotHere {
                return;
            }
        }
    }

    /// Deals with a server that failed before it was logged in.
    pub(crate) fn open_failed(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        refusal: Option<ErrorFields>,
        io: &mut impl Io<X>,
    ) {
        let now = io.now();
        let server = self.servers.remove(id);
        log_server_closing(id, &server, &self.pools.view(server.pool).identity, reason, io);
        io.close_server(id);
        let is_reached = refusal.is_some() || matches!(*server.phase, ServerPhase::Login(_));
        self.failures.count_server(match is_reached {
            true => ServerFailure::Login,
            false => ServerFailure::Connect,
        });
        self.pools.opening_ended();
        let codes = self.context.config.global.error_codes;
        let failure = OpenFailure::new(reason, refusal, codes);
        let Server { serial, pool, epoch, client, .. } = *server;
        let purpose = purpose_of(server.phase);
        if let Some(purpose) = self.seats().without_attending(purpose, serial, pool, io) {
            let listens = matches!(purpose, ServerPurpose::Listen);
            // A wrong password, or one walsender too many, concerns this client only.
            let open = self.pools.one(pool).login_lost(epoch, listens, now);
            if listens {
                self.listeners.failed(failure.refused, now, &mut self.pools.one(pool));
            }
            if open {
                self.work.push(Work::Open(pool));
            }
            self.seats().feed(io);
            if let Some(own) = purpose.client().filter(|own| *client == Some(*own)) {
                self.not_opened_for(own, pool, &purpose, &failure, io);
            }
            return;
        }
        let waiters = self.pools.one(pool).open_failed(epoch, &failure, io);
        let OpenFailure { refused, error, .. } = failure;
        if !refused && self.pools.exchange.pool(pool, |pool| pool.welcome.is_some()) {
            let review = self.pools.review_everywhere(pool, self.context.worker);
            self.work.push(review);
        }
        for (worker, waiter) in waiters {
            if worker != self.context.worker {
                let mail = Mail::Refuse { waiter, pool, error: error.clone() };
                self.pools.exchange.post(worker, mail);
            } else if !self.paths().leave_reader(waiter.client, pool) {
                self.disconnect(waiter.client, &error, io);
            }
        }
        self.seats().feed(io);
    }

    /// Deals with the client that the server was to be opened for.
    fn not_opened_for(
        &mut self,
        id: ClientId,
        pool: PoolId,
        purpose: &ServerPurpose,
        OpenFailure { refused, error, .. }: &OpenFailure,
        io: &mut impl Io<X>,
    ) {
        self.clients[id].lose_server();
        let is_for_settings = matches!(purpose, ServerPurpose::Settings { .. });
        if is_for_settings && !refused && self.pools.settings(pool).cluster.is_some() {
            // The client requests another server, and waits if there is no primary now.
            self.clients[id].phase.unlink();
            return read_again(id, &self.clients[id], &mut self.work, io);
        }
        if error.sqlstate() == INVALID_PASSWORD.as_bytes() {
            self.door(id).note_wrong_proof(io.now());
        }
        if let Some(password) = purpose.password() {
            let is_right = self.pools.one(pool).outlives(password, error);
            if is_right && self.clients[id].wants_console(&self.context.config) {
                let serial = self.clients[id].serial;
                return self.work.push(Work::Admit { client: id, serial });
            }
        }
        self.disconnect(id, error, io);
    }
}
