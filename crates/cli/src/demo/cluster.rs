//! The throw-away PostgreSQL cluster. It is ended and removed when dropped.

use std::{
    ffi::OsStr,
    fs,
    fs::File,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    binaries::Binaries,
    child::{self, TICK},
    names::{DEMO, LOOPBACK},
    scratch::Scratch,
    secret,
    terminal::{go_on, say},
};
use crate::sys;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The operating system's limit for the path of a socket, minus `/.s.PGSQL.65535` and the
/// terminating zero.
const SOCKET_DIRECTORY_BYTES_MAX: usize = 108 - 16;
pub(super) const SUPERUSER: &str = "postgres";
/// `max_connections` of the server: enough for full pools of all modes, for the lab's clients
/// without a pooler, and for backends that are still ending.
const CONNECTIONS_MAX: u32 = 200;

/// A running cluster on a port of its own, with a role and a database `demo`. Every login over TCP
/// needs a password, which changes with every demo. Its Unix socket needs none, but is in the
/// scratch directory, which only its owner can enter.
#[derive(Debug)]
pub(super) struct Cluster {
    // Fields are dropped in the order of their declaration: the server must end before `scratch`.
    server: Server,
    binaries: Binaries,
    pub(super) port: u16,
    /// Password of the role `demo`.
    pub(super) password: String,
    superuser_password: String,
    scratch: Scratch,
}

/// The server process. It is ended when dropped.
#[derive(Debug)]
pub(super) struct Server(Child);

impl Cluster {
    /// Creates and starts a cluster, with messages, since this takes a while on a slow disk. The
    /// server loads `library` if there is one.
    ///
    /// # Errors
    /// When a step fails or the demo is interrupted. Nothing stays behind then either.
    pub(super) fn create(binaries: Binaries, library: Option<&[u8]>) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        say(&format!(
            "creating a PostgreSQL cluster in {} with the programs of {}",
            scratch.path().display(),
            binaries.directory().display(),
        ));
        let superuser_password = secret::random()?;
        init(&binaries, &scratch, &superuser_password)?;
        if let Some(library) = library {
            load(&scratch, library)?;
        }
        let port = free_port()?;
        say(&format!("starting PostgreSQL on port {port}"));
        let server = Server::start(&binaries, &scratch, port)?;
        let password = secret::random()?;
        let cluster = Self { server, binaries, port, password, superuser_password, scratch };
        cluster.set_up()?;
        Ok(cluster)
    }

    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns whether the server still runs; it may have been killed.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.server.0.try_wait(), Ok(None))
    }

    /// Writes a file next to the cluster that no other user can read.
    pub(super) fn write(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        self.scratch.write(name, content)
    }

    /// Returns the directory of the server's socket. It is private, so the socket needs no
    /// password.
    ///
    /// # Errors
    /// When its path is too long for the operating system.
    pub(super) fn socket_directory(&self) -> anyhow::Result<&Path> {
        match socket_directory(&self.scratch) {
            Some(directory) => Ok(directory),
            None => bail!("TMPDIR is too long a path for Unix sockets; set it to a shorter one"),
        }
    }

    /// Returns one of PostgreSQL's client programs that connects as `demo`. `host` may also be the
    /// directory of a socket.
    pub(super) fn client(&self, program: &str, host: impl AsRef<OsStr>, port: u16) -> Command {
        let mut command = self.command(program);
        command.env("PGHOST", host).env("PGPORT", port.to_string());
        command.env("PGUSER", DEMO).env("PGPASSWORD", &self.password).env("PGDATABASE", DEMO);
        command
    }

    /// Runs statements as `demo`, directly on the server. Returns their rows as bare text.
    pub(super) fn sql(&self, statements: &str) -> anyhow::Result<String> {
        psql(self.client("psql", LOOPBACK, self.port), statements)
    }

    fn command(&self, program: &str) -> Command {
        child::command(&self.binaries.path(program), self.scratch())
    }

    fn set_up(&self) -> anyhow::Result<()> {
        let mut command = self.client("psql", LOOPBACK, self.port);
        command.env("PGUSER", SUPERUSER).env("PGPASSWORD", &self.superuser_password);
        command.env("PGDATABASE", "postgres");
        let password = &self.password;
        // The password is passed on standard input, since every user can read command lines.
        let statements = format!(
            "CREATE ROLE {DEMO} LOGIN PASSWORD '{password}';\nCREATE DATABASE {DEMO} OWNER {DEMO};\n"
        );
        psql(command, &statements).map(drop)
    }
}

