//! Who may come in: the exchange with a client up to "authenticated", without any I/O.
//! The methods and texts are PgBouncer's (its `auth_type`), the messages are those of the
//! protocol chapter 55.2.1.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

use config::hba::{self, IdentMap, Visitor};
use config::ldap::LdapOptions;
use config::{AccessPolicy, AuthType, Config};
use wire::scram::{ScramServer, ScramVerifier};
use wire::secret::Secret;

use crate::ids::{Micros, PoolId, Waiter};
use crate::lifecycle::replication::Replication;
use crate::login::server_secret::ServerSecret;
use crate::vars::Vars;

/// A login in progress.
#[derive(Debug, Default)]
pub struct Login {
    pub peer: Peer,
    pub step: LoginStep,
    pub buffer: Vec<u8>,
    /// The client's own values of tracked parameters.
    pub vars: Vars,
    pub replication: Option<Box<Replication>>,
    pub credential: Option<Arc<Credential>>,
    /// Its proof is there and is not looked at yet, since too many before it were wrong.
    pub held: bool,
    /// When it was asked for its proof; 0 is not yet.
    pub challenged_at: Micros,
    /// Did `auth_query` give the credential, rather than `auth_file`?
    pub asked: bool,
    /// What its proof has shown of how its user logs in to servers: its password, which somebody else
    /// has found right, or the keys of SCRAM.
    pub proven: Option<Box<ServerSecret>>,
    /// Database and user name asked for.
    pub database: String,
    pub user: String,
}

/// Where the client comes from, as far as it matters for what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// A unix socket.
    pub local: bool,
    /// A unix socket whose other end is a process of our own user.
    pub same_user: bool,
    /// A unix socket or a loopback address: nobody in between can listen.
    pub loopback: bool,
    /// Its address, unless it is local.
    pub address: Option<IpAddr>,
    /// The operating system's user at the other end of a unix socket.
    pub uid: Option<u32>,
    /// The connection has TLS.
    pub secured: Option<Arc<Secured>>,
    /// Its place among those who are logging in: given back by being dropped.
    pub seat: Arc<()>,
}

impl Peer {
    /// As the rules of `auth_hba_file` see it: none is a unix socket. Somebody whose address is not
    /// known fits only those for `all`.
    pub(crate) fn rule_address(&self) -> Option<IpAddr> {
        let address = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        (!self.local).then_some(address)
    }
}

/// What TLS tells of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secured {
    /// The names in its certificate, which was found good; none if it was not asked for one.
    pub names: Vec<String>,
    /// `tls-server-end-point` of the connection, for SCRAM with channel binding; empty if there is
    /// none.
    pub end_point: Arc<[u8]>,
}

#[derive(Debug, Default)]
pub enum LoginStep {
    #[default]
    ExpectStartup,
    ExpectCleartext,
    /// A password in clear, which somebody else judges.
    ExpectJudged(Judge),
    ExpectMd5 {
        salt: [u8; 4],
    },
    ExpectSaslInitial(ScramServer),
    ExpectSaslResponse(ScramServer),
    /// A login to PostgreSQL is to show whether its password is right.
    Proving(Proving),
    /// `auth_query` is to tell who the user is.
    Asking(Asking),
    /// Something is being found out about it elsewhere.
    Checking(Checking),
}

impl LoginStep {
    /// Is a password due, or what stands for one, that ends with a zero?
    pub fn expects_text(&self) -> bool {
        match self {
            Self::ExpectCleartext | Self::ExpectJudged(_) | Self::ExpectMd5 { .. } => true,
            Self::ExpectStartup
            | Self::ExpectSaslInitial(_)
            | Self::ExpectSaslResponse(_)
            | Self::Proving(_)
            | Self::Asking(_)
            | Self::Checking(_) => false,
        }
    }
}

/// What is being found out about a client.
#[derive(Debug)]
pub enum Checking {
    /// The name of the operating system's user who it is; whom that one may be.
    Peer(Option<Arc<IdentMap>>),
    /// Whether this is its password.
    Password { judge: Judge, password: Password },
}

/// Who says whether a password is right, if not we.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judge {
    Ldap(Arc<LdapOptions>),
    Pam,
}

impl Judge {
    /// What a client is told whose password is wrong.
    pub(crate) fn refusal(&self) -> &'static str {
        match self {
            Self::Ldap(_) => "LDAP authentication failed",
            Self::Pam => "PAM authentication failed",
        }
    }
}

/// A password in clear. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A client that waits for the answer to `auth_query`.
#[derive(Debug)]
pub struct Asking {
    pub pool: PoolId,
    pub query: Box<str>,
    /// Its place in the pool's queue, while it has no server.
    pub waiter: Option<Waiter>,
}

/// A client whose password only the server can judge.
pub struct Proving {
    pub pool: PoolId,
    pub password: Vec<u8>,
    /// Its place in the pool's queue, while there is no room for the login.
    pub waiter: Option<Waiter>,
}

