//! Builds a [`Config`] from settings of any file format, and collects every mistake on the way.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bounds::{CONSOLE, PEER_ID_MAX, out_of_bounds};
use crate::choice::{Balance, FailoverKind, PoolMode, ReadAfterWrite, ReadsGo, WhenStale};
use crate::config::{Config, some_user_reads};
use crate::config_error::ConfigError;
use crate::error::Mistake;
use crate::key::{Key, Keyed, Scope};
use crate::peers;
use crate::positions::Positions;
use crate::reason::Reason;
use crate::source::Source;
use crate::spares::Spares;
use crate::suggest;
use crate::table::{Cluster, Database, Global, Peer, UserSettings};
use crate::value::{Kind, ValueError};
use crate::variables::{self, Lookup};

/// Longest database name in bytes, PostgreSQL's and PgBouncer's limit.
const NAME_LEN_MAX: usize = 63;

/// The position of a setting.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) file: Arc<str>,
    /// Counted from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) section: String,
    /// The database, user or peer; empty for a global key.
    pub(crate) entry: String,
}

/// One key of an entry, still text.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<Mistake>,
    /// The variables in values of secrets.
    secret_variables: BTreeSet<String>,
}

/// The origin of settings.
#[derive(Clone, Copy, Debug)]
struct Origin {
    source: Source,
    /// The environment, if values may have its variables.
    variables: Option<Lookup>,
}

/// A configuration that is being built.
#[derive(Debug)]
pub(crate) struct Builder {
    origin: Origin,
    global: Global,
    databases: BTreeMap<String, (Database, Position)>,
    users: BTreeMap<String, UserSettings>,
    peers: BTreeMap<u32, (Peer, Position)>,
    clusters: BTreeMap<String, Cluster>,
    /// In the order of the file.
    cluster_order: Vec<String>,
    positions: Positions,
    pub(crate) report: Report,
}

impl Position {
    pub(crate) fn new(file: &Arc<str>, line: usize, section: &str, entry: &str) -> Self {
        let (section, entry) = (section.to_owned(), entry.to_owned());
        Self { file: Arc::clone(file), line, section, entry }
    }

    pub(crate) fn at(&self, line: usize) -> Self {
        Self { line, ..self.clone() }
    }

    pub(crate) fn mistake(&self, key: &str, reason: Reason) -> Mistake {
        let dot = if self.entry.is_empty() || key.is_empty() { "" } else { "." };
        Mistake {
            file: Arc::clone(&self.file),
            line: self.line,
            section: self.section.clone(),
            key: format!("{}{dot}{key}", self.entry),
            reason,
            suggestion: None,
        }
    }
}

impl Report {
    pub(crate) fn error(&mut self, position: &Position, key: &str, reason: Reason) {
        self.mistakes.push(position.mistake(key, reason));
    }

    pub(crate) fn warn(&mut self, position: &Position, reason: Reason) {
        self.warnings.push(position.mistake("", reason));
    }

    /// Reports an error with the nearest valid word.
    pub(crate) fn unknown<'a>(
        &mut self,
        position: &Position,
        key: &str,
        reason: Reason,
        typed: &str,
        words: impl Iterator<Item = &'a str>,
    ) {
        let suggestion = suggest::nearest(typed, words).map(str::to_owned);
        self.mistakes.push(Mistake { suggestion, ..position.mistake(key, reason) });
    }
}

impl Builder {
    /// Returns all defaults of `source`.
    pub(crate) fn new(source: Source) -> Self {
        Self {
            origin: Origin { source, variables: None },
            global: Global::defaults(source),
            databases: BTreeMap::new(),
            users: BTreeMap::new(),
            peers: BTreeMap::new(),
            clusters: BTreeMap::new(),
            cluster_order: Vec::new(),
            positions: Positions::default(),
            report: Report::default(),
        }
    }

    /// Replaces variables in values, if there is an environment.
    pub(crate) fn with_variables(self, variables: Option<Lookup>) -> Self {
        Self { origin: Origin { variables, ..self.origin }, ..self }
    }

    /// Resets the global keys to their defaults, as each `[pgbouncer]` header does.
    pub(crate) fn reset_global(&mut self, position: &Position) {
        let defaults = Global::defaults(self.origin.source);
        if self.global != defaults {
            self.report.warn(position, Reason::MainSectionAgain);
        }
        self.global = defaults;
        self.positions.forget_keys();
    }

