//! Clients that log in: what follows from the steps of their logins.

use config::{AccessPolicy, Database};

use super::Engine;
use crate::admission::pool::{Entrance, Grant, Pool};
use crate::engine::work::Work;
use crate::ids::{ClientId, Identity, Newcomer, PoolId, ServerId};
use crate::lifecycle::attend::hand_off;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::principal::{self, Told};
use crate::login::auth::{Asking, LoginStep};
use crate::login::auth_answer::Found;
use crate::login::auth_query::FAILING;
use crate::login::console;
use crate::login::console::is_console;
use crate::login::door::{Door, Step, log_login_failed, no_database, not_allowed};
use crate::login::prove::is_superuser;
use crate::login::question::Question;
use crate::login::steps::may_enter;
use crate::own_error::{CONFIG_ERROR, Cause, OwnError};
use crate::routing::Place;
use crate::server::{Preparation, ServerPurpose};
use crate::settings::PoolKey;
use crate::shell::{ConsoleLogin, Exchange, Io};
use crate::values::Values;

impl<X: Exchange> Engine<X> {
    /// Returns a client that logs in. [`Door::note_wrong_proof`] takes one that has logged in, too.
    pub(crate) fn door(&mut self, id: ClientId) -> Door<'_, X> {
        Door {
            id,
            client: &mut self.clients[id],
            context: &mut self.context,
            exchange: &mut self.pools.exchange,
            credentials: &mut self.credentials,
        }
    }

    /// Does what follows from the steps of a login.
    pub(crate) fn after_login(&mut self, id: ClientId, step: Step, io: &mut impl Io<X>) {
        match step {
            Step::Wait => {}
            Step::Refuse(why) => self.disconnect(id, why, io),
            Step::Drop(why) => self.drop_client(id, Leaving::Unanswered(why), io),
            // It comes back as a new client after the handshake.
            Step::StartTls(start) => {
                let client = self.clients.remove(id);
                io.start_tls(id, start, client.connected_at);
            }
            Step::Cancel(key) => {
                let asked = self.cancellation().ask(id, &key, io);
                self.follow_request(asked, io);
            }
            Step::Ask(entry, question) => self.ask_about_user(id, &entry, question, io),
            Step::Prove(password) => self.prove(id, &password, io),
            Step::Authenticated => self.authenticated(id, io),
        }
    }

    /// Continues with an authenticated client: to the console or to a pool.
    pub(crate) fn authenticated(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let requested = self.clients[id].login_mut().requested.clone();
        let Identity { database, user } = &*requested;
        if is_console(&self.context.config, database) {
            if self.clients[id].login_mut().runs_weir() {
                return self.enter_console(id, true, io);
            }
            let is_superuser = self.context.config.access == AccessPolicy::ProvenByServer && {
                let database = self.context.config.proof_database();
                let pool = self.pools.find(&self.context, database, user);
                pool.is_some_and(|pool| is_superuser(&mut self.pools.one(pool)))
            };
            return match console::rights(&self.context.config, user, is_superuser) {
                Some(admin) => self.enter_console(id, admin, io),
                None => self.disconnect(id, not_allowed(), io),
            };
        }
        let Some(pool) = self.pools.find(&self.context, database, user) else {
            log_login_failed(id, self.clients[id].login_mut(), io);
            return self.disconnect(id, no_database(database), io);
        };
        self.pools.remark_autodb(id, pool, io);
        let (client, mut one) = (&mut self.clients[id], self.pools.one(pool));
        match may_enter(id, client, &mut one, &self.context.config, io) {
            Ok(()) => self.enter_pool(id, pool, io),
            Err(why) => self.disconnect(id, why, io),
        }
    }

    /// Lets a client into its pool. If a check is due, an idle server is asked first.
    pub(super) fn enter_pool(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        let mut one = self.pools.one(pool);
        let (parked, opens) = one.lock(|pool| {
            pool.doubt_principal(now);
            let parked = pool.take_to_ask(worker, now);
            let opens = parked.is_none() && pool.reserve_to_ask(now);
            (parked, opens)
        });
        if opens {
            self.work.push(Work::Open(pool));
        }
        let client = &mut self.clients[id];
        if let Some(parked) = parked {
            client.login_mut().step = LoginStep::PrincipalCheck;
            let newcomer = Newcomer { client: id, serial: client.serial, pool };
            let on = self.servers.attach(parked, &mut self.pools, io);
            return self.ask_principal(on, Some(newcomer), io);
        }
        match self.lobbies.entrance(id, client, &mut one, &self.context, now) {
            Entrance::Proxied | Entrance::Direct => self.enter_pool_at_once(id, pool, io),
            Entrance::Trial { open: true } => self.work.push(Work::Try(pool)),
            Entrance::Trial { open: false } => {}
        }
    }

    /// Completes the login. With known parameters the client needs no server for its welcome, except
    /// in session mode, whose welcome has the server's process id. While the pool has no server, one is
    /// opened first: PostgreSQL may have been upgraded or promoted since the last one.
    pub(crate) fn enter_pool_at_once(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let view_identity = self.pools.view(pool).identity.clone();
        let client = &mut self.clients[id];
        let login = client.phase.leave_login();
        // A client may send messages before its welcome, though few do.
        client.stream.held = login.buffer.into();
        client.given = login.vars.known();
        client.vars = Values::new(login.vars);
        client.replication = login.replication;
        let replicates = client.replication.is_some();
        client.pool = Some(pool);
        self.pools.view(pool).stats.logins += 1;
        let client = &mut self.clients[id];
        if *client.identity == *view_identity {
            client.identity = view_identity;
        }
        let (warm, role_changes) = self.pools.exchange.pool(pool, |pool| {
            pool.enter();
            (pool.current_welcome(), pool.role_changes())
        });
        self.clients[id].role_changes = role_changes;
        if replicates {
            self.link_own(id, pool, io);
        } else if let Some(welcome) = warm.filter(|_| !self.pools.settings(pool).is_session()) {
            let client = &mut self.clients[id];
            client.complete_vars(&welcome, &mut self.context);
            self.welcome(id, None, &welcome, io);
            let (client, mut pool) = (&self.clients[id], self.pools.one(pool));
            if hand_off(id, client, &mut pool, &welcome, &self.context, io) {
                let client = self.clients.remove(id);
                self.keys.remove(client.key);
                self.watch.iter_mut().for_each(|watch| watch.left(client.serial, None));
                return;
            }
            if !self.clients[id].stream.holds_message() {
                io.resume_client(id);
            } else if self.link(id, io) == Readable::Now {
                self.go_on(id, io);
            }
        } else if self.link(id, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    fn enter_console(&mut self, id: ClientId, admin: bool, io: &mut impl Io<X>) {
        let mut client = self.clients.remove(id);
        let Some(login) = client.phase.login_mut() else { return };
        let unread = std::mem::take(&mut login.buffer);
        let mut key = [0; 8];
        io.random(&mut key);
        let [p0, p1, p2, p3, secret @ ..] = key;
        let login = ConsoleLogin {
            process_id: u32::from_be_bytes([p0, p1, p2, p3]) & 0x7fff_ffff,
            secret,
            database: login.requested.database.clone(),
            user: client.identity.user.clone(),
            counted: client.counted.then(|| client.identity.clone()),
            admin,
            serial: client.serial,
            unread,
            connected_at: io.now(),
        };
        io.hand_to_console(id, login);
    }
}

/// Servers that tell what a new server of their pool would be.
impl<X: Exchange> Engine<X> {
    /// Asks a server that has no client and is clean.
    pub(crate) fn ask_principal(
        &mut self,
        on: ServerId,
        newcomer: Option<Newcomer>,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let settings = self.pools.settings(server.pool);
        principal::ask(on, server, newcomer, settings, &mut self.context, io);
    }

    /// Continues after the completed answer.
    pub(crate) fn principal_told(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let pool = server.pool;
        let told = principal::told(server, &mut self.pools.one(pool));
        let Some(Told { is_changed, newcomer }) = told else { return };
        if is_changed {
            for changed in self.pools.principal_changed(pool, io) {
                let review = self.pools.review_everywhere(changed, self.context.worker);
                self.work.push(review);
            }
        }
        let server = &*self.servers[on];
        match server.doomed {
            Some(reason) => self.close_server(on, reason, io),
            None if server.is_clean() => self.place(on, io),
            None => self.close_server(on, CloseReason::GotDirty, io),
        }
        self.work.extend(newcomer.map(Work::Checked));
    }

    /// Deals with the loss of a server that was asked.
    pub(crate) fn lose_asked(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let newcomer = principal::lost(server, &mut self.pools.one(server.pool), io.now());
        self.close_server(on, reason, io);
        self.work.extend(newcomer.map(Work::Checked));
    }
}

/// Logins that need a server: to ask about the user, or to prove the password.
impl<X: Exchange> Engine<X> {
    /// Asks PostgreSQL about the client's user.
    fn ask_about_user(
        &mut self,
        id: ClientId,
        entry: &Database,
        question: Question,
        io: &mut impl Io<X>,
    ) {
        let Question { auth_user, shown, query, .. } = question;
        let key = PoolKey { database: entry.name.clone(), user: auth_user, place: Place::Writer };
        let pool = self.pools.of_key(&self.context, entry, &key);
        if self.pools.exchange.pool(pool, |pool| pool.disabled) {
            let why = format!("authentication database \"{shown}\" is disabled");
            return self.disconnect(id, OwnError::new(Cause::DisabledDatabase, why), io);
        }
        let pool = self.pools.without_primary(&self.context, pool).unwrap_or(pool);
        let asking = Asking { pool, query: query.into(), waiter: None };
        self.clients[id].login_mut().step = LoginStep::Asking(asking);
        self.request_for_login(id, pool, io);
    }

    /// Requests a server for a login, which may have to wait.
    fn request_for_login(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        match self.pools.exchange.pool(pool, |pool| pool.request(worker, id, None, now)) {
            Grant::Server(server) => {
                let on = self.servers.attach(server, &mut self.pools, io);
                match self.clients[id].asks() {
                    true => self.ask_on(id, on, io),
                    false => self.prove_soon(id, on),
                }
            }
            Grant::Queued { ticket, open } => {
                self.clients[id].login_mut().queue(id, ticket, now);
                if open {
                    self.open_server(pool, io);
                }
            }
            Grant::Refused(error) => {
                let names_user = |pool: &mut Pool<_>| {
                    pool.failure.as_ref().is_some_and(|failure| failure.names_user)
                };
                let asks = self.clients[id].asks();
                match asks && self.pools.exchange.pool(pool, names_user) {
                    true => {
                        self.disconnect(id, OwnError::new(Cause::ServerUnreachable, FAILING), io);
                    }
                    false => self.refuse_client(id, &error, io),
                }
            }
            Grant::Closed(reason) => self.disconnect(id, reason, io),
        }
    }

    /// Asks on this server. Settings that a client has left on it are undone first.
    pub(crate) fn ask_on(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let now = io.now();
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        let LoginStep::Asking(asking) = &mut client.login_mut().step else { return };
        let since = asking.waiter.take().map_or(now, |waiter| waiter.since);
        pair::link(id, client, on, server);
        self.pools.view(server.pool).assigned(now.saturating_sub(since));
        match server.way_to_login_values(&self.context.names) {
            Some(sql) => {
                server.phase.prepare(Preparation::Restore);
                self.servers[on].send_own_query(on, &sql, &mut self.context, io);
            }
            None => self.send_question(id, on, io),
        }
    }

    /// Continues after the server was asked to undo the settings.
    pub(crate) fn restored(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let Some(id) = server.client else { return };
        match server.own_error.take() {
            None => {
                server.has_login_values();
                self.send_question(id, on, io);
            }
            Some(_) => self.answered(on, Err("invalid server parameter".into()), io),
        }
    }

    fn send_question(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let Some((out, steps)) = self.clients[id].login_mut().question() else { return };
        self.servers[on].begin_question(io.now());
        self.servers[on].ask(on, &steps, 0, &out, &mut self.context, io);
    }

    /// Ends the question. The server is released first, so the client may find it in the pool.
    pub(crate) fn answered(
        &mut self,
        on: ServerId,
        answer: Result<Option<Found>, String>,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let Some(id) = server.client else { return };
        pair::part(&mut self.clients[id], server);
        match &answer {
            Ok(_) => self.free(on, io),
            Err(why) => self.close_server(on, CloseReason::Text(why), io),
        }
        match answer {
            Err(_) => self.disconnect(id, CONFIG_ERROR, io),
            Ok(None) => {
                log_login_failed(id, self.clients[id].login_mut(), io);
                self.disconnect(id, OwnError::new(Cause::Password, "no such user"), io);
            }
            Ok(Some(found)) => {
                let step = self.door(id).found(found, io);
                self.after_login(id, step, io);
            }
        }
    }

    /// Deals with the loss of the server that the query ran on. A server that was idle may have
    /// been lost earlier, so Weir tries again. With a fresh one it would probably fail again.
    pub(crate) fn ask_again(
        &mut self,
        id: ClientId,
        pool: PoolId,
        was_idle: bool,
        io: &mut impl Io<X>,
    ) {
        match was_idle {
            true => self.request_for_login(id, pool, io),
            false => self.disconnect(id, CONFIG_ERROR, io),
        }
    }

    /// Checks the client's password.
    pub(crate) fn prove(&mut self, id: ClientId, password: &[u8], io: &mut impl Io<X>) {
        let login = self.clients[id].login_mut();
        let requested = login.requested.clone();
        let config = self.context.config.clone();
        let database = match is_console(&self.context.config, &requested.database) {
            true => config.proof_database(),
            false => &requested.database,
        };
        let Some(pool) = self.pools.find(&self.context, database, &requested.user) else {
            let why = no_database(database);
            return self.disconnect(id, why, io);
        };
        if self.pools.one(pool).is_proven(password) {
            return match self.clients[id].wants_console(&self.context.config) {
                true => self.prove_again(id, pool, password, io),
                false => self.authenticated(id, io),
            };
        }
        self.clients[id].login_mut().begin_proof(pool, password);
        if self.pools.exchange.pool(pool, Pool::reserve_own) && self.seats().take(pool, io) {
            self.connect_proof(id, io);
        } else {
            self.request_for_login(id, pool, io);
        }
    }

    /// Checks a password once more that was right before. An idle server gives up its place, so that
    /// logins to the console do not fill the pool. If there is no place now, the earlier answer of
    /// PostgreSQL counts: an operator needs the console most while the pool is full or paused.
    fn prove_again(&mut self, id: ClientId, pool: PoolId, password: &[u8], io: &mut impl Io<X>) {
        let worker = self.context.worker;
        if let Some(idle) = self.pools.exchange.pool(pool, |pool| pool.take_open(worker, None)) {
            self.clients[id].login_mut().begin_proof(pool, password);
            let on = self.servers.attach(idle, &mut self.pools, io);
            self.prove_soon(id, on);
        } else if self.pools.exchange.pool(pool, Pool::reserve_own) && self.seats().take(pool, io) {
            self.clients[id].login_mut().begin_proof(pool, password);
            self.connect_proof(id, io);
        } else {
            self.authenticated(id, io);
        }
    }

    fn prove_soon(&mut self, id: ClientId, on: ServerId) {
        let serial = self.servers[on].serial;
        self.work.push(Work::Prove { server: on, serial, client: id });
    }

    /// Continues with the server that the client got in its turn. If the same password was proven
    /// meanwhile, the server is placed again. Otherwise the login replaces it.
    pub(crate) fn prove_by(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let LoginStep::Proving(proving) = &mut self.clients[id].login_mut().step else { return };
        proving.waiter = None;
        let (pool, password) = (proving.pool, proving.password.clone());
        if !self.clients[id].wants_console(&self.context.config)
            && self.pools.one(pool).is_proven(&password)
        {
            self.servers[on].phase.unpark();
            // The server is placed first, so the client may find it in the pool.
            self.place(on, io);
            io.resume_client(id);
            return self.authenticated(id, io);
        }
        let purpose = ServerPurpose::Proof { client: id, password };
        self.replace_server(on, CloseReason::Evicted, purpose, io);
    }

    /// Opens the login, whose place and seat are taken.
    fn connect_proof(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let Some((pool, password)) = self.clients[id].login_mut().take_proof() else { return };
        let purpose = ServerPurpose::Proof { client: id, password };
        self.connect_server(pool, Some(purpose), io);
    }

    /// Opens the login of the client that has waited longest. A place and a seat are taken.
    pub(crate) fn connect_prover(&mut self, id: PoolId, io: &mut impl Io<X>) {
        let worker = self.context.worker;
        // The first client may have left the queue while the seat was searched for.
        let first = self.pools.exchange.pool(id, |pool| {
            let waiter = pool.oldest_waiter(worker)?;
            pool.forget(worker, waiter.ticket);
            Some(waiter.client)
        });
        let Some(client) = first else {
            self.pools.opening_ended();
            self.pools.one(id).vacate(io.now());
            self.pools.one(id).pass_proof_on();
            return self.seats().feed(io);
        };
        self.connect_proof(client, io);
    }

    /// The server that was opened for it has proven the client's password.
    pub(crate) fn proven(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        match self.clients[id].wants_console(&self.context.config) {
            true => self.authenticated(id, io),
            false => self.enter_pool(id, pool, io),
        }
    }
}
