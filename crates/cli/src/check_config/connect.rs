//! `--connect`: logs in to each database as its pool would, and compares the sizes of the pools of
//! each server with the connections that the server allows.

use std::{collections::BTreeMap, fmt::Write as _};

use config::{AccessPolicy, Config, Database, Node, PoolMode};
use load::probe::{Answer, Probe};
use proxy::{CallerTls, TlsContexts};
use wire::secret::Secret;

use crate::checks::{Finding, Level};

/// The connections that a server allows, and those kept for superusers and the like.
const CAPACITY: &str = "SELECT COALESCE(pg_catalog.sum(setting::int) FILTER (WHERE name = \
    'max_connections'), 0), COALESCE(pg_catalog.sum(setting::int) FILTER (WHERE name <> \
    'max_connections'), 0) FROM pg_catalog.pg_settings WHERE name IN ('max_connections', \
    'superuser_reserved_connections', 'reserved_connections')";

/// May the user see what a WAL receiver does?
const MONITOR: &str = "SELECT pg_catalog.pg_has_role('pg_monitor', 'member')";

/// The severity of a server that refuses a login, in libpq's words.
const REFUSED: &str = "FATAL:";

/// Users that are tried at a database at most.
const LOGINS_MAX: usize = 3;

type Row = Vec<Option<String>>;

/// Asks for the identity of a server: its system identifier and its start.
const IDENTITY: &str = "SELECT s.system_identifier || ' ' || pg_catalog.date_part('epoch', \
    pg_catalog.pg_postmaster_start_time()) FROM pg_catalog.pg_control_system() s";

/// The result of dialing every database.
#[derive(Default)]
pub(super) struct Dialled {
    /// One line for each host of a database, then one for each server.
    pub(super) lines: String,
    pub(super) findings: Vec<Finding>,
}

/// One server, which several databases may share.
#[derive(Default)]
struct Server {
    /// Ordinary connections that it allows, if it said so.
    allows: Option<u64>,
    pools: Pools,
}

/// The pools of a server.
#[derive(Clone, Copy, Default)]
struct Pools {
    count: u64,
    connections: u64,
    /// Some pool has no size, or its users are not known before they log in.
    is_open_ended: bool,
}

pub(super) fn all(config: &Config) -> Dialled {
    let mut dialled = Dialled::default();
    let mut config = config.clone();
    dialled.find_nodes(&mut config);
    let config = &config;
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    // If it cannot be loaded, another finding says so.
    let tls = TlsContexts::load(config).unwrap_or_default();
    for database in config.databases.values() {
        for (host, port) in config.addresses(database) {
            let host = host.to_string();
            let server = servers.entry(format!("{host}, port {port}")).or_default();
            server.pools.add(pools(config, database));
            let line = match ask(config, database, (&host, port), &tls) {
                Ok(Found { line, allows, refused }) => {
                    server.allows = allows.or(server.allows);
                    dialled.findings.extend(refused);
                    line
                }
                Err(reason) => {
                    let position = config.positions.of_database(&database.name);
                    dialled.findings.push(Finding::new(Level::Fails, &position, &reason));
                    reason
                }
            };
            let _ = writeln!(dialled.lines, "  {}: {line}", database.name);
        }
    }
    dialled.ask_clusters(config, &tls);
    if config.fallback.is_some() {
        dialled.lines += "  *: not tried, since the client names the database\n";
    }
    for (name, server) in &servers {
        let pools = server.pools.limited(config);
        let line = format!("server {name}: {}", pools.in_words(server.allows));
        let _ = writeln!(dialled.lines, "  {line}");
        if server.allows.is_some_and(|allows| pools.connections > allows) {
            let position = config.positions.of_key("default_pool_size");
            dialled.findings.push(Finding::new(Level::Warns, &position, line));
        }
    }
    dialled
}

impl Dialled {
    /// Has Patroni or DNS name the nodes of the clusters that want it.
    fn find_nodes(&mut self, config: &mut Config) {
        let whole = config.clone();
        for (name, cluster) in &mut config.clusters {
            if !cluster.is_discovered() {
                continue;
            }
            let line = match proxy::find_nodes(&whole, cluster) {
                Ok(nodes) => {
                    let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
                    let line = format!("{} names the nodes {}", cluster.source(), names.join(", "));
                    cluster.nodes = nodes;
                    line
                }
                Err(why) => self.object(name, why),
            };
            let _ = writeln!(self.lines, "  cluster {name}: {line}");
        }
    }

