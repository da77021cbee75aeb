//! The configuration of one pool. It is computed when the pool is created and after a reload, never
//! during a query.

use std::path::PathBuf;
use std::sync::Arc;

use config::{
    Config, Database, Host, LoadBalanceHosts, Node, PasswordCommand, Pattern, PoolMode, Proxied,
    ReuseAfterError, ServerTls, Spares, Unsupported,
};
use serde::{Deserialize, Serialize};
use wire::scram::ScramVerifier;
use wire::secret::Secret;

use crate::admission::limits::ServerLimits;
use crate::ids::Micros;
use crate::routing::Place;
use crate::routing::rules::{ReadRules, Routing};

/// Default for prepared statements per server in auto mode, if the configuration has 0.
const AUTO_STATEMENTS_MAX: u32 = 200;

/// A pool's key: the database as clients name it, the user that servers log in as, and its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    pub database: String,
    pub user: String,
    pub place: Place,
}

/// The node of a cluster that accepts writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primary {
    pub target: Target,
    /// PostgreSQL begins a new one with each promotion. So another node behind the same address is
    /// another primary.
    pub timeline: u32,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Host name or address, and port.
    Tcp(String, u16),
    /// The path of the socket.
    Unix(PathBuf),
    /// A socket in Linux's abstract name space.
    Abstract(String),
    /// A node of a cluster whose host is a name, and its port. Of the addresses of this name, Weir
    /// uses the one at which it asks the node for its state.
    Node(String, u16),
}

