//! Authentication of a client, without any I/O. The methods and texts are PgBouncer's (its
//! `auth_type`). The messages are those of the protocol chapter 55.2.1.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use config::hba::{CertName, IdentMap, Visitor};
use config::ldap::LdapOptions;
use config::{AccessPolicy, AuthType, Config, hba};
use foldhash::fast::RandomState;
use wire::scram::{ScramServer, ScramVerifier};
use wire::secret::Secret;

use crate::ids::{ClientId, Identity, Micros, PoolId, Waiter};
use crate::lifecycle::replication::Replication;
use crate::login::server_secret::ServerSecret;
use crate::own_error::{Cause, OwnError};
use crate::vars::Vars;

/// A login in progress.
#[derive(Debug)]
pub struct Login {
    pub peer: Peer,
    pub step: LoginStep,
    pub buffer: Vec<u8>,
    /// The client's own values of tracked parameters.
    pub vars: Vars,
    pub replication: Option<Box<Replication>>,
    pub credential: Option<Arc<Credential>>,
    /// The proof has arrived, but is not checked yet, because too many earlier ones were wrong.
    pub held: bool,
    /// When its startup packet was read; 0 before that.
    pub startup_at: Micros,
    /// When the client was challenged; 0 before that.
    pub challenged_at: Micros,
    /// Did `auth_query` give the credential, rather than `auth_file`?
    pub asked: bool,
    /// The secret for its user's logins to servers that the client's proof reveals: the password
    /// that an external service accepted, or the SCRAM keys.
    pub proven: Option<Box<ServerSecret>>,
    /// The database and user that the client requested.
    pub requested: Arc<Identity>,
}

/// The origin of a client, as far as it matters for its rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// A unix socket.
    pub local: bool,
    /// A unix socket whose other end is a process of Weir's own user or of root.
    pub same_user: bool,
    /// A unix socket or a loopback address: no other machine can listen.
    pub loopback: bool,
    /// The client's address, unless it uses a unix socket.
    pub address: Option<IpAddr>,
    /// The operating system's user at the other end of a unix socket.
    pub uid: Option<u32>,
    /// Set if the connection uses TLS.
    pub secured: Option<Arc<Secured>>,
    /// Counts the client among those that are logging in, until it is dropped.
    pub seat: Arc<()>,
}

impl Peer {
    /// Returns the address for the rules of `auth_hba_file`; None for a unix socket. A client with
    /// an unknown address matches only rules for `all`.
    pub(crate) fn rule_address(&self) -> Option<IpAddr> {
        let address = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        (!self.local).then_some(address)
    }

    /// Can no other machine read what the client sends?
    pub(crate) fn is_private(&self) -> bool {
        self.loopback || self.secured.is_some()
    }
}

/// The properties of a client that TLS has verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secured {
    /// The names in the client's certificate, which was verified; none if the client has sent none.
    pub common_name: Option<String>,
    pub dns_names: Vec<String>,
    /// `tls-server-end-point` of the connection, for SCRAM with channel binding; empty if there is
    /// none.
    pub end_point: Arc<[u8]>,
}

#[derive(Debug, Default)]
pub enum LoginStep {
    #[default]
    ExpectStartup,
    ExpectCleartext,
    /// A cleartext password, which an external service checks.
    ExpectJudged(Judge),
    ExpectMd5 {
        salt: [u8; 4],
    },
    ExpectSaslInitial(ScramServer),
    ExpectSaslResponse(ScramServer),
    /// A login to PostgreSQL shows whether the password is right.
    Proving(Proving),
    /// `auth_query` asks PostgreSQL about the user.
    Asking(Asking),
    /// The shell is checking something about the client.
    Checking(Checking),
    /// A server shows whether the pool is direct. The client is authenticated.
    Trial,
    /// A server tells what a new one would be. The client is authenticated.
    PrincipalCheck,
}

/// The event that a login waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The startup packet of the client.
    Startup,
    /// The client's next message of the challenge.
    Password,
    /// An answer of PostgreSQL or of the shell. Nothing is read from the client until then.
    Answer,
}

impl LoginStep {
    /// Returns the event that the login waits for.
    pub fn awaits(&self) -> Awaited {
        match self {
            Self::ExpectStartup => Awaited::Startup,
            Self::ExpectCleartext
            | Self::ExpectJudged(_)
            | Self::ExpectMd5 { .. }
            | Self::ExpectSaslInitial(_)
            | Self::ExpectSaslResponse(_) => Awaited::Password,
            Self::Proving(_)
            | Self::Asking(_)
            | Self::Checking(_)
            | Self::Trial
            | Self::PrincipalCheck => Awaited::Answer,
        }
    }

