//! Opens a server connection, from the decision to open it up to "logged in" (protocol chapter
//! 55.2.1, from the frontend's side).

use std::sync::Arc;

use config::{Config, ErrorCodes, PoolMode, SslMode};
use proof::{authentication, startup_user};
use wire::error_fields::ErrorFields;
use wire::messages::{BackendKeyData, NegotiateProtocolVersion, ParameterStatus};
use wire::scram::{ScramClient, ScramError, ScramVerifier};
use wire::sqlstate::{FEATURE_NOT_SUPPORTED, PROTOCOL_VIOLATION};
use wire::startup::CancelKey;
use wire::{Header, backend, frontend, md5};

use crate::admission::limits::Limits;
use crate::admission::pool::{Gate, OPENING_MAX, Pool};
use crate::admission::seat::Opening;
use crate::engine::Engine;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::log_server_closing;
use crate::lifecycle::own_keys::may_use_keys;
use crate::lifecycle::pair;
use crate::lifecycle::replicate::replication_parameters;
use crate::login::server_secret::ServerSecret;
use crate::own_error::{Cause, OwnError};
use crate::server::{LoginStage, ProtocolVersion, Server, ServerLogin, ServerPurpose};
use crate::session::ahead::{Ahead, KEY, Key};
use crate::session::on_server::Past;
use crate::session::state_report;
use crate::shell::{Event, Exchange, Io};

mod proof;

/// The parameter by which the library learns that it may serve clients.
pub(crate) const TICKET: &str = "weir.ticket";

/// Maximal length of a message during login; an error text may be long.
const LOGIN_MESSAGE_LEN_MAX: usize = 65_535;

/// The outcome of one message of a login.
pub(crate) enum Step {
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
pub(crate) enum Unable {
    /// The stored form of the password does not suit the server's method.
    #[error("cannot do {0}")]
    Secret(&'static str),
    #[error("{0}")]
    Other(String),
}

impl Unable {
    /// The error text for clients that wait for the server, in PgBouncer's words.
    fn refusal(&self, codes: ErrorCodes) -> ErrorFields {
        let text = match self {
            Self::Secret(_) => "server login failed: wrong password type".to_owned(),
            Self::Other(why) => format!("server login failed: {why}"),
        };
        OwnError::new(Cause::ServerUnreachable, text).fields(codes, None)
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
    /// Opens a server whose place in the pool and seat are already taken.
    pub(crate) fn connect_server(
        &mut self,
        pool: PoolId,
        purpose: Option<ServerPurpose>,
        io: &mut impl Io<X>,
    ) {
        self.connect_in_place(pool, None, purpose, io);
    }

    /// `epoch` is that of the connection whose place the new one takes; None if the place is only
    /// reserved.
    fn connect_in_place(
        &mut self,
        pool: PoolId,
        epoch: Option<u64>,
        purpose: Option<ServerPurpose>,
        io: &mut impl Io<X>,
    ) {
        let serial = self.pools.exchange.next_connection();
        self.pools.view(pool);
        self.pools.learn_from_others(pool);
        let (minor, may_ask, target, mode, (server_secret, epoch)) =
            self.pools.exchange.pool(pool, |pool| {
                // Epoch, mode and target are read together under the lock; this worker's own copy may
                // be older.
                let mode = pool.settings.mode;
                let target = pool.choose_target() % pool.settings.targets.len().max(1);
                let target = pool.settings.targets.get(target).cloned();
                let epoch = epoch.unwrap_or_else(|| pool.begin_opening());
                let secret = pool.server_secret.clone();
                (pool.minor_version, pool.may_ask_report, target, mode, (secret, epoch))
            });
        let client = purpose.as_ref().and_then(ServerPurpose::client);
        let settings = self.pools.settings(pool);
        let may_use_keys = |id: ClientId| {
            may_use_keys(&self.context.config, settings, &self.clients[id].identity.user)
        };
        let is_others =
            settings.own_verifier().is_some() && client.is_some_and(|id| !may_use_keys(id));
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
            asks_report,
            key: Key::new(random),
            ..ServerLogin::default()
        };
        let mut server = Box::new(Server::new(pool, serial, login, io.now()));
        server.epoch = epoch;
        server.use_in(mode);
        let id = self.servers.insert(server);
        if let Some(client) = client {
            pair::link(client, &mut self.clients[client], id, &mut self.servers[id]);
        }
        let identity = self.pools.view(pool).identity.clone();
        io.event(Event::ServerOpening { server: id, name: (&identity.database, &identity.user) });
        match &target {
            Some(target) => io.connect(id, target),
            None => self.open_failed(id, CloseReason::NoHost, None, io),
        }
    }

