//! The question to PostgreSQL about a user (`auth_query`): whether it is asked, as which user, and in
//! which database.

use config::{AccessPolicy, AuthType, Config, Database};

/// The query about a user: as which user, in which database.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) auth_user: String,
    /// None if the client wants the console and no `auth_dbname` is set.
    pub(crate) database: Option<String>,
    /// The name of that database in messages to clients.
    pub(crate) shown: String,
    pub(crate) query: String,
}

impl Question {
    /// Returns None if PostgreSQL is not asked about this user.
    pub(super) fn new(
        config: &Config,
        database: &str,
        is_console: bool,
        user: &str,
    ) -> Option<Self> {
        let global = &config.global;
        let by_name = !matches!(global.auth_type, AuthType::Any | AuthType::Pam);
        let configured = config.access == AccessPolicy::Configured && by_name;
        if !configured || config.secret_of(user).is_some() {
            return None;
        }
        if is_console {
            return Self::within(config, database, None);
        }
        match config.database(database) {
            Some(entry) => Self::within(config, database, Some(&entry)),
            // For an unknown database another one is asked. Otherwise the reply or its time would
            // reveal which databases exist.
            None => {
                let mut all = config.databases.values();
                all.find_map(|other| Self::within(config, database, Some(other)))
            }
        }
    }

    /// Uses the keys of the database's entry, and else the global ones.
    fn within(config: &Config, database: &str, entry: Option<&Database>) -> Option<Self> {
        let global = &config.global;
        let given = |own: Option<&String>| own.filter(|text| !text.is_empty()).cloned();
        let auth_user = entry.and_then(|entry| given(entry.auth_user.as_ref()));
        let auth_dbname = entry.and_then(|entry| given(entry.auth_dbname.as_ref()));
        let auth_dbname = auth_dbname.or_else(|| given(global.auth_dbname.as_ref()));
        let query = entry.and_then(|entry| given(entry.auth_query.as_ref()));
        Some(Self {
            auth_user: auth_user.or_else(|| given(global.auth_user.as_ref()))?,
            shown: auth_dbname.clone().unwrap_or_else(|| database.to_owned()),
            database: auth_dbname.or_else(|| entry.map(|entry| own_database(config, entry))),
            query: query.unwrap_or_else(|| global.auth_query.clone()),
        })
    }
}

/// Returns the database in which to ask about users of `entry`. All databases made from `*` that
/// are one on the server share a pool for it. Otherwise clients could create any number of pools.
fn own_database(config: &Config, entry: &Database) -> String {
    let star = config.fallback.as_ref().filter(|star| star.dbname.is_some());
    let is_star = !config.databases.contains_key(&entry.name);
    star.filter(|_| is_star).map_or(&entry.name, |star| &star.name).clone()
}