    /// Does the login wait for PostgreSQL?
    pub fn awaits_postgres(&self) -> bool {
        match self {
            Self::Proving(_) | Self::Asking(_) | Self::Trial | Self::PrincipalCheck => true,
            Self::ExpectStartup
            | Self::ExpectCleartext
            | Self::ExpectJudged(_)
            | Self::ExpectMd5 { .. }
            | Self::ExpectSaslInitial(_)
            | Self::ExpectSaslResponse(_)
            | Self::Checking(_) => false,
        }
    }

    /// Is the next message a password, or a hash of one, that ends with a zero byte?
    pub fn expects_text(&self) -> bool {
        let is_sasl = matches!(self, Self::ExpectSaslInitial(_) | Self::ExpectSaslResponse(_));
        self.awaits() == Awaited::Password && !is_sasl
    }
}

/// A check of the shell about a client.
#[derive(Debug)]
pub enum Checking {
    /// The name of the client's operating system user. The map says which users it may be.
    Peer(Option<Arc<IdentMap>>),
    /// Checks whether the password is right.
    Password { judge: Judge, password: Password },
}

/// An external service that checks passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judge {
    Ldap(Arc<LdapOptions>),
    /// With the name of the service.
    Pam(Arc<str>),
}

impl Judge {
    /// Returns the error for a wrong password.
    pub(crate) fn refusal(&self) -> OwnError<'static> {
        let text = match self {
            Self::Ldap(_) => "LDAP authentication failed",
            Self::Pam(_) => "PAM authentication failed",
        };
        OwnError::new(Cause::Proof, text)
    }
}

/// A cleartext password. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A client that waits for the reply to `auth_query`.
#[derive(Debug)]
pub struct Asking {
    pub pool: PoolId,
    pub query: Box<str>,
    /// The client's place in the pool's queue, until it has a server.
    pub waiter: Option<Waiter>,
}

/// A client whose password only PostgreSQL can check.
pub struct Proving {
    pub pool: PoolId,
    pub password: Vec<u8>,
    /// The client's place in the pool's queue, until there is room for the login.
    pub waiter: Option<Waiter>,
}

impl std::fmt::Debug for Proving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proving").field("waiter", &self.waiter).finish_non_exhaustive()
    }
}

impl Login {
    /// `nobody` stands for the database and the user until the client has named them.
    pub fn new(peer: Peer, nobody: Arc<Identity>) -> Self {
        Self {
            peer,
            step: LoginStep::default(),
            buffer: Vec::new(),
            vars: Vars::default(),
            replication: None,
            credential: None,
            held: false,
            startup_at: 0,
            challenged_at: 0,
            asked: false,
            proven: None,
            requested: nobody,
        }
    }

    /// Returns the client's place in a pool's queue, if it waits there.
    pub fn wait(&self) -> Option<Waiter> {
        match &self.step {
            LoginStep::Asking(asking) => asking.waiter,
            LoginStep::Proving(proving) => proving.waiter,
            LoginStep::ExpectStartup
            | LoginStep::ExpectCleartext
            | LoginStep::ExpectJudged(_)
            | LoginStep::ExpectMd5 { .. }
            | LoginStep::ExpectSaslInitial(_)
            | LoginStep::ExpectSaslResponse(_)
            | LoginStep::Checking(_)
            | LoginStep::Trial
            | LoginStep::PrincipalCheck => None,
        }
    }

    /// The client waits in its pool's queue, for a server to ask or for room to prove its password.
    pub(crate) fn queue(&mut self, client: ClientId, ticket: u64, now: Micros) {
        let (LoginStep::Asking(Asking { pool, waiter, .. })
        | LoginStep::Proving(Proving { pool, waiter, .. })) = &mut self.step
        else {
            return;
        };
        let since = waiter.map_or(now, |waiter| waiter.since);
        *waiter = Some(Waiter { client, pool: *pool, ticket, since });
    }

    /// Is it the user that runs Weir, or root, who may use the console?
    pub(crate) fn runs_weir(&self) -> bool {
        // `auth_query` may have named another user.
        self.peer.same_user && self.requested.user == "pgbouncer" && !self.asked
    }

    /// Begins to wait until a server proves this password.
    pub(crate) fn begin_proof(&mut self, pool: PoolId, password: &[u8]) {
        let proving = Proving { pool, password: password.to_vec(), waiter: None };
        self.step = LoginStep::Proving(proving);
    }
}

