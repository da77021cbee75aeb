//! Logs a new server in, up to "logged in" (protocol chapter 55.2.1, from the frontend's side).
//! `engine/seats.rs` decides to open it, and `engine/opening.rs` carries out what follows.

use std::sync::Arc;

use config::{Config, ErrorCodes, PoolMode};
use proof::{advise_on_password, authentication, has_nothing_to_prove, startup_user};
use thin_vec::ThinVec;
use wire::error_fields::ErrorFields;
use wire::messages::{BackendKeyData, NegotiateProtocolVersion, ParameterStatus};
use wire::scram::{ScramClient, ScramError, ScramVerifier};
use wire::sqlstate::{FEATURE_NOT_SUPPORTED, INVALID_PASSWORD, PROTOCOL_VIOLATION};
use wire::startup::CancelKey;
use wire::{Header, backend, frontend, md5};

use crate::admission::limits::Limits;
use crate::admission::one_pool::OnePool;
use crate::admission::pool::{Gate, Pool};
use crate::client::Client;
use crate::context::Context;
use crate::ids::{Micros, ServerId};
use crate::lifecycle::replicate::replication_parameters;
use crate::login::issued::{Issued, IssuedLogin, Wanted};
use crate::login::server_secret::ServerSecret;
use crate::own_error::{Cause, OwnError, judges_user};
use crate::server::{LoginStage, ProtocolVersion, Server, ServerLogin, ServerPurpose};
use crate::session::ahead::{Ahead, KEY, Key};
use crate::session::on_server::Past;
use crate::session::state_report;
use crate::settings::Target;
use crate::shell::{Event, Exchange, Io};
use crate::times::ServerTimes;
use crate::vars::Welcome;

mod proof;

/// The parameter by which the library learns that it may serve clients.
pub(crate) const TICKET: &str = "weir.ticket";

/// Maximal length of a message during login; an error text may be long.
const LOGIN_MESSAGE_LEN_MAX: usize = 65_535;

/// The outcome of one message of a login.
pub(super) enum Step {
    Continue,
    Ready,
    /// The server refused the login with this error.
    Refused(ErrorFields),
    /// Weir cannot authenticate itself.
    Unable(Unable),
    /// The login failed for this reason.
    Failed(String),
}

/// Why Weir cannot authenticate itself to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unable {
    /// The stored form of the password does not suit the server's method.
    #[error("cannot do {0}")]
    Secret(&'static str),
    /// Weir has the verifier of the password, and the client has not given it the keys.
    #[error(
        "cannot do SCRAM authentication: password is SCRAM secret but client authentication did not \
         provide SCRAM keys"
    )]
    NoKeys,
    #[error("{0}")]
    Other(String),
}

impl Unable {
    /// The error text for clients that wait for the server, in PgBouncer's words. `forced_user`: the
    /// pool's servers log in as the user of the database's entry.
    fn refusal(&self, codes: ErrorCodes, forced_user: bool) -> ErrorFields {
        let text = match self {
            Self::Secret(_) | Self::NoKeys => "server login failed: wrong password type".to_owned(),
            Self::Other(why) => format!("server login failed: {why}"),
        };
        let mut error = OwnError::new(Cause::ServerUnreachable, text).fields(codes, None);
        if let (Self::NoKeys, false) = (self, forced_user) {
            let has = "Weir has only its SCRAM verifier, and the client has logged in without SCRAM, for \
                       example by peer";
            advise_on_password(&mut error, has);
        }
        error
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

/// Why PostgreSQL, or another pooler, has refused a login that Weir can repeat without the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decline {
    /// It does not know a parameter of the library `weir`.
    Report,
    /// It does not know the protocol's version.
    Version,
    /// It does not accept the password of `password_command` with this number.
    Password(u64),
}

impl Decline {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Report => "it refuses the parameter weir.report",
            Self::Version => "it speaks protocol 3.0 only",
            Self::Password(_) => "it refuses the password of password_command",
        }
    }

    /// Keeps later logins of the pool from being refused in the same way.
    pub(crate) fn remember<T>(self, pool: &mut Pool<T>) {
        match self {
            Self::Report => pool.may_ask_report = false,
            Self::Version => pool.minor_version = 0,
            Self::Password(number) => pool.passwords.refuse(number),
        }
    }
}

