//! A client from its first byte up to "logged in" (protocol chapter 55.2.1). Texts and order of
//! checks are PgBouncer's: an unknown user takes the same course as a wrong password, an unknown
//! database is reported only to those who proved who they are.

use std::sync::Arc;

use config::hba::Visitor;
use config::{AccessPolicy, AuthType, Database, SslMode};
use wire::scram::ScramServer;
use wire::startup::{self, MINOR_VERSION, StartupPacket, StartupRequest};
use wire::{Header, backend, frontend};

use super::{Drain, Engine};
use crate::auth::{Challenge, Credential, Login, LoginStep, Method, challenge};
use crate::client::{ClientPhase, Identity};
use crate::ids::{ClientId, Micros, PoolId};
use crate::mutant::{self, Mutant};
use crate::pool::{Gate, Pool};
use crate::replication::{Replication, ReplicationKind};
use crate::settings::{PoolKey, PoolSettings};
use crate::shell::{ConsoleLogin, Event, Exchange, Io, TlsStart};

mod certificate;
mod decoy;
mod patience;
mod sasl;

pub use patience::LOGIN_GRACE;

/// No message of a login is longer (PostgreSQL's limit for passwords and SASL answers).
const LOGIN_MESSAGE_LEN_MAX: usize = 65_535;
const USER_LEN_MAX: usize = 128;
const PASSWORD_FAILED: &str = "password authentication failed";

/// What one step of a login comes to.
pub(super) enum Step {
    /// More bytes are needed.
    Wait,
    /// The next message may be there already.
    Continue,
    Refuse(String),
    /// The client is somewhere else now: logged in, handed over, or gone.
    Done,
}

impl<X: Exchange> Engine<X> {
    pub(super) fn login_bytes(
        &mut self,
        id: ClientId,
        bytes: &[u8],
        now: Micros,
        io: &mut impl Io,
    ) {
        self.login_mut(id).buffer.extend_from_slice(bytes);
        self.go_on_login(id, Step::Continue, now, io);
    }

    /// All that can be done with what has come, after `step`.
    pub(super) fn go_on_login(
        &mut self,
        id: ClientId,
        mut step: Step,
        now: Micros,
        io: &mut impl Io,
    ) {
        loop {
            match step {
                Step::Wait | Step::Done => return,
                Step::Continue => {}
                Step::Refuse(why) => return self.disconnect(id, &why, now, io),
            }
            step = match self.login_mut(id).step {
                LoginStep::ExpectStartup => self.startup_step(id, now, io),
                LoginStep::Proving | LoginStep::Asking(_) | LoginStep::Checking(_) => Step::Wait,
                LoginStep::ExpectCleartext
                | LoginStep::ExpectJudged(_)
                | LoginStep::ExpectMd5 { .. }
                | LoginStep::ExpectSaslInitial(_)
                | LoginStep::ExpectSaslResponse(_) => self.password_step(id, now, io),
            };
        }
    }

    pub(super) fn login_mut(&mut self, id: ClientId) -> &mut Login {
        match &mut self.client_mut(id).phase {
            ClientPhase::Login(login) => login,
            _ => unreachable!("only called while the client is logging in"),
        }
    }

    fn startup_step(&mut self, id: ClientId, now: Micros, io: &mut impl Io) -> Step {
        if self.begins_tls(id) {
            let said = std::mem::take(&mut self.login_mut(id).buffer);
            return self.start_tls(id, TlsStart::Direct(said), io);
        }
        let login = self.login_mut(id);
        let len = match startup::packet_len(&login.buffer) {
            Ok(Some(len)) if len <= login.buffer.len() => len,
            Ok(_) => return Step::Wait,
            Err(error) => return Step::Refuse(error.to_string()),
        };
        let rest = login.buffer.split_off(len);
        let packet = std::mem::replace(&mut login.buffer, rest);
        let more = !login.buffer.is_empty();
        match startup::parse(&packet) {
            Ok(StartupRequest::Ssl) if more => {
                Step::Refuse("received unencrypted data after SSL request".into())
            }
            Ok(StartupRequest::GssEnc) if more => {
                Step::Refuse("received unencrypted data after GSSAPI encryption request".into())
            }
            Ok(StartupRequest::Ssl) if self.login_mut(id).peer.secured.is_some() => {
                Step::Refuse("SSL req inside SSL".into())
            }
            Ok(StartupRequest::Ssl) if self.offers_tls(id) => {
                io.send_client(id, b"S");
                self.start_tls(id, TlsStart::Asked, io)
            }
            Ok(StartupRequest::Ssl | StartupRequest::GssEnc) => {
                io.send_client(id, b"N");
                Step::Wait
            }
            Ok(StartupRequest::Cancel(key)) => {
                self.ask_cancel(id, key, now, io);
                Step::Done
            }
            Ok(StartupRequest::Startup(packet)) => match self.startup(id, &packet, io) {
                Ok(()) => self.begin_challenge(id, now, io),
                Err(why) => Step::Refuse(why),
            },
            Err(error) => Step::Refuse(error.to_string()),
        }
    }

