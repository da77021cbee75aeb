//! Authentication where only PostgreSQL knows the users (`AccessPolicy::ProvenByServer`): Weir logs
//! in to PostgreSQL with the client's password. That login takes a place in the pool and a seat
//! like any other. If there is none, the client waits in the pool's queue, and the server that it
//! gets is replaced by the login.
//!
//! ```text
//!  password ─┬─ known to be right ─► authenticated
//!            ├─ there is room ─────► login … ─► authenticated, or refused
//!            └─ queued … ─┬─ a server ─┬─ known by now ─► authenticated
//!                         │            └─ closed ─► login …
//!                         └─ a place ──► login …
//! ```
//!
//! Until a password was found right, the pool opens servers only to prove one.
//!
//! For the console, the password is proven at the database of the URL, and each time again: the
//! password or the user's rights may have changed. Only if PostgreSQL cannot be asked now, a
//! password that is known to be right is accepted.

use wire::error_fields::ErrorFields;

use crate::admission::one_pool::OnePool;
use crate::admission::pool::{Grant, Parked, Pool};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::auth::LoginStep;
use crate::login::console::is_console;
use crate::login::door::no_database;
use crate::own_error::judges_user;
use crate::server::ServerPurpose;
use crate::shell::{Exchange, Io};

/// The parameter that a server reports to a superuser.
const SUPERUSER: (&[u8], &[u8]) = (b"is_superuser", b"on");

impl<X: Exchange> Engine<X> {
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
        if self.pools.exchange.pool(pool, Pool::reserve_own) && self.take_seat(pool, io) {
            self.connect_proof(id, io);
        } else {
            self.queue_proof(id, pool, io);
        }
    }

    /// Checks a password once more that was right before. An idle server gives up its place, so that
    /// logins to the console do not fill the pool. If there is no place now, the earlier answer of
    /// PostgreSQL counts: an operator needs the console most while the pool is full or paused.
    fn prove_again(&mut self, id: ClientId, pool: PoolId, password: &[u8], io: &mut impl Io<X>) {
        let worker = self.context.worker;
        if let Some(idle) = self.pools.exchange.pool(pool, |pool| pool.take_open(worker, None)) {
            self.clients[id].login_mut().begin_proof(pool, password);
            self.prove_soon(id, idle, io);
        } else if self.pools.exchange.pool(pool, Pool::reserve_own) && self.take_seat(pool, io) {
            self.clients[id].login_mut().begin_proof(pool, password);
            self.connect_proof(id, io);
        } else {
            self.authenticated(id, io);
        }
    }

    /// The server that was opened for it has proven the client's password.
    pub(crate) fn proven(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        if !self.clients[id].wants_console(&self.context.config) {
            return self.enter_pool(id, pool, io);
        }
        self.admit(id, io);
    }

    /// The login that should prove the client's password has failed.
    pub(crate) fn not_proven(
        &mut self,
        id: ClientId,
        pool: PoolId,
        password: &[u8],
        error: &ErrorFields,
        io: &mut impl Io<X>,
    ) {
        if self.pools.one(pool).is_proven(password) {
            // The user may also have lost the right to connect to the database.
            if judges_user(error) || matches!(error.sqlstate(), b"42501" | b"3D000" | b"55000") {
                self.pools.exchange.pool(pool, |pool| pool.proven = None);
            } else if self.clients[id].wants_console(&self.context.config) {
                let serial = self.clients[id].serial;
                return self.work.push_back(Work::Admit { client: id, serial });
            }
        }
        self.refuse_client(id, error, io);
    }

    /// The client's password counts as right.
    pub(crate) fn admit(&mut self, id: ClientId, io: &mut impl Io<X>) {
        self.authenticated(id, io);
    }

    fn queue_proof(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let worker = self.context.worker;
        match self.pools.exchange.pool(pool, |pool| pool.request(worker, id, None, now)) {
            Grant::Server(server) => self.prove_soon(id, server, io),
            Grant::Queued { ticket, open } => {
                if let LoginStep::Proving(proving) = &mut self.clients[id].login_mut().step {
                    let pool = proving.pool;
                    proving.waiter = Some(Waiter { client: id, pool, ticket, since: now });
                }
                if open {
                    self.open_server(pool, io);
                }
            }
            Grant::Refused(error) => self.refuse_client(id, &error, io),
            Grant::Closed(reason) => self.disconnect(id, reason, io),
        }
    }

    fn prove_soon(&mut self, id: ClientId, server: Parked<X::Transport>, io: &mut impl Io<X>) {
        let on = self.attach(server, io);
        let serial = self.servers[on].serial;
        self.work.push_back(Work::Prove { server: on, serial, client: id });
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
            return self.admit(id, io);
        }
        let purpose = ServerPurpose::Proof { client: id, password };
        self.replace_server(on, CloseReason::Evicted, purpose, io);
    }

    /// Opens the login, whose place and seat are taken.
    fn connect_proof(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let LoginStep::Proving(proving) = &mut self.clients[id].login_mut().step else { return };
        proving.waiter = None;
        let (pool, password) = (proving.pool, std::mem::take(&mut proving.password));
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
            return self.feed(io);
        };
        self.connect_proof(client, io);
    }
}

/// May the user of this pool, whose password PostgreSQL has accepted, change things on the console? A
/// superuser can do anything to the only server behind it anyway.
pub(crate) fn is_superuser<X: Exchange>(pool: &mut OnePool<'_, X>) -> bool {
    let welcome = pool.lock(|pool| pool.welcome.clone());
    welcome.is_some_and(|welcome| {
        let is_it = |(name, value): &(Vec<u8>, Vec<u8>)| (&name[..], &value[..]) == SUPERUSER;
        welcome.fixed().iter().any(is_it)
    })
}
