//! The console's names, and the users that may log in there.

use config::{AccessPolicy, AuthType, Config};

/// Is this one of the console's names? A configured database `weir` has precedence.
pub(crate) fn is_console(config: &Config, database: &str) -> bool {
    database == "pgbouncer" || (database == "weir" && !config.databases.contains_key(database))
}

/// Returns the console's other name. Rules for one name hold for both, so that a rejected
/// client cannot use the other one.
pub(crate) fn other_name(config: &Config, database: &str) -> Option<&'static str> {
    let [one, other] = ["pgbouncer", "weir"];
    let found = if database == one { other } else { one };
    (is_console(config, database) && is_console(config, found)).then_some(found)
}

/// May this user use the console fully? The user that runs Weir and root may, through the unix
/// socket.
pub(crate) fn is_operator(config: &Config, user: &str) -> bool {
    user == config::CONSOLE_USER || config.global.admin_users.iter().any(|admin| admin == user)
}

/// May this user change things on the console (true), only SHOW (false), or not log in there
/// (None)?
pub(crate) fn rights(config: &Config, user: &str, is_superuser: bool) -> Option<bool> {
    let is_proven = config.access == AccessPolicy::ProvenByServer;
    let global = &config.global;
    let listed = |list: &[String]| list.iter().any(|known| known == user);
    let any = global.auth_type == AuthType::Any && config.access == AccessPolicy::Configured;
    let admin = is_superuser || listed(&global.admin_users);
    (admin || listed(&global.stats_users) || any || is_proven).then_some(admin)
}

/// Returns the user of the database's entry for `auth_type=any`, where the client's own name
/// does not matter.
pub(crate) fn user_of_all(config: &Config, database: &str) -> Result<Option<String>, &'static str> {
    let is_any = config.global.auth_type == AuthType::Any;
    if !is_any || config.access != AccessPolicy::Configured {
        return Ok(None);
    }
    if is_console(config, database) {
        return Ok(Some(config::CONSOLE_USER.to_owned()));
    }
    let entry = config.database(database);
    let user = entry.and_then(|entry| entry.user.clone());
    user.map(Some).ok_or("auth_type=any requires forced user")
}
