//! The configuration of a pooler. Both poolers get the same `pgbouncer.ini`, except for keys that only
//! Weir has: the number of workers, the distribution of clients to them, and the permission to inspect
//! its memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use net::sys::Address;
use wire::scram::ScramVerifier;

use super::binary::Make;
use super::workplace::{Identity, Tls, UNIX_PORT};
use crate::server::REPORTING;
use crate::traffic::Credentials;

const ITERATIONS: u32 = 4_096;

/// The part of a pooler's configuration that differs between rows.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) unix: bool,
    pub(crate) scram: bool,
    pub(crate) prepared: bool,
    pub(crate) tls: Tls,
    pub(crate) pool_mode: String,
    /// True if there is a second database, with a user of its own.
    pub(crate) other: bool,
    /// True if the servers report the state of their sessions.
    pub(crate) reports: bool,
    /// `default_pool_size`.
    pub(crate) servers: u32,
    /// `max_client_conn`.
    pub(crate) clients_max: usize,
    pub(crate) workers: Workers,
    /// Weir's `direct_socket`. With it, the pools are direct.
    pub(crate) direct_socket: Option<PathBuf>,
    /// The cores of the pooler and its peers. Without it, they may run on any core.
    pub(crate) cores: Option<Cores>,
}

/// The number of Weir's workers. PgBouncer has one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workers {
    One,
    /// Two workers, with this `session_schedule`.
    Two(&'static str),
}

/// The distribution of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// The cores of the pooler. Weir's workers are distributed to them one by one.
    pub(crate) pooler: Vec<usize>,
    /// The cores of the clients and the canned server, which share one thread.
    pub(crate) peers: Vec<usize>,
}

impl Setting {
    pub(crate) const USER: &str = Credentials::USER;
    pub(crate) const DATABASE: &str = Credentials::DATABASE;
    /// The name of the second database and of its user.
    pub(crate) const OTHER: &str = "other";
    /// The default values of rows.
    pub(crate) const SERVERS: u32 = 20;
    pub(crate) const CLIENTS_MAX: usize = 6_000;

    pub(super) fn configuration(
        &self,
        make: Make,
        server: &Address,
        port: u16,
        users: &Path,
    ) -> String {
        let (host, server_port) = match server {
            Address::Inet(address) => (address.ip().to_string(), address.port()),
            Address::Unix(path) => {
                let folder = path.parent().unwrap_or(path).display().to_string();
                let port = path.extension().and_then(|port| port.to_str()?.parse().ok());
                (folder, port.unwrap_or(UNIX_PORT))
            }
            Address::Abstract(_) | Address::Unnamed => (server.to_string(), UNIX_PORT),
        };
        let mut text = "[databases]\n".to_owned();
        let mut databases = vec![(Self::DATABASE, Self::USER)];
        databases.extend(self.other.then_some((Self::OTHER, Self::OTHER)));
        for (database, user) in databases {
            let there = if self.reports { REPORTING } else { database };
            let _ = writeln!(
                text,
                "{database} = host={host} port={server_port} dbname={there} user={user}"
            );
        }
        let _ = write!(
            text,
            "[pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = {}\n\
             auth_file = {}\n\
             pool_mode = {}\n\
             default_pool_size = {}\n\
             max_client_conn = {}\n\
             stats_users = {}\n\
             server_tls_sslmode = disable\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             log_stats = 0\n",
            if self.scram { "scram-sha-256" } else { "trust" },
            users.display(),
            self.pool_mode,
            self.servers,
            self.clients_max,
            Self::USER,
        );
        if self.prepared {
            text.push_str("max_prepared_statements = 200\n");
        }
        if self.tls != Tls::None {
            let Identity { certificate, key } = Identity::beside(users);
            let _ = writeln!(text, "client_tls_sslmode = require");
            let _ = writeln!(text, "client_tls_cert_file = {}", certificate.display());
            let _ = writeln!(text, "client_tls_key_file = {}", key.display());
        }
        if make == Make::Weir {
            // Allows the user who runs the benchmark to inspect Weir's memory.
            text.push_str("core_dumps = 1\n");
            let _ = match self.workers {
                Workers::One => writeln!(text, "workers = 1"),
                Workers::Two(schedule) => {
                    writeln!(text, "workers = 2\nsession_schedule = {schedule}")
                }
            };
            if let Some(socket) = &self.direct_socket {
                let _ = writeln!(text, "data_path = direct\ndirect_socket = {}", socket.display());
            }
        }
        text
    }

    /// Returns the users' file. It contains a verifier, since PgBouncer would derive a verifier
    /// from a plain password at every login. Installations with many logins do not store passwords
    /// there.
    pub(super) fn users(&self) -> String {
        let verifier = ScramVerifier::from_password(
            Credentials::PASSWORD.as_bytes(),
            b"salt of 16 bytes",
            ITERATIONS,
        );
        let mut text = format!("\"{}\" \"{verifier}\"\n", Self::USER);
        if self.other {
            let _ = writeln!(text, "\"{}\" \"{verifier}\"", Self::OTHER);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_weirs_configuration_has_workers() {
        let setting = Setting {
            unix: true,
            scram: true,
            prepared: false,
            tls: Tls::None,
            pool_mode: "transaction".to_owned(),
            other: true,
            reports: false,
            direct_socket: None,
            servers: Setting::SERVERS,
            clients_max: Setting::CLIENTS_MAX,
            workers: Workers::Two("random"),
            cores: None,
        };
        let server = Address::Unix("/run/x/.s.PGSQL.5432".into());
        let [pgbouncer, weir] = [Make::PgBouncer(1, 18), Make::Weir]
            .map(|make| setting.configuration(make, &server, 6_432, Path::new("/u")));
        assert!(pgbouncer.contains("host=/run/x port=5432 dbname=bench user=bench\n"));
        assert!(pgbouncer.contains("host=/run/x port=5432 dbname=other user=other\n"));
        let own = "core_dumps = 1\nworkers = 2\nsession_schedule = random\n";
        assert_eq!(weir, format!("{pgbouncer}{own}"));
    }
}
