//! Builds a [`Config`] from settings of any file format, and collects every mistake on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bounds::{CONSOLE, PEER_ID_MAX, out_of_bounds};
use crate::choice::{Balance, FailoverKind, PoolMode, ReadAfterWrite, ReadsGo, WhenStale};
use crate::config::Config;
use crate::error::{ConfigError, Mistake};
use crate::key::{Key, Keyed, Scope};
use crate::peers;
use crate::places::Places;
use crate::reason::Reason;
use crate::source::Source;
use crate::suggest;
use crate::table::{Cluster, Database, Global, Peer, UserSettings};
use crate::value::{Kind, ValueError};

/// Longest database name in bytes, PostgreSQL's and PgBouncer's limit.
const NAME_LEN_MAX: usize = 63;

/// The position of a setting.
#[derive(Clone, Debug)]
pub(crate) struct Place {
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
}

/// A configuration that is being built.
#[derive(Debug)]
pub(crate) struct Builder {
    source: Source,
    global: Global,
    databases: BTreeMap<String, (Database, Place)>,
    users: BTreeMap<String, UserSettings>,
    peers: BTreeMap<u32, (Peer, Place)>,
    clusters: BTreeMap<String, Cluster>,
    places: Places,
    pub(crate) report: Report,
}

impl Place {
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
    pub(crate) fn error(&mut self, place: &Place, key: &str, reason: Reason) {
        self.mistakes.push(place.mistake(key, reason));
    }

    fn warn(&mut self, place: &Place, reason: Reason) {
        self.warnings.push(place.mistake("", reason));
    }

    /// Reports an error with the nearest valid word.
    pub(crate) fn unknown<'a>(
        &mut self,
        place: &Place,
        key: &str,
        reason: Reason,
        typed: &str,
        words: impl Iterator<Item = &'a str>,
    ) {
        let suggestion = suggest::nearest(typed, words).map(str::to_owned);
        self.mistakes.push(Mistake { suggestion, ..place.mistake(key, reason) });
    }
}

