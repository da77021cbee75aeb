//! A server connection from "wanted" up to "logged in" (protocol chapter 55.2.1, from the
//! frontend's side).

use crate::lifecycle::close_reason::CloseReason;
use crate::server::Settling;
use std::sync::Arc;

use config::PoolMode;
use wire::error_fields::ErrorFields;
use wire::messages::{
    AuthenticationRequest, BackendKeyData, NegotiateProtocolVersion, ParameterStatus,
};
use wire::scram::{self, ScramClient, ScramError, ScramSecret, ScramVerifier};
use wire::secret::Secret;
use wire::{Header, backend, frontend, md5};

use crate::admission::limits::Limits;
use crate::admission::pool::{OPENING_MAX, Pool};
use crate::engine::Engine;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::leave::PROTOCOL_VIOLATION;
use crate::lifecycle::replicate::replication_parameters;
use crate::login::server_secret::ServerSecret;
use crate::server::{LoginStage, ProtocolVersion, Server, ServerLogin, ServerPhase, ServerPurpose};
use crate::session::state_report;
use crate::settings::PoolSettings;
use crate::shell::{Event, Exchange, Io};

/// What a user is logged in with of whom no secret is known. It is never right, and who knows why the
/// login fails is the server, whose words the client is told, as with PgBouncer.
const NO_PASSWORD: &str = "";

/// No message of a login is longer; an error text may have some length.
const LOGIN_MESSAGE_LEN_MAX: usize = 65_535;

const FEATURE_NOT_SUPPORTED: &str = "0A000";

/// What one message of a login comes to.
pub(crate) enum Step {
    Continue,
    Ready,
    /// The server said no, in these words.
    Refused(ErrorFields),
    /// We cannot prove who we are.
    Unable(Unable),
    /// We cannot go on, for this reason.
    Failed(String),
}

/// Why Weir cannot prove to a server who it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unable {
    /// What is known of the password does not serve the server's method.
    #[error("cannot do {0}")]
    Secret(&'static str),
    #[error("{0}")]
    Other(String),
}

impl Unable {
    /// What clients are told that wait for the server, in PgBouncer's words.
    fn refusal(&self) -> ErrorFields {
        let text = match self {
            Self::Secret(_) => "server login failed: wrong password type".to_owned(),
            Self::Other(why) => format!("server login failed: {why}"),
        };
        ErrorFields::new("FATAL", PROTOCOL_VIOLATION, &text)
    }
}

impl From<&str> for Unable {
    fn from(why: &str) -> Self {
        Self::Other(why.to_owned())
    }
}

impl From<ScramError> for Unable {
    fn from(error: ScramError) -> Self {
        Self::Other(error.to_string())
    }
}

impl<X: Exchange> Engine<X> {
    /// Open a server; its place in the pool and its seat are taken.
    pub(crate) fn connect_server(
        &mut self,
        pool: PoolId,
        purpose: Option<ServerPurpose>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let serial = self.exchange.next_connection();
        let settings = self.view(pool).settings.clone();
        self.learn_from_other_pools(pool);
        let (minor, may_ask, target, mode, (server_secret, epoch)) =
            self.exchange.pool(pool, |pool| {
                // Epoch and mode go together, whatever this worker has heard of so far.
                let mode = pool.settings.mode;
                let target = pool.choose_target();
                (pool.minor_version, pool.may_ask_report, target, mode, pool.begin_opening())
            });
        let client = purpose.as_ref().and_then(ServerPurpose::client);
        let is_used =
            !matches!(purpose, Some(ServerPurpose::Replication { .. } | ServerPurpose::Listen));
        let asks_report = may_ask && is_used && mode == PoolMode::Auto;
        let login = ServerLogin {
            version: ProtocolVersion::Offered(minor),
            purpose,
            server_secret,
            asks_report,
            ..ServerLogin::default()
        };
        let mut server = Box::new(Server::new(pool, serial, login, now));
        server.client = client;
        (server.epoch, server.mode) = (epoch, mode);
        let id = ServerId(self.servers.insert(server) as u32);
        if let Some(client) = client {
            self.client_mut(client).server = Some(id);
        }
        let identity = self.view(pool).identity.clone();
        io.event(Event::ServerOpening { server: id, name: (&identity.database, &identity.user) });
        match settings.targets.get(target % settings.targets.len().max(1)) {
            Some(target) => io.connect(id, target),
            None => self.open_failed(id, CloseReason::NoHost, None, now, io),
        }
    }

