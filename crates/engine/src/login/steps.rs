//! A client from its first byte up to "logged in" (protocol chapter 55.2.1). Texts and order of
//! checks are PgBouncer's. An unknown user is treated like a wrong password, and an unknown
//! database is reported only after authentication.

use std::sync::Arc;

use config::hba::Visitor;
use config::{AccessPolicy, AuthType, Config, SslMode};
use wire::scram::ScramServer;
use wire::startup::{StartupError, StartupRequest};
use wire::{HEADER_LEN, Header, backend, bad_header, frontend, startup};

use crate::engine::Engine;
use crate::ids::{ClientId, Identity, Micros, PoolId};
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::own_keys::{may_use_keys, no_keys, remark_own_keys};
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::replication::ReplicationKind;
use crate::login::auth::{Awaited, Challenge, Credential, Login, LoginStep, Method, challenge};
use crate::login::checks::{check_password, check_peer};
use crate::login::console;
use crate::login::console::is_console;
use crate::login::decoy::Decoy;
use crate::login::prove::is_superuser;
use crate::own_error::{Cause, OwnError};
use crate::settings::PoolSettings;
use crate::shell::{ConsoleLogin, Event, Exchange, Io, TlsStart, Weight};
use crate::values::Values;

/// Maximal length of a password or SASL message (PostgreSQL's `PG_MAX_AUTH_TOKEN_LENGTH`).
const PASSWORD_LEN_MAX: usize = 65_535;
pub(super) const PASSWORD_FAILED: &str = "password authentication failed";

fn wrong_password() -> OwnError<'static> {
    OwnError::new(Cause::Password, PASSWORD_FAILED)
}

pub(super) fn no_database(name: &str) -> OwnError<'static> {
    OwnError::new(Cause::UnknownDatabase, format!("no such database: {name}"))
}

/// Returns the error for a user that may not use the console.
pub(super) fn not_allowed() -> OwnError<'static> {
    OwnError::new(Cause::Rule, "not allowed")
}

