//! A real PostgreSQL in a temporary folder, with a free port on 127.0.0.1 and a unix socket.
//!
//! Starting one costs seconds, so tests share [`Postgres::shared`] and use their own databases and
//! roles. Only a test that stops or breaks the server starts another one.

mod builtin;
mod container;
mod faults;
mod role;
mod settings;
mod standby;
mod template;

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::binaries::Version;
use crate::network::Host;
use crate::pki::Identity;
use crate::signal::send_signal;
use crate::wait::eventually;
use crate::{RawClient, guest, library, run, scratch};
pub use builtin::Builtin;
pub use container::{Container, Process};
pub use role::{Role, ServerAuth, Verifier};
pub use standby::Receiver;

/// Runs the server until its standard input ends, which happens when the test process does. A line
/// on standard input is a signal to send. SIGQUIT makes PostgreSQL stop at once and clean up.
const SUPERVISOR: &str = r#""$@" & server=$!
while read -r signal; do kill -s "$signal" $server; done
kill -s QUIT $server 2>/dev/null; wait $server"#;

const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
max_connections = 400
shared_buffers = 32MB
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
max_wal_size = 4GB
wal_level = logical
log_line_prefix = '%m [%p] %q%u@%d '
";

/// A cluster whose superuser `postgres` logs in without a password, over the unix socket only.
/// [`ServerAuth`] decides about logins over TCP.
#[derive(Debug)]
pub struct Postgres {
    version: Version,
    folder: PathBuf,
    port: u16,
    /// Its host, if it is not this machine.
    host: Option<Host>,
    /// Its name as a standby: `a` for the first primary of a cluster, then `b`, `c` and so on.
    standby_name: char,
    supervisor: Mutex<Option<Child>>,
    /// SIGSTOP was sent to all its processes.
    is_frozen: AtomicBool,
    /// It runs until the run of tests ends.
    outlives_us: bool,
}

