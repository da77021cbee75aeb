//! A whole configuration, and the values that the pooler looks up in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::CONSOLE_USER;
use crate::auth_file::AuthFile;
use crate::choice::{AuthType, PoolMode, ReadsGo, ReuseAfterError};
use crate::error::Mistake;
use crate::hba::Hba;
use crate::host::Host;
use crate::key::Keyed;
use crate::ldap::LdapOptions;
use crate::pcp_file::PcpUsers;
use crate::positions::Positions;
use crate::source::Source;
use crate::table::{Cluster, Database, Global, Peer, UserSettings};
use crate::weight::Weight;

/// The answer to RELOAD and SET if the rules stay as they were.
pub const HBA_KEPT: &str = "auth_hba_file or auth_ident_file could not be read, keeping the rules";
/// The answer to RELOAD and SET if `auth_ldap_options` stay as they were.
pub const LDAP_KEPT: &str = "auth_ldap_options are invalid, keeping the old ones";

/// The whole configuration: plain data, replaced as a whole on reload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Its source, which also decides about the defaults.
    pub source: Source,
    pub global: Global,
    /// The entries of `[databases]` except `*`, by the name that clients use.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// The entry `*`: the template for names that have no entry.
    pub fallback: Option<Arc<Database>>,
    pub users: BTreeMap<String, UserSettings>,
    pub peers: BTreeMap<u32, Peer>,
    pub clusters: BTreeMap<String, Cluster>,
    /// The names of `clusters`, in the order of the file.
    pub cluster_order: Vec<String>,
    /// The content of `auth_file`.
    pub auth_file: AuthFile,
    /// Set if it could not be read.
    pub auth_file_unread: bool,
    /// The rules of `auth_hba_file`, with the maps of `auth_ident_file`.
    pub hba: Hba,
    /// Set if one of the two could not be read, or has no valid line among invalid ones.
    pub hba_unread: bool,
    /// The content of `pcp_file`.
    pub pcp_users: PcpUsers,
    /// Set if it could not be read, or has no valid line among invalid ones.
    pub pcp_users_unread: bool,
    /// `auth_ldap_options`, if they are valid.
    pub ldap: Option<Arc<LdapOptions>>,
    pub access: AccessPolicy,
    /// The environment's variables in its passwords and other secrets.
    pub secret_variables: BTreeSet<String>,
    /// The lines on which its keys and databases are written.
    pub positions: Positions,
    /// The configuration file; None for a URL.
    pub path: Option<PathBuf>,
    /// Warnings: mistakes that do not prevent using the configuration; logged at start and reload.
    pub warnings: Vec<Mistake>,
    /// Why expected users are missing; logged as errors.
    pub errors: Vec<Mistake>,
}

/// The policy that decides who may log in.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum AccessPolicy {
    /// `auth_type` and `auth_file` decide.
    #[default]
    Configured,
    /// Only this user, with this password; servers are logged in to with the same.
    UrlUser { user: String, password: String },
    /// Every client whose password PostgreSQL accepts: `auth_type = server`, or a URL without a user.
    ProvenByServer,
}

impl Config {
    /// Keeps the forced user (`user=`) of a database even if the file no longer has it: as in
    /// PgBouncer, a change needs a restart. Returns the names of these databases.
    pub fn keep_forced_users(&mut self, running: &Self) -> Vec<String> {
        let both = |(name, new)| Some((new, running.databases.get(name)?));
        let named = self.databases.iter_mut().filter_map(both);
        let star = self.fallback.as_mut().zip(running.fallback.as_ref());
        let mut kept = Vec::new();
        for (new, old) in named.chain(star) {
            if old.user.is_some() && new.user.is_none() {
                let new = Arc::make_mut(new);
                new.user.clone_from(&old.user);
                new.password.clone_from(&old.password);
                new.password_file.clone_from(&old.password_file);
                new.password_command.clone_from(&old.password_command);
                new.password_lifetime = old.password_lifetime;
                kept.push(new.name.clone());
            }
        }
        kept
    }

    /// Keeps the nodes that Weir has found, until it finds others.
    pub fn keep_discovered(&mut self, running: &Self) {
        for (name, cluster) in &mut self.clusters {
            let known = running.clusters.get(name);
            if let Some(known) = known.filter(|_| cluster.is_discovered()) {
                cluster.nodes.clone_from(&known.nodes);
            }
        }
    }

