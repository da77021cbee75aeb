//! A configuration from environment variables, for `weir serve` without a URL, as in a container.
//!
//! `DATABASE_URL` names the server, or the variables of libpq or of the common PgBouncer images do. A
//! variable that is empty counts as not set.

use std::io;
use std::sync::Arc;

use crate::build::{Builder, Position};
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::key::Keyed;
use crate::passfile::password_in;
use crate::reason::{Reason, UrlError};
use crate::source::Source;
use crate::suggest;
use crate::table::Global;
use crate::url::{Parts, refusal};

const URL: &str = "DATABASE_URL";
/// The variable with the name of libpq's password file.
pub const PASSFILE: &str = "PGPASSFILE";

/// The variables that together name a server. The first set whose `host` is set counts.
struct Names {
    host: &'static str,
    port: &'static str,
    user: &'static str,
    password: &'static str,
    dbname: &'static str,
}

const SETS: [Names; 3] = [
    Names {
        host: "DB_HOST",
        port: "DB_PORT",
        user: "DB_USER",
        password: "DB_PASSWORD",
        dbname: "DB_NAME",
    },
    Names {
        host: "POSTGRESQL_HOST",
        port: "POSTGRESQL_PORT",
        user: "POSTGRESQL_USERNAME",
        password: "POSTGRESQL_PASSWORD",
        dbname: "POSTGRESQL_DATABASE",
    },
    Names {
        host: "PGHOST",
        port: "PGPORT",
        user: "PGUSER",
        password: "PGPASSWORD",
        dbname: "PGDATABASE",
    },
];

/// A variable whose name begins with one of these sets the global key behind it. A later one wins.
const PREFIXES: [&str; 3] = ["", "PGBOUNCER_", "WEIR_"];

/// Names of keys in some images of PgBouncer.
const OTHER_NAMES: [(&str, &str); 3] =
    [("port", "listen_port"), ("listen_address", "listen_addr"), ("bind_address", "listen_addr")];

/// The keys that the variables of the server decide.
const LOGIN_KEYS: [&str; 7] = [
    "auth_type",
    "auth_file",
    "auth_user",
    "auth_query",
    "auth_dbname",
    "auth_hba_file",
    "auth_ident_file",
];

impl Config {
    /// Returns the configuration for the server that the variables name, as [`Config::from_url`] does
    /// for a URL. Returns None if they name no server. `read` reads the file of a password.
    ///
    /// # Errors
    /// When a value is invalid. The error never repeats a password.
    pub fn from_environment(
        variables: &[(String, String)],
        read: impl Fn(&str) -> io::Result<String>,
    ) -> Option<Result<Self, ConfigError>> {
        let own = variables.iter().filter(|variable| !is_of_a_service(variable));
        let own: Vec<_> = own.cloned().collect();
        let variables = Variables { all: &own, read };
        let position = Position::new(&Arc::from("environment"), 0, "", "");
        let parts = variables.server()?;
        Some(parts.map_err(|why| refusal(&position, why)).and_then(|mut parts| {
            let mut builder = Builder::new(Source::Url);
            for warning in variables.keys(&mut parts) {
                builder.report.warn(&position, Reason::Url(warning));
            }
            Self::from_parts(parts, &position, builder)
        }))
    }
}

impl Config {
    /// Returns the configuration for `weir serve URL`, as [`Config::from_url`] does. A password that the
    /// URL lacks comes from `PGPASSWORD`, or from the file that `PGPASSFILE` names.
    ///
    /// # Errors
    /// When the URL is invalid, or there is no password. The error never repeats a password.
    pub fn from_url_in(
        url: &str,
        variables: &[(String, String)],
        read: impl Fn(&str) -> io::Result<String>,
    ) -> Result<Self, ConfigError> {
        let position = Position::new(&Arc::from("URL"), 0, "", "");
        let variables = Variables { all: variables, read };
        let parts = Parts::new(url).and_then(|parts| variables.complete(parts));
        let parts = parts.map_err(|why| refusal(&position, why))?;
        Self::from_parts(parts, &position, Builder::new(Source::Url))
    }
}