impl Postgres {
    /// Returns the cluster that all tests of this run share, started at the first call.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::share("pg", Version::Installed, library::is_everywhere()))
    }

    /// Returns a shared cluster whose servers load the library `weir`.
    pub fn shared_with_library() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        match library::is_everywhere() {
            true => Self::shared(),
            false => SHARED.get_or_init(|| Self::share("pg-library", Version::Installed, true)),
        }
    }

    /// Returns a shared cluster of PostgreSQL 18.
    pub fn shared_v18() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::share("pg18", Version::Eighteen, library::is_everywhere()))
    }

    /// Returns the cluster of this name, which runs until the run ends.
    fn share(name: &str, version: Version, with_library: bool) -> Self {
        let settings = if with_library { session_library(version) } else { String::new() };
        if run::shared().is_none() {
            return Self::start_as(version, &settings);
        }
        let folder = run::once(name, |folder| {
            fs::create_dir(folder).expect("the run's own folder");
            guest::give_away(folder);
            template::copy(version, &folder.join("data"));
            let mut server = Self::at(version, folder.to_owned(), scratch::free_port());
            server.outlives_us = true;
            server.write_settings(&settings);
            server.start_first();
            fs::write(folder.join("port"), server.port.to_string()).expect("the run's own folder");
            std::mem::forget(server);
        });
        let port = fs::read_to_string(folder.join("port")).expect("its first user wrote it");
        let mut server = Self::at(version, folder, port.parse().expect("a port"));
        server.outlives_us = true;
        server
    }

    /// Makes and starts a cluster for one test.
    pub fn start() -> Self {
        Self::start_version(Version::Installed)
    }

    /// Makes and starts a cluster of this version.
    pub fn start_version(version: Version) -> Self {
        match library::is_everywhere() {
            true => Self::start_with_library(version),
            false => Self::start_as(version, ""),
        }
    }

    /// Makes and starts a cluster of this version whose servers load the library `weir`.
    pub fn start_with_library(version: Version) -> Self {
        Self::start_as(version, &session_library(version))
    }

    /// Makes and starts a cluster with these additional lines in its `postgresql.conf`. Its servers
    /// load the library `weir` if `with_library` is true.
    pub fn start_configured(with_library: bool, settings: &str) -> Self {
        let library =
            if with_library { session_library(Version::Installed) } else { String::new() };
        Self::start_as(Version::Installed, &format!("{library}{settings}"))
    }

    fn start_as(version: Version, settings: &str) -> Self {
        Self::start_at(version, settings, None)
    }

    fn start_at(version: Version, settings: &str, host: Option<Host>) -> Self {
        let folder = scratch::folder("pg");
        template::copy(version, &folder.join("data"));
        Self::start_in(version, folder, settings, host)
    }

    /// Makes and starts a cluster with a system identifier of its own. All others of this process
    /// have the same. It never loads the library `weir`.
    pub fn start_unrelated() -> Self {
        let folder = scratch::folder("pg");
        template::make(Version::Installed, &folder.join("data"));
        Self::start_in(Version::Installed, folder, "", None)
    }

    /// Starts a cluster in the folder that contains its data.
    fn start_in(version: Version, folder: PathBuf, settings: &str, host: Option<Host>) -> Self {
        let mut postgres = Self::at(version, folder, scratch::free_port());
        postgres.host = host;
        postgres.write_settings(settings);
        postgres.start_first();
        postgres
    }

    fn write_settings(&self, settings: &str) {
        let data = self.folder.join("data");
        let (port, socket) = (self.port, self.folder.display());
        let address = format!("port = {port}\nunix_socket_directories = '{socket}'\n");
        append(&data.join("postgresql.conf"), &format!("{SETTINGS}{address}"));
        append(&data.join("postgresql.conf"), settings);
        if kept_logs().is_some() {
            append(&data.join("postgresql.conf"), "log_statement = 'all'\n");
        }
        fs::write(data.join("pg_hba.conf"), role::HBA).expect("cannot write pg_hba.conf");
        self.listen_at_its_host();
    }

    fn start_first(&self) {
        self.launch();
        self.sql("postgres", role::GROUPS);
    }

    /// Returns a server in this folder that something else makes and starts.
    pub(crate) fn unmade(folder: PathBuf) -> Self {
        Self::at(Version::Installed, folder, scratch::free_port())
    }

    /// Creates the roles of tests, and that of a pooler that watches a cluster.
    pub(crate) fn create_roles(&self) {
        self.sql("postgres", role::GROUPS);
        self.sql("postgres", standby::WEIR);
    }

    fn at(version: Version, folder: PathBuf, port: u16) -> Self {
        let (supervisor, is_frozen) = (Mutex::new(None), AtomicBool::new(false));
        let (host, standby_name, outlives_us) = (None, 'a', false);
        Self { version, folder, port, host, standby_name, supervisor, is_frozen, outlives_us }
    }

    /// Lets it be reached from all hosts of its network, if it has one.
    fn listen_at_its_host(&self) {
        if let Some(host) = &self.host {
            let line = format!("listen_addresses = '{}'\n", host.address());
            append(&self.folder.join("data/postgresql.conf"), &line);
        }
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address)
    }

    /// Returns its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of its unix socket.
    pub fn socket_folder(&self) -> &Path {
        &self.folder
    }

    /// Creates an empty database and returns its name.
    pub fn database(&self) -> String {
        self.database_called("db")
    }

    /// Creates an empty database whose name begins so, and returns the name.
    pub fn database_called(&self, prefix: &str) -> String {
        let name = self.name(prefix);
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.sql("postgres", &format!("ALTER DATABASE {name} OWNER TO app"));
        name
    }

    /// Returns a name that no other test of this run uses.
    pub fn name(&self, prefix: &str) -> String {
        format!("{prefix}_{}", run::number("name"))
    }

    /// Opens a direct connection of the superuser.
    #[track_caller]
    pub fn superuser(&self, database: &str) -> RawClient {
        let mut client = RawClient::connect_unix(&self.folder, self.port)
            .unwrap_or_else(|e| panic!("cannot connect to PostgreSQL: {e}; {}", self.log_tail()));
        client
            .authenticate(&[("user", "postgres"), ("database", database)], "")
            .unwrap_or_else(|e| panic!("PostgreSQL refuses its superuser: {e:?}"));
        client
    }

    /// Runs statements as superuser; they must succeed.
    #[track_caller]
    pub fn sql(&self, database: &str, sql: &str) -> Vec<Vec<Option<String>>> {
        self.superuser(database).rows(sql)
    }

    /// Waits until this standby has replayed all that `primary` has written by now.
    #[track_caller]
    pub fn wait_until_like(&self, primary: &Self) {
        let written = primary.superuser("postgres").value("SELECT pg_current_wal_insert_lsn()");
        let has_all = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        let mut superuser = self.superuser("postgres");
        eventually("the standby has replayed everything", Duration::from_secs(60), || {
            (superuser.value(&has_all) == "t").then_some(())
        });
    }

    /// Returns the process ids of the backends that serve `database`, except the asking one, in order.
    pub fn backends(&self, database: &str) -> Vec<u32> {
        let sql = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{database}' \
             AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
        );
        let rows = self.sql("postgres", &sql);
        rows.iter().filter_map(|row| row[0].as_ref()?.parse().ok()).collect()
    }

    /// Offers TLS with this certificate from now on.
    pub fn offer_tls(&self, own: &Identity) {
        self.sql("postgres", &format!("ALTER SYSTEM SET ssl_cert_file = '{}'", own.certificate()));
        self.sql("postgres", &format!("ALTER SYSTEM SET ssl_key_file = '{}'", own.key()));
        self.sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.sql("postgres", "SELECT pg_reload_conf()");
        eventually("PostgreSQL offers TLS", Duration::from_secs(10), || {
            let mut client = RawClient::connect(self.port);
            client.send(crate::frontend::ssl_request());
            (client.read_byte() == b'S').then_some(())
        });
    }

    /// Starts it again with OpenSSL's security level 0, at which short keys can be used.
    pub fn permit_short_keys(&self) {
        let lines = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = short\n\
                     [short]\nCipherString = DEFAULT@SECLEVEL=0\n";
        fs::write(self.folder.join("openssl.cnf"), lines).expect("our own folder");
        self.sql("postgres", "CHECKPOINT");
        self.kill9();
        self.launch();
    }

    /// Kills its postmaster with SIGKILL, and waits until all its processes have ended.
    /// [`Self::launch`] starts it again.
    pub fn kill9(&self) {
        send_signal(self.postmaster(), "KILL");
        self.stop();
        self.wait_until_gone();
    }

    /// Kills all its processes with SIGKILL, also those that are stopped by a signal.
    pub fn kill9_all(&self) {
        self.signal_all("KILL");
        self.stop();
        self.wait_until_gone();
    }

    /// Waits until all its processes have ended, a pooler that it runs among them.
    pub fn wait_until_gone(&self) {
        eventually("no process of the cluster is left", Duration::from_secs(30), || {
            self.processes().next().is_none().then_some(())
        });
    }

    /// Stops it at once, which looks like a power failure to clients. [`Self::launch`] starts it
    /// again.
    pub fn stop(&self) {
        if self.is_frozen.load(Ordering::Relaxed) {
            self.thaw();
        }
        let child = self.lock().take();
        if let Some(mut child) = child {
            drop(child.stdin.take());
            child.wait().expect("our own child");
        }
    }

    /// Starts it on the same port and waits until the superuser can log in.
    pub fn launch(&self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("cannot open the log");
        let mut command = guest::command_at(self.host.as_ref(), "sh");
        command
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(self.version.program("postgres"))
            .arg("-D")
            .arg(self.folder.join("data"))
            .current_dir(&self.folder)
            .stdin(match run::shared() {
                Some(run) if self.outlives_us => run::lifeline(run).into(),
                Some(_) | None => Stdio::piped(),
            })
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .process_group(0);
        let openssl = self.folder.join("openssl.cnf");
        if openssl.exists() {
            command.env("OPENSSL_CONF", openssl);
        }
        *self.lock() = Some(command.spawn().expect("cannot start PostgreSQL"));
        eventually("PostgreSQL is up", Duration::from_secs(60), || self.is_ready());
    }

    /// Returns `Some` when the superuser can log in; for waiting until a crash is recovered.
    pub fn is_ready(&self) -> Option<()> {
        let mut client = RawClient::connect_unix(&self.folder, self.port).ok()?;
        client.authenticate(&[("user", "postgres"), ("database", "postgres")], "").ok()?;
        Some(())
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Returns a connection string for drivers, as role `app` directly to the server.
    pub fn url(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// Returns a client program of PostgreSQL, such as `psql`, whose environment leads it to `port`
    /// of 127.0.0.1 as role `app`.
    pub fn client_program(name: &str, port: u16, database: &str) -> Command {
        Self::client_program_of(Version::Installed, name, port, database)
    }

    /// Does the same for a given version.
    pub fn client_program_of(version: Version, name: &str, port: u16, database: &str) -> Command {
        let mut command = Command::new(version.program(name));
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port.to_string())
            .env("PGUSER", Role::APP)
            .env("PGPASSWORD", Role::APP_PASSWORD)
            .env("PGDATABASE", database)
            .env("PGCONNECT_TIMEOUT", "20")
            .stdin(Stdio::null());
        command
    }

    fn log_path(&self) -> PathBuf {
        let Some(logs) = kept_logs() else { return self.folder.join("log") };
        logs.join(format!("{}-{}.log", std::process::id(), self.port))
    }

    fn log_tail(&self) -> String {
        crate::pooler::tail(&self.log())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
        // Remaining files are removed with the temporary folder of the process.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns a connection string for drivers, as role `app` to `port` of 127.0.0.1.
pub(crate) fn url(port: u16, database: &str) -> String {
    format!("postgresql://{}:{}@127.0.0.1:{port}/{database}", Role::APP, Role::APP_PASSWORD)
}

/// With `WEIR_SERVER_LOGS`, servers log each statement to files in this folder, which stay there.
pub(crate) fn kept_logs() -> Option<PathBuf> {
    std::env::var_os("WEIR_SERVER_LOGS").map(PathBuf::from)
}

fn session_library(version: Version) -> String {
    format!("session_preload_libraries = '{}'\n", library::file(version).display())
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::File::options().append(true).open(path).expect("initdb wrote it");
    file.write_all(text.as_bytes()).expect("cannot write the configuration");
}