/// The secret of a user of `auth_file` or `auth_query`.
pub struct Credential {
    pub secret: Secret,
    /// The verifier of a plain password; derived when SCRAM first needs it.
    derived: OnceLock<ScramVerifier>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    pub fn new(secret: Secret) -> Self {
        Self { secret, derived: OnceLock::new() }
    }

    /// Returns the verifier for SCRAM. An empty password matches nothing. `salt` is for a password
    /// without a stored salt, and always the same for one user.
    pub fn verifier(&self, config: &Config, salt: [u8; 16]) -> Option<ScramVerifier> {
        match &self.secret {
            Secret::Plain(password) if password.is_empty() => None,
            Secret::Plain(password) => {
                let iterations = config.global.scram_iterations;
                let derive =
                    || ScramVerifier::from_password(password.as_bytes(), &salt, iterations);
                Some(self.derived.get_or_init(derive).clone())
            }
            Secret::Scram(verifier) => Some(verifier.clone()),
            Secret::Md5(_) => None,
        }
    }

    /// Does this cleartext password match?
    pub fn accepts(&self, user: &str, password: &[u8]) -> bool {
        use wire::md5;
        match &self.secret {
            Secret::Plain(known) if known.is_empty() => false,
            Secret::Plain(known) => same(known.as_bytes(), password),
            Secret::Md5(hash) => {
                same(hash.as_bytes(), md5::hash(user.as_bytes(), password).as_bytes())
            }
            Secret::Scram(verifier) => verifier.verify_password(password),
        }
    }