    /// Closes a server and opens another one in its seat, for one client alone.
    pub(crate) fn replace_server(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        purpose: ServerPurpose,
        io: &mut impl Io<X>,
    ) {
        let server = self.end_connection(on, reason, io);
        self.pools.exchange.pool(server.pool, |pool| {
            pool.server_gone(server.epoch);
            pool.reserve_unasked();
        });
        self.pools.exchange.limits(Limits::opening_begins);
        self.connect_server(server.pool, Some(purpose), io);
    }

    pub(crate) fn send_startup(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let (paired, pool) = (server.client, server.pool);
        let Some(login) = server.phase.begin_login() else { return };
        let (minor, asks_report, key) = (login.version.minor(), login.asks_report, login.key);
        let replicating = match login.purpose {
            Some(ServerPurpose::Replication { client }) => paired.filter(|own| *own == client),
            Some(
                ServerPurpose::Proof { .. }
                | ServerPurpose::Settings { .. }
                | ServerPurpose::Listen
                | ServerPurpose::Attend { .. },
            )
            | None => None,
        };
        let ticket = match &login.purpose {
            Some(ServerPurpose::Attend { ticket }) if asks_report => Some(ticket.clone()),
            Some(_) | None => None,
        };
        let settings = self.pools.settings(pool);
        let own = settings.startup.iter();
        let mut parameters: Vec<(&str, &[u8])> =
            own.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        if let Some(client) = replicating {
            parameters.extend(replication_parameters(&self.clients[client], &self.context.names));
        }
        if asks_report {
            parameters.push(state_report::ASK);
            parameters.push((KEY, key.as_bytes()));
            parameters.extend(settings.refuses().then_some(state_report::REFUSE));
        }
        parameters.extend(ticket.as_ref().map(|ticket| (TICKET, ticket.as_bytes())));
        let mut out = Vec::new();
        frontend::startup(&mut out, minor, &parameters);
        io.send_server(id, &out);
    }

    pub(crate) fn server_login_bytes(&mut self, id: ServerId, bytes: &[u8], io: &mut impl Io<X>) {
        let mut input = std::mem::take(&mut self.servers[id].stream.held);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while self.servers.contains(id) {
            let rest = &input[at..];
            let header = match Header::parse(rest) {
                Ok(Some(header)) if header.total <= LOGIN_MESSAGE_LEN_MAX => header,
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => {
                    return self.open_failed(id, CloseReason::BadPacket, None, io);
                }
            };
            if rest.len() < header.total {
                break;
            }
            at += header.total;
            let body = &rest[wire::HEADER_LEN..header.total];
            let step = match self.servers[id].login_mut().stage {
                LoginStage::ConnectQuery | LoginStage::Asked(_) => {
                    self.connect_query_message(id, header.code, body, io)
                }
                LoginStage::Connecting
                | LoginStage::Reached
                | LoginStage::Authenticated
                | LoginStage::Refused { .. } => self.login_message(id, header.code, body, io),
            };
            match step {
                Step::Continue => {}
                Step::Ready => {
                    // Only asynchronous messages may follow the first ReadyForQuery; the relay
                    // reads them.
                    self.opened(id, &input[at..], io);
                    return self.feed(io);
                }
                Step::Refused(error) => return self.login_refused(id, error, io),
                Step::Unable(why) => {
                    let refusal = Some(why.refusal(self.context.config.global.error_codes));
                    return self.open_failed(id, CloseReason::Text(&why.to_string()), refusal, io);
                }
                Step::Failed(reason) => {
                    return self.open_failed(id, CloseReason::Text(&reason), None, io);
                }
            }
        }
        if let Some(server) = self.servers.get_mut(id) {
            server.stream.held = input.split_off(at);
        }
    }