    pub(crate) fn global(&mut self, position: &Position, key: &str, text: &str) {
        let first = self.positions.set_key(key, &position.file, position.line);
        if let Some(first) = first.filter(|_| self.origin.source == Source::Ini) {
            self.report.warnings.push(position.mistake(key, Reason::SetAgain { first }));
        }
        assign(&mut self.global, &mut self.report, self.origin, position, key, text);
    }

    pub(crate) fn database(&mut self, position: &Position, settings: &[Setting]) {
        let name = &position.entry;
        if name == CONSOLE {
            return self.report.error(position, "", Reason::ReservedName(name.clone()));
        }
        if name.len() > NAME_LEN_MAX {
            return self.report.error(position, "", Reason::LongName { max: NAME_LEN_MAX });
        }
        self.positions.set_database(name, &position.file, position.line);
        let mut database = Database { name: name.clone(), ..Database::default() };
        self.assign_all(&mut database, position, settings);
        // Without a host there is one address to connect to.
        if !database.port.fit(database.hosts.len().max(1)) {
            let reason = Reason::NumberOfPorts(database.port.to_string());
            self.report.error(position, "port", reason);
        }
        // Here 0 means "the global key's value"; there it means no limit, or one use.
        database.max_db_connections = database.max_db_connections.filter(|max| *max > 0);
        database.max_db_client_connections =
            database.max_db_client_connections.filter(|max| *max > 0);
        database.server_lifetime = database.server_lifetime.filter(|time| !time.is_zero());
        self.check_password(&database, position);
        if self.databases.insert(name.clone(), (database, position.clone())).is_some() {
            self.report.warn(position, Reason::DefinedAgain("database"));
        }
    }

