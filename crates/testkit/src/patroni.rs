//! A cluster that Debian's Patroni manages, with its own etcd, on 127.0.0.1.
//!
//! The REST API has TLS, and wants a password for orders; if it is told so, also a certificate. All
//! processes end with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::etcd::Etcd;
use crate::pki::{Authority, Identity};
use crate::pooler::tail;
use crate::postgres::Postgres;
use crate::signal::send_signal;
use crate::wait::{eventually, poll_until};
use crate::{guest, mortal_command, postgres_program, scratch};

const PATIENCE: Duration = Duration::from_secs(60);
const EXIT_PATIENCE: Duration = Duration::from_secs(10);
/// Ends PostgreSQL when this test process has ended without doing so.
const CARETAKER: &str = r#"cat >/dev/null; kill -QUIT "$(head -n 1 "$1/postmaster.pid")""#;

/// The cluster. Its members are managed one by one.
#[derive(Debug)]
pub struct Patroni {
    authority: Authority,
    identity: Identity,
    etcd: Etcd,
    wants_certificates: bool,
}

/// A node with its Patroni.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub postgres: Postgres,
    api_port: u16,
    file: PathBuf,
    process: Option<Child>,
    caretaker: Child,
}

impl Patroni {
    pub const API_USER: &str = "operator";
    pub const API_PASSWORD: &str = "operator-secret";

    /// Starts etcd.
    #[must_use]
    pub fn start() -> Self {
        let authority = Authority::new("patroni");
        let identity = authority.server();
        Self { authority, identity, etcd: Etcd::start(1), wants_certificates: false }
    }

    /// Starts etcd, a primary, and standbys of these names.
    #[must_use]
    pub fn start_cluster(primary: &str, standbys: &[&str]) -> (Self, Vec<Member>) {
        Self::start().with_members(primary, standbys)
    }

    /// Does the same with an API that wants a certificate of its clients.
    #[must_use]
    pub fn start_cluster_with_certificates(
        primary: &str,
        standbys: &[&str],
    ) -> (Self, Vec<Member>) {
        let mut cluster = Self::start();
        cluster.wants_certificates = true;
        cluster.with_members(primary, standbys)
    }

    fn with_members(self, primary: &str, standbys: &[&str]) -> (Self, Vec<Member>) {
        let cluster = self;
        let first = cluster.member(primary);
        eventually("Patroni has made a primary", PATIENCE, || {
            first.postgres.is_ready()?;
            let roles = "SELECT count(*) FROM pg_roles WHERE rolname = 'copyist'";
            let is_made = first.postgres.sql("postgres", roles)[0][0].as_deref() == Some("1");
            is_made.then_some(())
        });
        first.postgres.create_roles();
        let mut members = vec![first];
        members.extend(standbys.iter().map(|name| cluster.member(name)));
        for member in &members[1..] {
            member.wait_until_it_streams();
        }
        (cluster, members)
    }

    /// Starts a Patroni with a node: the first one makes the cluster, and others copy it.
    #[must_use]
    pub fn member(&self, name: &str) -> Member {
        let folder = scratch::folder("patroni");
        let postgres = Postgres::unmade(folder.clone());
        let api_port = scratch::free_port();
        let file = folder.join("patroni.yml");
        let settings = self.settings(name, &folder, postgres.port(), api_port);
        fs::write(&file, settings).expect("our own folder");
        guest::give_away(&file);
        let caretaker = guest::command("sh")
            .args(["-c", CARETAKER, "caretaker"])
            .arg(folder.join("data"))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("cannot start sh");
        let mut member =
            Member { name: name.to_owned(), postgres, api_port, file, process: None, caretaker };
        member.launch();
        member
    }

    /// Stops etcd with SIGSTOP, so that it does not answer.
    pub fn freeze_etcd(&self) {
        self.etcd.signal_all("STOP");
    }

    /// Continues a frozen etcd.
    pub fn thaw_etcd(&self) {
        self.etcd.signal_all("CONT");
    }