/// The result of one step of a login.
pub(crate) enum Step {
    /// More bytes are needed.
    Wait,
    /// The next message may have arrived already.
    Continue,
    Refuse(OwnError<'static>),
    /// Closes the client without an error message.
    Drop(&'static str),
    /// The client is logged in, handed over, or closed.
    Done,
}

impl<X: Exchange> Engine<X> {
    pub(crate) fn login_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        self.clients[id].login_mut().buffer.extend_from_slice(bytes);
        self.go_on_login(id, Step::Continue, io);
    }

    /// Continues the login after `step`, as far as the received bytes allow.
    pub(crate) fn go_on_login(&mut self, id: ClientId, mut step: Step, io: &mut impl Io<X>) {
        loop {
            match step {
                Step::Wait | Step::Done => return,
                Step::Continue => {}
                Step::Refuse(why) => return self.disconnect(id, why, io),
                Step::Drop(why) => {
                    return self.drop_client(id, Leaving::Unanswered(why), io);
                }
            }
            step = match self.clients[id].login_mut().step.awaits() {
                Awaited::Startup => self.startup_step(id, io),
                Awaited::Password => self.password_step(id, io),
                Awaited::Answer => Step::Wait,
            };
        }
    }

    fn startup_step(&mut self, id: ClientId, io: &mut impl Io<X>) -> Step {
        let login = self.clients[id].login_mut();
        if begins_tls(&self.context.config, login) {
            let said = std::mem::take(&mut login.buffer);
            return self.start_tls(id, TlsStart::Direct(said), io);
        }
        let len = match startup::packet_len(&login.buffer) {
            Ok(Some(len)) if len <= login.buffer.len() => len,
            Ok(_) => return Step::Wait,
            Err(error) => return not_a_startup(error, &login.buffer),
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
            Ok(StartupRequest::Ssl) if login.peer.secured.is_some() => {
                Step::Refuse("SSL req inside SSL".into())
            }
            Ok(StartupRequest::Ssl) if offers_tls(&self.context.config, login) => {
                io.send_client(id, b"S");
                self.start_tls(id, TlsStart::Asked, io)
            }
            Ok(StartupRequest::Ssl | StartupRequest::GssEnc) => {
                io.send_client(id, b"N");
                Step::Wait
            }
            Ok(StartupRequest::Cancel(key)) => {
                self.ask_cancel(id, key, io);
                Step::Done
            }
            Ok(StartupRequest::Startup(packet)) => match self.startup(id, &packet, io) {
                Ok(()) => self.begin_challenge(id, io),
                Err(why) => Step::Refuse(why),
            },
            Err(error) => not_a_startup(error, &packet),
        }
    }

    /// Hands the client over for the handshake, after which it comes back as a new client.
    fn start_tls(&mut self, id: ClientId, start: TlsStart, io: &mut impl Io<X>) -> Step {
        let client = self.clients.remove(id);
        io.start_tls(id, start, client.connected_at);
        Step::Done
    }

    /// Finds the user's credential, and challenges the client.
    fn begin_challenge(&mut self, id: ClientId, io: &mut impl Io<X>) -> Step {
        let login = self.clients[id].login_mut();
        let requested = login.requested.clone();
        let Identity { database, user } = &*requested;
        if login.peer.same_user && user == "pgbouncer" && is_console(&self.context.config, database)
        {
            // The user that runs Weir may use the console.
            return self.enter_console(id, true, io);
        }
        if self.context.config.access == AccessPolicy::ProvenByServer {
            if !self.clients[id].login_mut().peer.loopback {
                return Step::Refuse(OwnError::new(Cause::Rule, "login rejected"));
            }
            let mut out = Vec::new();
            backend::authentication_cleartext(&mut out);
            let login = self.clients[id].login_mut();
            (login.step, login.challenged_at) = (LoginStep::ExpectCleartext, io.now());
            io.send_client(id, &out);
            return Step::Continue;
        }
        if let Some(step) = self.ask_about_user(id, io) {
            return step;
        }
        let credential = self.credentials.of_user(&self.context.config, user);
        if credential.is_none() && self.context.config.access == AccessPolicy::Configured {
            remark_unknown(&self.context.config, id, self.clients[id].login_mut(), io);
        }
        self.challenge_user(id, credential, io)
    }

    /// Challenges the client to prove that it is this user. If there is no credential, the user
    /// does not exist, which the client is not told.
    pub(crate) fn challenge_user(
        &mut self,
        id: ClientId,
        credential: Option<Arc<Credential>>,
        io: &mut impl Io<X>,
    ) -> Step {
        self.clients[id].login_mut().credential.clone_from(&credential);
        let mut out = Vec::new();
        let login = self.clients[id].login_mut();
        let requested = login.requested.clone();
        let Identity { database, user } = &*requested;
        let kind = login.replication.as_ref().map(|asked| asked.kind);
        let alias = console::other_name(&self.context.config, database);
        let login = self.clients[id].login_mut();
        let visitor = Visitor {
            address: login.peer.rule_address(),
            tls: login.peer.secured.is_some(),
            replication: kind == Some(ReplicationKind::Physical),
            database,
            alias,
            user,
        };
        let mut challenge =
            challenge(Method::new(&self.context.config, &visitor), credential.as_deref());
        if credential.is_none() {
            challenge = Decoy { config: &self.context.config, seed: &self.context.seed }
                .challenge(user, challenge);
        }
        let step = match challenge {
            Challenge::None => return self.authenticated(id, io),
            Challenge::Refused(why) => return Step::Refuse(why),
            Challenge::Peer(map) => return check_peer(id, &mut self.clients[id], map, io),
            Challenge::Cert(name, map) => {
                return self.check_certificate(id, name, map.as_deref(), io);
            }
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
                let salt =
                    Decoy { config: &self.context.config, seed: &self.context.seed }.salt_of(user);
                let verifier =
                    credential.and_then(|known| known.verifier(&self.context.config, salt));
                let verifier = verifier.unwrap_or_else(|| {
                    Decoy { config: &self.context.config, seed: &self.context.seed }.verifier(user)
                });
                let mut nonce = [0; 18];
                io.random(&mut nonce);
                let mut server = ScramServer::new(verifier, nonce);
                if let Some(secured) = &self.clients[id].login_mut().peer.secured {
                    server = server.bound_to(&secured.end_point);
                }
                backend::authentication_sasl(&mut out, server.mechanisms());
                LoginStep::ExpectSaslInitial(server)
            }
        };
        let login = self.clients[id].login_mut();
        (login.step, login.challenged_at) = (step, io.now());
        io.send_client(id, &out);
        Step::Continue
    }

