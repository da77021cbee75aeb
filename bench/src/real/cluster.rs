//! A PostgreSQL server of the benchmark's own, in the workplace. It is ended when dropped.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::generator::{Place, output};
use crate::process;
use crate::run::{Key, Setting, Tls, Workplace};
use crate::socket::Address;

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

#[derive(Debug)]
pub(super) struct Cluster {
    server: Child,
    port: u16,
    /// The port of the pooler that it runs.
    builtin: Option<u16>,
    folder: PathBuf,
}

/// The pooler that the server runs.
#[derive(Debug)]
pub(super) struct Builtin<'a> {
    pub(super) library: &'a Path,
    pub(super) program: &'a Path,
}

impl Cluster {
    /// Starts a server that can have so many clients at once without a pooler. With `builtin`, it
    /// runs a pooler itself.
    pub(super) fn start(
        workplace: &Workplace,
        clients_max: usize,
        builtin: Option<&Builtin<'_>>,
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
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
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
        let pooler = builtin.map(|builtin| settings_of(builtin, &folder)).transpose()?;
        let (builtin, more) = pooler.unzip();
        let more = more.unwrap_or_default();
        fs::write(&path, format!("{own}{SETTINGS}{place}{more}"))?;
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
        let mut cluster = Self { server, port, builtin, folder };
        cluster.wait_until_up(port)?;
        if let Some(port) = builtin {
            cluster.wait_until_up(port)?;
        }
        let (database, other) = (Setting::DATABASE, Setting::OTHER);
        cluster.sql("postgres", &format!("CREATE DATABASE {database}"))?;
        cluster.sql("postgres", &format!("CREATE ROLE {other} LOGIN"))?;
        cluster.sql("postgres", &format!("CREATE DATABASE {other} OWNER {other}"))?;
        Ok(cluster)
    }

    pub(super) fn address(&self) -> Address {
        Address::Tcp(([127, 0, 0, 1], self.port).into())
    }

    /// Returns the address of its unix socket.
    pub(super) fn socket(&self) -> Address {
        Address::Unix(self.folder.join(format!(".s.PGSQL.{}", self.port)))
    }

    pub(super) fn place(&self) -> Place {
        Place::at(self.port)
    }

    /// Returns the place of the pooler in it.
    pub(super) fn builtin(&self) -> Option<Place> {
        self.builtin.map(Place::at)
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

/// Returns the port of the pooler in the server and its settings: two workers with pools of four, as
/// in seed 001. The library is copied, because the server's user may have no access to the original.
fn settings_of(builtin: &Builtin<'_>, folder: &Path) -> Result<(u16, String)> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let library = folder.join("weir.so");
    fs::copy(builtin.library, &library).with_context(|| builtin.library.display().to_string())?;
    let lines = format!(
        "shared_preload_libraries = '{}'\nweir.program = '{}'\nweir.proxy_port = {port}\n\
         weir.connection_proxies = 2\nweir.session_pool_size = 4\nweir.max_sessions = 2000\n\
         weir.create_extension = off\n",
        library.display(),
        builtin.program.display(),
    );
    Ok((port, lines))
}

/// A program of the newest PostgreSQL that is installed.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    let mut folders: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path);
    folders
        .into_iter()
        .rev()
        .map(|(_, folder)| folder)
        .chain(others)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("PostgreSQL's {name} is not installed"))
}