#[derive(Clone, Debug)]
pub struct PoolSettings {
    pub mode: PoolMode,
    /// Why the configuration does not let the pool be direct.
    pub proxied: Option<Proxied>,
    /// The rules for reads on standbys, if the database has a cluster and wants them.
    pub reads: Option<ReadRules>,
    /// Set if a request of an idle client is read before a pool is chosen.
    pub routing: Option<Arc<Routing>>,
    /// Maximal number of servers; 0 = no limit.
    pub size: u32,
    /// Additional servers when a client has waited for `reserve_timeout`.
    pub reserve: u32,
    /// 0 = the reserve is not used.
    pub reserve_timeout: Micros,
    /// Servers that are kept open while the pool is in use.
    pub min_size: u32,
    /// Idle servers beyond the demand.
    pub spares: Spares,
    pub limits: ServerLimits,
    /// The pool's weight when pools compete under these limits.
    pub weight: u32,
    pub round_robin: bool,
    /// The cluster whose primary is the only target. Its nodes are the targets until the primary is
    /// known, and the gate is shut so long.
    pub cluster: Option<String>,
    /// Do clients keep their connections when a server is lost? They do in a cluster.
    pub keeps_clients: bool,
    /// Time that a client waits for a primary; 0 = no limit.
    pub failover_wait: Micros,
    /// Time that a node may take to answer.
    pub health_timeout: Micros,
    /// One of them is chosen for each new server.
    pub targets: Vec<Target>,
    pub load_balance_hosts: LoadBalanceHosts,
    /// The messages of the welcome that tell clients about the pooler.
    pub introduction: Vec<u8>,
    /// The TLS settings for servers; none if all servers use unix sockets.
    pub tls: Arc<ServerTls>,
    /// The parameters of the startup packet.
    pub startup: Vec<(String, String)>,
    /// The password of the pool's user, or its hash, if the configuration has one.
    pub secret: Option<Secret>,
    /// The program that prints the password for each login, instead of the secret.
    pub password_command: Option<Arc<PasswordCommand>>,
    /// Do all clients use these credentials (`user=` in `[databases]`), or does the secret belong
    /// to the client's user?
    pub forced_user: bool,
    /// Run on each new server before a client gets it; empty = nothing.
    pub connect_query: String,
    pub reset_query: String,
    pub reset_always: bool,
    /// Is a server closed after a failed transaction, instead of reset?
    pub needs_success: bool,
    /// Empty = no check. PgBouncer's `<empty>` (an empty query) is kept as a single blank.
    pub check_query: String,
    pub check_delay: Micros,
    /// 0 = servers are not asked.
    pub role_check_interval: Micros,
    /// OID of the role that servers log in as, if the library in the server tells it.
    pub role: Option<u32>,
    pub server_lifetime: Micros,
    /// Number of times that a server is given to clients; `u64::MAX` = no limit.
    pub server_max_uses: u64,
    /// Private memory of a server's process in bytes; 0 = no limit.
    pub server_max_memory: u64,
    pub server_idle_timeout: Micros,
    pub server_connect_timeout: Micros,
    pub server_login_retry: Micros,
    pub max_prepared_statements: u32,
    pub idle_transaction_timeout: Micros,
    pub transaction_timeout: Micros,
    pub query_timeout: Micros,
    /// The time that a client may keep a pinned server unused.
    pub pin_timeout: Micros,
    pub auto_unsupported: Unsupported,
    pub pin_functions: Vec<Pattern>,
    /// The timeout of clients whose user has none.
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
        let cluster = database.cluster.as_ref().and_then(|name| config.clusters.get(name));
        let secret = server_secret(config, database, user);
        let forced_user = database.user.as_deref() == Some(user);
        // A backend that serves the pool's lobby serves each of its clients.
        let proxied = config
            .proxied(database, user)
            .or_else(|| own_verifier(forced_user, secret.as_ref()).map(|_| Proxied::OwnKeys));
        Self {
            mode: config.pool_mode(database, user),
            proxied,
            reads: ReadRules::of(config, database, user),
            routing: None,
            size: config.pool_size(database, user),
            reserve: config.reserve_pool_size(database, user),
            reserve_timeout: micros(global.reserve_pool_timeout),
            min_size: config.min_pool_size(database),
            spares: config.spares(database),
            limits: ServerLimits {
                database: config.max_db_connections(database),
                user: config.max_user_connections(user),
                process: global.max_server_connections,
            },
            weight: config.pool_weight(database, user),
            round_robin: global.server_round_robin,
            cluster: database.cluster.clone(),
            keeps_clients: cluster.is_some(),
            failover_wait: cluster.map_or(0, |cluster| micros(cluster.failover_wait)),
            health_timeout: cluster.map_or(0, |cluster| micros(cluster.health_timeout)),
            targets: targets(config, database),
            tls: tls(config, database),
            load_balance_hosts: database.load_balance_hosts,
            introduction: introduction(config, config.pool_mode(database, user)),
            startup: startup_parameters(database, user),
            secret,
            password_command: password_command(database, user).map(Arc::new),
            forced_user,
            connect_query: database.connect_query.clone().unwrap_or_default(),
            reset_query: global.server_reset_query.clone(),
            reset_always: global.server_reset_query_always,
            needs_success: config.reuse_after_error(database, user) == ReuseAfterError::Never,
            check_query,
            check_delay: micros(global.server_check_delay),
            role_check_interval: micros(global.role_check_interval),
            role: config.hba.roles.get(user).copied(),
            server_lifetime: own(database.server_lifetime, global.server_lifetime),
            server_max_uses: match config.server_max_uses(database) {
                0 => u64::MAX,
                uses => uses.into(),
            },
            server_max_memory: config.server_max_memory(database),
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

    /// Returns the settings of the pool with this key. A reader's servers are at its node.
    pub fn of_key(config: &Config, database: &Database, key: &PoolKey) -> Self {
        let mut settings = Self::new(config, database, &key.user);
        if let Place::Reader(node) = key.place {
            settings.reads = None;
            let cluster = database.cluster.as_ref().and_then(|name| config.clusters.get(name));
            let node = cluster.and_then(|cluster| cluster.nodes.get(usize::from(node.0)));
            if let Some(node) = node {
                settings.targets = vec![Target::of_node(node)];
            }
        }
        settings
    }

    /// Returns the verifier of the forced user, if the configuration has no password of that user.
    /// Then only a login of this user yields the keys for logins to servers, and only this user's
    /// clients may use these servers.
    pub fn own_verifier(&self) -> Option<&ScramVerifier> {
        own_verifier(self.forced_user, self.secret.as_ref())
    }

    /// Would a server opened with the other settings be the same? As in PgBouncer, a changed
    /// password does not matter to a logged-in server, nor do session parameters. Another
    /// `password_command` matters, since its passwords end at other times. It matters whether other
    /// users may use the server ([`PoolSettings::own_verifier`]). Changed contents
    /// of TLS files do not matter either. The pool mode matters: only auto mode knows what clients
    /// have left on a server, and only session mode resets it.
    pub fn leads_to_the_same(&self, other: &Self) -> bool {
        let login = |settings: &Self| {
            let names = settings.startup.iter();
            let login = names.filter(|(name, _)| matches!(name.as_str(), "user" | "database"));
            login.cloned().collect::<Vec<_>>()
        };
        self.targets == other.targets
            && self.tls == other.tls
            && self.forced_user == other.forced_user
            && self.own_verifier().is_some() == other.own_verifier().is_some()
            && self.password_command == other.password_command
            && self.connect_query == other.connect_query
            && self.mode == other.mode
            && login(self) == login(other)
    }

    /// Returns what [`PoolSettings::leads_to_the_same`] compares, except the mode, as a text for
    /// another process.
    pub fn destination(&self) -> String {
        let login = self.startup.iter();
        let login = login.filter(|(name, _)| matches!(name.as_str(), "user" | "database"));
        let login = login.collect::<Vec<_>>();
        let beginning = &self.connect_query;
        let Self { targets, tls, forced_user, .. } = self;
        let is_own = self.own_verifier().is_some();
        let mut text =
            format!("{targets:?} {tls:?} {login:?} {forced_user} {is_own} {beginning:?}");
        if let Some(command) = &self.password_command {
            text += &format!(" {}", command_text(command));
        }
        text
    }

    /// Are statements refused that need a session of their own?
    pub fn refuses(&self) -> bool {
        self.auto_unsupported == Unsupported::Error
    }

    /// Returns the user that servers log in as.
    pub fn login_user(&self) -> &str {
        let user = self.startup.iter().find(|(name, _)| name == "user");
        user.map_or("", |(_, user)| user)
    }

    /// Returns the name of the database in PostgreSQL.
    pub fn database_name(&self) -> &str {
        let database = self.startup.iter().find(|(name, _)| name == "database");
        database.map_or("", |(_, database)| database)
    }

    pub fn is_session(&self) -> bool {
        self.mode == PoolMode::Session
    }

    /// Are clients' sessions carried from server to server?
    pub fn is_auto(&self) -> bool {
        self.mode == PoolMode::Auto
    }

    /// Is one of the targets on this host?
    pub(crate) fn leads_to(&self, host: &str) -> bool {
        self.targets.iter().any(|target| matches!(target, Target::Tcp(name, _) if name == host))
    }

    /// Does this text pin the server to its client (`pin_functions`)?
    pub fn pins(&self, text: &[u8]) -> bool {
        let patterns = &self.pin_functions;
        !patterns.is_empty() && {
            let text = String::from_utf8_lossy(text);
            patterns.iter().any(|pattern| pattern.matches(&text))
        }
    }

    /// Is `server_reset_query` run when a client gives back a server of this mode?
    pub fn resets(&self, mode: PoolMode) -> bool {
        !self.reset_query.is_empty() && (mode == PoolMode::Session || self.reset_always)
    }

    /// Does Weir translate names of prepared statements on a server of this mode? In session mode a
    /// client keeps its server, so the names are passed on unchanged.
    pub fn tracks_statements(&self, mode: PoolMode) -> bool {
        mode != PoolMode::Session && self.max_prepared_statements > 0
    }
}

/// Returns the nodes of the database's cluster, else its hosts.
fn targets(config: &Config, database: &Database) -> Vec<Target> {
    match database.cluster.as_ref().and_then(|name| config.clusters.get(name)) {
        Some(cluster) => cluster.nodes.iter().map(Target::of_node).collect(),
        None => {
            let addresses = config.addresses(database);
            addresses.iter().map(|(host, port)| Target::new(host, *port)).collect()
        }
    }
}

fn tls(config: &Config, database: &Database) -> Arc<ServerTls> {
    match config.is_remote(database) {
        true => Arc::new(config.server_tls(database)),
        false => Arc::default(),
    }
}

impl Target {
    pub fn of_node(node: &Node) -> Self {
        if let Host::Tcp(name) = &node.host
            && node.is_named()
        {
            return Self::Node(name.clone(), node.port);
        }
        Self::new(&node.host, node.port)
    }