    /// Reads one message of the client's reply to the challenge.
    fn password_step(&mut self, id: ClientId, io: &mut impl Io<X>) -> Step {
        let login = self.clients[id].login_mut();
        if login.buffer.first() == Some(&0) {
            return match login.buffer.len() < startup::PACKET_LEN_MIN {
                true => Step::Wait,
                false => Step::Refuse("client re-sent startup pkt".into()),
            };
        }
        let header = match Header::parse(&login.buffer) {
            Ok(Some(header)) => header,
            Ok(None) => return Step::Wait,
            Err(_) => return Step::Refuse(bad_header(&login.buffer).into()),
        };
        if header.code != frontend::PASSWORD {
            return Step::Drop("bad packet");
        }
        let is_text = login.step.expects_text();
        if header.total > HEADER_LEN + PASSWORD_LEN_MAX + usize::from(is_text) {
            return match is_text {
                true => self.verdict(id, false, wrong_password(), io),
                false => Step::Refuse("password too long".into()),
            };
        }
        if login.buffer.len() < header.total {
            return Step::Wait;
        }
        if !self.may_be_judged(id, io.now()) {
            return Step::Wait;
        }
        let login = self.clients[id].login_mut();
        let rest = login.buffer.split_off(header.total);
        let message = std::mem::replace(&mut login.buffer, rest);
        let mut body = &message[HEADER_LEN..];
        if login.step.expects_text() {
            // The zero byte must be the last one. The error is PostgreSQL's.
            let Some((0, text)) = body.split_last().filter(|(_, text)| !text.contains(&0)) else {
                return Step::Refuse("invalid password packet size".into());
            };
            body = text;
        }
        match std::mem::take(&mut login.step) {
            LoginStep::ExpectCleartext => self.cleartext(id, body, io),
            LoginStep::ExpectJudged(judge) => {
                check_password(id, &mut self.clients[id], judge, body, io)
            }
            LoginStep::ExpectMd5 { salt } => {
                let login = self.clients[id].login_mut();
                let accepted = login
                    .credential
                    .as_ref()
                    .is_some_and(|known| known.accepts_md5(&login.requested.user, salt, body));
                self.verdict(id, accepted, wrong_password(), io)
            }
            LoginStep::ExpectSaslInitial(server) => self.sasl_initial(id, server, body, io),
            LoginStep::ExpectSaslResponse(server) => self.sasl_response(id, server, body, io),
            LoginStep::ExpectStartup
            | LoginStep::Proving(_)
            | LoginStep::Asking(_)
            | LoginStep::Checking(_)
            | LoginStep::Trial
            | LoginStep::PrincipalCheck => Step::Wait,
        }
    }

    fn cleartext(&mut self, id: ClientId, password: &[u8], io: &mut impl Io<X>) -> Step {
        if password.is_empty() {
            return Step::Refuse("empty password returned by client".into());
        }
        if self.context.config.access == AccessPolicy::ProvenByServer {
            return self.prove(id, password, io);
        }
        let login = self.clients[id].login_mut();
        let decoy = Decoy { config: &self.context.config, seed: &self.context.seed };
        let accepted = decoy.accepts_cleartext(login, password);
        self.verdict(id, accepted, wrong_password(), io)
    }

    pub(crate) fn verdict(
        &mut self,
        id: ClientId,
        accepted: bool,
        failure: OwnError<'static>,
        io: &mut impl Io<X>,
    ) -> Step {
        if accepted {
            return self.authenticated(id, io);
        }
        self.refuse_proof(id, failure, io.now())
    }

    /// Refuses a client whose proof was wrong.
    pub(super) fn refuse_proof(
        &mut self,
        id: ClientId,
        why: OwnError<'static>,
        now: Micros,
    ) -> Step {
        self.note_wrong_proof(id, now);
        Step::Refuse(why)
    }

