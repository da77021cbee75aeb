//! Finds files with secrets that every user of the machine can read.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use config::Config;
use wire::secret::Secret;

use super::{Finding, Level};

/// The permission of users who are neither the owner nor in the file's group.
const READABLE_BY_ALL: u32 = 0o004;

/// Warns of plain passwords and private keys that every user of the machine can read.
pub(super) fn readable(config: &Config) -> Vec<Finding> {
    let global = &config.global;
    let plain =
        |secret: &String| matches!(Secret::parse(secret), Secret::Plain(text) if !text.is_empty());
    let users = config.auth_file.users.values().any(plain);
    let databases = || config.databases.values().chain(&config.fallback);
    let own = databases().any(|database| database.password.is_some())
        || global.auth_ldap_options.is_some();
    let auth_file = global.auth_file.as_deref().map(Path::new).filter(|_| users);
    let main = config.path.as_deref().filter(|_| own);
    let key = |name: &'static str, path| (name, Some(Path::new(path)), "a private key");
    let files = [
        ("auth_file", auth_file, "plain passwords"),
        ("", main, "passwords"),
        key("client_tls_key_file", global.client_tls_key_file.as_str()),
        key("server_tls_key_file", global.server_tls_key_file.as_str()),
    ];
    let exposed = |(key, path, content): (&str, Option<&Path>, &str)| {
        let path = path?;
        let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
        let file = path.display().to_string();
        let position = if key.is_empty() { file.clone() } else { config.positions.of_key(key) };
        let what = format!(
            "every user of this machine can read {content} in {file} (mode {mode:04o}, expected \
             0640 or less)"
        );
        (mode & READABLE_BY_ALL != 0).then(|| Finding::new(Level::Warns, &position, what))
    };
    files.into_iter().filter_map(exposed).collect()
}
