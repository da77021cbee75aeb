//! A `pgbouncer.ini` with its `auth_file`, built up by a test.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The two files as text to be. Keys stay in alphabetical order, which neither pooler minds.
#[derive(Debug, Clone, Default)]
pub struct Ini {
    global: BTreeMap<String, String>,
    databases: BTreeMap<String, String>,
    users: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
}

impl Ini {
    /// A key of `[pgbouncer]`.
    pub fn set(&mut self, key: &str, value: impl ToString) {
        self.global.insert(key.to_owned(), value.to_string());
    }

    /// Leaves a key of `[pgbouncer]` to its default.
    pub fn unset(&mut self, key: &str) {
        self.global.remove(key);
    }

    /// An entry of `[databases]`.
    pub fn database(&mut self, name: &str, connection: &str) {
        self.databases.insert(name.to_owned(), connection.to_owned());
    }

    /// Removes an entry of `[databases]`.
    pub fn remove_database(&mut self, name: &str) {
        self.databases.remove(name);
    }

    /// An entry of `[users]`.
    pub fn user(&mut self, name: &str, settings: &str) {
        self.users.insert(name.to_owned(), settings.to_owned());
    }

    /// A line of `auth_file`: a password, an MD5 or a SCRAM verifier.
    pub fn secret(&mut self, user: &str, secret: &str) {
        self.secrets.insert(user.to_owned(), secret.to_owned());
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (section, entries) in
            [("databases", &self.databases), ("users", &self.users), ("pgbouncer", &self.global)]
        {
            let _ = writeln!(text, "[{section}]");
            for (key, value) in entries {
                let _ = writeln!(text, "{key} = {value}");
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