    fn login_refused(&mut self, id: ServerId, error: ErrorFields, io: &mut impl Io<X>) {
        let login = self.servers[id].login_mut();
        if login.declines_report(&error) {
            let why = "it refuses the parameter weir.report";
            return self.open_again(id, why, |pool| pool.may_ask_report = false, io);
        }
        if login.declines_version(&error) {
            let why = "it speaks protocol 3.0 only";
            return self.open_again(id, why, |pool| pool.minor_version = 0, io);
        }
        let message = format!("{} {}", String::from_utf8_lossy(error.severity()), error.message());
        let now = io.now();
        let pool = self.servers[id].pool;
        // A login for one client says nothing about the pool.
        let repeats = self.servers[id].login_mut().purpose.is_none()
            && self.pools.exchange.pool(pool, |pool| pool.login_refused(&message, now));
        self.servers[id].login_mut().stage = LoginStage::Refused { repeats };
        let identity = self.pools.view(pool).identity.clone();
        let name = (identity.database.as_str(), identity.user.as_str());
        io.event(Event::ServerLoginFailed { name, message: &message, repeats });
        let why = error.message().into_owned();
        self.open_failed(id, CloseReason::Text(&why), Some(error), io);
    }

    /// Opens another connection in place of this one. `remember` tells the pool what to do
    /// differently for later ones.
    fn open_again(
        &mut self,
        id: ServerId,
        why: &str,
        remember: impl FnOnce(&mut Pool<X::Transport>),
        io: &mut impl Io<X>,
    ) {
        let purpose = self.servers[id].login_mut().purpose.take();
        let was_for = purpose.as_ref().and_then(ServerPurpose::client);
        let server = &*self.servers[id];
        let has_left = was_for.is_some() && server.client.is_none();
        let is_closed = |pool: &mut Pool<_>| matches!(pool.gate(), Gate::Closed(_));
        if has_left || self.pools.exchange.pool(server.pool, is_closed) {
            self.servers[id].login_mut().purpose = purpose;
            return self.open_failed(id, CloseReason::Text(why), None, io);
        }
        let mut server = self.servers.remove(id);
        if let Some(client) = server.client {
            pair::part(&mut self.clients[client], &mut server);
        }
        let identity = self.pools.view(server.pool).identity.clone();
        log_server_closing(id, &server, &identity, CloseReason::Text(why), io);
        io.close_server(id);
        self.pools.exchange.pool(server.pool, remember);
        // If the pool's servers were replaced meanwhile, no client may get the new one either.
        self.connect_in_place(server.pool, Some(server.epoch), purpose, io);
    }

    fn login_message(&mut self, id: ServerId, code: u8, body: &[u8], io: &mut impl Io<X>) -> Step {
        match code {
            backend::AUTHENTICATION => {
                let is_trusted =
                    self.context.config.global.server_tls_sslmode == SslMode::VerifyFull;
                let server = &mut *self.servers[id];
                let view = self.pools.views.get(server.pool);
                let settings = &view.expect("a worker knows its servers' pools").settings;
                let login = server.login_mut();
                login.version.settle();
                authentication(id, login, settings, is_trusted, body, io)
            }
            backend::PARAMETER_STATUS => self.learn_parameter(id, body, io),
            backend::BACKEND_KEY_DATA => match BackendKeyData::decode(body) {
                Ok(key) => {
                    let server = &mut *self.servers[id];
                    server.key = CancelKey { pid: key.pid, secret: key.secret.into() };
                    Step::Continue
                }
                Err(error) => Step::Failed(error.to_string()),
            },
            backend::READY_FOR_QUERY
                if matches!(self.servers[id].login_mut().stage, LoginStage::Authenticated) =>
            {
                self.begin_connect_query(id, io)
            }
            backend::NOTICE => Step::Continue,
            backend::NEGOTIATE_PROTOCOL_VERSION => negotiated(self.servers[id].login_mut(), body),
            backend::ERROR => match ErrorFields::decode(body) {
                Ok(error) => Step::Refused(error),
                Err(error) => Step::Failed(error.to_string()),
            },
            other => Step::Failed(format!("unknown message {:?} during login", char::from(other))),
        }
    }

    pub(crate) fn learn_parameter(
        &mut self,
        id: ServerId,
        body: &[u8],
        io: &mut impl Io<X>,
    ) -> Step {
        match ParameterStatus::decode(body) {
            Ok(status) => {
                let names = self.context.names.clone();
                let login = self.servers[id].login_mut();
                if status.name == state_report::NAME {
                    // Clients never see this parameter.
                    login.hear_state(status.value);
                    if login.asks_report && !state_report::is_sound(status.value) {
                        let pool = self.servers[id].pool;
                        self.pools.view(pool).note_bad_report(io);
                    }
                    return Step::Continue;
                }
                login.welcome.learn(status.name, status.value, &names);
                Step::Continue
            }
            Err(error) => Step::Failed(error.to_string()),
        }
    }