    /// A server makes room for another one, which is opened for one client alone. The seat stays
    /// taken.
    pub(crate) fn replace_server(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        purpose: ServerPurpose,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = self.end_connection(on, reason, now, io);
        self.exchange.pool(server.pool, |pool| {
            pool.server_gone(server.epoch);
            pool.reserve_unasked();
        });
        self.exchange.limits(Limits::opening_begins);
        self.connect_server(server.pool, Some(purpose), now, io);
    }

    pub(crate) fn send_startup(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get_mut(id.0 as usize) else { return };
        let ServerPhase::Connecting(login) = &mut server.phase else { return };
        let (minor, asks_report) = (login.version.minor(), login.asks_report);
        let replicating = match login.purpose {
            Some(ServerPurpose::Replication { client }) => {
                server.client.filter(|own| *own == client)
            }
            Some(
                ServerPurpose::Proof { .. }
                | ServerPurpose::Settings { .. }
                | ServerPurpose::Listen,
            )
            | None => None,
        };
        server.phase = ServerPhase::Login(std::mem::take(login));
        let pool = server.pool;
        let settings = self.settings(pool);
        let own = settings.startup.iter();
        let mut parameters: Vec<(&str, &[u8])> =
            own.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        if let Some(client) = replicating {
            parameters.extend(replication_parameters(self.client(client), &self.names));
        }
        if asks_report {
            parameters.push(state_report::ASK);
            parameters.extend(settings.refuses().then_some(state_report::REFUSE));
        }
        let mut out = Vec::new();
        frontend::startup(&mut out, minor, &parameters);
        io.send_server(id, &out);
    }

    pub(crate) fn server_login_bytes(
        &mut self,
        id: ServerId,
        bytes: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let mut input = std::mem::take(&mut self.server_mut(id).stream.held);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while self.servers.contains(id.0 as usize) {
            let rest = &input[at..];
            let header = match Header::parse(rest) {
                Ok(Some(header)) if header.total <= LOGIN_MESSAGE_LEN_MAX => header,
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => {
                    return self.open_failed(id, CloseReason::BadPacket, None, now, io);
                }
            };
            if rest.len() < header.total {
                break;
            }
            at += header.total;
            let body = &rest[wire::HEADER_LEN..header.total];
            let step = match self.server_login(id).stage {
                LoginStage::ConnectQuery | LoginStage::Asked(_) => {
                    self.connect_query_message(id, header.code, body, io)
                }
                LoginStage::Connecting | LoginStage::Reached | LoginStage::Authenticated => {
                    self.login_message(id, header.code, body, io)
                }
            };
            match step {
                Step::Continue => {}
                Step::Ready => {
                    // Nothing may follow the first ReadyForQuery unasked but news, which the
                    // relay deals with.
                    self.opened(id, &input[at..], now, io);
                    return self.feed(now, io);
                }
                Step::Refused(error) => return self.login_refused(id, error, now, io),
                Step::Unable(why) => {
                    let refusal = Some(why.refusal());
                    return self.open_failed(
                        id,
                        CloseReason::Said(&why.to_string()),
                        refusal,
                        now,
                        io,
                    );
                }
                Step::Failed(reason) => {
                    return self.open_failed(id, CloseReason::Said(&reason), None, now, io);
                }
            }
        }
        if let Some(server) = self.servers.get_mut(id.0 as usize) {
            server.stream.held = input.split_off(at);
        }
    }

    fn login_refused(
        &mut self,
        id: ServerId,
        error: ErrorFields,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        if self.declines_report(id, &error) {
            let why = "it takes no parameter that asks for reports";
            return self.open_again(id, why, |pool| pool.may_ask_report = false, now, io);
        }
        if self.declines_version(id, &error) {
            let why = "it speaks protocol 3.0 only";
            return self.open_again(id, why, |pool| pool.minor_version = 0, now, io);
        }
        let message = format!("{} {}", String::from_utf8_lossy(error.severity()), error.message());
        io.event(Event::ServerLoginFailed { message: &message });
        let why = error.message().into_owned();
        self.open_failed(id, CloseReason::Said(&why), Some(error), now, io);
    }

    /// Is the protocol's version what it did not like? Who does not know how to negotiate it
    /// (PostgreSQL before 9.3, other poolers) says so with its first word.
    fn declines_version(&mut self, id: ServerId, error: &ErrorFields) -> bool {
        let login = self.server_login(id);
        let early = matches!(login.version, ProtocolVersion::Offered(1..));
        let codes = [FEATURE_NOT_SUPPORTED, PROTOCOL_VIOLATION];
        early && codes.iter().any(|code| error.sqlstate() == code.as_bytes())
    }

