//! The pooler under test: a process with a configuration for one test.
//!
//! It is stopped at the end of the test. The test fails if the pooler had ended by itself, did not
//! stop properly, or has logged a panic.

mod direct;
mod ini;
mod process;
mod table;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::binaries::{Flavour, flavour, postgres_program};
use crate::network::Host;
use crate::signal::send_signal;
use crate::wait::poll_until;
use crate::{Outcome, Postgres, RawClient, Role, ServerError, guest, postgres, scratch};
pub use ini::Ini;
pub use table::Table;

/// The maximum time of a start or a stop on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
const CONSOLE: &str = "pgbouncer";

/// A configuration that is being built. It begins with the settings of most tests: `auth_type =
/// trust`, a password of role `app` for the server, and the console users `admin` and `stats`.
#[derive(Debug, Clone)]
pub struct Setup {
    ini: Ini,
    server_port: u16,
    /// The folder of the server's unix socket.
    server_folder: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The socket of a service manager.
    listener: Option<Arc<TcpListener>>,
    port: Option<u16>,
    host: Option<Host>,
    /// The socket that it finds as `/dev/log`.
    dev_log: Option<PathBuf>,
    /// Files that it finds in the place of the system's.
    files: Vec<(PathBuf, PathBuf)>,
    /// Start it as root; it becomes an unprivileged user by itself.
    from_root: bool,
    /// Its limit of open files, if it differs from the tests' own.
    open_files_max: Option<u32>,
    source: Source,
}

/// The source of its configuration.
#[derive(Debug, Clone)]
enum Source {
    Ini,
    Toml,
    /// `serve URL`: no file is read.
    Url(String),
    /// `serve`: variables of the environment name the server.
    Environment,
}

impl Setup {
    /// Sets a key of `[pgbouncer]`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.ini.set(key, value);
        self
    }

    /// Sets the number of data-plane threads; PgBouncer has only one, and no key for it.
    #[must_use]
    pub fn workers(self, count: u32) -> Self {
        if flavour() == Flavour::Weir { self.set("workers", count) } else { self }
    }

    /// Adds an entry of `[databases]` for the server; `more` is appended to host and port.
    #[must_use]
    pub fn database(mut self, name: &str, more: &str) -> Self {
        let port = self.server_port;
        self.ini.database(name, &format!("host=127.0.0.1 port={port} {more}"));
        self
    }

    /// Adds an entry of `[databases]` unchanged, for a server that is reached in another way.
    #[must_use]
    pub fn database_at(mut self, name: &str, connection: &str) -> Self {
        self.ini.database(name, connection);
        self
    }

    /// Adds an entry of `[users]`.
    #[must_use]
    pub fn user(mut self, name: &str, settings: &str) -> Self {
        self.ini.user(name, settings);
        self
    }

    /// Adds a line of `auth_file`.
    #[must_use]
    pub fn secret(mut self, user: &str, secret: &str) -> Self {
        self.ini.secret(user, secret);
        self
    }

    /// Adds an argument to the command line, before the configuration file.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Passes it this listening socket, as systemd does.
    #[must_use]
    pub fn inherit(mut self, listener: Arc<TcpListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Adds an entry of `[peers]`.
    #[must_use]
    pub fn peer(mut self, id: u32, connection: &str) -> Self {
        self.ini.peer(id, connection);
        self
    }

    /// Adds an entry of `[clusters]`.
    #[must_use]
    pub fn cluster(mut self, name: &str, settings: &str) -> Self {
        self.ini.cluster(name, settings);
        self
    }

    /// Uses this port only.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts it at a host of a network, where it listens at all addresses. The test itself reaches it over
    /// its unix socket.
    #[must_use]
    pub fn at(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self.set("listen_addr", "*")
    }

    /// Lets it find this socket as `/dev/log`. The test must run as root.
    #[must_use]
    pub fn dev_log(mut self, socket: &Path) -> Self {
        self.dev_log = Some(socket.to_owned());
        self
    }

    /// Lets it find `file` in the place of the system's file at `system`, which must exist. The test
    /// must run as root, and may write to the file later, but not replace it.
    #[must_use]
    pub fn in_place_of(mut self, system: &str, file: &Path) -> Self {
        self.files.push((system.into(), file.to_owned()));
        self
    }

    /// Starts it as root, with `-u`. For tests that root runs.
    #[must_use]
    pub fn from_root(self) -> Self {
        self.from_root_as(guest::ACCOUNT)
    }

    /// Does the same for another user than PostgreSQL's. Its sockets need a folder of that user.
    #[must_use]
    pub fn from_root_as(mut self, account: &str) -> Self {
        self.from_root = true;
        self.argument("-u").argument(account)
    }

    /// Sets its limit of open files.
    #[must_use]
    pub fn open_files_max(self, count: u32) -> Self {
        Self { open_files_max: Some(count), ..self }
    }

    /// Writes the configuration as a `weir.toml`.
    #[must_use]
    pub fn in_toml(self) -> Self {
        Self { source: Source::Toml, ..self }
    }

    /// Starts the pooler and waits until it accepts connections.
    #[track_caller]
    pub fn start(mut self) -> Pooler {
        let folder = scratch::folder("pooler");
        // A port that was free a moment ago may be lost to an outgoing connection.
        for _ in 0..3 {
            let inherited = self.listener.as_ref().map(|listener| listener.local_addr());
            let inherited = inherited.map(|address| address.expect("a bound socket").port());
            let port = self.port.or(inherited).unwrap_or_else(scratch::free_port);
            self.ini.set("listen_port", port);
            if matches!(self.source, Source::Toml) {
                self.ini.set_default("metrics_port", 0);
            }
            self.ini.set_default("unix_socket_dir", folder.display());
            self.ini.set("auth_file", folder.join("userlist.txt").display());
            self.be_direct(&folder);
            let mut pooler = Pooler::new(folder.clone(), port, self.clone());
            pooler.write_configuration();
            pooler.spawn();
            match pooler.wait_until_up() {
                Ok(()) => return pooler,
                Err(log) if log.contains("in use") => pooler.expect_exit = true,
                Err(log) => {
                    pooler.expect_exit = true;
                    panic!("the pooler did not start:\n{log}");
                }
            }
        }
        panic!("three ports in a row were taken by others");
    }
}

