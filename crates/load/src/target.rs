//! The address and the user of connections: from the command line, a URL or a connection string,
//! the environment and libpq's defaults, in this order.

mod conninfo;
mod passfile;

use std::{env, net::ToSocketAddrs as _, path::PathBuf, time::Duration};

use config::SslMode;
use net::{Address, CallerTls};

use crate::login::Keyring;

/// The folder of Debian's PostgreSQL's socket.
const SOCKET_DIR: &str = "/var/run/postgresql";
const PORT: &str = "5432";

/// The error if a connection takes longer than `connect_timeout`.
pub(crate) const TIMEOUT_EXPIRED: &str = "timeout expired";

/// libpq's supported keywords, with the environment variable and the default of each.
const KEYWORDS: [(&str, &str, &str); 15] = [
    ("host", "PGHOST", ""),
    ("hostaddr", "PGHOSTADDR", ""),
    ("port", "PGPORT", PORT),
    ("user", "PGUSER", ""),
    ("dbname", "PGDATABASE", ""),
    ("password", "PGPASSWORD", ""),
    ("passfile", "PGPASSFILE", ""),
    ("sslmode", "PGSSLMODE", "prefer"),
    ("sslrootcert", "PGSSLROOTCERT", ""),
    ("sslcert", "PGSSLCERT", ""),
    ("sslkey", "PGSSLKEY", ""),
    ("application_name", "PGAPPNAME", "weir bench"),
    ("client_encoding", "PGCLIENTENCODING", ""),
    ("options", "PGOPTIONS", ""),
    ("connect_timeout", "PGCONNECT_TIMEOUT", ""),
];

/// Keywords that are accepted without effect: their features do not exist, or are always on.
const WITHOUT_EFFECT: [&str; 9] = [
    "fallback_application_name",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "sslcompression",
    "tcp_user_timeout",
];

/// The address of the server and the login.
#[derive(Debug)]
pub(crate) struct Target {
    /// The addresses, in the order of attempts.
    pub(crate) addresses: Vec<Address>,
    /// The host name or the socket's folder, for messages.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) password: Option<String>,
    /// The parameters of the startup packet.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) tls: CallerTls,
    /// The time limit from the socket to the end of the login.
    pub(crate) connect_timeout: Option<Duration>,
}

/// Known keywords and their values.
#[derive(Debug, Default)]
pub(crate) struct Wanted(Vec<(String, String)>);