impl std::fmt::Debug for Proving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proving").field("waiter", &self.waiter).finish_non_exhaustive()
    }
}

impl Login {
    /// The pool it waits for a server of, and its place in the queue.
    pub fn wait(&self) -> Option<(PoolId, Waiter)> {
        match &self.step {
            LoginStep::Asking(asking) => asking.waiter.map(|waiter| (asking.pool, waiter)),
            LoginStep::Proving(proving) => proving.waiter.map(|waiter| (proving.pool, waiter)),
            _ => None,
        }
    }
}

/// What a user of `auth_file` or `auth_query` has to know.
pub struct Credential {
    pub secret: Secret,
    /// For SCRAM, of a plain password; worked out when it is first needed.
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

    /// What a client is checked against by SCRAM. An empty secret is nobody's: nothing the client
    /// could say is right. The salt is for a secret that has none, and always the same for its user.
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

/// How many answers of `auth_query` are kept.
const ASKED_MAX: usize = 4_096;
/// How many users are looked at in search of one whose keys can be derived.
const LOOKED_AT_MAX: usize = 1_000;

/// The credentials seen so far of one configuration: parsing them and deriving SCRAM keys from
/// plain passwords is done once per user.
#[derive(Debug, Default)]
pub struct Credentials {
    stored: HashMap<String, Arc<Credential>, RandomState>,
    /// By user, what `auth_query` has told. It is asked anew at each login; this saves work when
    /// it tells the same.
    asked: HashMap<String, Arc<Credential>, RandomState>,
    /// Up to which user of `auth_file` keys were derived before they were needed.
    ahead: String,
}

impl Credentials {
    /// Of a user in `auth_file`.
    pub fn of_user(&mut self, config: &Config, user: &str) -> Option<Arc<Credential>> {
        if let Some(known) = self.stored.get(user) {
            return Some(known.clone());
        }
        let secret = config.secret_of(user)?;
        let credential = Arc::new(Credential::new(Secret::parse(secret)));
        self.stored.insert(user.to_owned(), credential.clone());
        Some(credential)
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

    /// Of a user whom `auth_query` told of.
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

/// How a client has to prove itself.
#[derive(Clone, Debug)]
pub enum Method {
    Any,
    Trust,
    Password,
    Md5,
    ScramSha256,
    Peer(Option<Arc<IdentMap>>),
    Cert(Option<Arc<IdentMap>>),
    /// By a password that somebody else judges.
    Judged(Judge),
    /// By nothing at all, with these words.
    Rejected(&'static str),
}

impl Method {
    /// What the configuration says.
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
                None => Self::Rejected("auth_ldap_options is null"),
            },
            AuthType::Cert => Self::Cert(None),
            AuthType::Pam => Self::Judged(Judge::Pam),
            AuthType::Hba => match config.hba.rule(visitor) {
                Some(rule) => Self::of_rule(rule),
                None => Self::Rejected("no authentication method is found"),
            },
        }
    }

    fn of_rule(rule: &hba::Rule) -> Self {
        match &rule.method {
            hba::Method::Trust => Self::Trust,
            hba::Method::Reject => Self::Rejected("login rejected"),
            hba::Method::Md5 => Self::Md5,
            hba::Method::Password => Self::Password,
            hba::Method::ScramSha256 => Self::ScramSha256,
            hba::Method::Peer => Self::Peer(rule.map.clone()),
            hba::Method::Cert => Self::Cert(rule.map.clone()),
            hba::Method::Ldap(options) => Self::Judged(Judge::Ldap(options.clone())),
            hba::Method::Pam => Self::Judged(Judge::Pam),
        }
    }
}

/// The challenge a client gets.
#[derive(Clone, Debug)]
pub enum Challenge {
    /// None: it is in.
    None,
    Cleartext,
    /// The same, and somebody else judges it.
    Judged(Judge),
    Md5,
    Scram,
    /// It need not say anything, nor here: its operating system or its certificate does.
    Peer(Option<Arc<IdentMap>>),
    Cert(Option<Arc<IdentMap>>),
    /// None, and it is out, with these words.
    Refused(&'static str),
}

/// Which challenge is due. An unknown user is challenged like any other.
pub fn challenge(method: Method, credential: Option<&Credential>) -> Challenge {
    let is_scram = credential.is_some_and(|known| matches!(known.secret, Secret::Scram(_)));
    match method {
        Method::Any => Challenge::None,
        Method::Trust if credential.is_some() => Challenge::None,
        Method::Trust => Challenge::Refused("\"trust\" authentication failed"),
        Method::Password => Challenge::Cleartext,
        Method::Md5 if is_scram => Challenge::Scram,
        Method::Md5 => Challenge::Md5,
        Method::ScramSha256 => Challenge::Scram,
        Method::Peer(map) => Challenge::Peer(map),
        Method::Cert(map) => Challenge::Cert(map),
        Method::Judged(judge) => Challenge::Judged(judge),
        Method::Rejected(why) => Challenge::Refused(why),
    }
}
