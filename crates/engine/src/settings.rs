//! What one pool needs to know of the configuration, worked out once when the pool is made and
//! again when the configuration is reloaded, never on the path of a query.

use std::path::PathBuf;
use std::sync::Arc;

use config::{Config, Database, Host, LoadBalanceHosts, Pattern, PoolMode, Unsupported};
use wire::secret::Secret;

use crate::admission::limits::ServerLimits;
use crate::ids::Micros;

/// Statements a server keeps in auto mode where the configuration asks for none: its default.
const AUTO_STATEMENTS_MAX: u32 = 200;

/// A pool's name: the database as clients call it, and the user it logs in as.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    pub database: String,
    pub user: String,
}

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Host name or address, and port.
    Tcp(String, u16),
    /// The socket file.
    Unix(PathBuf),
    /// A socket in Linux's abstract name space.
    Abstract(String),
}

#[derive(Debug)]
pub struct PoolSettings {
    pub mode: PoolMode,
    /// Server connections at most; 0 = no limit.
    pub size: u32,
    /// Further ones when a client has waited for `reserve_timeout`.
    pub reserve: u32,
    /// 0 = the reserve stays closed.
    pub reserve_timeout: Micros,
    /// Servers kept open while the pool is in use.
    pub min_size: u32,
    pub limits: ServerLimits,
    /// Its share of these, beside other pools.
    pub weight: u32,
    pub round_robin: bool,
    /// One is chosen for each new connection.
    pub targets: Vec<Target>,
    pub load_balance_hosts: LoadBalanceHosts,
    /// The messages by which clients are told of the pooler at login.
    pub introduction: Vec<u8>,
    /// What the configuration says of TLS to servers; nothing where all are at unix sockets.
    pub tls: Vec<String>,
    /// The startup packet's parameters.
    pub startup: Vec<(String, String)>,
    /// The password or its hash, if the configuration has one for the pool's user.
    pub secret: Option<Secret>,
    /// May every client use these credentials (`user=` in `[databases]`), or is the secret the
    /// client's own?
    pub forced_user: bool,
    /// Run on each new server before anybody gets it; empty = nothing.
    pub connect_query: String,
    pub reset_query: String,
    pub reset_always: bool,
    /// Empty = never check. PgBouncer's `<empty>` (an empty query) is held as a single blank.
    pub check_query: String,
    pub check_delay: Micros,
    pub server_lifetime: Micros,
    pub server_idle_timeout: Micros,
    pub server_connect_timeout: Micros,
    pub server_login_retry: Micros,
    pub max_prepared_statements: u32,
    pub idle_transaction_timeout: Micros,
    pub transaction_timeout: Micros,
    pub query_timeout: Micros,
    /// How long a client may keep a server unused.
    pub pin_timeout: Micros,
    pub auto_unsupported: Unsupported,
    pub pin_functions: Vec<Pattern>,
    /// Of clients that have none of their own.
    pub query_wait_timeout: Micros,
}

impl PoolSettings {
    pub fn new(config: &Config, database: &Database, user: &str) -> Self {
        let global = &config.global;
        let personal = config.users.get(user);
        let micros = |time: std::time::Duration| time.as_micros() as Micros;
        let own = |time: Option<std::time::Duration>, or| time.map_or(micros(or), micros);
        let check_query = match global.server_check_query.as_str() {
            "<empty>" => " ".to_owned(),
            other => other.to_owned(),
        };
        let hosts = config.hosts(database);
        let is_remote = hosts.iter().any(|host| matches!(host, Host::Tcp(_)));
        Self {
            mode: config.pool_mode(database, user),
            size: config.pool_size(database, user),
            reserve: config.reserve_pool_size(database, user),
            reserve_timeout: micros(global.reserve_pool_timeout),
            min_size: config.min_pool_size(database),
            limits: ServerLimits {
                database: config.max_db_connections(database),
                user: config.max_user_connections(user),
                process: global.max_server_connections,
            },
            weight: config.pool_weight(database, user),
            round_robin: global.server_round_robin,
            targets: (hosts.iter().enumerate())
                .map(|(at, host)| Target::new(host, database.port.of(at)))
                .collect(),
            tls: if is_remote { global.server_tls() } else { Vec::new() },
            load_balance_hosts: database.load_balance_hosts,
            introduction: introduction(config, config.pool_mode(database, user)),
            startup: startup_parameters(database, user),
            secret: server_secret(config, database, user),
            forced_user: database.user.as_deref() == Some(user),
            connect_query: database.connect_query.clone().unwrap_or_default(),
            reset_query: global.server_reset_query.clone(),
            reset_always: global.server_reset_query_always,
            check_query,
            check_delay: micros(global.server_check_delay),
            server_lifetime: own(database.server_lifetime, global.server_lifetime),
            server_idle_timeout: micros(global.server_idle_timeout),
            server_connect_timeout: micros(global.server_connect_timeout),
            server_login_retry: micros(global.server_login_retry),
            max_prepared_statements: statements_max(
                config.pool_mode(database, user),
                global.max_prepared_statements,
            ),
            idle_transaction_timeout: own(
                personal.and_then(|user| user.idle_transaction_timeout),
                global.idle_transaction_timeout,
            ),
            transaction_timeout: own(
                personal.and_then(|user| user.transaction_timeout),
                global.transaction_timeout,
            ),
            query_timeout: own(personal.and_then(|user| user.query_timeout), global.query_timeout),
            auto_unsupported: global.auto_unsupported,
            pin_functions: global.pin_functions.clone(),
            pin_timeout: micros(global.pin_timeout),
            query_wait_timeout: own(database.query_wait_timeout, global.query_wait_timeout),
        }
    }

