//! A configuration from one `postgresql://` URL, for `weir serve`.
//!
//! The URL is libpq's: `postgresql://[user[:password]@]host[:port][,host…]/[database][?key=value…]`
//! with percent-encoding. A parameter is one of libpq's words or any global key of Weir.

use std::sync::Arc;

use crate::auth_file::AuthFile;
use crate::build::{Builder, Position, Setting};
use crate::config::{AccessPolicy, Config};
use crate::config_error::ConfigError;
use crate::key::Keyed;
use crate::reason::{Reason, UrlError};
use crate::source::Source;
use crate::suggest;
use crate::table::Global;

/// The folder of Debian's PostgreSQL's socket; libpq also uses it for a URL without a host.
const SOCKET_DIR: &str = "/var/run/postgresql";

/// The words of libpq that are keys of a database entry.
const DATABASE_WORDS: [&str; 5] = ["host", "port", "dbname", "application_name", "client_encoding"];

/// The words of libpq that have another name here.
const GLOBAL_WORDS: [(&str, &str); 5] = [
    ("sslmode", "server_tls_sslmode"),
    ("sslrootcert", "server_tls_ca_file"),
    ("sslcert", "server_tls_cert_file"),
    ("sslkey", "server_tls_key_file"),
    ("connect_timeout", "server_connect_timeout"),
];

impl Config {
    /// Returns the configuration for `weir serve URL`. It listens on 127.0.0.1:6432 in mode auto.
    /// It has the database of the URL by its name, and every other database of the server by the
    /// entry `*`. [`Config::access`] tells who may log in. A user of the URL is an admin of the
    /// console, unless the URL has `admin_users`.
    ///
    /// # Errors
    /// When the URL is invalid. The error never repeats its password.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let position = Position::new(&Arc::from("URL"), 0, "", "");
        let parts = Parts::new(url).map_err(|why| refusal(&position, why))?;
        Self::from_parts(parts, &position, Builder::new(Source::Url))
    }

    /// Builds the configuration for one server. `builder` may have warnings already.
    pub(crate) fn from_parts(
        parts: Parts,
        position: &Position,
        mut builder: Builder,
    ) -> Result<Self, ConfigError> {
        let access = parts.access().map_err(|why| refusal(position, why))?;
        if let AccessPolicy::UrlUser { .. } = access {
            builder.global(position, "auth_type", "scram-sha-256");
        }
        for (key, value) in &parts.global {
            builder.global(position, key, value);
        }
        let entry = |name: &str| Position { entry: name.to_owned(), ..position.clone() };
        if let Some(name) = parts.dbname() {
            builder.database(&entry(name), &parts.settings(&access, true));
        }
        builder.database(&entry("*"), &parts.settings(&access, false));

        let mut config = builder.finish()?;
        if let AccessPolicy::UrlUser { user, password } = &access {
            // One user and one password; the ordinary login uses them.
            config.auth_file = AuthFile { users: [(user.clone(), password.clone())].into() };
            if !parts.global.iter().any(|(key, _)| key == "admin_users") {
                config.global.admin_users = vec![user.clone()];
            }
        }
        config.access = access;
        Ok(config)
    }
}

pub(crate) fn refusal(position: &Position, why: UrlError) -> ConfigError {
    ConfigError { mistakes: vec![position.mistake("", Reason::Url(why))], rest: None }
}

/// A parsed and decoded URL.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Keys of the database entries; if one is repeated, the last one counts.
    pub(crate) database: Vec<(String, String)>,
    /// Global keys.
    pub(crate) global: Vec<(String, String)>,
}

impl Parts {
    /// Parses a URL as libpq does. A password ends at a `/` or `?` there too, and is then read as a
    /// port; the error does not repeat it.
    pub(crate) fn new(url: &str) -> Result<Self, UrlError> {
        let is_port = |(key, text): &(String, String)| key != "port" || text.parse::<u16>().is_ok();
        match Self::read(url) {
            Ok(parts) if parts.database.iter().all(is_port) => Ok(parts),
            Ok(_) | Err(_) if is_cut(url) => Err(UrlError::PasswordCut),
            other => other,
        }
    }

    fn read(url: &str) -> Result<Self, UrlError> {
        let rest = url.strip_prefix("postgresql://").or_else(|| url.strip_prefix("postgres://"));
        let rest = rest.ok_or(UrlError::Scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));

