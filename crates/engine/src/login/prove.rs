//! Where only the server knows who may come in (`AccessPolicy::ProvenByServer`) it is asked by logging
//! in to it with the client's password. That login takes a place in the pool and a seat like any
//! other; where there is none the client waits in the pool's queue, and what it gets in the end makes
//! room for it.
//!
//! ```text
//!  password ─┬─ known to be right ─► authenticated
//!            ├─ there is room ─────► login … ─► authenticated, or refused
//!            └─ queued … ─┬─ a server ─┬─ known by now ─► authenticated
//!                         │            └─ closed ─► login …
//!                         └─ a place ──► login …
//! ```
//!
//! As long as no password has been found right, no server of the pool can be opened but for one
//! that is to be proven.

use crate::lifecycle::close_reason::CloseReason;
use crate::server::Settling;
use config::AccessPolicy;

use crate::admission::pool::{Grant, Pool};
use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::login::auth::{LoginStep, Proving};
use crate::login::steps::Step;
use crate::server::{ServerPhase, ServerPurpose};
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    /// Is this the client's password?
    pub(crate) fn prove(
        &mut self,
        id: ClientId,
        password: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Step {
        let login = self.login_mut(id);
        let (database, user) = (login.database.clone(), login.user.clone());
        if self.is_console(&database) {
            return Step::Refuse("not allowed".into());
        }
        let Some(pool) = self.find_pool(&database, &user) else {
            return Step::Refuse(format!("no such database: {database}"));
        };
        if self.is_proven(pool, password) {
            return self.authenticated(id, now, io);
        }
        let proving = Proving { pool, password: password.to_vec(), waiter: None };
        self.login_mut(id).step = LoginStep::Proving(proving);
        if self.exchange.pool(pool, Pool::reserve_own) && self.take_seat(pool, now, io) {
            self.connect_proof(id, now, io);
        } else {
            self.queue_proof(id, pool, now, io);
        }
        Step::Done
    }

    /// Has this password been found right before?
    fn is_proven(&mut self, pool: PoolId, password: &[u8]) -> bool {
        let proven = self.exchange.pool(pool, |pool| pool.proven.clone());
        proven.is_some_and(|verifier| verifier.verify_password(password))
    }

    fn queue_proof(&mut self, id: ClientId, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        let worker = self.worker;
        match self.exchange.pool(pool, |pool| pool.request(worker, id, None, now)) {
            Grant::Server(server) => {
                let on = self.attach(server, io);
                let serial = self.server(on).serial;
                self.work.push_back(Work::Prove { server: on, serial, client: id });
            }
            Grant::Queued { ticket, open } => {
                if let LoginStep::Proving(proving) = &mut self.login_mut(id).step {
                    proving.waiter = Some(Waiter { client: id, ticket, since: now });
                }
                if open {
                    self.open_server(pool, now, io);
                }
            }
            Grant::Refused(error) => self.refuse_client(id, &error, now, io),
            Grant::Closed(reason) => self.disconnect(id, reason.text(), now, io),
        }
    }

    /// Does this client wait to prove its password?
    pub(crate) fn proves(&self, id: ClientId) -> bool {
        matches!(&self.client(id).phase, ClientPhase::Login(login)
            if matches!(login.step, LoginStep::Proving(_)))
    }

    /// The client's turn has come. Somebody may have proven the same password meanwhile; else this
    /// server makes room for the login.
    pub(crate) fn prove_by(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let LoginStep::Proving(proving) = &mut self.login_mut(id).step else { return };
        proving.waiter = None;
        let (pool, password) = (proving.pool, proving.password.clone());
        if self.is_proven(pool, &password) {
            self.server_mut(on).phase = ServerPhase::Settling(Settling::Fresh);
            // The server goes first, so that the client finds it in the pool.
            self.place(on, now, io);
            io.resume_client(id);
            let step = self.authenticated(id, now, io);
            return self.go_on_login(id, step, now, io);
        }
        let purpose = ServerPurpose::Proof { client: id, password };
        self.replace_server(on, CloseReason::Evicted, purpose, now, io);
    }

    /// Its place and its seat are taken.
    fn connect_proof(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        let LoginStep::Proving(proving) = &mut self.login_mut(id).step else { return };
        proving.waiter = None;
        let (pool, password) = (proving.pool, std::mem::take(&mut proving.password));
        let purpose = ServerPurpose::Proof { client: id, password };
        self.connect_server(pool, Some(purpose), now, io);
    }

    /// Is there nothing yet with which a server of this pool could be opened?
    pub(crate) fn opens_by_proof(&mut self, pool: PoolId) -> bool {
        self.config.access == AccessPolicy::ProvenByServer
            && self.exchange.pool(pool, |pool| pool.server_secret.is_none())
    }

    /// Is the client that has waited longest, whose login is the next, one of this worker's?
    pub(crate) fn proves_first(&mut self, id: PoolId) -> bool {
        let worker = self.worker;
        let first = self.exchange.pool(id, |pool| pool.first_waiter());
        first.is_some_and(|(owner, _)| owner == worker)
    }

    /// There is a place and a seat for the login of the client that has waited longest.
    pub(crate) fn connect_prover(&mut self, id: PoolId, now: Micros, io: &mut impl Io<X>) {
        let worker = self.worker;
        // Who was first may have been thought of while the seat was looked for.
        let first = self.exchange.pool(id, |pool| {
            let waiter = pool.oldest_waiter(worker)?;
            pool.forget(worker, waiter.ticket);
            Some(waiter.client)
        });
        let Some(client) = first else {
            self.opening_ended();
            self.vacate(id, now);
            self.pass_proof_on(id);
            return self.feed(now, io);
        };
        self.connect_proof(client, now, io);
    }

    pub(crate) fn pass_proof_on(&mut self, id: PoolId) {
        let first = self.exchange.pool(id, |pool| {
            pool.withdraw_opening();
            pool.first_waiter()
        });
        if let Some((owner, _)) = first {
            self.exchange.post(owner, Mail::Prove { pool: id });
        }
    }
}