    /// Is it a parameter of the library's that it did not like? Other poolers say so, and PostgreSQL
    /// where the library is another version.
    fn declines_report(&mut self, id: ServerId, error: &ErrorFields) -> bool {
        let says = |name: &str| error.message().contains(name);
        let ours = [state_report::ASK.0, state_report::REFUSE.0];
        self.server_login(id).asks_report && ours.into_iter().any(says)
    }

    /// Another connection in this one's place, and further ones of its pool are as `remember` has it.
    fn open_again(
        &mut self,
        id: ServerId,
        why: &str,
        remember: impl FnOnce(&mut Pool<X::Transport>),
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let purpose = self.server_login(id).purpose.take();
        let was_for = purpose.as_ref().and_then(ServerPurpose::client);
        if was_for.is_some() && self.server(id).client.is_none() {
            // For whom it was is gone.
            self.server_login(id).purpose = purpose;
            return self.open_failed(id, CloseReason::Said(why), None, now, io);
        }
        let server = self.servers.remove(id.0 as usize);
        self.log_server_closing(id, &server, CloseReason::Said(why), now, io);
        io.close_server(id);
        self.exchange.pool(server.pool, remember);
        self.connect_server(server.pool, purpose, now, io);
    }

    fn login_message(&mut self, id: ServerId, code: u8, body: &[u8], io: &mut impl Io<X>) -> Step {
        match code {
            backend::AUTHENTICATION => {
                self.server_login(id).version.settle();
                self.authentication(id, body, io)
            }
            backend::PARAMETER_STATUS => self.learn_parameter(id, body),
            backend::BACKEND_KEY_DATA => match BackendKeyData::decode(body) {
                Ok(key) => {
                    let server = self.server_mut(id);
                    server.process_id = key.pid;
                    server.secret = key.secret.into();
                    Step::Continue
                }
                Err(error) => Step::Failed(error.to_string()),
            },
            backend::READY_FOR_QUERY
                if matches!(self.server_login(id).stage, LoginStage::Authenticated) =>
            {
                self.begin_connect_query(id, io)
            }
            backend::NOTICE => Step::Continue,
            backend::NEGOTIATE_PROTOCOL_VERSION => self.negotiated(id, body),
            backend::ERROR => match ErrorFields::decode(body) {
                Ok(error) => Step::Refused(error),
                Err(error) => Step::Failed(error.to_string()),
            },
            other => Step::Failed(format!("unknown message {:?} during login", char::from(other))),
        }
    }

    pub(crate) fn learn_parameter(&mut self, id: ServerId, body: &[u8]) -> Step {
        match ParameterStatus::decode(body) {
            Ok(status) => {
                let names = self.names.clone();
                let login = self.server_login(id);
                if status.name == state_report::NAME {
                    // No client's business, whether it was asked for or not.
                    login.hear_state(status.value);
                    return Step::Continue;
                }
                login.welcome.learn(status.name, status.value, &names);
                Step::Continue
            }
            Err(error) => Step::Failed(error.to_string()),
        }
    }

    /// An older protocol is what we can speak as well; all we would have had from the newer one is
    /// a longer cancel key, and how long that is it tells itself.
    fn negotiated(&mut self, id: ServerId, body: &[u8]) -> Step {
        let login = self.server_login(id);
        match NegotiateProtocolVersion::decode(body) {
            Ok(answer) if answer.minor < login.version.minor() && answer.declined == 0 => {
                login.version.settle();
                Step::Continue
            }
            Ok(_) => Step::Failed("the server negotiates what it was not asked for".into()),
            Err(error) => Step::Failed(error.to_string()),
        }
    }

    pub(crate) fn server_login(&mut self, id: ServerId) -> &mut ServerLogin {
        match &mut self.server_mut(id).phase {
            ServerPhase::Login(login) => login,
            _ => unreachable!("only called while the server is logging in"),
        }
    }

    fn authentication(&mut self, id: ServerId, body: &[u8], io: &mut impl Io<X>) -> Step {
        let answered = match AuthenticationRequest::decode(body) {
            Ok(request) => self.prove_to(id, request, io),
            Err(error) => return Step::Failed(error.to_string()),
        };
        answered.map_or_else(Step::Unable, |()| Step::Continue)
    }

