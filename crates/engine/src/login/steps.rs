//! A client from its first byte up to "logged in" (protocol chapter 55.2.1). Texts and order of
//! checks are PgBouncer's. An unknown user is treated like a wrong password, and an unknown
//! database is reported only after authentication.

use std::sync::Arc;

use config::hba::Visitor;
use config::{AccessPolicy, AuthType, Config, SslMode};
use wire::scram::ScramServer;
use wire::startup::{StartupError, StartupRequest};
use wire::{HEADER_LEN, Header, backend, bad_header, frontend, startup};

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::ids::{ClientId, Identity, Micros};
use crate::lifecycle::own_keys::{may_use_keys, no_keys, remark_own_keys};
use crate::lifecycle::replication::ReplicationKind;
use crate::login::auth::{Awaited, Challenge, Credential, Login, LoginStep, Method, challenge};
use crate::login::checks::{check_password, check_peer};
use crate::login::console;
use crate::login::console::is_console;
use crate::login::decoy::Decoy;
use crate::login::door::{Door, PASSWORD_FAILED, Step};
use crate::own_error::{Cause, OwnError};
use crate::settings::PoolSettings;
use crate::shell::{ConsoleLogin, Event, Exchange, Io, TlsStart, Weight};

/// Maximal length of a password or SASL message (PostgreSQL's `PG_MAX_AUTH_TOKEN_LENGTH`).
const PASSWORD_LEN_MAX: usize = 65_535;

fn wrong_password() -> OwnError<'static> {
    OwnError::new(Cause::Password, PASSWORD_FAILED)
}