    /// Logs in to each node of each cluster as Weir does for its own connection.
    fn ask_clusters(&mut self, config: &Config, tls: &TlsContexts) {
        let context = tls.servers(&config.global.server_tls());
        for (name, cluster) in &config.clusters {
            let context = match context {
                Ok(context) => context,
                Err(why) => {
                    let line = self.object(name, why.to_string());
                    let _ = writeln!(self.lines, "  cluster {name}: {line}");
                    continue;
                }
            };
            let mut answers = Vec::new();
            let stored = || plain(config, &cluster.user);
            let password = cluster.password.clone().or_else(stored);
            for (at, node) in cluster.nodes.iter().enumerate() {
                let host = node.host.to_string();
                let probe = Probe {
                    host: &host,
                    port: node.port,
                    user: &cluster.user,
                    database: &cluster.dbname,
                    password: password.as_deref(),
                    tls: CallerTls::of_pooler(context, &host),
                    timeout: Some(cluster.health_timeout),
                };
                self.compare_addresses(config, name, node, &probe);
                let line = match ask_node(&probe) {
                    Ok(state) => {
                        answers.extend(state.map(|state| (at, state)));
                        format!("node {}: logged in as {}", node.name, cluster.user)
                    }
                    Err(why) => self.object(name, format!("node {}: {why}", node.name)),
                };
                let _ = writeln!(self.lines, "  cluster {name}: {line}");
            }
            if let Some(risk) = proxy::risk_of(cluster, &answers) {
                let line = self.object(name, format!("a failover may lose commits: {risk}"));
                let _ = writeln!(self.lines, "  cluster {name}: {line}");
            }
        }
    }

    /// Asks each address of a node's name which server is there. They must all be of one server.
    fn compare_addresses(
        &mut self,
        config: &Config,
        cluster: &str,
        node: &Node,
        probe: &Probe<'_>,
    ) {
        if !node.is_named() {
            return;
        }
        // Without an address, the login says why.
        let addresses = proxy::addresses_of(config, node).unwrap_or_default();
        let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for address in addresses {
            let address = address.to_string();
            let probe = Probe { host: &address, tls: probe.tls.clone(), ..*probe };
            // An address that does not answer tells nothing.
            if let Ok(Answer::Rows(_, rows)) = probe.ask(IDENTITY)
                && let Some(server) = rows.into_iter().next().and_then(|row| row.into_iter().next())
            {
                servers.entry(server.unwrap_or_default()).or_default().push(address);
            }
        }
        if servers.len() > 1 {
            let list: Vec<_> = servers.into_values().map(|own| own.join(", ")).collect();
            let list = list.join(" and ");
            let line = self.object(
                cluster,
                format!(
                    "node {}: the addresses {list} of {} are different servers, and Weir uses one of \
                     them alone: give each server a name of its own",
                    node.name, node.host
                ),
            );
            let _ = writeln!(self.lines, "  cluster {cluster}: {line}");
        }
    }

    /// Reports a cluster whose nodes Weir cannot watch. Returns the reason.
    fn object(&mut self, cluster: &str, reason: String) -> String {
        // A node may be down at the moment, and the cluster works nevertheless.
        self.findings.push(Finding::new(Level::Warns, &format!("cluster {cluster}"), &reason));
        reason
    }
}

/// Logs in to a node. Returns its state, if it tells that.
///
/// # Errors
/// Why Weir cannot watch the node.
fn ask_node(probe: &Probe<'_>) -> Result<Option<Row>, String> {
    let ask = |sql| match (Probe { tls: probe.tls.clone(), ..*probe }).ask(sql)? {
        Answer::Rows(_, rows) => Ok(rows.into_iter().next()),
        Answer::WantsPassword => Err(format!("no plain password of user {} is known", probe.user)),
    };
    let may = ask(MONITOR)?.and_then(|row| row.into_iter().next().flatten());
    if may.as_deref() != Some("t") {
        return Err(format!(
            "user {} lacks the role pg_monitor, so Weir does not see whether a standby streams",
            probe.user
        ));
    }
    Ok(ask(proxy::NODE_QUESTION).ok().flatten())
}

impl Pools {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.connections += other.connections;
        self.is_open_ended |= other.is_open_ended;
    }

    /// Applies the limit on all servers together.
    fn limited(self, config: &Config) -> Self {
        let max = u64::from(config.global.max_server_connections);
        match max > 0 && (self.is_open_ended || self.connections > max) {
            true => Self { connections: max, is_open_ended: false, ..self },
            false => self,
        }
    }

    /// Compares the pools with the connections that their server allows, if it said so.
    fn in_words(self, allows: Option<u64>) -> String {
        let Self { count, connections, is_open_ended } = self;
        let bound = if is_open_ended { "at least" } else { "at most" };
        let plural = if count == 1 { "" } else { "s" };
        let pools = format!("{count} pool{plural} with {bound} {connections} connections");
        match allows {
            None => pools,
            Some(allows) => format!("{pools}; it allows {allows}"),
        }
    }
}