    /// Reports a password without a user, or from several sources.
    fn check_password(&mut self, database: &Database, position: &Position) {
        let sources = [
            ("password_command", database.password_command.is_some()),
            ("password_file", database.password_file.is_some()),
            ("password", database.password.is_some()),
        ];
        let mut given = sources.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| *key);
        let (first, second) = (given.next(), given.next());
        if let (Some(key), Some(_)) = (first, second) {
            self.report.error(position, key, Reason::SeveralPasswords);
        }
        // As in PgBouncer, `password` without a user has no effect.
        if let Some(key) = first.filter(|key| *key != "password" && database.user.is_none()) {
            self.report.error(position, key, Reason::PasswordWithoutUser);
        }
        if database.password_lifetime.is_zero() {
            self.report.error(position, "password_lifetime", Reason::ZeroTime("password_lifetime"));
        }
    }

    pub(crate) fn user(&mut self, position: &Position, settings: &[Setting]) {
        let mut user = UserSettings::default();
        self.assign_all(&mut user, position, settings);
        for timeout in [
            &mut user.query_timeout,
            &mut user.query_wait_timeout,
            &mut user.idle_transaction_timeout,
            &mut user.transaction_timeout,
            &mut user.client_idle_timeout,
        ] {
            *timeout = timeout.filter(|time| !time.is_zero());
        }
        if self.users.insert(position.entry.clone(), user).is_some() {
            self.report.warn(position, Reason::DefinedAgain("user"));
        }
    }

    pub(crate) fn peer(&mut self, position: &Position, settings: &[Setting]) {
        let id = position.entry.parse().ok().filter(|id| (1..=PEER_ID_MAX).contains(id));
        let Some(id) = id else {
            return self.report.error(position, "", Reason::PeerId { max: PEER_ID_MAX });
        };
        let mut peer = Peer::default();
        let mistakes = self.report.mistakes.len();
        self.assign_all(&mut peer, position, settings);
        if peer.hosts.is_empty() && self.report.mistakes.len() == mistakes {
            self.report.error(position, "", Reason::PeerWithoutHost(id));
        }
        if self.peers.insert(id, (peer, position.clone())).is_some() {
            self.report.warn(position, Reason::DefinedAgain("peer"));
        }
    }

    pub(crate) fn cluster(&mut self, position: &Position, settings: &[Setting]) {
        let mut cluster = Cluster::default();
        let mistakes = self.report.mistakes.len();
        self.assign_all(&mut cluster, position, settings);
        if self.report.mistakes.len() == mistakes {
            self.check_source_of_nodes(&cluster, position);
        }
        for (key, time) in [
            ("sample_interval", cluster.sample_interval),
            ("health_timeout", cluster.health_timeout),
            ("catalog_refresh", cluster.catalog_refresh),
            ("discovery_interval", cluster.discovery_interval),
        ] {
            if time.is_zero() {
                self.report.error(position, key, Reason::ZeroTime(key));
            }
        }
        if cluster.password.is_some() && cluster.password_file.is_some() {
            self.report.error(position, "password_file", Reason::SeveralPasswords);
        }
        if cluster.failover == FailoverKind::Own && cluster.fence_command.is_none() {
            self.report.error(
                position,
                "failover",
                Reason::OwnWithoutFence(position.entry.clone()),
            );
        }
        self.check_etcd(&cluster, position);
        self.check_virtual_address(&cluster, position);
        match self.clusters.insert(position.entry.clone(), cluster) {
            Some(_) => self.report.warn(position, Reason::DefinedAgain("cluster")),
            None => self.cluster_order.push(position.entry.clone()),
        }
    }

    /// Reports a cluster that does not say which nodes it has, or says it twice.
    fn check_source_of_nodes(&mut self, cluster: &Cluster, position: &Position) {
        let name = || position.entry.clone();
        let sources = [
            ("nodes", !cluster.nodes.is_empty()),
            ("patroni", !cluster.patroni.is_empty()),
            ("dns", !cluster.dns.is_empty()),
        ];
        let given: Vec<_> = sources.iter().filter(|(_, is_set)| *is_set).collect();
        match given[..] {
            [] => self.report.error(position, "", Reason::ClusterWithoutNodes(name())),
            [_] => {}
            [(first, _), (second, _), ..] => {
                let keys = format!("{first} and {second}");
                let reason = Reason::SeveralSourcesOfNodes { cluster: name(), keys };
                self.report.error(position, second, reason);
            }
        }
        if cluster.failover == FailoverKind::Own && cluster.is_discovered() {
            self.report.error(position, "failover", Reason::OwnWithoutNodes(name()));
        }
        for (cert, cert_file, key, key_file) in [
            (
                "patroni_cert_file",
                &cluster.patroni_cert_file,
                "patroni_key_file",
                &cluster.patroni_key_file,
            ),
            ("etcd_cert_file", &cluster.etcd_cert_file, "etcd_key_file", &cluster.etcd_key_file),
        ] {
            if cert_file.is_empty() != key_file.is_empty() {
                self.report.error(position, cert, Reason::HalfAnIdentity { cert, key });
            }
        }
        let has_patroni = !cluster.patroni.is_empty();
        for (key, is_set, needs_patroni) in [
            ("patroni_user", cluster.patroni_user.is_some(), true),
            ("patroni_password", cluster.patroni_password.is_some(), true),
            ("patroni_ca_file", !cluster.patroni_ca_file.is_empty(), true),
            ("patroni_cert_file", !cluster.patroni_cert_file.is_empty(), true),
            ("stop_command", cluster.stop_command.is_some(), false),
            ("start_command", cluster.start_command.is_some(), false),
            ("rejoin_command", cluster.rejoin_command.is_some(), false),
            ("fence_command", cluster.fence_command.is_some(), false),
        ] {
            let why = match (has_patroni, needs_patroni) {
                (false, true) => Reason::NeedsPatroni,
                (true, false) => Reason::PatroniSwitches,
                (true, true) | (false, false) => continue,
            };
            if is_set {
                self.report.warnings.push(position.mistake(key, why));
            }
        }
    }

    /// Reports mistakes in the keys for etcd.
    fn check_etcd(&mut self, cluster: &Cluster, position: &Position) {
        if cluster.etcd_user.is_some() != cluster.etcd_password.is_some() {
            self.report.error(position, "etcd_user", Reason::HalfAnEtcdUser);
        }
        let is_path = |text: &str| text.starts_with('/') && !text.ends_with('/');
        if !is_path(&cluster.etcd_prefix) {
            self.report.error(position, "etcd_prefix", Reason::NotAnEtcdPrefix);
        }
        // A slash separates the parts of the keys in etcd.
        let is_part = |text: &str| !text.is_empty() && !text.contains('/');
        if cluster.member.as_deref().is_some_and(|member| !is_part(member)) {
            self.report.error(position, "member", Reason::NotAMember);
        }
        if !cluster.etcd.is_empty() {
            return;
        }
        let usual = Cluster::default();
        for (key, is_set) in [
            ("etcd_user", cluster.etcd_user.is_some()),
            ("etcd_ca_file", cluster.etcd_ca_file != usual.etcd_ca_file),
            ("etcd_cert_file", cluster.etcd_cert_file != usual.etcd_cert_file),
            ("etcd_prefix", cluster.etcd_prefix != usual.etcd_prefix),
            ("member", cluster.member.is_some()),
        ] {
            if is_set {
                self.report.warnings.push(position.mistake(key, Reason::NeedsEtcd));
            }
        }
    }

    /// Reports mistakes in the keys for the address of several Weirs.
    fn check_virtual_address(&mut self, cluster: &Cluster, position: &Position) {
        const ADDRESS: &str = "virtual_address";
        const UP: &str = "virtual_address_up_command";
        const DOWN: &str = "virtual_address_down_command";
        let has_address = !cluster.virtual_address.is_empty();
        let has_up = cluster.virtual_address_up_command.is_some();
        let has_down = cluster.virtual_address_down_command.is_some();
        let keys = [(ADDRESS, has_address), (UP, has_up), (DOWN, has_down)];
        let Some((key, _)) = keys.into_iter().find(|(_, is_set)| *is_set) else { return };
        if cluster.etcd.is_empty() {
            self.report.error(position, key, Reason::AddressWithoutEtcd);
        }
        let own = cluster.virtual_address.iter().map(|own| own.address);
        let twice = self.clusters.iter().find_map(|(name, other)| {
            let is_other = *name != position.entry;
            let has =
                |address: &IpAddr| other.virtual_address.iter().any(|its| its.address == *address);
            let shared = own.clone().find(has);
            shared.filter(|_| is_other).map(|address| (address, name.clone()))
        });
        if let Some((address, other)) = twice {
            self.report.error(position, ADDRESS, Reason::AddressOfAnotherCluster(address, other));
        }
        let command = if has_up { UP } else { DOWN };
        match (has_address, has_up, has_down) {
            (true, false, false) | (false, true, true) | (false, false, false) => {}
            (true, _, _) => {
                self.report.error(position, command, Reason::AddressAndCommands(command));
            }
            (false, true, false) => {
                self.report.error(position, UP, Reason::HalfOfTheCommands(DOWN))
            }
            (false, false, true) => {
                self.report.error(position, DOWN, Reason::HalfOfTheCommands(UP))
            }
        }
    }

    /// Reports a database whose cluster does not exist.
    fn check_cluster(&mut self, database: &Database, position: &Position) {
        let Some(name) = &database.cluster else { return };
        if !self.clusters.contains_key(name) {
            let reason = Reason::UnknownCluster(name.clone());
            let names = self.clusters.keys().map(String::as_str);
            self.report.unknown(position, "cluster", reason, name, names);
        }
        if !database.hosts.is_empty() {
            self.report.error(position, "host", Reason::HostAndCluster(name.clone()));
        }
        let usual = Database::default();
        for (key, is_set) in [
            ("port", database.port != usual.port),
            ("load_balance_hosts", database.load_balance_hosts != usual.load_balance_hosts),
        ] {
            if is_set {
                self.report.warn(position, Reason::BesideCluster { key, cluster: name.clone() });
            }
        }
    }

    /// Reports a database whose least number of spare servers is above the largest one.
    fn check_spares(&mut self, database: &Database, position: &Position) {
        let key = match (database.min_spare_servers, database.max_spare_servers) {
            (Some(_), _) => "min_spare_servers",
            (None, Some(_)) => "max_spare_servers",
            (None, None) => return,
        };
        if let Some(reason) = Spares::of(&self.global, Some(database)).mistake() {
            self.report.error(position, key, reason);
        }
    }

    /// Returns the peers, after warnings about those that are not reached.
    fn checked_peers(&mut self) -> BTreeMap<u32, Peer> {
        let (mut peers, mut positions) = (BTreeMap::new(), BTreeMap::new());
        for (id, (peer, position)) in std::mem::take(&mut self.peers) {
            peers.insert(id, peer);
            positions.insert(id, position);
        }
        for (id, problem) in peers::problems(&self.global, &peers) {
            match id.and_then(|id| positions.get(&id)) {
                Some(position) => self.report.warn(position, problem),
                None => self.report.warnings.push(self.positions.mistake("peer_id", problem)),
            }
        }
        peers
    }

    /// Warns of a database whose reads cannot go to standbys, although its keys say so.
    fn check_reads(&mut self, database: &Database, position: &Position) {
        let mode = database.pool_mode.unwrap_or(self.global.pool_mode);
        let tuned = [
            ("read_after_write", database.read_after_write != ReadAfterWrite::default()),
            ("max_staleness", database.max_staleness != Database::default().max_staleness),
            ("max_lag_bytes", database.max_lag_bytes != 0),
            ("when_stale", database.when_stale != WhenStale::default()),
            ("stale_wait", database.stale_wait != Database::default().stale_wait),
            ("standby_functions", !database.standby_functions.is_empty()),
            ("primary_names", !database.primary_names.is_empty()),
            ("primary_texts", !database.primary_texts.is_empty()),
            ("primary_applications", !database.primary_applications.is_empty()),
            ("balance", database.balance != Balance::default()),
        ];
        let why = match database.reads {
            ReadsGo::Standby if database.cluster.is_none() => Reason::ReadsWithoutCluster,
            ReadsGo::Standby if mode != PoolMode::Auto => Reason::ReadsWithoutAutoMode,
            ReadsGo::Standby => return self.check_lists(database, position),
            ReadsGo::Primary if some_user_reads(&self.users) => {
                return self.check_lists(database, position);
            }
            ReadsGo::Primary => {
                for (key, _) in tuned.into_iter().filter(|(_, is_set)| *is_set) {
                    self.report.warnings.push(position.mistake(key, Reason::ReadsOff));
                }
                return;
            }
        };
        self.report.warnings.push(position.mistake("reads", why));
    }

    /// Warns of listed names that no catalog is likely to have, so that they have no effect.
    fn check_lists(&mut self, database: &Database, position: &Position) {
        for (key, names) in [
            ("standby_functions", &database.standby_functions),
            ("primary_names", &database.primary_names),
        ] {
            for name in names.iter().filter(|name| name.contains(['.', '"', '('])) {
                let why = Reason::NotACatalogName(name.clone());
                self.report.warnings.push(position.mistake(key, why));
            }
        }
    }

    fn assign_all<T: Keyed>(&mut self, target: &mut T, position: &Position, settings: &[Setting]) {
        for setting in settings {
            let position = position.at(setting.line);
            let Setting { key, text, .. } = setting;
            assign(target, &mut self.report, self.origin, &position, key, text);
        }
    }

    /// Returns the configuration, or every mistake.
    pub(crate) fn finish(mut self) -> Result<Config, ConfigError> {
        let mut databases = BTreeMap::new();
        for (name, (database, position)) in std::mem::take(&mut self.databases) {
            self.check_cluster(&database, &position);
            self.check_reads(&database, &position);
            self.check_spares(&database, &position);
            let has_place = !database.hosts.is_empty() || database.cluster.is_some();
            if !has_place && self.global.unix_socket_dir.is_empty() {
                self.report.error(&position, "", Reason::NoHost);
            }
            databases.insert(name, Arc::new(database));
        }
        let fallback = databases.remove("*");
        let peers = self.checked_peers();
        if let Some(reason) = Spares::of(&self.global, None).mistake() {
            let mistake = self.positions.mistake("min_spare_servers", reason);
            self.report.mistakes.push(mistake);
        }
        let mut config = Config {
            source: self.origin.source,
            global: self.global,
            databases,
            fallback,
            users: self.users,
            peers,
            clusters: self.clusters,
            cluster_order: self.cluster_order,
            positions: self.positions,
            secret_variables: self.report.secret_variables,
            warnings: self.report.warnings,
            errors: Vec::new(),
            ..Config::default()
        };
        config.derive_access();
        match self.report.mistakes {
            none if none.is_empty() => Ok(config),
            mistakes => Err(ConfigError { mistakes, rest: Some(Box::new(config)) }),
        }
    }
}