impl<X: Exchange> Door<'_, X> {
    /// Takes bytes of the client, and continues its login as far as they allow.
    pub(crate) fn bytes(&mut self, bytes: &[u8], io: &mut impl Io<X>) -> Step {
        self.login().buffer.extend_from_slice(bytes);
        self.go_on(io)
    }

    /// Continues the login as far as the received bytes allow.
    pub(crate) fn go_on(&mut self, io: &mut impl Io<X>) -> Step {
        loop {
            let step = match self.login().step.awaits() {
                Awaited::Startup => self.startup_step(io),
                Awaited::Password => self.password_step(io),
                Awaited::Answer => Some(Step::Wait),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn startup_step(&mut self, io: &mut impl Io<X>) -> Option<Step> {
        let login = self.client.login_mut();
        if begins_tls(&self.context.config, login) {
            let said = std::mem::take(&mut login.buffer);
            return Some(Step::StartTls(TlsStart::Direct(said)));
        }
        let len = match startup::packet_len(&login.buffer) {
            Ok(Some(len)) if len <= login.buffer.len() => len,
            Ok(_) => return Some(Step::Wait),
            Err(error) => return Some(not_a_startup(error, &login.buffer)),
        };
        let rest = login.buffer.split_off(len);
        let packet = std::mem::replace(&mut login.buffer, rest);
        let more = !login.buffer.is_empty();
        match startup::parse(&packet) {
            Ok(StartupRequest::Ssl) if more => {
                Some(Step::Refuse("received unencrypted data after SSL request".into()))
            }
            Ok(StartupRequest::GssEnc) if more => {
                let why = "received unencrypted data after GSSAPI encryption request";
                Some(Step::Refuse(why.into()))
            }
            Ok(StartupRequest::Ssl) if login.peer.secured.is_some() => {
                Some(Step::Refuse("SSL req inside SSL".into()))
            }
            Ok(StartupRequest::Ssl) if offers_tls(&self.context.config, login) => {
                io.send_client(self.id, b"S");
                Some(Step::StartTls(TlsStart::Asked))
            }
            Ok(StartupRequest::Ssl | StartupRequest::GssEnc) => {
                io.send_client(self.id, b"N");
                Some(Step::Wait)
            }
            Ok(StartupRequest::Cancel(key)) => Some(Step::Cancel(key)),
            Ok(StartupRequest::Startup(packet)) => match self.startup(&packet, io) {
                Ok(()) => self.begin_challenge(io),
                Err(why) => Some(Step::Refuse(why)),
            },
            Err(error) => Some(not_a_startup(error, &packet)),
        }
    }

    /// Finds the user's credential, and challenges the client.
    fn begin_challenge(&mut self, io: &mut impl Io<X>) -> Option<Step> {
        let login = self.client.login_mut();
        let requested = login.requested.clone();
        let Identity { database, user } = &*requested;
        if login.runs_weir() && is_console(&self.context.config, database) {
            return Some(Step::Authenticated);
        }
        if self.context.config.access == AccessPolicy::ProvenByServer {
            if !self.login().peer.is_private() {
                remark_readable(self.id, self.login(), io);
                return Some(Step::Refuse(OwnError::new(Cause::Rule, "login rejected")));
            }
            let mut out = Vec::new();
            backend::authentication_cleartext(&mut out);
            let login = self.client.login_mut();
            (login.step, login.challenged_at) = (LoginStep::ExpectCleartext, io.now());
            io.send_client(self.id, &out);
            return None;
        }
        if let Some(step) = self.ask_about_user(io) {
            return Some(step);
        }
        let credential = self.credentials.of_user(&self.context.config, user);
        if credential.is_none() && self.context.config.access == AccessPolicy::Configured {
            let config = self.context.config.clone();
            remark_unknown(&config, self.id, self.login(), io);
        }
        self.challenge_user(credential, io)
    }

    /// Challenges the client to prove that it is this user. If there is no credential, the user
    /// does not exist, which the client is not told.
    pub(crate) fn challenge_user(
        &mut self,
        credential: Option<Arc<Credential>>,
        io: &mut impl Io<X>,
    ) -> Option<Step> {
        self.login().credential.clone_from(&credential);
        let mut out = Vec::new();
        let login = self.client.login_mut();
        let requested = login.requested.clone();
        let Identity { database, user } = &*requested;
        let kind = login.replication.as_ref().map(|asked| asked.kind);
        let alias = console::other_name(&self.context.config, database);
        let login = self.client.login_mut();
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
            Challenge::None => return Some(Step::Authenticated),
            Challenge::Refused(why) => return Some(Step::Refuse(why)),
            Challenge::Peer(map) => return Some(check_peer(self.id, self.client, map, io)),
            Challenge::Cert(name, map) => {
                return self.check_certificate(name, map.as_deref(), io);
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
                if let Some(secured) = &self.login().peer.secured {
                    server = server.bound_to(&secured.end_point);
                }
                backend::authentication_sasl(&mut out, server.mechanisms());
                LoginStep::ExpectSaslInitial(server)
            }
        };
        let login = self.client.login_mut();
        (login.step, login.challenged_at) = (step, io.now());
        io.send_client(self.id, &out);
        None
    }

    /// Reads one message of the client's reply to the challenge.
    fn password_step(&mut self, io: &mut impl Io<X>) -> Option<Step> {
        let login = self.client.login_mut();
        if login.buffer.first() == Some(&0) {
            return Some(match login.buffer.len() < startup::PACKET_LEN_MIN {
                true => Step::Wait,
                false => Step::Refuse("client re-sent startup pkt".into()),
            });
        }
        let header = match Header::parse(&login.buffer) {
            Ok(Some(header)) => header,
            Ok(None) => return Some(Step::Wait),
            Err(_) => return Some(Step::Refuse(bad_header(&login.buffer).into())),
        };
        if header.code != frontend::PASSWORD {
            return Some(Step::Drop("bad packet"));
        }
        let is_text = login.step.expects_text();
        if header.total > HEADER_LEN + PASSWORD_LEN_MAX + usize::from(is_text) {
            return match is_text {
                true => self.verdict(false, wrong_password(), io.now()),
                false => Some(Step::Refuse("password too long".into())),
            };
        }
        if login.buffer.len() < header.total {
            return Some(Step::Wait);
        }
        if !self.may_be_judged(io.now()) {
            return Some(Step::Wait);
        }
        let login = self.client.login_mut();
        let rest = login.buffer.split_off(header.total);
        let message = std::mem::replace(&mut login.buffer, rest);
        let mut body = &message[HEADER_LEN..];
        if login.step.expects_text() {
            // The zero byte must be the last one. The error is PostgreSQL's.
            let Some((0, text)) = body.split_last().filter(|(_, text)| !text.contains(&0)) else {
                return Some(Step::Refuse("invalid password packet size".into()));
            };
            body = text;
        }
        match std::mem::take(&mut login.step) {
            LoginStep::ExpectCleartext => self.cleartext(body, io.now()),
            LoginStep::ExpectJudged(judge) => {
                Some(check_password(self.id, self.client, judge, body, io))
            }
            LoginStep::ExpectMd5 { salt } => {
                let login = self.client.login_mut();
                let accepted = login
                    .credential
                    .as_ref()
                    .is_some_and(|known| known.accepts_md5(&login.requested.user, salt, body));
                self.verdict(accepted, wrong_password(), io.now())
            }
            LoginStep::ExpectSaslInitial(server) => self.sasl_initial(server, body, io),
            LoginStep::ExpectSaslResponse(server) => self.sasl_response(server, body, io),
            LoginStep::ExpectStartup
            | LoginStep::Proving(_)
            | LoginStep::Asking(_)
            | LoginStep::Checking(_)
            | LoginStep::Trial
            | LoginStep::PrincipalCheck => Some(Step::Wait),
        }
    }

    fn cleartext(&mut self, password: &[u8], now: Micros) -> Option<Step> {
        if password.is_empty() {
            return Some(Step::Refuse("empty password returned by client".into()));
        }
        if self.context.config.access == AccessPolicy::ProvenByServer {
            return Some(Step::Prove(password.to_vec()));
        }
        let decoy = Decoy { config: &self.context.config, seed: &self.context.seed };
        let login = self.client.login_mut();
        let accepted = decoy.accepts_cleartext(login, password);
        self.verdict(accepted, wrong_password(), now)
    }
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

/// Logs why a client is refused that would send its password in clear text over the network.
fn remark_readable<X: Exchange>(id: ClientId, login: &Login, io: &mut impl Io<X>) {
    let message = "the client's password would be readable on the network: it needs TLS, a loopback \
                   address or the unix socket";
    let name = (login.requested.database.as_str(), login.requested.user.as_str());
    io.event(Event::ClientRemark { client: id, name, weight: Weight::Log, message });
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

/// May an authenticated client enter this pool? Its login has revealed secrets for it.
///
/// # Errors
/// Returns the reason if the database is disabled, or the user has no right to it.
pub(crate) fn may_enter<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    pool: &mut OnePool<'_, X>,
    config: &Config,
    io: &mut impl Io<X>,
) -> Result<(), OwnError<'static>> {
    let login = client.login_mut();
    let requested = login.requested.clone();
    let Identity { database, user } = &*requested;
    if pool.lock(|pool| pool.disabled) {
        let text = format!("database \"{database}\" is disabled");
        return Err(OwnError::new(Cause::DisabledDatabase, text));
    }
    if !may_connect(config, &pool.view.settings, user) {
        let text = format!("permission denied for database \"{database}\"");
        return Err(OwnError::new(Cause::Privilege, text));
    }
    login.teach(pool);
    if pool.lock(|pool| pool.own_keys) && !may_use_keys(config, &pool.view.settings, user) {
        remark_own_keys(id, client, &pool.view.settings, io);
        return Err(no_keys());
    }
    Ok(())
}

impl Client {
    /// Hands the client over to the console.
    pub(crate) fn enter_console<X: Exchange>(
        mut self,
        id: ClientId,
        admin: bool,
        io: &mut impl Io<X>,
    ) {
        let Some(login) = self.phase.login_mut() else { return };
        let unread = std::mem::take(&mut login.buffer);
        let mut key = [0; 8];
        io.random(&mut key);
        let [p0, p1, p2, p3, secret @ ..] = key;
        let login = ConsoleLogin {
            process_id: u32::from_be_bytes([p0, p1, p2, p3]) & 0x7fff_ffff,
            secret,
            database: login.requested.database.clone(),
            user: self.identity.user.clone(),
            counted: self.pool.is_counted().then(|| self.identity.clone()),
            admin,
            serial: self.serial,
            unread,
            connected_at: io.now(),
        };
        io.hand_to_console(id, login);
    }
}