    /// Continues with an authenticated client: to the console or to a pool.
    pub(crate) fn authenticated(&mut self, id: ClientId, io: &mut impl Io<X>) -> Step {
        let requested = self.clients[id].login_mut().requested.clone();
        let Identity { database, user } = &*requested;
        if is_console(&self.context.config, database) {
            let is_superuser = self.context.config.access == AccessPolicy::ProvenByServer && {
                let database = self.context.config.proof_database();
                let pool = self.pools.find(&self.context, database, user);
                pool.is_some_and(|pool| is_superuser(&mut self.pools.one(pool)))
            };
            return match console::rights(&self.context.config, user, is_superuser) {
                Some(admin) => self.enter_console(id, admin, io),
                None => Step::Refuse(not_allowed()),
            };
        }
        let Some(pool) = self.pools.find(&self.context, database, user) else {
            log_login_failed(id, self.clients[id].login_mut(), io);
            return Step::Refuse(no_database(database));
        };
        self.pools.remark_autodb(id, pool, io);
        let disabled = self.pools.exchange.pool(pool, |pool| pool.disabled);
        if disabled {
            return Step::Refuse(OwnError::new(
                Cause::DisabledDatabase,
                format!("database \"{database}\" is disabled"),
            ));
        }
        if !may_connect(&self.context.config, self.pools.settings(pool), user) {
            let text = format!("permission denied for database \"{database}\"");
            return Step::Refuse(OwnError::new(Cause::Privilege, text));
        }
        self.learn_answer(id, pool);
        self.learn_proof(id, pool);
        if self.pools.exchange.pool(pool, |pool| pool.own_keys)
            && !may_use_keys(&self.context.config, self.pools.settings(pool), user)
        {
            remark_own_keys(id, &self.clients[id], self.pools.settings(pool), io);
            return Step::Refuse(no_keys());
        }
        self.enter_pool(id, pool, io);
        Step::Done
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

    fn enter_console(&mut self, id: ClientId, admin: bool, io: &mut impl Io<X>) -> Step {
        let mut client = self.clients.remove(id);
        let Some(login) = client.phase.login_mut() else { return Step::Done };
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
        Step::Done
    }
}

/// Logs that a client's login has failed.
pub(crate) fn log_login_failed<X: Exchange>(id: ClientId, login: &Login, io: &mut impl Io<X>) {
    let Identity { database, user } = &*login.requested;
    io.event(Event::LoginFailed { client: id, database, user });
}

/// Logs an unknown user; the client is not told.
fn remark_unknown<X: Exchange>(config: &Config, id: ClientId, login: &Login, io: &mut impl Io<X>) {
    if matches!(config.global.auth_type, AuthType::Any | AuthType::Pam) {
        return;
    }
    let message = format!("no such user: {}", login.requested.user);
    let name = (login.requested.database.as_str(), "(nouser)");
    let weight = Weight::Log;
    io.event(Event::ClientRemark { client: id, name, weight, message: &message });
}

/// Are the client's first bytes those of a TLS handshake (`sslnegotiation=direct`)?
fn begins_tls(config: &Config, login: &Login) -> bool {
    const HANDSHAKE_RECORD: u8 = 0x16;
    login.buffer.first() == Some(&HANDSHAKE_RECORD)
        && login.peer.secured.is_none()
        && offers_tls(config, login)
}

/// TLS is offered on TCP only: a unix socket cannot be overheard.
fn offers_tls(config: &Config, login: &Login) -> bool {
    config.global.client_tls_sslmode != SslMode::Disable && !login.peer.local
}

/// May the user connect to the database of this pool's servers? A pool may have servers, so
/// PostgreSQL is perhaps not asked.
fn may_connect(config: &Config, settings: &PoolSettings, user: &str) -> bool {
    if config.hba.reserved.is_empty() {
        return true;
    }
    config.hba.may_connect(settings.database_name(), user)
}

/// Decides about a client whose first packet cannot be parsed. As in PgBouncer, a packet that does
/// not begin like a startup packet gets no reply. Known other protocols get an error message.
fn not_a_startup(error: StartupError, packet: &[u8]) -> Step {
    match error {
        StartupError::CancelKey => Step::Drop("bad cancel request"),
        StartupError::Length(_) | StartupError::UnsupportedVersion { .. } => match packet {
            [0, ..] if packet.len() < startup::PACKET_LEN_MIN => Step::Wait,
            [0, ..] => Step::Refuse(bad_header(packet).into()),
            _ if packet.len() < HEADER_LEN => Step::Wait,
            _ => Step::Drop("bad packet"),
        },
        StartupError::Http
        | StartupError::MissingTerminator
        | StartupError::ProxyHeader
        | StartupError::OldProtocol
        | StartupError::Tls => Step::Refuse(error.to_string().into()),
    }
}