/// The pools that `database` may have, one for each user, and their connections together.
fn pools(config: &Config, database: &Database) -> Pools {
    let looks_up = config.global.auth_user.is_some() || database.auth_user.is_some();
    let (users, looks_up): (Vec<&str>, bool) = match (&database.user, &config.access) {
        (Some(user), _) | (None, AccessPolicy::UrlUser { user, .. }) => (vec![user], false),
        (None, AccessPolicy::ProvenByServer) => (Vec::new(), true),
        (None, AccessPolicy::Configured) => (users(config).collect(), looks_up),
    };
    let mut pools = Pools { is_open_ended: looks_up || users.is_empty(), ..Pools::default() };
    for user in users {
        let size = u64::from(config.pool_size(database, user));
        let reserve = u64::from(config.reserve_pool_size(database, user));
        let wanted = if size == 0 { 0 } else { size + reserve };
        pools.count += 1;
        pools.is_open_ended |= size == 0;
        pools.connections += match u64::from(config.max_user_connections(user)) {
            0 => wanted,
            max => wanted.min(max),
        };
    }
    let max = u64::from(config.max_db_connections(database));
    if max > 0 {
        pools.connections = pools.connections.min(max);
        pools.is_open_ended &= pools.connections < max;
    }
    pools
}

/// Returns the users of `auth_file` that use databases. The console's users need no servers.
fn users(config: &Config) -> impl Iterator<Item = &str> {
    let global = &config.global;
    let is_of_console =
        |user: &String| global.admin_users.contains(user) || global.stats_users.contains(user);
    let all = config.auth_file.users.keys();
    all.filter(move |user| !is_of_console(user)).map(String::as_str)
}

/// Logs in as a pool of the database would, and asks for the connections that the server allows.
/// Returns the user, and the answer.
///
/// # Errors
/// Why no server answered, or what it said.
pub(crate) fn dial(
    config: &Config,
    database: &Database,
    place: (&str, u16),
    tls: &TlsContexts,
) -> Result<(String, Answer), String> {
    dial_and_try(config, database, place, tls, &[]).map(|(user, answer, _)| (user, answer))
}