/// The outcome of a server's messages during the login.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// More bytes are needed.
    Wait,
    /// The login is complete. These bytes followed it.
    LoggedIn(ThinVec<u8>),
    /// Another connection is to be opened in place of this one.
    Again(Decline),
    /// The bytes are no message.
    Invalid,
    /// The login failed for this reason. Clients get the error, if there is one.
    Failed(String, Option<ErrorFields>),
}

/// The results of a completed login.
pub(crate) struct LoggedIn {
    pub(crate) purpose: Option<ServerPurpose>,
    pub(crate) welcome: Welcome,
    /// Did the server ask for a password?
    pub(crate) challenged: bool,
    /// The server reports its session's state.
    pub(crate) reports: bool,
    scram: Option<ScramClient>,
}

/// A server that logs in, and what its login may touch.
pub(crate) struct NewServer<'a, X> {
    pub(crate) id: ServerId,
    pub(crate) server: &'a mut Server,
    /// The client that the server is opened for, until the client leaves.
    pub(crate) client: Option<&'a Client>,
    pub(crate) context: &'a mut Context,
    pub(crate) pool: OnePool<'a, X>,
}

/// The pool's part of a login to a server. It is read under the pool's lock, because this worker's own
/// copy may be older.
struct Terms {
    minor: u16,
    may_ask: bool,
    target: Option<Target>,
    mode: PoolMode,
    server_secret: Option<ServerSecret>,
    issued: Option<IssuedLogin>,
    epoch: u64,
}

impl Terms {
    fn of<T>(pool: &mut Pool<T>, epoch: Option<u64>) -> Self {
        let target = pool.choose_target() % pool.settings.targets.len().max(1);
        let command = pool.settings.password_command.clone();
        Self {
            minor: pool.minor_version,
            may_ask: pool.may_ask_report,
            target: pool.settings.targets.get(target).cloned(),
            mode: pool.settings.mode,
            server_secret: pool.server_secret.clone(),
            issued: command.map(|command| IssuedLogin::new(command, pool.passwords.refused)),
            epoch: epoch.unwrap_or_else(|| pool.begin_opening()),
        }
    }
}

impl<X: Exchange> OnePool<'_, X> {
    /// Returns a new server, and its address. `epoch` is that of the connection whose place the new
    /// one takes; None if the place is only reserved. `may_use_keys`: the server is not for a client
    /// that may not use the keys of the pool's user.
    pub(crate) fn begin_login(
        &mut self,
        serial: u64,
        epoch: Option<u64>,
        purpose: Option<ServerPurpose>,
        may_use_keys: bool,
        io: &mut impl Io<X>,
    ) -> (Server, Option<Target>) {
        let Terms { minor, may_ask, target, mode, server_secret, issued, epoch } =
            self.lock(|pool| Terms::of(pool, epoch));
        // A proof has the client's own password.
        let issued = issued.filter(|_| purpose.as_ref().is_none_or(|own| own.password().is_none()));
        let is_others = self.view.settings.own_verifier().is_some() && !may_use_keys;
        let server_secret = server_secret.filter(|_| !is_others);
        let is_used =
            !matches!(purpose, Some(ServerPurpose::Replication { .. } | ServerPurpose::Listen));
        let attends = matches!(purpose, Some(ServerPurpose::Attend { .. }));
        let asks_report = may_ask && is_used && (mode == PoolMode::Auto || attends);
        let mut random = [0; 16];
        if asks_report {
            io.random(&mut random);
        }
        let login = ServerLogin {
            version: ProtocolVersion::Offered(minor),
            purpose,
            server_secret,
            issued,
            asks_report,
            key: Key::new(random),
            ..ServerLogin::default()
        };
        let mut server = Server::new(self.id, serial, login, io.now());
        server.epoch = epoch;
        server.took_seat = std::mem::take(&mut self.view.takes_seat);
        server.use_in(mode);
        (server, target)
    }

    /// Reserves the place and the seat of a closed server of this epoch for another one.
    pub(crate) fn keep_place(&mut self, epoch: u64) {
        self.lock(|pool| {
            pool.server_gone(epoch);
            pool.reserve_unasked();
        });
        self.exchange.limits(Limits::opening_begins);
    }
}