impl Wanted {
    /// Sets a keyword, unless it was set before.
    ///
    /// # Errors
    /// When libpq has no such keyword, or it is not supported.
    pub(crate) fn set(&mut self, keyword: &str, value: &str) -> Result<(), String> {
        if WITHOUT_EFFECT.contains(&keyword) {
            return Ok(());
        }
        if !KEYWORDS.iter().any(|known| known.0 == keyword) {
            return Err(format!("invalid connection option \"{keyword}\""));
        }
        self.0.push((keyword.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Sets a database's name, a URL or a connection string, as libpq accepts each for the others.
    ///
    /// # Errors
    /// When it is malformed.
    pub(crate) fn set_database(&mut self, text: &str) -> Result<(), String> {
        let pairs = if text.starts_with("postgresql://") || text.starts_with("postgres://") {
            conninfo::url(text)?
        } else if text.contains('=') {
            conninfo::pairs(text)?
        } else {
            return self.set("dbname", text);
        };
        pairs.iter().try_for_each(|(keyword, value)| self.set(keyword, value))
    }

    fn get(&self, keyword: &str) -> String {
        let own = self.0.iter().find(|(known, _)| known == keyword).map(|(_, value)| value.clone());
        let (_, variable, default) =
            KEYWORDS.iter().find(|known| known.0 == keyword).unwrap_or(&("", "", ""));
        let own = own.filter(|value| !value.is_empty());
        let found = own.or_else(|| env::var(variable).ok().filter(|value| !value.is_empty()));
        found.unwrap_or_else(|| (*default).to_owned())
    }

    /// # Errors
    /// When a value is invalid, a host has no address, or a TLS file cannot be used.
    pub(crate) fn resolve(&self) -> Result<Target, String> {
        let mut host = self.get("host");
        let numeric = self.get("hostaddr");
        if host.contains(',') || self.get("port").contains(',') {
            return Err("one host at a time can be measured".to_owned());
        }
        if host.is_empty() {
            host = if numeric.is_empty() { SOCKET_DIR.to_owned() } else { numeric.clone() };
        }
        let port = self.get("port");
        let port: u16 = port.parse().map_err(|_| format!("invalid port number: \"{port}\""))?;
        let user = match self.get("user") {
            user if user.is_empty() => net::own_user().ok_or("no user name; name one with -U")?,
            user => user,
        };
        let database = match self.get("dbname") {
            name if name.is_empty() => user.clone(),
            name => name,
        };
        let password = match self.get("password") {
            password if password.is_empty() => passfile::find(
                &passfile_path(&self.get("passfile")),
                &[if host == SOCKET_DIR { "localhost" } else { &host }, &port.to_string()],
                &[&database, &user],
            ),
            password => Some(password),
        };
        let mut parameters =
            vec![("user".to_owned(), user.clone()), ("database".to_owned(), database.clone())];
        for keyword in ["application_name", "client_encoding", "options"] {
            let value = self.get(keyword);
            if !value.is_empty() {
                parameters.push((keyword.to_owned(), value));
            }
        }
        let addresses = addresses(if numeric.is_empty() { &host } else { &numeric }, port)?;
        let tls = match addresses.first() {
            Some(Address::Inet(_)) => self.tls(&host)?,
            _ => CallerTls::default(),
        };
        let connect_timeout = connect_timeout(&self.get("connect_timeout"))?;
        Ok(Target {
            addresses,
            host,
            port,
            user,
            database,
            password,
            parameters,
            tls,
            connect_timeout,
        })
    }

    fn tls(&self, host: &str) -> Result<CallerTls, String> {
        let mode = match self.get("sslmode").as_str() {
            // libpq tries without encryption first where the server may choose.
            "disable" | "allow" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            other => return Err(format!("invalid sslmode value: \"{other}\"")),
        };
        let checks = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
        let file = |keyword: &str, default: &str, needed: bool| match self.get(keyword) {
            name if !name.is_empty() => name,
            _ => {
                let path = home().join(".postgresql").join(default);
                let exists = path.exists() || needed;
                if exists { path.to_string_lossy().into_owned() } else { String::new() }
            }
        };
        let authorities =
            if checks { file("sslrootcert", "root.crt", true) } else { String::new() };
        let certificate = file("sslcert", "postgresql.crt", false);
        let key = file("sslkey", "postgresql.key", false);
        CallerTls::load(mode, host, &authorities, &certificate, &key).map_err(|error| error.reason)
    }
}

impl Target {
    pub(crate) fn keyring(&self) -> Keyring {
        Keyring::new(&self.user, self.password.as_deref())
    }

    /// Appends the startup packet.
    pub(crate) fn start_up(&self, out: &mut Vec<u8>) {
        let parameters = self.parameters.iter().map(|(name, value)| (&name[..], &value[..]));
        wire::frontend::startup(out, 0, &parameters.collect::<Vec<_>>());
    }

    /// Returns the error of a connection as libpq has it, without the system's error number.
    pub(crate) fn complain(&self, address: &Address, reason: &str) -> String {
        let reason = reason.split(" (os error ").next().unwrap_or(reason);
        format!("{} failed: {reason}", self.describe(address))
    }

    /// Returns libpq's description of an address in an error.
    fn describe(&self, address: &Address) -> String {
        match address {
            Address::Inet(inet) if inet.ip().to_string() == self.host => {
                format!("connection to server at \"{}\", port {}", self.host, self.port)
            }
            Address::Inet(inet) => format!(
                "connection to server at \"{}\" ({}), port {}",
                self.host,
                inet.ip(),
                self.port
            ),
            _ => format!("connection to server on socket \"{}/.s.PGSQL.{}\"", self.host, self.port),
        }
    }
}

pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<Address>, String> {
    if let Some(name) = host.strip_prefix('@') {
        return Ok(vec![Address::Abstract(format!("{name}/.s.PGSQL.{port}").into_bytes())]);
    }
    if host.starts_with('/') {
        return Ok(vec![Address::Unix(format!("{host}/.s.PGSQL.{port}").into())]);
    }
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("could not translate host name \"{host}\" to address: {error}"))?;
    Ok(found.map(Address::Inet).collect())
}

/// Returns whole seconds; None unless above zero. As in libpq, one second counts as two.
fn connect_timeout(text: &str) -> Result<Option<Duration>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let seconds: i32 = text.trim().parse().map_err(|_| {
        format!("invalid integer value \"{text}\" for connection option \"connect_timeout\"")
    })?;
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.max(2))))
}

fn home() -> PathBuf {
    env::var_os("HOME").map(PathBuf::from).unwrap_or_default()
}

fn passfile_path(named: &str) -> PathBuf {
    if named.is_empty() { home().join(".pgpass") } else { PathBuf::from(named) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_connect_is_in_seconds_and_at_least_two() {
        for (text, seconds) in
            [("", None), ("0", None), ("-1", None), ("1", Some(2)), ("7", Some(7))]
        {
            assert_eq!(connect_timeout(text), Ok(seconds.map(Duration::from_secs)), "{text}");
        }
        let wrong = "invalid integer value \"2s\" for connection option \"connect_timeout\"";
        assert_eq!(connect_timeout("2s"), Err(wrong.to_owned()));
    }
}
