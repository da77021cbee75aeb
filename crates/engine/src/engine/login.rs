//! Clients that log in: what follows from the steps of their logins.

use config::AccessPolicy;

use super::Engine;
use crate::admission::pool::{Entrance, Grant, Pool};
use crate::engine::work::Work;
use crate::ids::{ClientId, Identity, Newcomer, PoolId, ServerId};
use crate::lifecycle::attend::hand_off;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::pair;
use crate::lifecycle::principal::{self, Told};
use crate::lifecycle::release::Cleaning;
use crate::lifecycle::while_waiting::Steps;
use crate::login::auth::{Asking, LoginStep};
use crate::login::auth_answer::Found;
use crate::login::auth_query::FAILING;
use crate::login::console;
use crate::login::console::is_console;
use crate::login::door::{Door, Step, log_login_failed, no_database, not_allowed};
use crate::login::prove::is_superuser;
use crate::login::steps::may_enter;
use crate::own_error::{CONFIG_ERROR, Cause, OwnError};
use crate::server::ServerPurpose;
use crate::shell::{Exchange, Io};
use crate::values::{ClientValues, Values};

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
            Step::Drop(why) => self.disconnect(id, Leaving::Unanswered(why), io),
            // It comes back as a new client after the handshake.
            Step::StartTls(start) => {
                let client = self.clients.remove(id);
                io.start_tls(id, start, client.times.connected_at());
            }
            Step::Cancel(key) => {
                let asked = self.cancellation().ask(id, &key, io);
                self.follow_request(asked, io);
            }
            Step::Ask(entry, question) => {
                let pool = match self.pools.for_question(&self.context, &entry, &question) {
                    Ok(pool) => pool,
                    Err(why) => return self.disconnect(id, why, io),
                };
                let asking = Asking { pool, query: question.query.into(), waiter: None };
                self.clients[id].login_mut().step = LoginStep::Asking(asking);
                self.request_for_login(id, pool, io);
            }
            Step::Prove(password) => self.prove(id, &password, io),
            Step::Authenticated => self.authenticated(id, io),
        }
    }

    /// Continues with an authenticated client: to the console or to a pool.
    pub(crate) fn authenticated(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let requested = self.clients[id].login_mut().requested.clone();
        let Identity { database, user } = &*requested;
        if is_console(&self.context.config, database) {
            let admin = if self.clients[id].login_mut().runs_weir() {
                Some(true)
            } else {
                let is_superuser = self.context.config.access == AccessPolicy::ProvenByServer && {
                    let database = self.context.config.proof_database();
                    let pool = self.pools.find(&self.context, database, user);
                    pool.is_some_and(|pool| is_superuser(&mut self.pools.one(pool)))
                };
                console::rights(&self.context.config, user, is_superuser)
            };
            return match admin {
                Some(admin) => self.clients.remove(id).enter_console(id, admin, io),
                None => self.disconnect(id, not_allowed(), io),
            };
        }
        let Some(pool) = self.pools.find(&self.context, database, user) else {
            log_login_failed(id, self.clients[id].login_mut(), io);
            return self.disconnect(id, no_database(database), io);
        };
        self.pools.remark_autodb(id, pool, io);
        let (client, mut one) = (&mut self.clients[id], self.pools.one(pool));
        if let Err(why) = may_enter(id, client, &mut one, &self.context.config, io) {
            return self.disconnect(id, why, io);
        }
        if let Some(timings) = &mut self.transactions.timings {
            let times = (client.times.connected_at(), client.login_mut().startup_at);
            timings.begin(client.serial, client.identity.clone(), times, io.now());
            client.while_waiting.plan(Steps::TIMED);
        }
        self.enter_pool(id, pool, io);
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
            let settings = self.pools.settings(pool);
            let server = &mut *self.servers[on];
            return principal::ask(on, server, Some(newcomer), settings, &mut self.context, io);
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
        client.stream.hold(login.buffer.into());
        let given = login.vars.known();
        client.vars = ClientValues::new(Values::new(login.vars), given);
        client.replication = login.replication;
        let replicates = client.replication.is_some();
        self.pools.view(pool).stats.logins += 1;
        let client = &mut self.clients[id];
        if *client.identity == *view_identity {
            client.identity = view_identity;
        }
        let (warm, role_changes) = self.pools.exchange.pool(pool, |pool| {
            pool.enter();
            (pool.current_welcome(), pool.role_changes())
        });
        self.clients[id].pool.enter(pool, role_changes);
        let welcome = warm.filter(|_| !replicates && !self.pools.settings(pool).is_session());
        let Some(welcome) = welcome else { return self.serve(id, io) };
        let client = &mut self.clients[id];
        client.complete_vars(&welcome, &mut self.context);
        self.welcome(id, None, &welcome, io);
        let (client, mut pool) = (&self.clients[id], self.pools.one(pool));
        let timings = &mut self.transactions.timings;
        if hand_off(id, client, &mut pool, &welcome, &self.context, timings, io) {
            let client = self.clients.remove(id);
            self.keys.remove(client.key.number());
            self.watch.iter_mut().for_each(|watch| watch.left(client.serial, None));
            return;
        }
        if self.clients[id].stream.holds_message() {
            self.serve(id, io);
        } else {
            io.resume_client(id);
        }
    }
}

