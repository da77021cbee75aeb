//! TLS to the servers of a database: its own keys `server_tls_…`, else the global ones.

use crate::choice::SslMode;
use crate::config::Config;
use crate::key::Keyed as _;
use crate::table::{Database, Global};

/// The keys `server_tls_…`. Different values mean different connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerTls {
    pub sslmode: SslMode,
    pub ca_file: String,
    pub cert_file: String,
    pub key_file: String,
    pub protocols: String,
    pub ciphers: String,
    pub ciphers13: Option<String>,
}

impl ServerTls {
    /// Must the certificate name the host, and come from a known authority?
    #[must_use]
    pub fn verifies_fully(&self) -> bool {
        self.sslmode == SslMode::VerifyFull
    }
}

impl Global {
    /// Returns the settings of databases without own keys.
    #[must_use]
    pub fn server_tls(&self) -> ServerTls {
        ServerTls {
            sslmode: self.server_tls_sslmode,
            ca_file: self.server_tls_ca_file.clone(),
            cert_file: self.server_tls_cert_file.clone(),
            key_file: self.server_tls_key_file.clone(),
            protocols: self.server_tls_protocols.clone(),
            ciphers: self.server_tls_ciphers.clone(),
            ciphers13: self.server_tls13_ciphers.clone(),
        }
    }
}

impl Database {
    /// Has it keys `server_tls_…` of its own?
    #[must_use]
    pub fn has_own_tls(&self) -> bool {
        Self::tls_rows().any(|row| (row.show)(self).is_some())
    }

    /// Returns its settings: where it has no key of its own, `usual` counts.
    fn server_tls(&self, usual: ServerTls) -> ServerTls {
        let own = |own: &Option<String>, usual| own.clone().unwrap_or(usual);
        ServerTls {
            sslmode: self.server_tls_sslmode.unwrap_or(usual.sslmode),
            ca_file: own(&self.server_tls_ca_file, usual.ca_file),
            cert_file: own(&self.server_tls_cert_file, usual.cert_file),
            key_file: own(&self.server_tls_key_file, usual.key_file),
            protocols: own(&self.server_tls_protocols, usual.protocols),
            ciphers: own(&self.server_tls_ciphers, usual.ciphers),
            ciphers13: self.server_tls13_ciphers.clone().or(usual.ciphers13),
        }
    }

    fn tls_rows() -> impl Iterator<Item = &'static crate::key::Row<Self>> {
        Self::ROWS.iter().filter(|row| Global::concerns_tls(row.key.name))
    }
}

impl Config {
    /// Returns the TLS settings for the servers of this database.
    #[must_use]
    pub fn server_tls(&self, database: &Database) -> ServerTls {
        database.server_tls(self.global.server_tls())
    }

    /// Copies all TLS settings from the running configuration, those of databases included.
    pub fn keep_tls(&mut self, running: &Self) {
        self.global.keep_tls(&running.global);
        for (name, database) in &mut self.databases {
            if let Some(before) = running.databases.get(name) {
                keep_own(database, before);
            }
        }
        if let (Some(database), Some(before)) = (&mut self.fallback, &running.fallback) {
            keep_own(database, before);
        }
    }
}

fn keep_own(database: &mut std::sync::Arc<Database>, running: &Database) {
    if database.has_own_tls() || running.has_own_tls() {
        let database = std::sync::Arc::make_mut(database);
        Database::tls_rows().for_each(|row| (row.copy)(database, running));
    }
}
