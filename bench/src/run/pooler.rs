//! The pooler under test: its program, its configuration, its process. Both poolers get the same
//! `pgbouncer.ini`, except for keys that only Weir has: the number of workers, the distribution of
//! clients to them, and the permission to inspect its memory.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use wire::scram::ScramVerifier;

use super::binary::{Binary, Make};
use super::row::{Key, Tls};
use crate::process::threads_named;
use crate::socket::{Address, Stream};
use crate::sys;

const START_MAX: Duration = Duration::from_secs(5);
const ITERATIONS: u32 = 4_096;
/// The pooler's certificate and its key, as files in the workplace.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
/// The last lines of the pooler's log, which an error shows.
const LOG_LINES: usize = 15;
/// The beginning of the names of the threads of Weir's workers.
const WORKER_THREADS: &str = "weir-worker-";
/// The port in the name of the canned server's unix socket. It is not a TCP port.
const UNIX_PORT: u16 = 5_432;

/// A temporary folder that any user may read, for configuration, logs and sockets. It is removed
/// when dropped.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: PathBuf,
    /// User and group id of the pooler if the benchmark runs as root, which PgBouncer refuses to
    /// do.
    user: Option<(u32, u32)>,
}

impl Workplace {
    pub(crate) fn create() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        let user = if fs::metadata("/proc/self")?.uid() == 0 {
            Some(unprivileged_user(&fs::read_to_string("/etc/passwd")?)?)
        } else {
            None
        };
        Ok(Self { folder, user })
    }

    /// Returns the path for the canned server's unix socket, and removes the socket of an earlier
    /// measurement.
    pub(crate) fn server_socket(&self) -> Address {
        let path = self.folder.join(format!(".s.PGSQL.{UNIX_PORT}"));
        // An error means that there was none.
        let _ = fs::remove_file(&path);
        Address::Unix(path)
    }

    /// Returns a command that runs the program as the pooler's user.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Creates a folder that belongs to the pooler's user.
    pub(crate) fn own_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.file(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        if let Some((user, group)) = self.user {
            chown(&folder, Some(user), Some(group))?;
        }
        Ok(folder)
    }

    /// Returns whether the programs run as another user.
    pub(super) fn is_for_another(&self) -> bool {
        self.user.is_some()
    }

    /// Returns an unused path in the folder.
    pub(super) fn vacant(&self, name: &str) -> Result<PathBuf> {
        let files = fs::read_dir(&self.folder)?.count();
        Ok(self.folder.join(format!("{name}-{files}")))
    }

    /// Returns a path in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the pooler's self-signed certificate and its key. A process that has read earlier
    /// ones keeps them.
    pub(crate) fn certify(&self, tls: Tls) -> Result<Identity> {
        let identity = Identity::beside(&self.folder.join("pgbouncer.ini"));
        let Identity { certificate, key } = &identity;
        match tls {
            Tls::None => return Ok(identity),
            Tls::Fresh(Key::Rsa) => {
                // The library that makes the other keys cannot generate RSA keys.
                let output = Command::new("openssl")
                    .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj"])
                    .args(["/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
                    .arg("-keyout")
                    .arg(key)
                    .arg("-out")
                    .arg(certificate)
                    .output()
                    .context("cannot run openssl")?;
                let said = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.success(), "openssl: {said}");
            }
            Tls::Fresh(Key::P256) | Tls::Resumed => {
                let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
                fs::write(certificate, own.cert.pem())?;
                fs::write(key, own.signing_key.serialize_pem())?;
            }
        }
        if let Some((user, group)) = self.user {
            chown(key, Some(user), Some(group))?;
        }
        fs::set_permissions(key, Permissions::from_mode(0o600))?;
        Ok(identity)
    }
}