/// A running pooler.
#[derive(Debug)]
pub struct Pooler {
    folder: PathBuf,
    port: u16,
    setup: Setup,
    child: Option<Child>,
    expect_exit: bool,
}

impl Pooler {
    /// Begins a configuration for a pooler before `postgres`.
    pub fn before(postgres: &Postgres) -> Setup {
        let mut ini = Ini::default();
        ini.set("listen_addr", "127.0.0.1");
        ini.set("auth_type", "trust");
        ini.set("admin_users", "admin");
        ini.set("stats_users", "stats");
        ini.set("max_client_conn", 1000);
        ini.secret(Role::APP, Role::APP_PASSWORD);
        ini.secret("admin", "admin-secret");
        ini.secret("stats", "stats-secret");
        Setup {
            ini,
            server_port: postgres.port(),
            server_folder: postgres.socket_folder().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            listener: None,
            port: None,
            host: None,
            dev_log: None,
            files: Vec::new(),
            from_root: false,
            open_files_max: None,
            source: Source::Ini,
        }
    }

    /// Starts it by `serve URL`, without a configuration file; the port is added to the URL.
    #[track_caller]
    pub fn serve(postgres: &Postgres, url: &str) -> Self {
        Self::serve_in(postgres, url, &[])
    }

    /// Does the same with these variables.
    #[track_caller]
    pub fn serve_in(postgres: &Postgres, url: &str, variables: &[(&str, &str)]) -> Self {
        let source = Source::Url(url.to_owned());
        let mut setup = Setup { source, ..Self::before(postgres) };
        for (name, value) in variables {
            setup = setup.environment(name, value);
        }
        setup.start()
    }

    /// Starts it by `serve` with these variables, which name the server.
    #[track_caller]
    pub fn serve_environment(postgres: &Postgres, variables: &[(&str, &str)]) -> Self {
        let mut setup = Setup { source: Source::Environment, ..Self::before(postgres) };
        for (name, value) in variables {
            setup = setup.environment(name, value);
        }
        setup.start()
    }

    /// Returns its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of its unix socket.
    pub fn socket_folder(&self) -> &Path {
        &self.folder
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the pooler was killed").id()
    }

    /// Logs in as role `app`.
    #[track_caller]
    pub fn client(&self, database: &str) -> RawClient {
        self.login(Role::APP, database, Role::APP_PASSWORD)
            .unwrap_or_else(|e| panic!("login refused: {e:?}\n{}", tail(&self.log())))
    }

    /// Logs in as role `app` over the unix socket.
    #[track_caller]
    pub fn unix_client(&self, database: &str) -> RawClient {
        let client = RawClient::connect_unix(&self.folder, self.port);
        let mut client = client.unwrap_or_else(|e| panic!("cannot connect: {e}"));
        client
            .authenticate(&[("user", Role::APP), ("database", database)], Role::APP_PASSWORD)
            .unwrap_or_else(|e| panic!("login refused: {e:?}\n{}", tail(&self.log())));
        client
    }