struct Variables<'a, R> {
    all: &'a [(String, String)],
    read: R,
}

impl<R: Fn(&str) -> io::Result<String>> Variables<'_, R> {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.all.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the server, without Weir's own keys.
    fn server(&self) -> Option<Result<Parts, UrlError>> {
        if let Some(url) = self.get(URL) {
            return Some(Parts::new(url).and_then(|parts| self.complete(parts)));
        }
        let names = SETS.iter().find(|names| self.get(names.host).is_some())?;
        Some(self.secret(names.password).and_then(|password| {
            let settings = [("host", names.host), ("port", names.port), ("dbname", names.dbname)];
            let set = |(key, name): (&str, &str)| {
                self.get(name).map(|value| (key.to_owned(), value.to_owned()))
            };
            self.complete(Parts {
                user: self.get(names.user).map(str::to_owned),
                password,
                database: settings.into_iter().filter_map(set).collect(),
                global: Vec::new(),
            })
        }))
    }

    /// Adds the password that a user lacks, if libpq would find it.
    fn complete(&self, mut parts: Parts) -> Result<Parts, UrlError> {
        let Some(user) = parts.user.clone().filter(|_| parts.password.is_none()) else {
            return Ok(parts);
        };
        parts.password = self.secret("PGPASSWORD")?;
        if let (None, Some(file)) = (&parts.password, self.get(PASSFILE)) {
            let text = (self.read)(file).map_err(|error| {
                let (variable, file) = (PASSFILE.to_owned(), file.to_owned());
                UrlError::PasswordFile { variable, file, why: crate::in_words(&error) }
            })?;
            let of = |key: &str| {
                let found = parts.database.iter().rev().find(|(own, _)| own == key);
                found.map(|(_, value)| value.split(',').next().unwrap_or_default())
            };
            // The folder of a unix socket is localhost.
            let host = of("host").filter(|host| !host.starts_with('/')).unwrap_or("localhost");
            let (port, dbname) = (of("port").unwrap_or("5432"), of("dbname").unwrap_or(&user));
            parts.password = password_in(&text, [host, port, dbname, &user]);
        }
        Ok(parts)
    }

    /// Returns the value of a variable, or the first line of the file that `NAME_FILE` names.
    fn secret(&self, name: &str) -> Result<Option<String>, UrlError> {
        if let Some(value) = self.get(name) {
            return Ok(Some(value.to_owned()));
        }
        let variable = format!("{name}_FILE");
        let Some(file) = self.get(&variable) else { return Ok(None) };
        match (self.read)(file) {
            Ok(text) => Ok(text.lines().next().map(str::to_owned)),
            Err(error) => {
                let (file, why) = (file.to_owned(), crate::in_words(&error));
                Err(UrlError::PasswordFile { variable, file, why })
            }
        }
    }

    /// Adds the global keys that variables set. Returns what to warn of.
    fn keys(&self, parts: &mut Parts) -> Vec<UrlError> {
        let mut warnings = Vec::new();
        for prefix in PREFIXES {
            for (name, value) in self.all.iter().filter(|(_, value)| !value.is_empty()) {
                let Some(rest) = name.strip_prefix(prefix) else { continue };
                match known(rest).filter(|key| !prefix.is_empty() || may_stand_alone(key)) {
                    Some(key) if LOGIN_KEYS.contains(&key) => {
                        warnings.push(UrlError::NoEffectOnLogin(name.clone()));
                    }
                    Some(key) => {
                        parts.global.retain(|(set, _)| set != key);
                        parts.global.push((key.to_owned(), value.clone()));
                    }
                    None if prefix.is_empty() => {}
                    None => warnings.push(unknown(prefix, rest)),
                }
            }
        }
        warnings
    }
}

/// May this key's variable have no prefix? Other programs have variables such as USER and DATA_PATH.
fn may_stand_alone(key: &str) -> bool {
    key.contains('_') && Global::is_pgbouncers(key)
}

