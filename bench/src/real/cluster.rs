//! A PostgreSQL server of the benchmark's own, in the workplace. It is ended when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use net::sys::Address;

use super::place::{Place, output, program};
use crate::process;
use crate::run::{Key, Setting, Tls, Workplace, free_port};
use crate::socket;

const START_MAX: Duration = Duration::from_secs(60);
/// Connections besides those of the clients: a pooler's servers, the benchmark's own queries,
/// reserved ones.
const OTHERS: usize = 100;

/// fsync is off: the poolers are compared, and the speed of a disk varies.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
shared_buffers = 256MB
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
max_wal_size = 4GB
";

/// The server's copy of the library.
const LIBRARY: &str = "weir.so";
const DIRECT_SOCKET: &str = "direct.sock";
/// The file with further settings of the pooler that the server runs.
const POOLER_SETTINGS: &str = "weir.ini";
/// The maximum time until that pooler has read its settings again.
const RELOAD_MAX: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Cluster {
    server: Child,
    port: u16,
    /// The port of the pooler that the server runs.
    pooler_port: Option<u16>,
    folder: PathBuf,
}

/// The library `weir`, which the server loads.
#[derive(Debug)]
pub(super) struct Library<'a> {
    pub(super) file: &'a Path,
    /// Weir's program, if the server runs the pooler.
    pub(super) pooler: Option<&'a Path>,
}

impl Cluster {
    /// One that can have so many clients at once without a pooler.
    pub(super) fn start(
        workplace: &Workplace,
        clients_max: usize,
        library: Option<&Library<'_>>,
    ) -> Result<Self> {
        let folder = workplace.own_folder("postgres")?;
        let data = folder.join("data");
        let mut initdb = workplace.command(&program("initdb")?);
        initdb
            .arg("-D")
            .arg(&data)
            .args(["-U", Setting::USER, "-E", "UTF8", "--no-locale", "--no-sync", "-A", "trust"])
            .current_dir(&folder);
        output(&mut initdb)?;
        let port = free_port()?;
        let identity = workplace.certify(Tls::Fresh(Key::P256))?;
        let place = format!(
            "port = {port}\nunix_socket_directories = '{}'\nmax_connections = {}\n\
             ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n",
            folder.display(),
            clients_max + OTHERS,
            identity.certificate.display(),
            identity.key.display(),
        );
        let path = data.join("postgresql.conf");
        let own = fs::read_to_string(&path)?;
        let pooler_port =
            library.and_then(|library| library.pooler).map(|_| free_port()).transpose()?;
        let load = library.map(|library| library.settings(&folder, pooler_port)).transpose()?;
        let load = load.unwrap_or_default();
        fs::write(&path, format!("{own}{SETTINGS}{place}{load}"))?;
        let log = fs::File::create(folder.join("log"))?;
        let server = workplace
            .command(&program("postgres")?)
            .arg("-D")
            .arg(&data)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start PostgreSQL")?;
        let mut cluster = Self { server, port, pooler_port, folder };
        cluster.wait_until_up(port)?;
        if let Some(port) = pooler_port {
            cluster.wait_until_up(port)?;
            cluster.create_show()?;
        }
        let (database, other) = (Setting::DATABASE, Setting::OTHER);
        cluster.sql("postgres", &format!("CREATE DATABASE {database}"))?;
        cluster.sql("postgres", &format!("CREATE ROLE {other} LOGIN"))?;
        cluster.sql("postgres", &format!("CREATE DATABASE {other} OWNER {other}"))?;
        Ok(cluster)
    }

    pub(super) fn address(&self) -> Address {
        socket::local(self.port)
    }

    /// Returns the address of its unix socket.
    pub(super) fn socket(&self) -> Address {
        Address::Unix(self.folder.join(format!(".s.PGSQL.{}", self.port)))
    }

    pub(super) fn place(&self) -> Place {
        Place::at(self.port)
    }

    /// Returns the place of the pooler that the server runs.
    pub(super) fn pooler(&self) -> Option<Place> {
        self.pooler_port.map(Place::at)
    }

