//! A test's `pgbouncer.ini` with its `auth_file`, or the equivalent `weir.toml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The text of the two files. Keys are in alphabetical order, which both poolers accept.
#[derive(Debug, Clone, Default)]
pub struct Ini {
    global: BTreeMap<String, String>,
    databases: BTreeMap<String, String>,
    users: BTreeMap<String, String>,
    peers: BTreeMap<String, String>,
    clusters: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
}

impl Ini {
    /// Sets a key of `[pgbouncer]`.
    pub fn set(&mut self, key: &str, value: impl ToString) {
        self.global.insert(key.to_owned(), value.to_string());
    }

    /// Sets a key of `[pgbouncer]`, unless it was set before.
    pub(super) fn set_default(&mut self, key: &str, value: impl ToString) {
        self.global.entry(key.to_owned()).or_insert_with(|| value.to_string());
    }

    /// Was this key of `[pgbouncer]` set?
    pub(super) fn has(&self, key: &str) -> bool {
        self.global.contains_key(key)
    }

    /// Resets a key of `[pgbouncer]` to its default.
    pub fn unset(&mut self, key: &str) {
        self.global.remove(key);
    }

    /// Adds an entry of `[databases]`.
    pub fn database(&mut self, name: &str, connection: &str) {
        self.databases.insert(name.to_owned(), connection.to_owned());
    }

    /// Removes an entry of `[databases]`.
    pub fn remove_database(&mut self, name: &str) {
        self.databases.remove(name);
    }

    /// Adds an entry of `[users]`.
    pub fn user(&mut self, name: &str, settings: &str) {
        self.users.insert(name.to_owned(), settings.to_owned());
    }

    /// Adds an entry of `[peers]`.
    pub fn peer(&mut self, id: u32, connection: &str) {
        self.peers.insert(id.to_string(), connection.to_owned());
    }

    /// Adds an entry of `[clusters]`.
    pub fn cluster(&mut self, name: &str, settings: &str) {
        self.clusters.insert(name.to_owned(), settings.to_owned());
    }

    /// Removes an entry of `[clusters]`.
    pub fn remove_cluster(&mut self, name: &str) {
        self.clusters.remove(name);
    }

    /// Adds a line of `auth_file`: a password, an MD5 or a SCRAM verifier.
    pub fn secret(&mut self, user: &str, secret: &str) {
        self.secrets.insert(user.to_owned(), secret.to_owned());
    }

    /// Returns the entries of `[databases]`: names and connection strings.
    pub(super) fn databases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.databases.iter().map(|(name, connection)| (&**name, &**connection))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (section, entries) in [
            ("databases", &self.databases),
            ("users", &self.users),
            ("peers", &self.peers),
            ("clusters", &self.clusters),
            ("pgbouncer", &self.global),
        ] {
            // Debian 12's PgBouncer does not know all of them.
            if entries.is_empty() {
                continue;
            }
            let _ = writeln!(text, "[{section}]");
            for (key, value) in entries {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }

    /// Returns a `weir.toml` with all values as strings, which are read as in `pgbouncer.ini`.
    /// Connection strings must not contain quotes.
    pub(super) fn toml(&self) -> String {
        let pairs = |text: &mut String, pairs: &mut dyn Iterator<Item = (&str, &str)>| {
            for (key, value) in pairs {
                let _ = writeln!(text, "{key} = {value:?}");
            }
        };
        let mut text = String::new();
        pairs(&mut text, &mut self.global.iter().map(|(key, value)| (&**key, &**value)));
        for (section, entries) in
            [("databases", &self.databases), ("users", &self.users), ("peers", &self.peers)]
        {
            for (name, value) in entries {
                let _ = writeln!(text, "[{section}.{name:?}]");
                pairs(
                    &mut text,
                    &mut value.split_whitespace().filter_map(|pair| pair.split_once('=')),
                );
            }
        }
        text
    }

    pub(super) fn auth_file(&self) -> String {
        let mut text = String::new();
        for (user, secret) in &self.secrets {
            let quote = |word: &str| word.replace('"', "\"\"");
            let _ = writeln!(text, "\"{}\" \"{}\"", quote(user), quote(secret));
        }
        text
    }
}