impl<X: Exchange> NewServer<'_, X> {
    pub(super) fn login(&mut self) -> &mut ServerLogin {
        self.server.login_mut()
    }

    /// Waits for a password before the target is connected to, if the login has a `password_command`.
    /// Returns the question for it.
    pub(crate) fn await_password(&mut self, target: &Target) -> Option<Wanted> {
        let login = self.server.phase.connecting_mut()?;
        let wanted = login.issued.as_ref()?.wanted.clone();
        self.pool.lock(|pool| pool.passwords.begin_login());
        login.stage = LoginStage::AwaitsPassword(target.clone());
        Some(wanted)
    }

    /// Takes the password of `password_command`. Returns the target to connect to now.
    ///
    /// # Errors
    /// The reason, if there is no password.
    pub(crate) fn take_password(
        &mut self,
        issued: Result<Issued, String>,
        now: Micros,
    ) -> Result<Option<Target>, String> {
        let Some(login) = self.server.phase.connecting_mut() else { return Ok(None) };
        let (LoginStage::AwaitsPassword(target), Some(own)) = (&login.stage, &mut login.issued)
        else {
            return Ok(None);
        };
        let (target, Issued { number, password }) = (target.clone(), issued?);
        own.number = Some(number);
        login.server_secret = Some(ServerSecret::Password(password.0));
        login.stage = LoginStage::Connecting;
        // `server_connect_timeout` does not limit the program.
        self.server.times = ServerTimes::connect(now);
        Ok(Some(target))
    }

    /// Sends the startup packet.
    pub(crate) fn send_startup(&mut self, io: &mut impl Io<X>) {
        let paired = *self.server.client;
        let Some(login) = self.server.phase.begin_login() else { return };
        let (minor, asks_report, key) = (login.version.minor(), login.asks_report, login.key);
        let replicating = match login.purpose {
            Some(ServerPurpose::Replication { client }) => {
                self.client.filter(|_| paired == Some(client))
            }
            Some(
                ServerPurpose::Proof { .. }
                | ServerPurpose::Settings { .. }
                | ServerPurpose::Listen
                | ServerPurpose::Attend { .. },
            )
            | None => None,
        };
        let ticket = match &login.purpose {
            Some(ServerPurpose::Attend { ticket }) if asks_report => Some(ticket.as_bytes()),
            Some(_) | None => None,
        };
        let settings = &self.pool.view.settings;
        let own = settings.startup.iter();
        let mut parameters: Vec<(&str, &[u8])> =
            own.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        if let Some(client) = replicating {
            parameters.extend(replication_parameters(client, &self.context.names));
        }
        if asks_report {
            parameters.push(state_report::ASK);
            parameters.push((KEY, key.as_bytes()));
            parameters.extend(settings.refuses().then_some(state_report::REFUSE));
        }
        parameters.extend(ticket.map(|ticket| (TICKET, ticket)));
        let mut out = Vec::new();
        frontend::startup(&mut out, minor, &parameters);
        io.send_server(self.id, &out);
    }

    /// Reads bytes of the login.
    pub(crate) fn bytes(&mut self, bytes: &[u8], io: &mut impl Io<X>) -> Outcome {
        let mut input = self.server.stream.take_held();
        input.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let header = match Header::parse(rest) {
                Ok(Some(header)) if header.total <= LOGIN_MESSAGE_LEN_MAX => header,
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => return Outcome::Invalid,
            };
            if rest.len() < header.total {
                break;
            }
            at += header.total;
            let body = &rest[wire::HEADER_LEN..header.total];
            let step = match self.login().stage {
                LoginStage::ConnectQuery | LoginStage::Asked(_) => {
                    self.connect_query_message(header.code, body, io)
                }
                LoginStage::Connecting
                | LoginStage::AwaitsPassword(_)
                | LoginStage::Reached
                | LoginStage::Authenticated
                | LoginStage::Refused { .. } => self.message(header.code, body, io),
            };
            match step {
                Step::Continue => {}
                // Only asynchronous messages may follow the first ReadyForQuery; the relay reads
                // them.
                Step::Ready => return Outcome::LoggedIn(input.split_off(at)),
                Step::Refused(error) => return self.refused(error, io),
                Step::Unable(why) => {
                    let forced_user = self.pool.view.settings.forced_user;
                    let refusal = why.refusal(self.context.config.global.error_codes, forced_user);
                    return Outcome::Failed(why.to_string(), Some(refusal));
                }
                Step::Failed(reason) => return Outcome::Failed(reason, None),
            }
        }
        self.server.stream.hold(input.split_off(at));
        Outcome::Wait
    }

    /// The server refuses the login.
    fn refused(&mut self, mut error: ErrorFields, io: &mut impl Io<X>) -> Outcome {
        if let Some(decline) = self.login().declines(&error) {
            return match self.may_be_replaced() {
                true => Outcome::Again(decline),
                false => Outcome::Failed(decline.text().to_owned(), None),
            };
        }
        if judges_user(&error)
            && let Some(number) = self.login().issued.as_ref().and_then(|own| own.number)
        {
            self.pool.lock(|pool| pool.passwords.refuse(number));
        }
        let message = format!("{} {}", String::from_utf8_lossy(error.severity()), error.message());
        let now = io.now();
        let lacks_password =
            has_nothing_to_prove(self.server.login_mut(), &self.pool.view.settings);
        if lacks_password && error.sqlstate() == INVALID_PASSWORD.as_bytes() {
            let has = "Weir has none, since the client has logged in without a password, for example by \
                       peer";
            advise_on_password(&mut error, has);
        }
        // A login for one client says nothing about the pool.
        let repeats = self.login().purpose.is_none()
            && self.pool.lock(|pool| pool.login_refused(&message, now));
        self.login().stage = LoginStage::Refused { repeats };
        let identity = &self.pool.view.identity;
        let name = (identity.database.as_str(), identity.user.as_str());
        io.event(Event::ServerLoginFailed { name, message: &message, repeats });
        Outcome::Failed(error.message().into_owned(), Some(error))
    }

    /// May another connection be opened in place of this one?
    fn may_be_replaced(&mut self) -> bool {
        let was_for = self.login().purpose.as_ref().and_then(ServerPurpose::client);
        let has_left = was_for.is_some() && self.server.client.is_none();
        !has_left && !self.pool.lock(|pool| matches!(pool.gate(), Gate::Closed(_)))
    }

    fn message(&mut self, code: u8, body: &[u8], io: &mut impl Io<X>) -> Step {
        match code {
            backend::AUTHENTICATION => {
                let login = self.server.login_mut();
                login.version.settle();
                authentication(self.id, login, &self.pool.view.settings, body, io)
            }
            backend::PARAMETER_STATUS => self.parameter(body, io),
            backend::BACKEND_KEY_DATA => match BackendKeyData::decode(body) {
                Ok(key) => {
                    self.server.key = CancelKey { pid: key.pid, secret: key.secret.into() };
                    Step::Continue
                }
                Err(error) => Step::Failed(error.to_string()),
            },
            backend::READY_FOR_QUERY if matches!(self.login().stage, LoginStage::Authenticated) => {
                self.begin_connect_query(io)
            }
            backend::NOTICE => Step::Continue,
            backend::NEGOTIATE_PROTOCOL_VERSION => negotiated(self.login(), body),
            backend::ERROR => match ErrorFields::decode(body) {
                Ok(error) => Step::Refused(error),
                Err(error) => Step::Failed(error.to_string()),
            },
            other => Step::Failed(format!("unknown message {:?} during login", char::from(other))),
        }
    }

    pub(super) fn parameter(&mut self, body: &[u8], io: &mut impl Io<X>) -> Step {
        let status = match ParameterStatus::decode(body) {
            Ok(status) => status,
            Err(error) => return Step::Failed(error.to_string()),
        };
        let login = self.server.login_mut();
        // Clients never see this parameter.
        if status.name == state_report::NAME {
            login.hear_state(status.value);
            if login.asks_report && !state_report::is_sound(status.value) {
                self.pool.view.note_bad_report(io);
            }
            return Step::Continue;
        }
        login.welcome.learn(status.name, status.value, &self.context.names);
        Step::Continue
    }

    /// Completes the login. The caller must serve the pools that starve for a seat afterwards.
    pub(crate) fn end_login(&mut self, now: Micros) -> LoggedIn {
        let login = self.server.phase.end_login();
        let ahead = Ahead::of_login(&login);
        let ServerLogin { scram, welcome, purpose, challenged, state_report, issued, .. } = login;
        self.server.password_number = issued.and_then(|own| own.number);
        if let Some(number) = self.server.password_number {
            self.pool.lock(|pool| pool.passwords.accept(number));
        }
        let reports = state_report.is_some();
        if let Some(session) = self.server.session.get_mut() {
            (session.ahead, session.state_report) = (ahead, state_report.map(Box::new));
            session.past = Past::New;
        }
        let taken = self.server.times.age(now);
        self.pool.view.server_opened(taken);
        self.pool.exchange.limits(Limits::opening_ended);
        LoggedIn { purpose, welcome, challenged, reports, scram }
    }

    /// Makes the server one of its pool, which learns from the login.
    pub(crate) fn enter_pool(&mut self, login: &mut LoggedIn, io: &mut impl Io<X>) {
        let now = io.now();
        let LoggedIn { purpose, welcome, challenged, reports, scram } = login;
        let (challenged, reports) = (*challenged, *reports);
        let settings = &self.pool.view.settings;
        let own_keys = challenged && settings.own_verifier().is_some();
        let proven = purpose.as_ref().and_then(ServerPurpose::password).filter(|_| challenged);
        let verifier = proven.map(|password| verifier_of(&self.context.config, password, io));
        let server_secret =
            proven.map(|password| proven_secret(password, scram.as_ref(), startup_user(settings)));
        let mut welcome = Arc::new(std::mem::take(welcome));
        let epoch = self.server.epoch;
        let refusals = self.pool.lock(|pool| {
            pool.opened(epoch);
            pool.doubt_principal(now);
            pool.is_told |= reports;
            pool.own_keys = own_keys;
            welcome = pool.learn_welcome(epoch, welcome.clone());
            if verifier.is_some() {
                pool.proven = verifier;
            }
            if server_secret.is_some() {
                pool.server_secret = server_secret;
            }
            pool.refusals.take()
        });
        if let Some(refusals) = refusals {
            self.pool.logins_work_again(&refusals, io);
        }
        self.server.vars = welcome.vars.clone();
        self.server.welcome = welcome;
        self.server.own_keys = own_keys;
        // Even with a lifetime of 0 the server is used once.
        self.server.times.opened(now);
    }
}