        let mut parts = Self::default();
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        parts.user = Some(decode(user)?);
        parts.password = Some(decode(password)?);
        parts.hosts(hosts)?;
        if !path.is_empty() {
            parts.database.push(("dbname".to_owned(), decode(path)?));
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or(UrlError::NoValue)?;
            parts.parameter(&decode(key)?, decode(value)?)?;
        }
        parts.user.take_if(|user| user.is_empty());
        parts.password.take_if(|password| password.is_empty());
        Ok(parts)
    }

    /// `host[:port]`, or several with commas; they share one port, as in a database entry.
    fn hosts(&mut self, text: &str) -> Result<(), UrlError> {
        let mut hosts = Vec::new();
        let mut ports = Vec::new();
        for host in text.split(',').filter(|host| !host.is_empty()) {
            let (host, port) = match host.strip_prefix('[') {
                Some(rest) => rest.split_once(']').ok_or(UrlError::Bracket)?,
                None => host.split_at(host.find(':').unwrap_or(host.len())),
            };
            if !host.is_empty() {
                hosts.push(decode(host)?);
            }
            match port.strip_prefix(':') {
                Some(port) if !port.is_empty() => ports.push(decode(port)?),
                None if !port.is_empty() => return Err(UrlError::NoColon),
                _ => ports.push("5432".to_owned()),
            }
        }
        ports.dedup();
        if ports.len() > 1 {
            return Err(UrlError::Ports);
        }
        let hosts = if hosts.is_empty() { SOCKET_DIR.to_owned() } else { hosts.join(",") };
        self.database.push(("host".to_owned(), hosts));
        self.database.extend(ports.pop().map(|port| ("port".to_owned(), port)));
        Ok(())
    }

    fn parameter(&mut self, key: &str, value: String) -> Result<(), UrlError> {
        match key {
            "user" => self.user = Some(value),
            "password" => self.password = Some(value),
            "auth_type" | "auth_file" => {
                return Err(UrlError::DecidesLogin(key.to_owned()));
            }
            _ if DATABASE_WORDS.contains(&key) => {
                self.database.push((key.to_owned(), value));
            }
            _ => {
                let word = GLOBAL_WORDS.iter().find(|(word, _)| *word == key);
                let known = word.map_or(key, |(_, key)| key);
                if Global::row(known).is_none() {
                    let words = DATABASE_WORDS.into_iter().chain(["user", "password"]);
                    let words = words.chain(GLOBAL_WORDS.map(|(word, _)| word));
                    let words = words.chain(Global::ROWS.iter().map(|row| row.key.name));
                    let suggestion = suggest::nearest(key, words);
                    let key = key.to_owned();
                    return Err(UrlError::UnknownParameter { key, suggestion });
                }
                self.global.push((known.to_owned(), value));
            }
        }
        Ok(())
    }

    fn access(&self) -> Result<AccessPolicy, UrlError> {
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => {
                Ok(AccessPolicy::UrlUser { user: user.clone(), password: password.clone() })
            }
            (None, None) => Ok(AccessPolicy::ProvenByServer),
            (Some(_), None) => Err(UrlError::NoPassword),
            (None, Some(_)) => Err(UrlError::NoUser),
        }
    }

    fn dbname(&self) -> Option<&str> {
        let dbname = self.database.iter().rev().find(|(key, _)| key == "dbname");
        dbname.map(|(_, name)| name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the settings of an entry; that of `*` has no fixed name on the server.
    fn settings(&self, access: &AccessPolicy, named: bool) -> Vec<Setting> {
        let login = match access {
            AccessPolicy::UrlUser { user, password } => {
                vec![("user", user.as_str()), ("password", password.as_str())]
            }
            AccessPolicy::Configured | AccessPolicy::ProvenByServer => Vec::new(),
        };
        let pairs = self.database.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let pairs = pairs.filter(|(key, _)| named || *key != "dbname").chain(login);
        pairs
            .map(|(key, text)| Setting { key: key.to_owned(), text: text.to_owned(), line: 0 })
            .collect()
    }
}

/// Does an `@` come only after the end of the hosts?
fn is_cut(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    rest.contains('@') && !authority.contains('@')
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let byte = match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or_default(),
                _ => return Err(UrlError::Percent),
            },
            byte => byte,
        };
        if byte == 0 {
            return Err(UrlError::Zero);
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|_| UrlError::NotUtf8)
}