    /// TLS is for TCP: nobody listens on a unix socket.
    fn offers_tls(&self, id: ClientId) -> bool {
        let ClientPhase::Login(login) = &self.client(id).phase else { return false };
        self.config.global.client_tls_sslmode != SslMode::Disable && !login.peer.local
    }

    /// Are its first bytes those of a TLS handshake (`sslnegotiation=direct`)?
    fn begins_tls(&self, id: ClientId) -> bool {
        const HANDSHAKE_RECORD: u8 = 0x16;
        let ClientPhase::Login(login) = &self.client(id).phase else { return false };
        login.buffer.first() == Some(&HANDSHAKE_RECORD)
            && login.peer.secured.is_none()
            && self.offers_tls(id)
    }

    /// The client comes back when the handshake is made.
    fn start_tls(&mut self, id: ClientId, start: TlsStart, io: &mut impl Io) -> Step {
        let client = self.clients.remove(id.0 as usize);
        io.start_tls(id, start, client.connected_at);
        Step::Done
    }

    /// Take in the startup packet.
    fn startup(
        &mut self,
        id: ClientId,
        packet: &StartupPacket<'_>,
        io: &mut impl Io,
    ) -> Result<(), String> {
        let peer = &self.login_mut(id).peer;
        let is_bare = peer.secured.is_none() && !peer.local;
        if is_bare && self.config.global.client_tls_sslmode.is_required() {
            return Err("SSL required".into());
        }
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let user =
            text(packet.get("user").filter(|user| !user.is_empty()).ok_or("no username supplied")?);
        if user.len() >= USER_LEN_MAX {
            return Err("username too long".into());
        }
        let database = packet.get("database").filter(|name| !name.is_empty());
        let database = database.map_or_else(|| user.clone(), text);
        let is_console = self.is_console(&database);
        if self.turns_newcomers_away() && !is_console {
            return Err("pooler is shutting down".into());
        }
        let replication = Replication::of(packet);
        let vars = self.startup_vars(id, packet, replication.is_some(), io)?;
        self.negotiate(id, packet, io);
        let kind = replication.as_ref().map(|asked| asked.kind);
        let name = (database.as_str(), user.as_str());
        io.event(Event::LoginAttempt { client: id, name, replication: kind });
        let identity = Arc::new(Identity { database: database.clone(), user: user.clone() });
        let client = self.client_mut(id);
        client.identity = identity.clone();
        let login = self.login_mut(id);
        login.vars = vars;
        login.replication = replication;
        login.database = database;
        login.user = user;
        if is_console { Ok(()) } else { self.count_client(id, identity) }
    }

    /// Is there room for one more client? It counts until it leaves, even if it is turned away.
    fn count_client(&mut self, id: ClientId, identity: Arc<Identity>) -> Result<(), String> {
        let over = |count: u32, limit: u32| limit > 0 && count > limit;
        let counts = self.exchange.limits(|limits| limits.client_came(&identity));
        let config = &self.config;
        let why = if counts.process > config.global.max_client_conn {
            "no more connections allowed (max_client_conn)"
        } else if over(counts.database, config.max_db_client_connections(&identity.database)) {
            "client connections exceeded (max_db_client_connections)"
        } else if over(counts.user, config.max_user_client_connections(&identity.user)) {
            "client connections exceeded (max_user_client_connections)"
        } else {
            ""
        };
        self.client_mut(id).counted = Some(identity);
        if why.is_empty() { Ok(()) } else { Err(why.into()) }
    }