    /// Logs in, or returns the pooler's error.
    #[track_caller]
    pub fn login(
        &self,
        user: &str,
        database: &str,
        password: &str,
    ) -> Result<RawClient, ServerError> {
        if self.setup.host.is_none() {
            return RawClient::login(self.port, user, database, password);
        }
        let client = RawClient::connect_unix(&self.folder, self.port);
        let mut client = client.unwrap_or_else(|e| panic!("cannot connect: {e}"));
        client.authenticate(&[("user", user), ("database", database)], password)?;
        Ok(client)
    }

    /// Opens a console connection of the administrator.
    #[track_caller]
    pub fn console(&self) -> RawClient {
        self.login("admin", CONSOLE, "admin-secret")
            .unwrap_or_else(|e| panic!("no way to the console: {e:?}\n{}", tail(&self.log())))
    }

    /// Runs a console command that must succeed. A SHOW has Weir's own columns as well.
    #[track_caller]
    pub fn admin(&self, command: &str) -> Table {
        let what = command.strip_prefix("SHOW ").unwrap_or_default();
        let is_show = !what.is_empty() && !what.contains([' ', ';', '"']);
        let outcome = match flavour() {
            Flavour::Weir if is_show => self.console().query(&format!("{command} EXTENDED")),
            Flavour::Weir | Flavour::PgBouncer => self.console().query(command),
        };
        assert!(outcome.error.is_none(), "{command}: {:?}", outcome.error);
        Table::new(outcome)
    }

    /// Runs a console command that may fail.
    #[track_caller]
    pub fn try_admin(&self, command: &str) -> Outcome {
        self.console().query(command)
    }

    /// Returns columns of SHOW POOLS, summed over all pools of a database.
    #[track_caller]
    pub fn pool_sums<const N: usize>(&self, database: &str, columns: [&str; N]) -> [u64; N] {
        let pools = self.admin("SHOW POOLS").with("database", database);
        columns.map(|column| pools.sum(column))
    }

    /// Waits until `database` has no client, all its servers are idle, and there are at most
    /// `servers_max`. This must hold after any fault.
    #[track_caller]
    pub fn wait_until_quiet(&self, database: &str, servers_max: u64) {
        const BUSY: [&str; 7] =
            ["cl_active", "cl_waiting", "sv_active", "sv_idle", "sv_used", "sv_tested", "sv_login"];
        let mut seen = [0; 7];
        let quiet = poll_until(PATIENCE, || {
            seen = self.pool_sums(database, BUSY);
            let [active, waiting, sv_active, idle, used, tested, login] = seen;
            let busy = active + waiting + sv_active + tested + login;
            (busy == 0 && idle + used <= servers_max).then_some(())
        });
        assert!(quiet.is_some(), "clients or servers are left over: {BUSY:?} = {seen:?}");
    }

    /// Waits until the pooler has exactly `count` servers in `database`.
    #[track_caller]
    pub fn wait_for_servers(&self, database: &str, count: u64) {
        const SERVERS: [&str; 5] = ["sv_active", "sv_idle", "sv_used", "sv_tested", "sv_login"];
        let mut seen = [0; 5];
        let reached = poll_until(PATIENCE, || {
            seen = self.pool_sums(database, SERVERS);
            (seen.iter().sum::<u64>() == count).then_some(())
        });
        assert!(reached.is_some(), "not {count} servers: {SERVERS:?} = {seen:?}");
    }