/// Sets one key of `target` from its text.
fn assign<T: Keyed>(
    target: &mut T,
    report: &mut Report,
    origin: Origin,
    position: &Position,
    key: &str,
    written: &str,
) {
    let name = unaliased(key);
    let names = || T::ROWS.iter().map(|row| row.key.name);
    let Some(row) = T::row(name).filter(|row| key == name || row.key.scope == Scope::Database)
    else {
        let reason = match T::ROWS.first().map(|row| row.key.scope) {
            Some(Scope::Database | Scope::Peer) => {
                Reason::UnknownConnectionParameter(key.to_owned())
            }
            Some(Scope::Cluster) => Reason::UnknownClusterParameter(key.to_owned()),
            Some(Scope::User) => Reason::UnknownUserParameter(key.to_owned()),
            Some(Scope::Global) | None => Reason::UnknownParameter(key.to_owned()),
        };
        return report.unknown(position, key, reason, key, names());
    };
    let replaced = match variables_in(&row.key, origin.source) {
        Variables::Stay => None,
        Variables::StayWithWarning => {
            if variables::escaped(written) != written {
                report.warnings.push(position.mistake(key, Reason::VariableTaken));
            }
            None
        }
        Variables::AreReplaced => match replaced(&row.key, origin.variables, written) {
            Ok(replaced) => replaced,
            Err(reason) => return report.error(position, key, reason),
        },
    };
    if row.key.secret && replaced.is_some() {
        report.secret_variables.extend(variables::names(written).map(str::to_owned));
    }
    // The value of a variable may be a secret.
    let is_replaced = replaced.is_some();
    let hide = |reason| match is_replaced && !row.key.secret {
        true => Reason::ReplacedValue { key: row.key.name, text: written.to_owned() },
        false => reason,
    };
    let text = replaced.as_deref().unwrap_or(written);
    if let Err(error) = (row.set)(target, text) {
        let reason = hide(bad_value(&row.key, text, error));
        match row.key.kind {
            Kind::Choice(words) => {
                report.unknown(position, key, reason, written, words.iter().copied());
            }
            _ => report.error(position, key, reason),
        }
    } else if let Some(reason) = out_of_bounds(&row.key, (row.show)(target).as_deref()) {
        report.error(position, key, hide(reason));
    }
}