    fn prove_to(
        &mut self,
        id: ServerId,
        request: AuthenticationRequest<'_>,
        io: &mut impl Io<X>,
    ) -> Result<(), Unable> {
        let settings = self.settings(self.server(id).pool).clone();
        let login = self.server_login(id);
        let mut out = Vec::new();
        match request {
            // Who has begun with SCRAM and leaves out its own proof may not know the password.
            AuthenticationRequest::Ok
                if login.scram.as_ref().is_some_and(|client| !client.is_proven()) =>
            {
                return Err("the server ended SCRAM before its own proof".into());
            }
            AuthenticationRequest::Ok => {
                login.stage = LoginStage::Authenticated;
                return Ok(());
            }
            AuthenticationRequest::Cleartext => {
                let password = cleartext_password(login, &settings)?;
                frontend::password(&mut out, password.as_bytes());
            }
            AuthenticationRequest::Md5(salt) => {
                let hash = md5_hash(login, &settings)
                    .ok_or(Unable::Secret("MD5 authentication: wrong password type"))?;
                frontend::password(&mut out, md5::response(&hash, salt).as_bytes());
                login.challenged = true;
            }
            AuthenticationRequest::Sasl(mechanisms) => {
                if !mechanisms.contains(scram::MECHANISM) {
                    let why = "none of the server's SASL authentication mechanisms are supported";
                    return Err(why.into());
                }
                let secret = scram_secret(login, &settings)?;
                let mut nonce = [0; 18];
                io.random(&mut nonce);
                let offers_binding = mechanisms.contains(scram::MECHANISM_PLUS);
                let end_point = io.server_end_point(id);
                let mut client =
                    ScramClient::new(secret, nonce).bound_to(&end_point, offers_binding);
                frontend::sasl_initial(&mut out, client.mechanism(), &client.first());
                login.scram = Some(client);
                login.challenged = true;
            }
            AuthenticationRequest::SaslContinue(data) => {
                let client = login.scram.as_mut().ok_or("unexpected SASL message")?;
                frontend::sasl_response(&mut out, &client.server_first(data)?);
            }
            AuthenticationRequest::SaslFinal(data) => {
                let client = login.scram.as_mut().ok_or("unexpected SASL message")?;
                client.server_final(data)?;
                return Ok(());
            }
            AuthenticationRequest::Unsupported(kind) => {
                return Err(Unable::Other(format!("unknown/unsupported auth method: {kind}")));
            }
        }
        io.send_server(id, &out);
        Ok(())
    }

    /// The server is logged in. `rest` came behind that: it is dealt with before the server is
    /// given to anybody, since it may be the beginning of a message.
    fn opened(&mut self, id: ServerId, rest: &[u8], now: Micros, io: &mut impl Io<X>) {
        let server = &mut self.servers[id.0 as usize];
        let ServerPhase::Login(login) =
            std::mem::replace(&mut server.phase, ServerPhase::Settling(Settling::Fresh))
        else {
            return;
        };
        let (pool, epoch) = (server.pool, server.epoch);
        let ServerLogin { scram, welcome, purpose, challenged, state_report, .. } = *login;
        let reports = state_report.is_some();
        server.session.state_report = state_report.map(Box::new);
        self.opening_ended();
        if let Some(ServerPurpose::Replication { client }) = purpose {
            return self.replication_opened(id, client, &welcome, rest, now, io);
        }
        if let Some(ServerPurpose::Listen) = purpose {
            return self.listener_opened(id, welcome, rest, now, io);
        }
        let settings = &self.pools.get(pool).expect("a worker knows its servers' pools").settings;
        let proven = purpose.as_ref().and_then(ServerPurpose::password).filter(|_| challenged);
        let verifier = proven.map(|password| {
            let mut salt = [0; 16];
            io.random(&mut salt);
            ScramVerifier::from_password(password, &salt, self.config.global.scram_iterations)
        });
        // Once the password itself is forgotten this opens further servers.
        let server_secret = proven.map(|password| {
            let derived = scram.as_ref().and_then(ScramClient::derived);
            derived.map_or_else(
                || ServerSecret::Md5(md5::hash(startup_user(settings).as_bytes(), password)),
                |(_, _, keys)| ServerSecret::Scram(keys),
            )
        });
        let mut welcome = Arc::new(welcome);
        self.exchange.pool(pool, |pool| {
            pool.opened(epoch);
            pool.is_told |= reports;
            match &pool.welcome {
                // Equal values are one set, so that linking compares pointers.
                Some(known) if known.vars == welcome.vars => welcome = known.clone(),
                // What it has to tell may be of another place than the pool leads to now.
                _ if pool.epoch() != epoch => {}
                _ => pool.welcome = Some(welcome.clone()),
            }
            if verifier.is_some() {
                pool.proven = verifier;
            }
            if server_secret.is_some() {
                pool.server_secret = server_secret;
            }
        });
        let server = self.server_mut(id);
        server.vars = welcome.vars.clone();
        server.welcome = welcome;
        // Even with a lifetime of nothing it is used once.
        (server.times.released_at, server.times.opened_at) = (now, now);
        let client = match purpose {
            Some(ServerPurpose::Settings { client }) => {
                return self.apply_to_new(client, id, rest, now, io);
            }
            // As long as it is the one for whom the server was opened.
            Some(purpose) => purpose.client().filter(|client| server.client == Some(*client)),
            None => None,
        };
        let Some(client) = client else {
            return self.begin_use(id, rest, now, io);
        };
        let proven = challenged;
        self.server_mut(id).client = None;
        self.client_mut(client).server = None;
        if proven {
            self.begin_use(id, rest, now, io);
            self.enter_pool(client, pool, now, io);
        } else {
            let why = "the server did not ask for a password, so nothing is proven by logging in \
                       to it; write auth_type = trust in a configuration file if that is meant";
            self.disconnect(client, why, now, io);
            self.close_server(id, CloseReason::NothingProven, now, io);
        }
    }