    /// Keeps the content of a file that cannot be used, perhaps because it is just being replaced:
    /// the users of `auth_file`, as in PgBouncer, the rules of `auth_hba_file`, the users of `pcp_file`,
    /// and `auth_ldap_options`. An `auth_type` that needs the file stays as it was, too, or nobody could
    /// log in; but not one that asks for no password. Returns the messages about it.
    pub fn keep_unread(&mut self, running: &Self) -> Vec<String> {
        let mut kept = Vec::new();
        let keeps_type = match self.global.auth_type {
            AuthType::Any | AuthType::Pam | AuthType::Server => false,
            AuthType::Hba => self.auth_file_unread || self.hba_unread,
            AuthType::Ldap => self.auth_file_unread || self.ldap_is_unusable(),
            AuthType::Trust
            | AuthType::Plain
            | AuthType::Md5
            | AuthType::ScramSha256
            | AuthType::Cert => self.auth_file_unread,
        };
        if self.auth_file_unread {
            self.auth_file = running.auth_file.clone();
            kept.push("auth_file could not be read, keeping its users".to_owned());
        }
        if self.hba_unread && self.global.auth_type == AuthType::Hba {
            self.hba = running.hba.clone();
            kept.push(HBA_KEPT.to_owned());
        }
        if self.pcp_users_unread {
            self.pcp_users = running.pcp_users.clone();
            kept.push("pcp_file could not be read, keeping its users".to_owned());
        }
        if self.ldap_is_unusable() && self.global.auth_type == AuthType::Ldap {
            self.ldap = running.ldap.clone();
            self.global.auth_ldap_options.clone_from(&running.global.auth_ldap_options);
            kept.push(LDAP_KEPT.to_owned());
        }
        let asks_nothing = matches!(running.global.auth_type, AuthType::Trust | AuthType::Any);
        if keeps_type && !asks_nothing && self.global.auth_type != running.global.auth_type {
            self.global.auth_type = running.global.auth_type;
            kept.push(format!("auth_type is still {}", running.global.auth_type.word()));
            self.derive_access();
        }
        kept
    }

    /// Sets the policy that `auth_type` stands for. A URL has its own.
    pub(crate) fn derive_access(&mut self) {
        if self.source != Source::Url {
            self.access = match self.global.auth_type == AuthType::Server {
                true => AccessPolicy::ProvenByServer,
                false => AccessPolicy::Configured,
            };
        }
    }

    /// Returns the database at which PostgreSQL judges passwords for the console
    /// ([`AccessPolicy::ProvenByServer`]): the first entry, or the one of the URL. Without one, it is
    /// a database that every PostgreSQL has.
    pub fn proof_database(&self) -> &str {
        let is_proven = self.access == AccessPolicy::ProvenByServer;
        let mut entries = self.databases.iter();
        let own = entries.find(|(_, database)| !is_proven || database.user.is_none());
        own.map_or("postgres", |(name, _)| name)
    }

    /// Is `auth_ldap_options` invalid? Then `auth_type = ldap` lets no client in.
    pub fn ldap_is_unusable(&self) -> bool {
        let text = self.global.auth_ldap_options.as_deref().unwrap_or_default();
        self.ldap.is_none() && !text.is_empty()
    }

