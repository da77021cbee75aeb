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
    let in_file =
        |password: &Option<String>, file: &Option<String>| password.is_some() && file.is_none();
    let own = databases().any(|own| in_file(&own.password, &own.password_file))
        || config.clusters.values().any(|own| in_file(&own.password, &own.password_file))
        || global.auth_ldap_options.is_some();
    let auth_files = global.auth_file.iter().flatten().filter(|_| users);
    let mut files: Vec<_> =
        auth_files.map(|file| ("auth_file", Path::new(file), "plain passwords")).collect();
    files.extend(config.path.as_deref().filter(|_| own).map(|main| ("", main, "passwords")));
    let of_databases = databases().filter_map(|own| own.password_file.as_ref());
    let of_clusters = config.clusters.values().filter_map(|own| own.password_file.as_ref());
    let passwords = of_databases.chain(of_clusters);
    files.extend(passwords.map(|file| ("password_file", Path::new(file), "a password")));
    if let Some(file) = global.pcp_file.as_deref().filter(|_| !config.pcp_users.0.is_empty()) {
        files.push(("pcp_file", Path::new(file), "passwords"));
    }
    let own_keys = databases().filter_map(|own| own.server_tls_key_file.as_ref());
    let server_keys = own_keys.chain([&global.server_tls_key_file]);
    let keys = server_keys.map(|file| ("server_tls_key_file", file));
    for (key, file) in keys.chain([("client_tls_key_file", &global.client_tls_key_file)]) {
        files.push((key, Path::new(file), "a private key"));
    }
    let exposed = |(key, path, content): (&str, &Path, &str)| {
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