/// Servers that tell what a new server of their pool would be.
impl<X: Exchange> Engine<X> {
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
        match *server.doomed {
            Some(reason) => self.seats().close(on, reason, io),
            None if server.is_clean() => self.place(on, io),
            None => self.seats().close(on, CloseReason::GotDirty, io),
        }
        self.work.extend(newcomer.map(Work::Checked));
    }
}

/// Logins that need a server: to ask about the user, or to prove the password.
impl<X: Exchange> Engine<X> {
    /// Requests a server for a login, which may have to wait.
    pub(super) fn request_for_login(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        match self.pools.exchange.pool(pool, |pool| pool.request(worker, id, None, now)) {
            Grant::Server(server) => {
                let on = self.servers.attach(server, &mut self.pools, io);
                match self.clients[id].asks() {
                    true => self.pair(id, on).ask_about_user(io),
                    false => {
                        let serial = self.servers[on].serial;
                        self.work.push(Work::Prove { server: on, serial, client: id });
                    }
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
                    false => self.disconnect(id, &error, io),
                }
            }
            Grant::Closed(reason) => self.disconnect(id, reason, io),
        }
    }

    /// Ends the question. The server is released first, so the client may find it in the pool.
    pub(crate) fn answered(
        &mut self,
        id: ClientId,
        on: ServerId,
        answer: Result<Option<Found>, String>,
        io: &mut impl Io<X>,
    ) {
        pair::part(&mut self.clients[id], &mut self.servers[on]);
        match &answer {
            Ok(_) => self.release(on, Cleaning::Begins, io),
            Err(why) => self.seats().close(on, CloseReason::Text(why), io),
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

    /// Checks the client's password.
    ///
    /// For the console, a password is checked once more that was right before. Then an idle server
    /// gives up its place, so that logins to the console do not fill the pool. If there is no place
    /// now, the earlier answer of PostgreSQL counts: an operator needs the console most while the pool
    /// is full or paused.
    fn prove(&mut self, id: ClientId, password: &[u8], io: &mut impl Io<X>) {
        let requested = self.clients[id].login_mut().requested.clone();
        let config = self.context.config.clone();
        let wants_console = is_console(&config, &requested.database);
        let database = if wants_console { config.proof_database() } else { &*requested.database };
        let Some(pool) = self.pools.find(&self.context, database, &requested.user) else {
            return self.disconnect(id, no_database(database), io);
        };
        let was_right = self.pools.one(pool).is_proven(password);
        if was_right && !wants_console {
            return self.authenticated(id, io);
        }
        self.clients[id].login_mut().begin_proof(pool, password);
        let worker = self.context.worker;
        let idle = self.pools.exchange.pool(pool, |pool| match was_right {
            true => pool.take_open(worker, None),
            false => None,
        });
        if let Some(idle) = idle {
            let server = self.servers.attach(idle, &mut self.pools, io);
            let serial = self.servers[server].serial;
            self.work.push(Work::Prove { server, serial, client: id });
        } else if self.pools.exchange.pool(pool, Pool::reserve_own) && self.seats().take(pool, io) {
            if let Some((pool, purpose)) = self.clients[id].login_mut().take_proof(id) {
                self.connect_server(pool, None, Some(purpose), io);
            }
        } else if was_right {
            self.authenticated(id, io);
        } else {
            self.request_for_login(id, pool, io);
        }
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
        if let Some((pool, purpose)) = self.clients[client].login_mut().take_proof(client) {
            self.connect_server(pool, None, Some(purpose), io);
        }
    }
}