    /// Writes a changed configuration; it takes effect at [`Self::reload`] or a restart.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Ini)) {
        change(&mut self.setup.ini);
        self.write_configuration();
    }

    /// Runs RELOAD on the console.
    #[track_caller]
    pub fn reload(&self) {
        self.admin("RELOAD");
    }

    /// Returns the path of its configuration file.
    pub fn configuration(&self) -> PathBuf {
        match self.setup.source {
            Source::Toml => self.folder.join("weir.toml"),
            Source::Ini | Source::Url(_) | Source::Environment => self.folder.join("pooler.ini"),
        }
    }

    /// Returns its standard output and error.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until the log contains a text.
    #[track_caller]
    pub fn log_contains(&self, text: &str) {
        if poll_until(PATIENCE, || self.log().contains(text).then_some(())).is_none() {
            panic!("the log never said {text:?}:\n{}", tail(&self.log()));
        }
    }

    /// Sends a signal such as `HUP`.
    pub fn signal(&self, signal: &str) {
        send_signal(self.pid(), signal);
    }

    /// Kills it with SIGKILL, which looks like a crash from outside.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("the pooler was killed before");
        child.kill().and_then(|()| child.wait()).expect("our own child");
    }

    /// Starts it again on the same port after [`Self::kill9`] or [`Self::wait_for_exit`].
    #[track_caller]
    pub fn restart(&mut self) {
        self.spawn();
        self.expect_exit = false;
        if let Err(log) = self.wait_until_up() {
            self.expect_exit = true;
            panic!("the pooler did not start again:\n{log}");
        }
    }

    /// Starts a new process that takes over from the running one (`-R`). Returns the old one.
    #[track_caller]
    pub fn begin_take_over(&mut self) -> Child {
        let old = self.child.take().expect("the pooler was killed");
        self.spawn_with(&["-R"]);
        old
    }

    /// Does the same, and waits until the old process has ended by itself.
    #[track_caller]
    pub fn take_over(&mut self) -> ExitStatus {
        let mut old = self.begin_take_over();
        let status = poll_until(PATIENCE, || old.try_wait().expect("our own child"));
        status.unwrap_or_else(|| {
            let _ = old.kill().and_then(|()| old.wait());
            panic!("the old process does not end:\n{}", tail(&self.log()))
        })
    }

    /// Returns a command that runs as the pooler's system user.
    pub fn command_of_its_user(&self, program: &str) -> Command {
        guest::command(program)
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.expect_exit = true;
        let mut child = self.child.take().expect("the pooler was killed");
        let status = poll_until(PATIENCE, || child.try_wait().expect("our own child"));
        status.unwrap_or_else(|| {
            let _ = child.kill().and_then(|()| child.wait());
            panic!("the pooler does not end:\n{}", tail(&self.log()))
        })
    }

    /// Does the process run?
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns its resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("the pooler runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).expect("a VmRSS line")
    }

    /// Returns a connection string for drivers, as role `app`.
    pub fn url(&self, database: &str) -> String {
        postgres::url(self.port, database)
    }

    /// Returns a client program of PostgreSQL, such as `psql`, that connects to it as role `app`.
    pub fn client_program(&self, name: &str, database: &str) -> Command {
        Postgres::client_program(name, self.port, database)
    }

    /// Returns a client program of PostgreSQL that runs as the pooler's system user. It logs in
    /// over the Unix socket as `pgbouncer`, without a password.
    pub fn program_of_its_user(&self, name: &str) -> Command {
        let mut command = guest::command(postgres_program(name));
        command
            .env("PGHOST", &self.folder)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", CONSOLE)
            .env("PGDATABASE", CONSOLE)
            .env_remove("PGPASSWORD")
            .stdin(Stdio::null());
        command
    }

    fn new(folder: PathBuf, port: u16, setup: Setup) -> Self {
        Self { folder, port, setup, child: None, expect_exit: false }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.note_data_paths();
        let stopped = self.stop();
        let log = self.log();
        let _ = fs::remove_dir_all(&self.folder);
        if std::thread::panicking() {
            eprintln!("log of the pooler ({stopped:?}):\n{}", tail(&log));
            return;
        }
        if let Err(problem) = stopped {
            panic!("{problem}\n{}", tail(&log));
        }
        assert_sound(&log);
    }
}

/// The last words of a program of Weir that crashes.
const CRASHES: [&str; 2] = ["panicked at", "fatal runtime error"];

fn tells_of_crash(line: &str) -> bool {
    CRASHES.iter().any(|words| line.contains(words))
}

/// Requires that no program of Weir has crashed, by what it would have said in this log.
#[track_caller]
pub(crate) fn assert_sound(log: &str) {
    assert!(!tells_of_crash(log), "a program of Weir has crashed:\n{}", tail(log));
}

/// Returns the last lines of a log, without those about the console, which tests ask again and again. All
/// lines of crashes are among them, because `scripts/run-tests` looks for these.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> =
        log.lines().filter(|line| !line.contains(": pgbouncer/admin@")).collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(60));
    let crashes = before.iter().filter(|line| tells_of_crash(line));
    crashes.chain(last).copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_tail_of_a_log_has_each_crash() {
        let crash = "thread 'worker 0' panicked at crates/engine/src/engine.rs:1:2:";
        let quiet = "LOG process up\n".repeat(100);
        assert!(
            tail(&format!("{crash}\n{quiet}")).starts_with(&format!("{crash}\nLOG process up"))
        );
        assert_eq!(tail(&quiet).lines().count(), 60);
    }
}