    /// Does this answer to an MD5 challenge match?
    pub fn accepts_md5(&self, user: &str, salt: [u8; 4], answer: &[u8]) -> bool {
        use wire::md5;
        let hash = match &self.secret {
            Secret::Plain(known) if known.is_empty() => return false,
            Secret::Plain(known) => md5::hash(user.as_bytes(), known.as_bytes()),
            Secret::Md5(hash) => hash.clone(),
            Secret::Scram(_) => return false,
        };
        same(md5::response(&hash, salt).as_bytes(), answer)
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

/// Maximal number of kept replies of `auth_query`.
const ASKED_MAX: usize = 4_096;
/// Maximal number of users to examine when searching for one whose keys can be derived.
const LOOKED_AT_MAX: usize = 1_000;

/// Cache of one configuration's credentials. Each secret is parsed once, and SCRAM keys of plain
/// passwords are derived once.
#[derive(Debug, Default)]
pub struct Credentials {
    stored: HashMap<String, Arc<Credential>, RandomState>,
    /// The replies of `auth_query` by user. PostgreSQL is asked again at each login; the cached
    /// keys are used if the secret is the same.
    asked: HashMap<String, Arc<Credential>, RandomState>,
    /// The last user of `auth_file` whose keys were derived in advance.
    ahead: String,
}

impl Credentials {
    /// Returns the credential of a user in `auth_file`.
    pub fn of_user(&mut self, config: &Config, user: &str) -> Option<Arc<Credential>> {
        if let Some(known) = self.stored.get(user) {
            return Some(known.clone());
        }
        let secret = config.secret_of(user)?;
        let credential = Arc::new(Credential::new(Secret::parse(secret)));
        self.stored.insert(user.to_owned(), credential.clone());
        Some(credential)
    }

    /// Derives the keys of plain passwords in advance, one at a time. Unknown users have no keys,
    /// so the time for deriving them would reveal which users exist.
    pub(crate) fn derive_ahead(&mut self, config: &Config, seed: &[u8; 32]) {
        if !matches!(config.global.auth_type, AuthType::ScramSha256 | AuthType::Hba) {
            return;
        }
        self.derive_next(config, |user| ScramVerifier::salt(seed, user.as_bytes()));
    }

    /// Derives the keys of the next user of `auth_file` whose password is stored as text.
    pub fn derive_next(&mut self, config: &Config, salt: impl Fn(&str) -> [u8; 16]) {
        for _ in 0..LOOKED_AT_MAX {
            let behind = (Bound::Excluded(self.ahead.as_str()), Bound::Unbounded);
            let Some((user, secret)) = config.auth_file.users.range::<str, _>(behind).next() else {
                return;
            };
            self.ahead.clone_from(user);
            if matches!(Secret::parse(secret), Secret::Plain(_)) {
                let known = self.of_user(config, user);
                drop(known.and_then(|known| known.verifier(config, salt(user))));
                return;
            }
        }
    }

    /// Returns the credential of a user that `auth_query` found.
    pub fn of_secret(&mut self, user: &str, secret: Option<&str>) -> Arc<Credential> {
        let secret = Secret::parse(secret.unwrap_or_default());
        let known = self.asked.get(user);
        if let Some(known) = known.filter(|known| known.secret == secret) {
            return known.clone();
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        let credential = Arc::new(Credential::new(secret));
        self.asked.insert(user.to_owned(), credential.clone());
        credential
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The authentication method of a client.
#[derive(Clone, Debug)]
pub enum Method {
    Any,
    Trust,
    Password,
    Md5,
    ScramSha256,
    Peer(Option<Arc<IdentMap>>),
    Cert(CertName, Option<Arc<IdentMap>>),
    /// By a password that an external service checks.
    Judged(Judge),
    /// The client is rejected with this text.
    Rejected(OwnError<'static>),
}

impl Method {
    /// Returns the method that the configuration requires.
    pub fn new(config: &Config, visitor: &Visitor<'_>) -> Self {
        match config.access {
            AccessPolicy::Configured => {}
            AccessPolicy::UrlUser { .. } | AccessPolicy::ProvenByServer => {
                return Self::ScramSha256;
            }
        }
        match config.global.auth_type {
            AuthType::Any => Self::Any,
            AuthType::Trust => Self::Trust,
            AuthType::Plain => Self::Password,
            AuthType::Md5 => Self::Md5,
            AuthType::ScramSha256 => Self::ScramSha256,
            AuthType::Ldap => match &config.ldap {
                Some(options) => Self::Judged(Judge::Ldap(options.clone())),
                None => Self::Rejected("auth_ldap_options is null".into()),
            },
            AuthType::Cert => Self::Cert(CertName::Any, None),
            AuthType::Pam => Self::Judged(Judge::Pam(hba::PAM_SERVICE.into())),
            // `AccessPolicy::ProvenByServer` stands for it.
            AuthType::Server => Self::Rejected(OwnError::new(Cause::Rule, "login rejected")),
            AuthType::Hba => match config.hba.rule(visitor) {
                Some(rule) => Self::of_rule(rule),
                None => {
                    Self::Rejected(OwnError::new(Cause::Rule, "no authentication method is found"))
                }
            },
        }
    }

    fn of_rule(rule: &hba::Rule) -> Self {
        match &rule.method {
            hba::Method::Trust => Self::Trust,
            hba::Method::Reject => Self::Rejected(OwnError::new(Cause::Rule, "login rejected")),
            hba::Method::Refuse(text) => {
                Self::Rejected(OwnError::new(Cause::Rule, text.to_string()))
            }
            hba::Method::Md5 => Self::Md5,
            hba::Method::Password => Self::Password,
            hba::Method::ScramSha256 => Self::ScramSha256,
            hba::Method::Peer => Self::Peer(rule.map.clone()),
            hba::Method::Cert(name) => Self::Cert(*name, rule.map.clone()),
            hba::Method::Ldap(options) => Self::Judged(Judge::Ldap(options.clone())),
            hba::Method::Pam(service) => Self::Judged(Judge::Pam(service.clone())),
        }
    }
}

/// The challenge a client gets.
#[derive(Clone, Debug)]
pub enum Challenge {
    /// None: the client is authenticated.
    None,
    Cleartext,
    /// The password in clear text, which an external service checks.
    Judged(Judge),
    Md5,
    Scram,
    /// No message: the operating system or the certificate identifies the client.
    Peer(Option<Arc<IdentMap>>),
    Cert(CertName, Option<Arc<IdentMap>>),
    /// The client is rejected with this text.
    Refused(OwnError<'static>),
}

/// Returns the challenge for a client. An unknown user is challenged like any other.
pub fn challenge(method: Method, credential: Option<&Credential>) -> Challenge {
    let is_scram = credential.is_some_and(|known| matches!(known.secret, Secret::Scram(_)));
    match method {
        Method::Any => Challenge::None,
        Method::Trust if credential.is_some() => Challenge::None,
        Method::Trust => {
            Challenge::Refused(OwnError::new(Cause::Proof, "\"trust\" authentication failed"))
        }
        Method::Password => Challenge::Cleartext,
        Method::Md5 if is_scram => Challenge::Scram,
        Method::Md5 => Challenge::Md5,
        Method::ScramSha256 => Challenge::Scram,
        Method::Peer(map) => Challenge::Peer(map),
        Method::Cert(name, map) => Challenge::Cert(name, map),
        Method::Judged(judge) => Challenge::Judged(judge),
        Method::Rejected(why) => Challenge::Refused(why),
    }
}