    pub(crate) fn begin_use(
        &mut self,
        id: ServerId,
        rest: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let pool = self.server(id).pool;
        if rest.is_empty() {
            self.place(id, now, io);
        } else {
            self.reply_bytes(id, rest, now, io);
        }
        self.go_on_opening(pool, now, io);
    }

    /// With one login fewer under way, or after some time, the next may begin.
    pub(crate) fn go_on_opening(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        for _ in 0..OPENING_MAX {
            let reserved = self.exchange.pool(pool, |pool| pool.reserve_opening(now));
            // Where one finds no seat the next would not find any either.
            if !reserved || !self.open_server(pool, now, io) {
                return;
            }
        }
    }
}

fn startup_user(settings: &PoolSettings) -> &str {
    settings.startup.iter().find(|(name, _)| name == "user").map_or("", |(_, user)| user)
}

fn cleartext_password<'a>(
    login: &'a ServerLogin,
    settings: &'a PoolSettings,
) -> Result<&'a str, Unable> {
    match (login.proof(), &settings.secret, &login.server_secret) {
        (Some(_), _, _) => {
            Err("the server asks for cleartext passwords: give user and password in the URL".into())
        }
        (None, _, Some(ServerSecret::Password(password)))
        | (None, Some(Secret::Plain(password)), _) => Ok(password),
        (None, None, None) => Ok(NO_PASSWORD),
        (None, Some(Secret::Md5(_) | Secret::Scram(_)) | None, _) => {
            Err(Unable::Secret("cleartext authentication: wrong password type"))
        }
    }
}

fn md5_hash(login: &ServerLogin, settings: &PoolSettings) -> Option<String> {
    let hash = |password: &[u8]| md5::hash(startup_user(settings).as_bytes(), password);
    match (login.proof(), &settings.secret, &login.server_secret) {
        (Some(password), _, _) => Some(hash(password)),
        (None, _, Some(ServerSecret::Password(password))) => Some(hash(password.as_bytes())),
        (None, Some(Secret::Plain(password)), _) => Some(hash(password.as_bytes())),
        (None, Some(Secret::Md5(stored)), _) => Some(stored.clone()),
        (None, _, Some(ServerSecret::Md5(stored))) => Some(stored.clone()),
        (None, None, None) => Some(hash(NO_PASSWORD.as_bytes())),
        (
            None,
            Some(Secret::Scram(_)) | None,
            Some(ServerSecret::Scram(_) | ServerSecret::Verifier) | None,
        ) => None,
    }
}

/// With what to prove ourselves to the server.
fn scram_secret(login: &ServerLogin, settings: &PoolSettings) -> Result<ScramSecret, Unable> {
    if let Some(password) = login.proof() {
        return Ok(ScramSecret::Password(password.to_vec()));
    }
    match (&settings.secret, &login.server_secret) {
        (_, Some(ServerSecret::Password(password))) | (Some(Secret::Plain(password)), _) => {
            Ok(ScramSecret::Password(password.clone().into_bytes()))
        }
        (_, Some(ServerSecret::Scram(keys))) => Ok(ScramSecret::Keys(keys.clone())),
        (None, None) => Ok(ScramSecret::Password(NO_PASSWORD.into())),
        // A verifier alone is no key: the client has not logged in by SCRAM.
        (Some(Secret::Scram(_)), Some(ServerSecret::Md5(_)) | None)
        | (_, Some(ServerSecret::Verifier)) => Err(Unable::Secret(
            "SCRAM authentication: password is SCRAM secret but client authentication did not \
                 provide SCRAM keys",
        )),
        (Some(Secret::Md5(_)) | None, Some(ServerSecret::Md5(_)))
        | (Some(Secret::Md5(_)), None) => {
            Err(Unable::Secret("SCRAM authentication: wrong password type"))
        }
    }
}