    /// Returns the database that clients call `name`: its entry, or one made from the entry `*`.
    ///
    /// Every call makes a new one from `*`; to use the same one again, keep it.
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        if let Some(database) = self.databases.get(name) {
            return Some(Arc::clone(database));
        }
        let template = self.fallback.as_deref()?;
        let dbname = template.dbname.clone().unwrap_or_else(|| name.to_owned());
        let name = name.to_owned();
        Some(Arc::new(Database { name, dbname: Some(dbname), ..template.clone() }))
    }

    /// Returns the hosts of `database` with their ports. Without a `host`, this is the Unix socket
    /// in `unix_socket_dir`, which only a restart can change; or all nodes of the cluster.
    pub fn addresses(&self, database: &Database) -> Vec<(Host, u16)> {
        let cluster = database.cluster.as_ref().and_then(|name| self.clusters.get(name));
        if let Some(cluster) = cluster {
            return cluster.nodes.iter().map(|node| (node.host.clone(), node.port)).collect();
        }
        let hosts = match database.hosts.as_slice() {
            [] => vec![Host::new(&self.global.unix_socket_dir)],
            given => given.to_vec(),
        };
        hosts.into_iter().enumerate().map(|(at, host)| (host, database.port.of(at))).collect()
    }

    /// Can servers of `database` be reached by TCP? The nodes of a cluster may not be known yet.
    pub fn is_remote(&self, database: &Database) -> bool {
        let cluster = database.cluster.as_ref().and_then(|name| self.clusters.get(name));
        let is_tcp = |(host, _): &(Host, u16)| matches!(host, Host::Tcp(_));
        cluster.is_some_and(Cluster::is_discovered) || self.addresses(database).iter().any(is_tcp)
    }

    /// Returns the pool mode of (`database`, `user`): the user's, else the database's, else the
    /// global one.
    pub fn pool_mode(&self, database: &Database, user: &str) -> PoolMode {
        let user = self.users.get(user).and_then(|user| user.pool_mode);
        user.or(database.pool_mode).unwrap_or(self.global.pool_mode)
    }

    /// Returns what happens to a server of (`database`, `user`) after an error: the user's value,
    /// else the database's, else the global one.
    pub fn reuse_after_error(&self, database: &Database, user: &str) -> ReuseAfterError {
        let user = self.users.get(user).and_then(|user| user.reuse_after_error);
        user.or(database.reuse_after_error).unwrap_or(self.global.reuse_after_error)
    }

    /// Returns where the reads of the pool (`database`, `user`) go.
    pub fn reads(&self, database: &Database, user: &str) -> ReadsGo {
        let user = self.users.get(user).and_then(|user| user.reads);
        user.unwrap_or(database.reads)
    }

    /// Do reads of some pool of this database go to standbys?
    pub fn any_reads(&self, database: &Database) -> bool {
        database.reads == ReadsGo::Standby || some_user_reads(&self.users)
    }

    /// Returns the maximal number of servers in the pool (`database`, `user`); 0 is no limit.
    pub fn pool_size(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.pool_size);
        user.or(database.pool_size).unwrap_or(self.global.default_pool_size)
    }

    /// Returns the number of servers that the pool (`database`, `user`) may have beyond its size
    /// when clients have waited for long.
    pub fn reserve_pool_size(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.reserve_pool_size);
        user.or(database.reserve_pool_size).unwrap_or(self.global.reserve_pool_size)
    }

    /// Returns the number of servers that are kept open in each pool of `database`.
    pub fn min_pool_size(&self, database: &Database) -> u32 {
        database.min_pool_size.unwrap_or(self.global.min_pool_size)
    }

    /// Returns the maximal number of servers in all pools of `database`; 0 is no limit.
    pub fn max_db_connections(&self, database: &Database) -> u32 {
        database.max_db_connections.unwrap_or(self.global.max_db_connections)
    }

    /// Returns the weight of this pool under limits that it shares with others.
    pub fn pool_weight(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).map_or_else(Weight::default, |user| user.pool_weight);
        database.pool_weight.get() * user.get()
    }

    /// Returns the maximal number of servers in all pools of `user`; 0 is no limit.
    pub fn max_user_connections(&self, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.max_user_connections);
        user.unwrap_or(self.global.max_user_connections)
    }

    /// Returns the maximal number of clients of the database `name`; 0 is no limit.
    pub fn max_db_client_connections(&self, name: &str) -> u32 {
        let database = self.databases.get(name).or(self.fallback.as_ref());
        let own = database.and_then(|database| database.max_db_client_connections);
        own.unwrap_or(self.global.max_db_client_connections)
    }

    /// Returns the maximal number of clients logged in as `user`; 0 is no limit.
    pub fn max_user_client_connections(&self, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.max_user_client_connections);
        user.unwrap_or(self.global.max_user_client_connections)
    }

    /// Returns the age at which an unused server of `database` is closed; 0 is after one use.
    pub fn server_lifetime(&self, database: &Database) -> Duration {
        database.server_lifetime.unwrap_or(self.global.server_lifetime)
    }

    /// Returns how often a server of `database` is given to clients; 0 is no limit.
    pub fn server_max_uses(&self, database: &Database) -> u32 {
        database.server_max_uses.unwrap_or(self.global.server_max_uses)
    }

    /// Returns the private memory in bytes at which an unused server of `database` is closed; 0 is no
    /// limit.
    pub fn server_max_memory(&self, database: &Database) -> u64 {
        database.server_max_memory.unwrap_or(self.global.server_max_memory)
    }

    /// Returns the user's secret from the configuration alone, without `auth_query`. As in
    /// PgBouncer, the console's own user always exists, with an empty password that no client can
    /// log in with.
    pub fn secret_of(&self, user: &str) -> Option<&str> {
        let stored = self.auth_file.users.get(user).map(String::as_str);
        stored.or_else(|| (user == CONSOLE_USER).then_some(""))
    }

    /// Returns a line for each key that was changed and has no effect, beginning with `key` or
    /// `databases.NAME.key`. It is logged at start, so that no key is ignored silently.
    pub fn set_in_vain(&self) -> Vec<String> {
        fn idle<'a, T: Keyed>(
            target: &'a T,
            source: Source,
            prefix: &'a str,
        ) -> impl Iterator<Item = String> + 'a {
            target.changed(source).filter_map(move |row| {
                let why = row.key.idle_because?;
                Some(format!("{prefix}{} is set, and has no effect: {why}", row.key.name))
            })
        }

        let mut names: Vec<_> = idle(&self.global, self.source, "").collect();
        for database in self.databases.values().chain(&self.fallback) {
            names.extend(idle(&**database, self.source, &format!("databases.{}.", database.name)));
        }
        for (user, settings) in &self.users {
            names.extend(idle(settings, self.source, &format!("users.{user}.")));
        }
        for (id, peer) in &self.peers {
            names.extend(idle(peer, self.source, &format!("peers.{id}.")));
        }
        for (name, cluster) in &self.clusters {
            names.extend(idle(cluster, self.source, &format!("clusters.{name}.")));
        }
        names
    }
}

impl fmt::Debug for AccessPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("Configured"),
            Self::UrlUser { user, .. } => write!(f, "UrlUser({user:?})"),
            Self::ProvenByServer => f.write_str("ProvenByServer"),
        }
    }
}

/// Do the reads of some user go to standbys, whatever the database says?
pub(crate) fn some_user_reads(users: &BTreeMap<String, UserSettings>) -> bool {
    users.values().any(|user| user.reads == Some(ReadsGo::Standby))
}