    pub fn new(host: &Host, port: u16) -> Self {
        match host {
            Host::Tcp(name) => Self::Tcp(name.clone(), port),
            Host::Unix(folder) => Self::Unix(folder.join(format!(".s.PGSQL.{port}"))),
            Host::Abstract(name) => Self::Abstract(format!("{name}/.s.PGSQL.{port}")),
        }
    }
}

/// Returns the number of prepared statements per server. Auto mode carries statements from server
/// to server, so 0 (the pooler ignores them) is not possible there.
fn statements_max(mode: PoolMode, limit: u32) -> u32 {
    match (mode, limit) {
        (PoolMode::Auto, 0) => AUTO_STATEMENTS_MAX,
        _ => limit,
    }
}

/// Returns the parameters by which drivers recognise PgBouncer (since 1.26). In auto mode Weir
/// behaves like PostgreSQL, so there are none.
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

/// Returns `password=` of the database's entry, if this is its user, else the secret in auth_file.
/// Without `user=` it has no effect, as in PgBouncer.
fn server_secret(config: &Config, database: &Database, user: &str) -> Option<Secret> {
    if password_command(database, user).is_some() {
        return None;
    }
    let is_own = database.user.as_deref() == Some(user);
    match database.password.as_ref().filter(|_| is_own) {
        Some(password) => Some(Secret::parse(password)),
        None => config.auth_file.users.get(user).map(|stored| Secret::parse(stored)),
    }
}

/// Returns a program and its `password_lifetime` as a text for another process.
pub fn command_text(command: &PasswordCommand) -> String {
    format!("{command:?}")
}

/// Returns `password_command=` of the database's entry, if this is its user.
fn password_command(database: &Database, user: &str) -> Option<PasswordCommand> {
    let is_own = database.user.as_deref() == Some(user);
    database.password_command().filter(|_| is_own)
}

fn own_verifier(forced_user: bool, secret: Option<&Secret>) -> Option<&ScramVerifier> {
    match secret {
        Some(Secret::Scram(verifier)) if forced_user => Some(verifier),
        Some(_) | None => None,
    }
}

/// Returns the settings of the pool with this key, if its database is configured.
pub fn settings_for(config: &Config, key: &PoolKey) -> Option<Arc<PoolSettings>> {
    let database = config.database(&key.database)?;
    Some(Arc::new(PoolSettings::of_key(config, &database, key)))
}