/// Does the same, and executes each of `others`, whose errors it returns as well.
///
/// Several users may have to be tried: each may have rights in some databases only.
fn dial_and_try(
    config: &Config,
    database: &Database,
    (host, port): (&str, u16),
    tls: &TlsContexts,
    others: &[&str],
) -> Result<(String, Answer, Vec<Option<String>>), String> {
    let timeout = config.global.server_connect_timeout;
    let context = tls.servers(&config.server_tls(database)).map_err(|why| why.to_string())?;
    let (mut refusal, mut without_password) = (None, None);
    for Login { user, password, is_guess } in logins(config, database) {
        let probe = Probe {
            host,
            port,
            user: &user,
            database: database.dbname(),
            password: password.as_deref(),
            tls: CallerTls::of_pooler(context, host),
            timeout: (!timeout.is_zero()).then_some(timeout),
        };
        match probe.ask_and_try(CAPACITY, others) {
            Ok((Answer::WantsPassword, _)) => without_password = Some(user),
            Ok((answer @ Answer::Rows(..), errors)) => return Ok((user, answer, errors)),
            Err(reason) if !reason.contains(REFUSED) => return Err(reason),
            // The role need not exist.
            Err(_) if is_guess => without_password = Some(user),
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    match (refusal, without_password) {
        (None, Some(user)) => Ok((user, Answer::WantsPassword, Vec::new())),
        (refusal, _) => Err(refusal.unwrap_or_default()),
    }
}

/// The result of a login to a server.
struct Found {
    /// The line to print.
    line: String,
    /// The ordinary connections that the server allows, if it said so.
    allows: Option<u64>,
    /// The queries of keys that the server refuses.
    refused: Vec<Finding>,
}

/// The queries that a pool of the database runs on its servers, each with its key, and where the key
/// is set. In the order in which Weir runs them.
fn own_queries<'a>(config: &'a Config, database: &'a Database) -> Vec<(&'a str, String, &'a str)> {
    let global = &config.global;
    let mut logins = logins(config, database).into_iter();
    let resets = logins.any(|login| config.pool_mode(database, &login.user) == PoolMode::Session);
    let of_key = |key: &'static str, sql: &'a str| (key, config.positions.of_key(key), sql);
    let mut all = Vec::new();
    if let Some(sql) = &database.connect_query {
        all.push(("connect_query", config.positions.of_database(&database.name), sql.as_str()));
    }
    if global.server_check_query != "<empty>" {
        all.push(of_key("server_check_query", &global.server_check_query));
    }
    if resets || global.server_reset_query_always {
        all.push(of_key("server_reset_query", &global.server_reset_query));
    }
    all.retain(|(_, _, sql)| !sql.is_empty());
    all
}

/// Logs in and tries the queries of the pool's keys.
fn ask(
    config: &Config,
    database: &Database,
    (host, port): (&str, u16),
    tls: &TlsContexts,
) -> Result<Found, String> {
    let queries = own_queries(config, database);
    let texts: Vec<_> = queries.iter().map(|(_, _, sql)| *sql).collect();
    let (user, answer, errors) = dial_and_try(config, database, (host, port), tls, &texts)?;
    let refused = queries.iter().zip(errors).filter_map(|((key, position, _), error)| {
        let reason = format!("{key} fails in database {}: {}", database.name, error?);
        Some(Finding::new(Level::Warns, position, reason))
    });
    let refused = refused.collect();
    let (line, allows) = match answer {
        Answer::WantsPassword if database.password_command.is_some() => {
            let line = format!(
                "not tried: {host}, port {port} answers, but its password comes from a program, which \
                 check-config does not run"
            );
            (line, None)
        }
        Answer::WantsPassword => {
            let whose = match logins(config, database).iter().any(|login| login.is_guess) {
                true => "a user of the database".to_owned(),
                false => format!("user {user}"),
            };
            let line = format!(
                "not tried: {host}, port {port} answers, but no plain password of {whose} is known"
            );
            (line, None)
        }
        Answer::Rows(address, rows) => {
            let number =
                |at: usize| -> Option<u64> { rows.first()?.get(at)?.as_deref()?.parse().ok() };
            let allows = number(0).zip(number(1)).map(|(all, kept)| all.saturating_sub(kept));
            (format!("logged in as {user} at {address}"), allows.filter(|allows| *allows > 0))
        }
    };
    Ok(Found { line, allows, refused })
}

/// A user to log in as.
struct Login {
    user: String,
    /// The password, if it is known in clear.
    password: Option<String>,
    /// No user of the database is known.
    is_guess: bool,
}

/// Returns the users to try at a database, at least one: the user of the entry; else the user of
/// `auth_query`, if the query runs there, and users of `auth_file`. A user of the console is not
/// tried, since it may have no rights at the server.
fn logins(config: &Config, database: &Database) -> Vec<Login> {
    let certain = |user: &str, password| Login { user: user.to_owned(), password, is_guess: false };
    if let AccessPolicy::UrlUser { user, password } = &config.access {
        return vec![certain(user, Some(password.clone()))];
    }
    if let Some(user) = &database.user {
        let own = database.password.clone().filter(|password| !password.is_empty());
        // A password of `auth_file` would not be the one of the program.
        let stored = || plain(config, user).filter(|_| database.password_command.is_none());
        return vec![certain(user, own.or_else(stored))];
    }
    let global = &config.global;
    let auth_user = database.auth_user.as_deref().or(global.auth_user.as_deref());
    let auth_dbname = database.auth_dbname.as_ref().or(global.auth_dbname.as_ref());
    let looks_up_here = auth_dbname.is_none_or(|name| *name == database.name);
    let asks = auth_user.filter(|_| looks_up_here);
    let others = users(config).filter(|user| asks != Some(user));
    let known = asks.into_iter().chain(others);
    let known = known.filter_map(|user| Some(certain(user, Some(plain(config, user)?))));
    let mut all: Vec<_> = known.take(LOGINS_MAX).collect();
    if all.is_empty() {
        let user = asks.or_else(|| users(config).next()).unwrap_or(config::CONSOLE_USER);
        all.push(Login { user: user.to_owned(), password: None, is_guess: true });
    }
    all
}

/// Returns the password of a user of `auth_file`, if it is there in clear text.
fn plain(config: &Config, user: &str) -> Option<String> {
    match Secret::parse(config.auth_file.users.get(user)?) {
        Secret::Plain(password) if !password.is_empty() => Some(password),
        Secret::Plain(_) | Secret::Md5(_) | Secret::Scram(_) => None,
    }
}