    /// Completes the login. `rest` followed it, and may be the beginning of a message, so it is
    /// read before a client gets the server.
    fn opened(&mut self, id: ServerId, rest: &[u8], io: &mut impl Io<X>) {
        let now = io.now();
        let server = &mut *self.servers[id];
        let login = server.phase.end_login();
        let (pool, epoch) = (server.pool, server.epoch);
        let ahead = Ahead::of_login(&login);
        let ServerLogin { scram, welcome, purpose, challenged, state_report, .. } = login;
        let reports = state_report.is_some();
        if let Some(session) = server.session.get_mut() {
            (session.ahead, session.state_report) = (ahead, state_report.map(Box::new));
            session.past = Past::New;
        }
        let taken = now.saturating_sub(server.times.connected_at);
        self.pools.view(pool).server_opened(taken);
        self.pools.opening_ended();
        if let Some(ServerPurpose::Replication { client }) = purpose {
            return self.replication_opened(id, client, &welcome, rest, io);
        }
        if let Some(ServerPurpose::Listen) = purpose {
            return self.listener_opened(id, welcome, rest, io);
        }
        let purpose = match purpose {
            Some(ServerPurpose::Attend { ticket }) if reports => {
                return self.attending_opened(id, welcome, ticket, io);
            }
            Some(ServerPurpose::Attend { .. }) => {
                self.found_no_library(id, io);
                None
            }
            purpose => purpose,
        };
        let settings =
            &self.pools.views.get(pool).expect("a worker knows its servers' pools").settings;
        let own_keys = challenged && settings.own_verifier().is_some();
        let proven = purpose.as_ref().and_then(ServerPurpose::password).filter(|_| challenged);
        let verifier = proven.map(|password| verifier_of(&self.context.config, password, io));
        let server_secret =
            proven.map(|password| proven_secret(password, scram.as_ref(), startup_user(settings)));
        let mut welcome = Arc::new(welcome);
        let refusals = self.pools.exchange.pool(pool, |pool| {
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
            self.pools.one(pool).logins_work_again(&refusals, io);
        }
        let server = &mut *self.servers[id];
        server.vars = welcome.vars.clone();
        server.welcome = welcome;
        server.own_keys = own_keys;
        // Even with a lifetime of 0 the server is used once.
        (server.times.released_at, server.times.opened_at) = (now, now);
        let client = match purpose {
            Some(ServerPurpose::Settings { client }) => {
                return self.apply_to_new(client, id, rest, io);
            }
            // Only if the client that the server was opened for is still there.
            Some(purpose) => purpose.client().filter(|client| server.client == Some(*client)),
            None => None,
        };
        let Some(client) = client else {
            return self.begin_use(id, rest, io);
        };
        self.opened_as_proof(id, client, challenged, rest, io);
    }

    /// Tells the client whose password the login was to check whether it has done so.
    fn opened_as_proof(
        &mut self,
        id: ServerId,
        client: ClientId,
        challenged: bool,
        rest: &[u8],
        io: &mut impl Io<X>,
    ) {
        let pool = self.servers[id].pool;
        pair::part(&mut self.clients[client], &mut self.servers[id]);
        if challenged {
            self.begin_use(id, rest, io);
            self.proven(client, pool, io);
        } else {
            let why = "the server did not ask for a password, so its login does not check one; \
                       to allow this, set auth_type = trust in a configuration file";
            self.disconnect(client, why, io);
            self.close_server(id, CloseReason::NothingProven, io);
        }
    }

    pub(crate) fn begin_use(&mut self, id: ServerId, rest: &[u8], io: &mut impl Io<X>) {
        let pool = self.servers[id].pool;
        if rest.is_empty() {
            self.place(id, io);
        } else {
            self.reply_bytes(id, rest, io);
        }
        self.go_on_opening(pool, io);
    }

    /// Opens further servers, since a login has ended or some time has passed.
    pub(crate) fn go_on_opening(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        for _ in 0..OPENING_MAX {
            let reserved = self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now));
            // If one server gets no seat, the next would not get one either.
            if !reserved || self.open_server(pool, io) == Opening::NotHere {
                return;
            }
        }
    }
}

impl ServerLogin {
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
