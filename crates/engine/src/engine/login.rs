//! Clients that log in: what follows from the steps of their logins.

use config::AccessPolicy;

use super::Engine;
use crate::ids::{ClientId, Identity, PoolId};
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::preparation::Readable;
use crate::login::console;
use crate::login::console::is_console;
use crate::login::door::{Door, Step, log_login_failed, no_database, not_allowed};
use crate::login::prove::is_superuser;
use crate::login::steps::may_enter;
use crate::shell::{ConsoleLogin, Exchange, Io};
use crate::values::Values;

impl<X: Exchange> Engine<X> {
    /// Returns a client that logs in.
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
            Step::Cancel(key) => self.ask_cancel(id, key, io),
            Step::Ask(question) => self.ask_about_user(id, question, io),
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
            if self.hand_off(id, pool, &welcome, io) {
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