    /// Creates the function that asks the console of the pooler in the server.
    fn create_show(&self) -> Result<()> {
        let library = self.folder.join(LIBRARY);
        let sql = format!(
            "CREATE FUNCTION weir_show(text) RETURNS SETOF record LANGUAGE c AS '{}'",
            library.display()
        );
        self.sql("postgres", &sql).map(drop)
    }

    /// Returns the name, the user and the data path of each pool of the pooler in the server.
    pub(super) fn pools(&self) -> Result<String> {
        let columns = "database text, \"user\" text, data_path text";
        self.sql("postgres", &format!("SELECT * FROM weir_show('POOLS') AS pools({columns})"))
    }

    /// Has the pooler in the server handle the queries itself, or leave them to the backends. A
    /// direct pool has no clients with TLS.
    pub(super) fn set_data_path(&self, is_direct: bool) -> Result<()> {
        let (path, tls) = if is_direct { ("direct", "disable") } else { ("proxy", "prefer") };
        fs::write(self.folder.join(POOLER_SETTINGS), format!("client_tls_sslmode = {tls}\n"))?;
        self.sql("postgres", &format!("ALTER SYSTEM SET weir.data_path = {path}"))?;
        self.sql("postgres", "SELECT pg_reload_conf()")?;
        let wanted = format!("{path}|{tls}");
        let sql = "SELECT max(value) FILTER (WHERE key = 'data_path'), \
                   max(value) FILTER (WHERE key = 'client_tls_sslmode') \
                   FROM weir_show('CONFIG') AS settings(key text, value text)";
        let deadline = Instant::now() + RELOAD_MAX;
        while self.sql("postgres", sql)? != wanted {
            ensure!(Instant::now() < deadline, "the pooler in the server is not reloaded");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Returns the socket where backends that load the library look for direct pools.
    pub(super) fn direct_socket(&self) -> PathBuf {
        self.folder.join(DIRECT_SOCKET)
    }

    /// Runs a query as the superuser and returns the result as bare text.
    pub(super) fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = Command::new(program("psql")?);
        self.place().lead(&mut psql);
        psql.args(["-X", "-q", "-A", "-t", "-d", database, "-c", sql]);
        Ok(output(&mut psql)?.trim().to_owned())
    }

    /// Returns the child processes of the postmaster: one for each connection, and PostgreSQL's
    /// own.
    pub(super) fn processes(&self) -> Result<Vec<u32>> {
        process::children(self.server.id())
    }

    fn wait_until_up(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        let is_ready = program("pg_isready")?;
        loop {
            let mut ask = Command::new(&is_ready);
            ask.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
            if ask.status()?.success() {
                return Ok(());
            }
            if self.server.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("PostgreSQL does not come up:\n{log}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGINT ends the server without waiting for clients. If it cannot be sent, the server is
        // killed.
        let pid = self.server.id().to_string();
        let asked = Command::new("kill").args(["-s", "INT", &pid]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

impl Library<'_> {
    /// Returns the lines that load the library. The server reads it from its own folder, since it
    /// may not be allowed into ours. The pooler has two workers with pools of four, as in the proposal of 2019.
    fn settings(&self, folder: &Path, pooler_port: Option<u16>) -> Result<String> {
        let library = folder.join(LIBRARY);
        fs::copy(self.file, &library).with_context(|| self.file.display().to_string())?;
        let library = library.display();
        let socket = format!("weir.control_socket = '{}'\n", folder.join(DIRECT_SOCKET).display());
        let (Some(program), Some(port)) = (self.pooler, pooler_port) else {
            return Ok(format!("session_preload_libraries = '{library}'\n{socket}"));
        };
        let settings = folder.join(POOLER_SETTINGS);
        fs::write(&settings, "")?;
        Ok(format!(
            "shared_preload_libraries = '{library}'\n{socket}weir.program = '{}'\n\
             weir.config_file = '{}'\nweir.proxy_port = {port}\nweir.connection_proxies = 2\n\
             weir.session_pool_size = 4\nweir.max_sessions = 2000\nweir.create_extension = off\n",
            program.display(),
            settings.display()
        ))
    }
}