    /// Returns the file with the authority of the APIs' certificates.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.authority.file()
    }

    /// Returns a certificate for a client of the APIs.
    #[must_use]
    pub fn visitor(&self) -> Identity {
        self.authority.user("visitor")
    }

    fn settings(&self, name: &str, folder: &Path, port: u16, api_port: u16) -> String {
        let bin = postgres_program("postgres");
        let bin = bin.parent().expect("a program is in a folder").display();
        let (certificate, key) = (self.identity.certificate(), self.identity.key());
        let (authority, etcd_port, folder) =
            (self.authority.file(), self.etcd.port(0), folder.display());
        let (api_user, api_password) = (Self::API_USER, Self::API_PASSWORD);
        let verify_client = if self.wants_certificates { "required" } else { "none" };
        format!(
            "\
scope: weir
name: {name}
restapi:
  listen: 127.0.0.1:{api_port}
  connect_address: 127.0.0.1:{api_port}
  certfile: {certificate}
  keyfile: {key}
  cafile: {authority}
  verify_client: {verify_client}
  authentication: {{username: {api_user}, password: {api_password}}}
etcd3: {{host: 127.0.0.1:{etcd_port}}}
bootstrap:
  dcs:
    ttl: 10
    loop_wait: 1
    retry_timeout: 3
    postgresql:
      parameters: {{max_connections: 200, wal_level: logical, hot_standby: on}}
  initdb: [encoding: UTF8, no-locale, no-sync]
  pg_hba:
  - local all postgres trust
  - host all,replication all 127.0.0.1/32 scram-sha-256
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {folder}/data
  bin_dir: {bin}
  pgpass: {folder}/pgpass
  authentication:
    superuser: {{username: postgres, password: postgres-secret}}
    replication: {{username: copyist, password: copyist-secret}}
  parameters:
    unix_socket_directories: {folder}
    shared_buffers: 32MB
    fsync: off
    full_page_writes: off
watchdog: {{mode: off}}
ctl: {{insecure: true}}
"
        )
    }
}

impl Member {
    /// Returns the address of its API.
    #[must_use]
    pub fn api(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    /// Waits until it is a standby that streams.
    pub fn wait_until_it_streams(&self) {
        eventually(&format!("{} streams", self.name), PATIENCE, || {
            self.postgres.is_ready()?;
            let status = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'";
            (self.postgres.sql("postgres", status)[0][0].as_deref() == Some("1")).then_some(())
        });
    }

    /// Does it accept writes?
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.postgres.is_ready().is_some()
            && self.postgres.sql("postgres", "SELECT pg_is_in_recovery()")[0][0].as_deref()
                == Some("f")
    }

    /// Kills Patroni and PostgreSQL with SIGKILL.
    pub fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).expect("our own child");
        }
        self.postgres.signal_all("KILL");
        self.postgres.wait_until_gone();
    }

    /// Ends Patroni, which stops PostgreSQL and leaves the cluster. If it hangs after that, it is
    /// killed, and its place in the cluster expires.
    pub fn leave(&mut self) {
        let Some(process) = &mut self.process else { return };
        send_signal(process.id(), "TERM");
        self.postgres.wait_until_gone();
        let ended = poll_until(EXIT_PATIENCE, || process.try_wait().expect("our own child"));
        if ended.is_none() {
            process.kill().and_then(|()| process.wait()).expect("our own child");
        }
        self.process = None;
    }

    /// Returns `patronictl`, which finds the cluster by this member's configuration.
    #[must_use]
    pub fn control(&self) -> Command {
        let mut command = guest::command("patronictl");
        command.arg("-c").arg(&self.file).current_dir("/");
        command
    }

    fn launch(&mut self) {
        let folder = self.file.parent().expect("it is in a folder");
        let mut command: Command = mortal_command("patroni");
        command.arg(&self.file).current_dir(folder).stdin(Stdio::null());
        command.stdout(scratch::log_file(folder)).stderr(scratch::log_file(folder));
        self.process = Some(command.spawn().expect("patroni: see scripts/setup"));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.file.with_file_name("log")).unwrap_or_default();
            eprintln!("log of Patroni's member {}:\n{}", self.name, tail(&log));
        }
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).expect("our own child");
        }
        // The caretaker ends PostgreSQL.
        drop(self.caretaker.stdin.take());
        self.caretaker.wait().expect("our own child");
        self.postgres.wait_until_gone();
    }
}