impl ServerLogin {
    /// Can the login be repeated without the cause of this error?
    fn declines(&self, error: &ErrorFields) -> Option<Decline> {
        if self.declines_report(error) {
            return Some(Decline::Report);
        }
        if judges_user(error)
            && let Some(number) = self.issued.as_ref().and_then(IssuedLogin::repeats_without)
        {
            return Some(Decline::Password(number));
        }
        self.declines_version(error).then_some(Decline::Version)
    }

    /// Did the server refuse the protocol's version? A server that cannot negotiate it (PostgreSQL
    /// before 9.3, other poolers) refuses at once.
    fn declines_version(&self, error: &ErrorFields) -> bool {
        let early = matches!(self.version, ProtocolVersion::Offered(1..));
        let codes = [FEATURE_NOT_SUPPORTED, PROTOCOL_VIOLATION];
        early && codes.iter().any(|code| error.sqlstate() == code.as_bytes())
    }

    /// Did the server refuse a parameter of the library `weir`? Other poolers do, and PostgreSQL
    /// with another version of the library does.
    fn declines_report(&self, error: &ErrorFields) -> bool {
        let says = |name: &str| error.message().contains(name);
        let ours = [state_report::ASK.0, state_report::REFUSE.0, KEY, TICKET];
        self.asks_report && ours.into_iter().any(says)
    }
}

/// Accepts an older protocol version. The newer one only differs by a longer cancel key, whose
/// length is in the message.
fn negotiated(login: &mut ServerLogin, body: &[u8]) -> Step {
    match NegotiateProtocolVersion::decode(body) {
        Ok(answer) if answer.minor < login.version.minor() && answer.declined == 0 => {
            login.version.settle();
            Step::Continue
        }
        Ok(_) => Step::Failed("the server negotiated an option not requested".into()),
        Err(error) => Step::Failed(error.to_string()),
    }
}

fn verifier_of<X: Exchange>(
    config: &Config,
    password: &[u8],
    io: &mut impl Io<X>,
) -> ScramVerifier {
    let mut salt = [0; 16];
    io.random(&mut salt);
    ScramVerifier::from_password(password, &salt, config.global.scram_iterations)
}

/// Returns the secret that opens further servers after the password itself is forgotten.
fn proven_secret(password: &[u8], scram: Option<&ScramClient>, user: &str) -> ServerSecret {
    scram.and_then(ScramClient::derived).map_or_else(
        || ServerSecret::Md5(md5::hash(user.as_bytes(), password)),
        |(_, _, keys)| ServerSecret::Scram(keys),
    )
}