impl Builder {
    /// Returns all defaults of `source`.
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            global: Global::defaults(source),
            databases: BTreeMap::new(),
            users: BTreeMap::new(),
            peers: BTreeMap::new(),
            clusters: BTreeMap::new(),
            places: Places::default(),
            report: Report::default(),
        }
    }

    /// Resets the global keys to their defaults, as each `[pgbouncer]` header does.
    pub(crate) fn reset_global(&mut self, place: &Place) {
        let defaults = Global::defaults(self.source);
        if self.global != defaults {
            self.report.warn(place, Reason::MainSectionAgain);
        }
        self.global = defaults;
        self.places.forget_keys();
    }

    pub(crate) fn global(&mut self, place: &Place, key: &str, text: &str) {
        self.places.set_key(key, &place.file, place.line);
        assign(&mut self.global, &mut self.report, place, key, text);
    }

    pub(crate) fn database(&mut self, place: &Place, settings: &[Setting]) {
        let name = &place.entry;
        if name == CONSOLE {
            return self.report.error(place, "", Reason::ReservedName(name.clone()));
        }
        if name.len() > NAME_LEN_MAX {
            return self.report.error(place, "", Reason::LongName { max: NAME_LEN_MAX });
        }
        self.places.set_database(name, &place.file, place.line);
        let mut database = Database { name: name.clone(), ..Database::default() };
        self.assign_all(&mut database, place, settings);
        // Without a host there is one address to connect to.
        if !database.port.fit(database.hosts.len().max(1)) {
            let reason = Reason::NumberOfPorts(database.port.to_string());
            self.report.error(place, "port", reason);
        }
        // Here 0 means "the global key's value"; there it means no limit, or one use.
        database.max_db_connections = database.max_db_connections.filter(|max| *max > 0);
        database.max_db_client_connections =
            database.max_db_client_connections.filter(|max| *max > 0);
        database.server_lifetime = database.server_lifetime.filter(|time| !time.is_zero());
        if self.databases.insert(name.clone(), (database, place.clone())).is_some() {
            self.report.warn(place, Reason::DefinedAgain("database"));
        }
    }

    pub(crate) fn user(&mut self, place: &Place, settings: &[Setting]) {
        let mut user = UserSettings::default();
        self.assign_all(&mut user, place, settings);
        for timeout in [
            &mut user.query_timeout,
            &mut user.query_wait_timeout,
            &mut user.idle_transaction_timeout,
            &mut user.transaction_timeout,
            &mut user.client_idle_timeout,
        ] {
            *timeout = timeout.filter(|time| !time.is_zero());
        }
        if self.users.insert(place.entry.clone(), user).is_some() {
            self.report.warn(place, Reason::DefinedAgain("user"));
        }
    }

    pub(crate) fn peer(&mut self, place: &Place, settings: &[Setting]) {
        let id = place.entry.parse().ok().filter(|id| (1..=PEER_ID_MAX).contains(id));
        let Some(id) = id else {
            return self.report.error(place, "", Reason::PeerId { max: PEER_ID_MAX });
        };
        let mut peer = Peer::default();
        let mistakes = self.report.mistakes.len();
        self.assign_all(&mut peer, place, settings);
        if peer.hosts.is_empty() && self.report.mistakes.len() == mistakes {
            self.report.error(place, "", Reason::PeerWithoutHost(id));
        }
        if self.peers.insert(id, (peer, place.clone())).is_some() {
            self.report.warn(place, Reason::DefinedAgain("peer"));
        }
    }

    pub(crate) fn cluster(&mut self, place: &Place, settings: &[Setting]) {
        let mut cluster = Cluster::default();
        let mistakes = self.report.mistakes.len();
        self.assign_all(&mut cluster, place, settings);
        if self.report.mistakes.len() == mistakes {
            self.check_source_of_nodes(&cluster, place);
        }
        for (key, time) in [
            ("sample_interval", cluster.sample_interval),
            ("health_timeout", cluster.health_timeout),
            ("catalog_refresh", cluster.catalog_refresh),
            ("discovery_interval", cluster.discovery_interval),
        ] {
            if time.is_zero() {
                self.report.error(place, key, Reason::ZeroTime(key));
            }
        }
        if cluster.failover == FailoverKind::Own && cluster.fence_command.is_none() {
            self.report.error(place, "failover", Reason::OwnWithoutFence(place.entry.clone()));
        }
        if self.clusters.insert(place.entry.clone(), cluster).is_some() {
            self.report.warn(place, Reason::DefinedAgain("cluster"));
        }
    }

    /// Reports a cluster that does not say which nodes it has, or says it twice.
    fn check_source_of_nodes(&mut self, cluster: &Cluster, place: &Place) {
        let name = || place.entry.clone();
        let sources = [
            ("nodes", !cluster.nodes.is_empty()),
            ("patroni", !cluster.patroni.is_empty()),
            ("dns", !cluster.dns.is_empty()),
        ];
        let given: Vec<_> = sources.iter().filter(|(_, is_set)| *is_set).collect();
        match given[..] {
            [] => self.report.error(place, "", Reason::ClusterWithoutNodes(name())),
            [_] => {}
            [(first, _), (second, _), ..] => {
                let keys = format!("{first} and {second}");
                let reason = Reason::SeveralSourcesOfNodes { cluster: name(), keys };
                self.report.error(place, second, reason);
            }
        }
        if cluster.failover == FailoverKind::Own && cluster.is_discovered() {
            self.report.error(place, "failover", Reason::OwnWithoutNodes(name()));
        }
        if cluster.patroni_cert_file.is_empty() != cluster.patroni_key_file.is_empty() {
            self.report.error(place, "patroni_cert_file", Reason::HalfAnIdentity);
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
                self.report.warnings.push(place.mistake(key, why));
            }
        }
    }

    /// Reports a database whose cluster does not exist.
    fn check_cluster(&mut self, database: &Database, place: &Place) {
        let Some(name) = &database.cluster else { return };
        if !self.clusters.contains_key(name) {
            let reason = Reason::UnknownCluster(name.clone());
            let names = self.clusters.keys().map(String::as_str);
            self.report.unknown(place, "cluster", reason, name, names);
        }
        if !database.hosts.is_empty() {
            self.report.error(place, "host", Reason::HostAndCluster(name.clone()));
        }
        let usual = Database::default();
        for (key, is_set) in [
            ("port", database.port != usual.port),
            ("load_balance_hosts", database.load_balance_hosts != usual.load_balance_hosts),
        ] {
            if is_set {
                self.report.warn(place, Reason::BesideCluster { key, cluster: name.clone() });
            }
        }
    }

    /// Returns the peers, after warnings about those that are not reached.
    fn checked_peers(&mut self) -> BTreeMap<u32, Peer> {
        let (mut peers, mut places) = (BTreeMap::new(), BTreeMap::new());
        for (id, (peer, place)) in std::mem::take(&mut self.peers) {
            peers.insert(id, peer);
            places.insert(id, place);
        }
        for (id, problem) in peers::problems(&self.global, &peers) {
            match id.and_then(|id| places.get(&id)) {
                Some(place) => self.report.warn(place, problem),
                None => self.report.warnings.push(self.places.mistake("peer_id", problem)),
            }
        }
        peers
    }

    /// Warns of a database whose reads cannot go to standbys, although its keys say so.
    fn check_reads(&mut self, database: &Database, place: &Place) {
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
            ReadsGo::Standby => return,
            ReadsGo::Primary if self.some_user_reads() => return,
            ReadsGo::Primary => {
                for (key, _) in tuned.into_iter().filter(|(_, is_set)| *is_set) {
                    self.report.warnings.push(place.mistake(key, Reason::ReadsOff));
                }
                return;
            }
        };
        self.report.warnings.push(place.mistake("reads", why));
    }

    /// Do the reads of some user go to standbys, whatever the database says?
    fn some_user_reads(&self) -> bool {
        self.users.values().any(|user| user.reads == Some(ReadsGo::Standby))
    }

    fn assign_all<T: Keyed>(&mut self, target: &mut T, place: &Place, settings: &[Setting]) {
        for setting in settings {
            let place = place.at(setting.line);
            assign(target, &mut self.report, &place, &setting.key, &setting.text);
        }
    }

    /// Returns the configuration, or every mistake.
    pub(crate) fn finish(mut self) -> Result<Config, ConfigError> {
        let mut databases = BTreeMap::new();
        for (name, (database, place)) in std::mem::take(&mut self.databases) {
            self.check_cluster(&database, &place);
            self.check_reads(&database, &place);
            let has_place = !database.hosts.is_empty() || database.cluster.is_some();
            if !has_place && self.global.unix_socket_dir.is_empty() {
                self.report.error(&place, "", Reason::NoHost);
            }
            databases.insert(name, Arc::new(database));
        }
        if !self.report.mistakes.is_empty() {
            let (mistakes, global) = (self.report.mistakes, Some(Box::new(self.global)));
            return Err(ConfigError { mistakes, global });
        }
        let fallback = databases.remove("*");
        let peers = self.checked_peers();
        Ok(Config {
            source: self.source,
            global: self.global,
            databases,
            fallback,
            users: self.users,
            peers,
            clusters: self.clusters,
            places: self.places,
            warnings: self.report.warnings,
            errors: Vec::new(),
            ..Config::default()
        })
    }
}

/// Sets one key of `target` from its text.
fn assign<T: Keyed>(target: &mut T, report: &mut Report, place: &Place, key: &str, text: &str) {
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
        return report.unknown(place, key, reason, key, names());
    };
    if let Err(error) = (row.set)(target, text) {
        let reason = bad_value(&row.key, text, error);
        match row.key.kind {
            Kind::Choice(words) => {
                report.unknown(place, key, reason, text, words.iter().copied());
            }
            _ => report.error(place, key, reason),
        }
    } else if let Some(reason) = out_of_bounds(&row.key, (row.show)(target).as_deref()) {
        report.error(place, key, reason);
    }
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