/// The treatment of variables in the value of a key.
enum Variables {
    AreReplaced,
    Stay,
    StayWithWarning,
}

/// Returns the treatment of variables in a key's value. In a `pgbouncer.ini`, PgBouncer's keys are taken
/// as they are written. So are the commands of a cluster, whose variables a shell replaces.
fn variables_in(key: &Key, source: Source) -> Variables {
    match source {
        _ if key.scope == Scope::Cluster && key.name.ends_with("_command") => Variables::Stay,
        Source::Ini if key.is_pgbouncers() => Variables::StayWithWarning,
        Source::Url => Variables::Stay,
        Source::Ini | Source::Toml => Variables::AreReplaced,
    }
}

/// Returns the text with its variables replaced; `None` if it has none, or there is no environment.
fn replaced(key: &Key, lookup: Option<Lookup>, text: &str) -> Result<Option<String>, Reason> {
    let Some(lookup) = lookup else { return Ok(None) };
    variables::replace(text, lookup).map_err(|name| {
        // The name may be a part of a secret that has `${` in it.
        let is_known = !key.secret || variables::is_one(text);
        if is_known { Reason::VariableNotSet(name) } else { Reason::VariableInSecretNotSet }
    })
}

/// Returns the key's main name: an entry of `[databases]` may use `reserve_pool`.
pub(crate) fn unaliased(key: &str) -> &str {
    if key == "reserve_pool" { "reserve_pool_size" } else { key }
}

/// Returns the reason for refusing a value, in PgBouncer's words.
fn bad_value(key: &Key, text: &str, error: ValueError) -> Reason {
    match (key.scope, key.name) {
        (Scope::Database | Scope::User, "pool_mode") => Reason::PoolMode(text.to_owned()),
        (Scope::Database | Scope::Peer, "port") => Reason::Port(text.to_owned()),
        _ => key.refuse(text, error),
    }
}