pub(super) fn psql(mut command: Command, statements: &str) -> anyhow::Result<String> {
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    child::run(command, statements)?.success("psql")
}

pub(super) fn init(
    binaries: &Binaries,
    scratch: &Scratch,
    superuser_password: &str,
) -> anyhow::Result<()> {
    let password_file = scratch.write("superuser", superuser_password)?;
    let mut command = child::command(&binaries.path("initdb"), scratch.path());
    command
        .args(["--auth-host=scram-sha-256", "--auth-local=trust"])
        .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
        .arg(format!("--username={SUPERUSER}"))
        .arg(format!("--pwfile={}", password_file.display()))
        .arg(data(scratch));
    child::run(command, "")?.success("initdb")?;
    fs::remove_file(password_file).context("could not remove the password file")
}

/// Makes each session load the library.
fn load(scratch: &Scratch, library: &[u8]) -> anyhow::Result<()> {
    let file = scratch.path().join("weir.so");
    fs::write(&file, library).with_context(|| format!("could not write {}", file.display()))?;
    let configuration = data(scratch).join("postgresql.auto.conf");
    let line = format!("session_preload_libraries = '{}'\n", file.display());
    fs::write(&configuration, line).context("could not write postgresql.auto.conf")
}

pub(super) fn data(scratch: &Scratch) -> PathBuf {
    scratch.path().join("data")
}

/// Returns the folder for sockets; `None` if their paths would be too long.
fn socket_directory(scratch: &Scratch) -> Option<&Path> {
    let path = scratch.path();
    (path.as_os_str().len() < SOCKET_DIRECTORY_BYTES_MAX).then_some(path)
}

/// Returns a port that is free at the moment.
pub(super) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr().context("no free port")?.port())
}

impl Server {
    pub(super) fn start(binaries: &Binaries, scratch: &Scratch, port: u16) -> anyhow::Result<Self> {
        let log = scratch.path().join("postgres.log");
        let file = File::create(&log).context("postgres.log")?;
        let sockets =
            socket_directory(scratch).map_or(String::new(), |path| path.display().to_string());
        let mut command = child::command(&binaries.path("postgres"), scratch.path());
        command
            .arg("-D")
            .arg(data(scratch))
            .args(["-c", &format!("listen_addresses={LOOPBACK}")])
            .args(["-c", &format!("port={port}")])
            .args(["-c", &format!("max_connections={CONNECTIONS_MAX}")])
            .args(["-c", &format!("unix_socket_directories={sockets}")])
            .stdout(file.try_clone().context("postgres.log")?)
            .stderr(file);
        sys::tie_to_us(&mut command, libc::SIGINT);
        let mut server = Self(child::start(&mut command)?);
        server.wait_until_ready(&data(scratch).join("postmaster.pid"), &log)?;
        Ok(server)
    }

    /// Kills the server as a crash would end it, and waits until it is gone.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill().context("could not kill PostgreSQL")?;
        self.0.wait().context("waiting for PostgreSQL").map(drop)
    }

    fn wait_until_ready(&mut self, pidfile: &Path, log: &Path) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !is_ready(&fs::read_to_string(pidfile).unwrap_or_default()) {
            go_on()?;
            let ended = self.0.try_wait().context("waiting for PostgreSQL")?;
            if ended.is_some() || begin.elapsed() > START_TIMEOUT {
                let reason = fs::read_to_string(log).unwrap_or_default();
                bail!("PostgreSQL did not start:\n{}", child::last_lines(&reason));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    fn ends_within(&mut self, timeout: Duration) -> bool {
        let begin = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(None) if begin.elapsed() < timeout => thread::sleep(TICK),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }
}

impl Drop for Server {
    /// Tries a fast shutdown, then an immediate one, then kills the process.
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).unwrap_or(i32::MAX);
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            if self.ends_within(Duration::ZERO) {
                return;
            }
            let _ = sys::send_signal(pid, signal);
            if self.ends_within(STOP_TIMEOUT) {
                return;
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the server accepts connections, by line 8 of `postmaster.pid`.
fn is_ready(pidfile: &str) -> bool {
    pidfile.lines().nth(7).is_some_and(|status| status.trim() == "ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_the_servers_own_word() {
        let upto = |status: &str| format!("1\n/data\n2\n5432\n\n127.0.0.1\n  3 4\n{status}\n");
        assert!(is_ready(&upto("ready   ")));
        assert!(!is_ready(&upto("starting")));
        assert!(!is_ready(""));
    }
}