    /// Would a server opened by the other settings be the same one? A changed password does not
    /// matter to a server that is logged in, nor do a session's parameters; PgBouncer's rule. Other
    /// files of the same names do not matter either. The mode does: what clients have left on a server
    /// is known in auto mode only, and in session mode alone it is reset.
    pub fn leads_to_the_same(&self, other: &Self) -> bool {
        let login = |settings: &Self| {
            let names = settings.startup.iter();
            let login = names.filter(|(name, _)| matches!(name.as_str(), "user" | "database"));
            login.cloned().collect::<Vec<_>>()
        };
        self.targets == other.targets
            && self.tls == other.tls
            && self.forced_user == other.forced_user
            && self.connect_query == other.connect_query
            && self.mode == other.mode
            && login(self) == login(other)
    }

    /// What [`PoolSettings::leads_to_the_same`] compares, but for the mode, as a text for another process.
    pub fn destination(&self) -> String {
        let login = self.startup.iter();
        let login = login.filter(|(name, _)| matches!(name.as_str(), "user" | "database"));
        let login = login.collect::<Vec<_>>();
        let beginning = &self.connect_query;
        format!("{:?} {:?} {login:?} {} {beginning:?}", self.targets, self.tls, self.forced_user)
    }

    /// Is refused what needs a session of its own?
    pub fn refuses(&self) -> bool {
        self.auto_unsupported == Unsupported::Error
    }

    /// Whom servers are logged in as.
    pub fn login_user(&self) -> &str {
        let user = self.startup.iter().find(|(name, _)| name == "user");
        user.map_or("", |(_, user)| user)
    }

    pub fn is_session(&self) -> bool {
        self.mode == PoolMode::Session
    }

    /// Are clients' sessions looked after across servers?
    pub fn is_auto(&self) -> bool {
        self.mode == PoolMode::Auto
    }

    /// Does who sends this text keep the server (`pin_functions`)?
    pub fn pins(&self, text: &[u8]) -> bool {
        let patterns = &self.pin_functions;
        !patterns.is_empty() && {
            let text = String::from_utf8_lossy(text);
            patterns.iter().any(|pattern| pattern.matches(&text))
        }
    }

    /// Is `server_reset_query` run when a client gives back a server of that mode?
    pub fn resets(&self, mode: PoolMode) -> bool {
        !self.reset_query.is_empty() && (mode == PoolMode::Session || self.reset_always)
    }

    /// Are the names of prepared statements the pooler's business on a server of that mode? In session
    /// mode client and server are one pair for good, so the names go through as they are.
    pub fn tracks_statements(&self, mode: PoolMode) -> bool {
        mode != PoolMode::Session && self.max_prepared_statements > 0
    }
}

impl Target {
    pub fn new(host: &Host, port: u16) -> Self {
        match host {
            Host::Tcp(name) => Self::Tcp(name.clone(), port),
            Host::Unix(folder) => Self::Unix(folder.join(format!(".s.PGSQL.{port}"))),
            Host::Abstract(name) => Self::Abstract(format!("{name}/.s.PGSQL.{port}")),
        }
    }
}

/// A session that goes from server to server needs its statements there, so 0 (the pooler leaves
/// them alone) cannot be had in auto mode.
fn statements_max(mode: PoolMode, limit: u32) -> u32 {
    match (mode, limit) {
        (PoolMode::Auto, 0) => AUTO_STATEMENTS_MAX,
        _ => limit,
    }
}

/// The parameters by which drivers recognise PgBouncer (since 1.26) and what to expect of it. In auto mode
/// there is nothing to expect but PostgreSQL, so nothing is said.
fn introduction(config: &Config, mode: PoolMode) -> Vec<u8> {
    let mut messages = Vec::new();
    if mode != PoolMode::Auto {
        let statements = config.global.max_prepared_statements.to_string();
        for (name, value) in [
            ("pgbouncer.version", config::PGBOUNCER_VERSION),
            ("pgbouncer.pool_mode", mode.word()),
            ("pgbouncer.max_prepared_statements", &statements),
        ] {
            wire::backend::parameter_status(&mut messages, name.as_bytes(), value.as_bytes());
        }
    }
    messages
}

fn startup_parameters(database: &Database, user: &str) -> Vec<(String, String)> {
    let dbname = database.dbname.as_ref().unwrap_or(&database.name);
    let mut all =
        vec![("user".to_owned(), user.to_owned()), ("database".to_owned(), dbname.clone())];
    let optional = [
        ("client_encoding", &database.client_encoding),
        ("datestyle", &database.datestyle),
        ("timezone", &database.timezone),
        ("application_name", &database.application_name),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            all.push((name.to_owned(), value.clone()));
        }
    }
    all
}

/// `password=` of the database entry if it is this user's, else what auth_file has for it. Without `user=`
/// it has no effect, as with PgBouncer.
fn server_secret(config: &Config, database: &Database, user: &str) -> Option<Secret> {
    let is_own = database.user.as_deref() == Some(user);
    match database.password.as_ref().filter(|_| is_own) {
        Some(password) => Some(Secret::parse(password)),
        None => config.auth_file.users.get(user).map(|stored| Secret::parse(stored)),
    }
}

/// The settings of the pool of that key, if its database still is configured.
pub fn settings_for(config: &Config, key: &PoolKey) -> Option<Arc<PoolSettings>> {
    let database = config.database(&key.database)?;
    Some(Arc::new(PoolSettings::new(config, &database, &key.user)))
}