/// Did Kubernetes set this variable? For a Service `weir`, each container of its namespace gets
/// `WEIR_PORT=tcp://10.0.0.1:5432`, `WEIR_SERVICE_HOST` and the like.
fn is_of_a_service((name, value): &(String, String)) -> bool {
    let is_address = name.ends_with("_PORT") && value.contains("://");
    let parts = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"];
    is_address || parts.iter().any(|part| name.contains(part))
}

/// Returns the global key that a variable without its prefix names.
fn known(name: &str) -> Option<&'static str> {
    if name.chars().any(|letter| letter.is_ascii_lowercase()) {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
    Global::row(other.map_or(name.as_str(), |(_, key)| key)).map(|row| row.key.name)
}

fn unknown(prefix: &str, rest: &str) -> UrlError {
    let keys = Global::ROWS.iter().map(|row| row.key.name);
    let suggestion = suggest::nearest(&rest.to_ascii_lowercase(), keys);
    let suggestion = suggestion.map(|key| format!("{prefix}{}", key.to_ascii_uppercase()));
    UrlError::UnknownVariable { variable: format!("{prefix}{rest}"), suggestion }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parsed(lines: &str) -> Result<Config, String> {
        let split = |line: &str| {
            line.trim().split_once('=').map(|(name, value)| (name.into(), value.into()))
        };
        let variables: Vec<(String, String)> = lines.lines().filter_map(split).collect();
        let config = Config::from_environment(&variables, |file| fs::read_to_string(file))
            .ok_or("no server")?;
        config.map_err(|error| error.mistakes[0].to_string())
    }

    fn warnings(config: &Config) -> Vec<String> {
        config.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_set_of_variables_names_a_server() {
        for lines in [
            "DATABASE_URL=postgresql://app:secret@db:5433/shop",
            "DATABASE_URL=postgresql://app@db:5433/shop\nPGPASSWORD=secret",
            "DB_HOST=db\nDB_PORT=5433\nDB_USER=app\nDB_PASSWORD=secret\nDB_NAME=shop\nPGHOST=",
            "POSTGRESQL_HOST=db\nPOSTGRESQL_PORT=5433\nPOSTGRESQL_USERNAME=app\n\
             POSTGRESQL_PASSWORD=secret\nPOSTGRESQL_DATABASE=shop",
            "PGHOST=db\nPGPORT=5433\nPGUSER=app\nPGPASSWORD=secret\nPGDATABASE=shop",
        ] {
            let config = parsed(lines).unwrap();
            let database = config.database("shop").unwrap();
            assert_eq!(
                (database.hosts.len(), database.dbname.as_deref()),
                (1, Some("shop")),
                "{lines}"
            );
            assert_eq!(config.addresses(&database)[0].0.to_string(), "db", "{lines}");
            assert_eq!(config.addresses(&database)[0].1, 5433, "{lines}");
            assert_eq!(config.global.admin_users, ["app"], "{lines}");
            assert_eq!(warnings(&config), [""; 0], "{lines}");
        }
        assert_eq!(parsed("DB_USER=app\nDB_PASSWORD=secret").unwrap_err(), "no server");
    }

    #[test]
    fn keys_are_set_by_the_names_of_the_images() {
        let config = parsed(
            "DB_HOST=db\nUSER=root\nPOOL_MODE=session\nPGBOUNCER_POOL_MODE=statement\n\
             PGBOUNCER_PORT=6000\nWEIR_POOL_MODE=transaction\nDEFAULT_POOL_SIZE=7\npool_mode=auto\n\
             DATA_PATH=/data\nLOG_FORMAT=text\nUNIX_SOCKET_GROUP=db",
        );
        let config = config.unwrap();
        assert_eq!(config.global.pool_mode, crate::PoolMode::Transaction);
        assert_eq!((config.global.listen_port, config.global.default_pool_size), (6000, 7));
        assert_eq!(config.global.user, None);
        assert_eq!(config.global.unix_socket_group, "db");
        assert_eq!(warnings(&config), [""; 0]);
    }

    #[test]
    fn what_has_no_effect_is_warned_of_and_what_is_wrong_is_named() {
        let config =
            parsed("DB_HOST=db\nAUTH_TYPE=any\nAUTH_USER=a\nWEIR_POOL_MOD=auto\nPGBOUNCER_X=1")
                .unwrap();
        let text = warnings(&config).join("\n");
        for part in [
            "AUTH_TYPE has no effect",
            "AUTH_USER has no effect",
            "WEIR_POOL_MOD is not known (did you mean \"WEIR_POOL_MODE\"?)",
            "PGBOUNCER_X is not known",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let error = parsed("DB_HOST=db\nWEIR_LISTEN_PORT=x").unwrap_err();
        assert!(error.contains("listen_port"), "{error}");
        let error = parsed("DB_HOST=db\nDB_USER=a").unwrap_err();
        assert!(error.contains("user without a password"), "{error}");
    }

    #[test]
    fn variables_of_a_service_of_kubernetes_set_nothing() {
        let config = parsed(
            "DB_HOST=db\nDB_PORT=tcp://10.0.0.1:5433\nWEIR_PORT=tcp://10.0.0.2:5433\n\
             WEIR_SERVICE_HOST=10.0.0.2\nWEIR_SERVICE_PORT_POSTGRESQL=5433\n\
             WEIR_PORT_5433_TCP=tcp://10.0.0.2:5433\nPGBOUNCER_PORT=tcp://10.0.0.3:5433",
        );
        let config = config.unwrap();
        assert_eq!(config.global.listen_port, 6432);
        let database = config.database("shop").unwrap();
        assert_eq!(config.addresses(&database)[0].1, 5432);
        assert_eq!(warnings(&config), [""; 0]);
    }

    #[test]
    fn a_url_without_a_password_gets_it_from_libpqs_variables() {
        let of = |url: &str, variables: &[(&str, &str)]| {
            let variables: Vec<_> =
                variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let read = |file: &str| match file {
                "pass" => Ok("db:5433:shop:app:from the file\n".to_owned()),
                _ => Err(io::ErrorKind::NotFound.into()),
            };
            let config = Config::from_url_in(url, &variables, read);
            config
                .map(|config| config.auth_file.users["app"].clone())
                .map_err(|error| error.mistakes[0].to_string())
        };
        let url = "postgresql://app@db:5433/shop";
        assert_eq!(of(url, &[("PGPASSWORD", "it")]), Ok("it".to_owned()));
        assert_eq!(of(url, &[("PGPASSFILE", "pass")]), Ok("from the file".to_owned()));
        let both = [("PGPASSWORD", "it"), ("PGPASSFILE", "pass")];
        assert_eq!(of(url, &both), Ok("it".to_owned()));
        assert_eq!(of("postgresql://app:own@db/shop", &both), Ok("own".to_owned()));
        for (url, variables, why) in [
            (
                "postgresql://app@db:1/shop",
                &[("PGPASSFILE", "pass")][..],
                "user without a password",
            ),
            (url, &[("PGPASSFILE", "gone")], "could not read gone, the value of PGPASSFILE"),
            (url, &[], "user without a password"),
        ] {
            let error = of(url, variables).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_password_may_stand_in_a_file() {
        let file = std::env::temp_dir().join(format!("weir-password-{}", std::process::id()));
        fs::write(&file, "se cret\n").unwrap();
        let lines = format!("DB_HOST=db\nDB_USER=app\nDB_PASSWORD_FILE={}", file.display());
        let config = parsed(&lines).unwrap();
        assert_eq!(config.auth_file.users["app"], "se cret");
        fs::remove_file(&file).unwrap();
        let error = parsed(&lines).unwrap_err();
        assert!(error.contains("DB_PASSWORD_FILE") && error.contains("No such file"), "{error}");
    }
}
