//! A PostgreSQL of the benchmark's own, in the workplace; ended when dropped.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::generator::Place;
use crate::run::{Setting, Workplace};
use crate::socket::Address;

const START_MAX: Duration = Duration::from_secs(60);

/// No sync with the disk: it is the poolers that are compared, and a disk has moods.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
max_connections = 250
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
}

impl Cluster {
    /// Clients it can have at once without a pooler.
    pub(super) const CLIENTS_MAX: usize = 200;

    pub(super) fn start(workplace: &Workplace) -> Result<Self> {
        let folder = workplace.own_folder("postgres")?;
        let data = folder.join("data");
        let mut initdb = workplace.command(&program("initdb")?);
        initdb
            .arg("-D")
            .arg(&data)
            .args(["-U", Setting::USER, "-E", "UTF8", "--no-locale", "--no-sync", "-A", "trust"])
            .current_dir(&folder);
        run(&mut initdb)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let place = format!("port = {port}\nunix_socket_directories = '{}'\n", folder.display());
        let path = data.join("postgresql.conf");
        let own = fs::read_to_string(&path)?;
        fs::write(&path, format!("{own}{SETTINGS}{place}"))?;
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
        let mut cluster = Self { server, port };
        cluster.wait_until_up(&folder)?;
        let mut createdb = Command::new(program("createdb")?);
        createdb.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", Setting::USER]);
        run(createdb.arg(Setting::DATABASE))?;
        Ok(cluster)
    }

    pub(super) fn address(&self) -> Address {
        Address::Tcp(([127, 0, 0, 1], self.port).into())
    }

    pub(super) fn place(&self) -> Place {
        Place { port: self.port }
    }

    fn wait_until_up(&mut self, folder: &std::path::Path) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        let is_ready = program("pg_isready")?;
        loop {
            let mut ask = Command::new(&is_ready);
            ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ask.status()?.success() {
                return Ok(());
            }
            if self.server.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                bail!("PostgreSQL does not come up:\n{log}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGINT ends it without waiting for clients. Whether it is heard shows in the waiting.
        let pid = self.server.id().to_string();
        let asked = Command::new("kill").args(["-s", "INT", &pid]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
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

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}