/// The files of a certificate and its private key.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Identity {
    /// Returns the names of the files that belong to this configuration.
    pub(super) fn beside(configuration: &Path) -> Self {
        let [certificate, key] = [CERTIFICATE, KEY].map(|name| configuration.with_file_name(name));
        Self { certificate, key }
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // Files that cannot be removed stay in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the user and group id of `postgres`, or of `nobody`.
fn unprivileged_user(passwd: &str) -> Result<(u32, u32)> {
    let find = |name: &str| {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).context("no user postgres or nobody to run as")
}

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
    pub(crate) const USER: &str = "bench";
    pub(crate) const DATABASE: &str = "bench";
    /// The name of the servers' database if they report the state of their sessions.
    pub(crate) const REPORTING: &str = "reporting";
    /// The name of the second database and of its user.
    pub(crate) const OTHER: &str = "other";
    pub(crate) const PASSWORD: &str = "a password of the benchmark";
    /// The default values of rows.
    pub(crate) const SERVERS: u32 = 20;
    pub(crate) const CLIENTS_MAX: usize = 6_000;

    fn configuration(&self, make: Make, server: &Address, port: u16, users: &Path) -> String {
        let (host, server_port) = match server {
            Address::Tcp(address) => (address.ip().to_string(), address.port()),
            Address::Unix(path) => {
                let folder = path.parent().unwrap_or(path).display().to_string();
                let port = path.extension().and_then(|port| port.to_str()?.parse().ok());
                (folder, port.unwrap_or(UNIX_PORT))
            }
        };
        let mut text = "[databases]\n".to_owned();
        let mut databases = vec![(Self::DATABASE, Self::USER)];
        databases.extend(self.other.then_some((Self::OTHER, Self::OTHER)));
        for (database, user) in databases {
            let there = if self.reports { Self::REPORTING } else { database };
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
            let file = |name| users.with_file_name(name);
            let _ = writeln!(text, "client_tls_sslmode = require");
            let _ = writeln!(text, "client_tls_cert_file = {}", file(CERTIFICATE).display());
            let _ = writeln!(text, "client_tls_key_file = {}", file(KEY).display());
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
    fn users(&self) -> String {
        let verifier = ScramVerifier::from_password(
            Self::PASSWORD.as_bytes(),
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

/// A running pooler. It is ended when dropped.
#[derive(Debug)]
pub(crate) struct Pooler {
    child: Child,
    pub(crate) address: Address,
    log: PathBuf,
}

impl Pooler {
    /// Starts the pooler, on its cores if it has any, and waits until it accepts connections. From
    /// then on this thread runs on the peers' cores.
    pub(crate) fn start(
        workplace: &Workplace,
        binary: &Binary,
        setting: &Setting,
        server: &Address,
    ) -> Result<Self> {
        let port = free_port()?;
        let users = workplace.folder.join("userlist.txt");
        fs::write(&users, setting.users())?;
        workplace.certify(setting.tls)?;
        let configuration = workplace.folder.join("pgbouncer.ini");
        fs::write(&configuration, setting.configuration(binary.make, server, port, &users))?;
        let log = workplace.folder.join("log");
        let output = File::create(&log)?;

        let mut command = workplace.command(&binary.path);
        command.args(binary.arguments(setting, server, port, &configuration));
        command.current_dir(&workplace.folder);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        if let Some(cores) = &setting.cores {
            sys::pin_to(&cores.pooler)?;
        }
        let started = command.spawn();
        if let Some(cores) = &setting.cores {
            sys::pin_to(&cores.peers)?;
        }
        let child = started.with_context(|| format!("cannot start {}", binary.label))?;
        let mut pooler = Self { child, address: Address::Tcp(([127, 0, 0, 1], port).into()), log };
        let up = pooler.wait_until_up();
        match up.and_then(|()| pooler.deal_out(setting.cores.as_ref())) {
            Ok(()) => Ok(pooler),
            Err(error) => Err(pooler.explain(&error)),
        }
    }

    /// Binds each worker to one core, in turn.
    fn deal_out(&self, cores: Option<&Cores>) -> Result<()> {
        let Some(Cores { pooler, .. }) = cores else { return Ok(()) };
        let workers = threads_named(self.pid(), WORKER_THREADS)?;
        for (worker, core) in workers.into_iter().zip(pooler.iter().cycle()) {
            sys::pin_thread(worker, &[*core])?;
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Adds the pooler's exit status and log to an error.
    pub(crate) fn explain(&mut self, error: &Error) -> Error {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!("the pooler ended with {status}; "),
            _ => String::new(),
        };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        anyhow!("{error:#}\n{ended}the end of its log:\n{tail}")
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        while Stream::connect(&self.address).is_err() {
            ensure!(self.child.try_wait()?.is_none(), "the pooler does not stay up");
            if Instant::now() > deadline {
                bail!("the pooler does not listen within {} s", START_MAX.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It may have ended already; then killing it fails, which does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_postgres_or_else_nobody() {
        let nobody = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(unprivileged_user(nobody).unwrap(), (65_534, 65_533));
        let both = format!("{nobody}postgres:x:101:104:,,,:/:/bin/bash\n");
        assert_eq!(unprivileged_user(&both).unwrap(), (101, 104));
        assert!(unprivileged_user("root:x:0:0::/:/bin/sh").is_err());
    }

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