    /// Protocol extensions we do not know, or a newer minor version than ours, are politely
    /// declined.
    fn negotiate(&mut self, id: ClientId, packet: &StartupPacket<'_>, io: &mut impl Io) {
        let unknown: Vec<&[u8]> = packet
            .parameters()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with(b"_pq_."))
            .collect();
        self.client_mut(id).long_key = packet.minor >= MINOR_VERSION;
        if packet.minor > MINOR_VERSION || !unknown.is_empty() {
            let mut out = Vec::new();
            let minor = packet.minor.min(MINOR_VERSION);
            backend::negotiate_protocol_version(&mut out, minor, &unknown);
            io.send_client(id, &out);
        }
    }

    /// What the user is has to be known first.
    fn begin_challenge(&mut self, id: ClientId, now: Micros, io: &mut impl Io) -> Step {
        let user = self.login_mut(id).user.clone();
        let mut out = Vec::new();
        let login = self.login_mut(id);
        if login.peer.same_user && user == "pgbouncer" {
            let database = login.database.clone();
            if self.is_console(&database) {
                // Who runs the pooler may steer it.
                return self.enter_console(id, true, now, io);
            }
        }
        if self.config.access == AccessPolicy::ProvenByServer {
            if !self.login_mut(id).peer.loopback {
                return Step::Refuse("login rejected".into());
            }
            backend::authentication_cleartext(&mut out);
            self.login_mut(id).step = LoginStep::ExpectCleartext;
            io.send_client(id, &out);
            return Step::Continue;
        }
        if let Some(step) = self.ask_about_user(id, now, io) {
            return step;
        }
        let credential = self.credentials.of_user(&self.config, &user);
        self.challenge_user(id, credential, now, io)
    }

    /// The client is asked to prove that it is the user that has this credential. None: there is
    /// no such user, which it is not told.
    pub(super) fn challenge_user(
        &mut self,
        id: ClientId,
        credential: Option<Arc<Credential>>,
        now: Micros,
        io: &mut impl Io,
    ) -> Step {
        self.login_mut(id).credential.clone_from(&credential);
        let mut out = Vec::new();
        let login = self.login_mut(id);
        let user = login.user.clone();
        let kind = login.replication.as_ref().map(|asked| asked.kind);
        let visitor = Visitor {
            address: login.peer.rule_address(),
            tls: login.peer.secured.is_some(),
            replication: kind == Some(ReplicationKind::Physical),
            database: &login.database.clone(),
            user: &user,
        };
        let mut challenge = challenge(Method::new(&self.config, &visitor), credential.as_deref());
        if credential.is_none() {
            challenge = self.decoy_challenge(&user, challenge);
        }
        let step = match challenge {
            Challenge::None => return self.authenticated(id, now, io),
            Challenge::Refused(why) => {
                self.log_login_failed(id, io);
                return Step::Refuse(why.into());
            }
            Challenge::Peer(map) => return self.check_peer(id, map, io),
            Challenge::Cert(map) => return self.check_certificate(id, map.as_deref(), now, io),
            Challenge::Judged(judge) => {
                backend::authentication_cleartext(&mut out);
                LoginStep::ExpectJudged(judge)
            }
            Challenge::Cleartext => {
                backend::authentication_cleartext(&mut out);
                LoginStep::ExpectCleartext
            }
            Challenge::Md5 => {
                let mut salt = [0; 4];
                io.random(&mut salt);
                backend::authentication_md5(&mut out, salt);
                LoginStep::ExpectMd5 { salt }
            }
            Challenge::Scram => {
                let salt = self.salt_of(&user);
                let verifier = credential.and_then(|known| known.verifier(&self.config, salt));
                let verifier = verifier.unwrap_or_else(|| self.decoy_verifier(&user));
                let mut nonce = [0; 18];
                io.random(&mut nonce);
                let mut server = ScramServer::new(verifier, nonce);
                if let Some(secured) = &self.login_mut(id).peer.secured {
                    server = server.bound_to(&secured.end_point);
                }
                backend::authentication_sasl(&mut out, server.mechanisms());
                LoginStep::ExpectSaslInitial(server)
            }
        };
        self.login_mut(id).step = step;
        io.send_client(id, &out);
        Step::Continue
    }

    /// One message of the client's side of the challenge.
    fn password_step(&mut self, id: ClientId, now: Micros, io: &mut impl Io) -> Step {
        let login = self.login_mut(id);
        let header = match Header::parse(&login.buffer) {
            Ok(Some(header)) => header,
            Ok(None) => return Step::Wait,
            Err(_) => return Step::Refuse("bad packet header".into()),
        };
        if header.code != frontend::PASSWORD {
            let hex: String = login.buffer[..5].iter().map(|byte| format!("{byte:02x}")).collect();
            return Step::Refuse(format!("bad packet header: '{hex}'"));
        }
        if header.total > LOGIN_MESSAGE_LEN_MAX {
            return Step::Refuse("password too long".into());
        }
        if login.buffer.len() < header.total {
            return Step::Wait;
        }
        if !self.may_be_judged(id, now) {
            return Step::Wait;
        }
        let login = self.login_mut(id);
        let rest = login.buffer.split_off(header.total);
        let message = std::mem::replace(&mut login.buffer, rest);
        let body = &message[wire::HEADER_LEN..];
        match std::mem::take(&mut login.step) {
            LoginStep::ExpectCleartext => self.cleartext(id, body, now, io),
            LoginStep::ExpectJudged(judge) => self.check_password(id, judge, body, io),
            LoginStep::ExpectMd5 { salt } => {
                let login = self.login_mut(id);
                let answer = body.strip_suffix(b"\0").unwrap_or(body);
                let accepted = login
                    .credential
                    .as_ref()
                    .is_some_and(|known| known.accepts_md5(&login.user, salt, answer));
                self.verdict(id, accepted, PASSWORD_FAILED, now, io)
            }
            LoginStep::ExpectSaslInitial(server) => self.sasl_initial(id, server, body, now, io),
            LoginStep::ExpectSaslResponse(server) => self.sasl_response(id, server, body, now, io),
            LoginStep::ExpectStartup
            | LoginStep::Proving
            | LoginStep::Asking(_)
            | LoginStep::Checking(_) => Step::Wait,
        }
    }

    fn cleartext(&mut self, id: ClientId, body: &[u8], now: Micros, io: &mut impl Io) -> Step {
        let password = body.strip_suffix(b"\0").unwrap_or(body);
        if password.is_empty() {
            return Step::Refuse("empty password returned by client".into());
        }
        if self.config.access == AccessPolicy::ProvenByServer {
            return self.prove(id, password, now, io);
        }
        let accepted = self.accepts_cleartext(id, password);
        self.verdict(id, accepted, PASSWORD_FAILED, now, io)
    }

    /// Only the server knows who may come in: it is asked by logging in to it, unless it has been
    /// asked about this very password before.
    fn prove(&mut self, id: ClientId, password: &[u8], now: Micros, io: &mut impl Io) -> Step {
        let (database, user) =
            (self.login_mut(id).database.clone(), self.login_mut(id).user.clone());
        if self.is_console(&database) {
            return Step::Refuse("not allowed".into());
        }
        let Some(pool) = self.find_pool(&database, &user) else {
            return Step::Refuse(format!("no such database: {database}"));
        };
        let proven = self.exchange.pool(pool, |pool| pool.proven.clone());
        if proven.is_some_and(|verifier| verifier.verify_password(password)) {
            return self.authenticated(id, now, io);
        }
        self.login_mut(id).step = LoginStep::Proving;
        self.exchange.pool(pool, Pool::reserve_proof);
        self.open_proof(pool, id, password, now, io);
        Step::Done
    }

    pub(super) fn verdict(
        &mut self,
        id: ClientId,
        accepted: bool,
        failure: &str,
        now: Micros,
        io: &mut impl Io,
    ) -> Step {
        if accepted {
            return self.authenticated(id, now, io);
        }
        self.note_wrong_proof(id, now);
        self.log_login_failed(id, io);
        Step::Refuse(failure.into())
    }

    pub(super) fn log_login_failed(&mut self, id: ClientId, io: &mut impl Io) {
        let login = self.login_mut(id);
        let (database, user) = (login.database.clone(), login.user.clone());
        io.event(Event::LoginFailed { client: id, database: &database, user: &user });
    }

    /// The client is who it says it is. Where does it want to go?
    fn authenticated(&mut self, id: ClientId, now: Micros, io: &mut impl Io) -> Step {
        let login = self.login_mut(id);
        let (database, user) = (login.database.clone(), login.user.clone());
        if self.is_console(&database) {
            let global = &self.config.global;
            let listed = |list: &[String]| list.contains(&user);
            let admin = listed(&global.admin_users);
            let any =
                global.auth_type == AuthType::Any && self.config.access == AccessPolicy::Configured;
            if !admin && !listed(&global.stats_users) && !any {
                return Step::Refuse("not allowed".into());
            }
            return self.enter_console(id, admin, now, io);
        }
        let Some(pool) = self.find_pool(&database, &user) else {
            return Step::Refuse(format!("no such database: {database}"));
        };
        let disabled = self.exchange.pool(pool, |pool| pool.disabled);
        if disabled && !mutant::is(Mutant::AdmitsToDisabled) {
            return Step::Refuse(format!("database \"{database}\" is disabled"));
        }
        self.learn_answer(id, pool);
        self.learn_password(id, pool);
        self.enter_pool(id, pool, now, io);
        Step::Done
    }

    /// Login is over. A client of a warm pool needs no server for its welcome, except in session
    /// mode, where it is told its server's process id.
    pub(super) fn enter_pool(&mut self, id: ClientId, pool: PoolId, now: Micros, io: &mut impl Io) {
        let view_identity = self.view(pool).identity.clone();
        let client = self.client_mut(id);
        let ClientPhase::Login(login) = std::mem::replace(&mut client.phase, ClientPhase::Idle)
        else {
            return;
        };
        // Bytes sent ahead of the welcome are unusual, but nobody forbids them.
        client.stream.held = login.buffer;
        client.vars = Arc::new(login.vars);
        client.replication = login.replication;
        let replicates = client.replication.is_some();
        client.pool = Some(pool);
        if *client.identity == *view_identity {
            client.counted = Some(view_identity.clone());
            client.identity = view_identity;
        }
        let warm = self.exchange.pool(pool, |pool| {
            pool.clients += 1;
            pool.welcome.clone()
        });
        if replicates {
            self.link_own(id, pool, now, io);
        } else if let Some(welcome) = warm.filter(|_| !self.settings(pool).is_session()) {
            self.complete_vars(id, &welcome);
            self.welcome(id, None, &welcome, io);
            if !self.client(id).stream.holds_message() {
                io.resume_client(id);
            } else if self.link(id, now, io) {
                self.go_on(id, now, io);
            }
        } else if self.link(id, now, io) {
            self.go_on(id, now, io);
        }
    }

    fn enter_console(&mut self, id: ClientId, admin: bool, now: Micros, io: &mut impl Io) -> Step {
        let mut client = self.clients.remove(id.0 as usize);
        let ClientPhase::Login(login) = &mut client.phase else { return Step::Done };
        let unread = std::mem::take(&mut login.buffer);
        let mut key = [0; 8];
        io.random(&mut key);
        let [p0, p1, p2, p3, secret @ ..] = key;
        let login = ConsoleLogin {
            process_id: u32::from_be_bytes([p0, p1, p2, p3]) & 0x7fff_ffff,
            secret,
            database: std::mem::take(&mut login.database),
            user: std::mem::take(&mut login.user),
            admin,
            unread,
            connected_at: now,
        };
        io.hand_to_console(id, login);
        Step::Done
    }

    /// The console's names in place of a database; `weir` gives way to a real database.
    pub(super) fn is_console(&self, database: &str) -> bool {
        database == "pgbouncer"
            || (database == "weir" && !self.config.databases.contains_key(database))
    }

    /// The pool of this database and user, made when it is asked for the first time.
    pub(super) fn find_pool(&mut self, database: &str, user: &str) -> Option<PoolId> {
        let entry = self.config.database(database)?;
        let user = entry.user.as_deref().unwrap_or(user);
        Some(self.pool_of(&entry, user))
    }

    /// The pool of the database with that very user, whomever its clients are made.
    pub(super) fn pool_of(&mut self, entry: &Database, user: &str) -> PoolId {
        let key = PoolKey { database: entry.name.clone(), user: user.to_owned() };
        let (config, workers) = (&self.config, self.exchange.worker_count());
        let closed = self.drain == Some(Drain::WaitForServers);
        let id = self.exchange.find_pool(&key, |id| {
            let settings = Arc::new(PoolSettings::new(config, entry, &key.user));
            let mut pool = Pool::new(id, key.clone(), settings, workers);
            if closed {
                pool.set_gate(Gate::Closed("server shutting down"));
            }
            pool
        });
        self.view(id);
        id
    }

    fn turns_newcomers_away(&self) -> bool {
        match self.drain {
            Some(Drain::WaitForServers | Drain::WaitForClients) => true,
            // Who is in the middle of a login has nowhere else to go.
            Some(Drain::TakenOver) | None => false,
        }
    }

    /// From now on nobody new is let in, or nobody is linked any more.
    pub fn begin_drain(&mut self, how: Drain, now: Micros, io: &mut impl Io) {
        self.drain = Some(how);
        if how == Drain::WaitForServers {
            // One may have been made since the shutdown began, for a client that was logging in.
            for id in self.exchange.pool_ids() {
                let gate = Gate::Closed("server shutting down");
                self.exchange.pool(id, |pool| pool.set_gate(gate));
            }
        }
        self.review(now, io);
    }
}
