//! Standbys: copies of a running server that follow it, and what happens to clusters.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::{Postgres, append};
use crate::binaries::Version;
use crate::network::Host;
use crate::signal::send_signal;
use crate::wait::eventually;
use crate::{guest, scratch};

/// The role of the standbys.
const COPYIST: &str = "CREATE ROLE copyist LOGIN REPLICATION PASSWORD 'copyist-secret'";
/// The role of the pooler.
pub(super) const WEIR: &str = "\
CREATE ROLE weir LOGIN PASSWORD 'weir-secret';
GRANT pg_monitor, pg_checkpoint TO weir;
GRANT EXECUTE ON FUNCTION pg_promote, pg_reload_conf TO weir;
GRANT ALTER SYSTEM ON PARAMETER primary_conninfo TO weir";

const PATIENCE: Duration = Duration::from_secs(60);

/// A program that receives WAL and is no standby.
#[derive(Debug)]
pub struct Receiver(Child);

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Postgres {
    /// Makes and starts a primary, and so many standbys that stream from it.
    pub fn start_cluster(standbys: usize) -> Vec<Self> {
        Self::start().with_standbys(standbys)
    }

    /// Makes and starts a primary and standbys, one at each of these hosts.
    pub fn start_cluster_at(hosts: &[Host]) -> Vec<Self> {
        let mut hosts = hosts.iter().cloned().map(Some);
        let primary = Self::start_at(Version::Installed, "", hosts.next().flatten());
        primary.with_standbys_at(hosts)
    }

    /// Makes and starts so many standbys that stream from this server. Returns all, itself first.
    pub fn with_standbys(self, standbys: usize) -> Vec<Self> {
        self.with_standbys_at((0..standbys).map(|_| None))
    }

    fn with_standbys_at(self, hosts: impl Iterator<Item = Option<Host>>) -> Vec<Self> {
        self.sql("postgres", COPYIST);
        self.sql("postgres", WEIR);
        let standbys: Vec<_> =
            hosts.zip('b'..).map(|(host, name)| self.standby(host, name)).collect();
        eventually("all standbys stream", PATIENCE, || {
            let count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            let wanted = standbys.len().to_string();
            (self.sql("postgres", count)[0][0].as_ref() == Some(&wanted)).then_some(())
        });
        std::iter::once(self).chain(standbys).collect()
    }

    /// Makes and starts a copy that follows this server.
    fn standby(&self, host: Option<Host>, name: char) -> Self {
        let folder = scratch::folder("pg");
        let mut standby = Self::at(self.version, folder, scratch::free_port());
        standby.host = host;
        standby.standby_name = name;
        standby.copy(self);
        standby.launch();
        standby
    }

    /// Makes its data a copy of another server's, which it follows from its start on.
    fn copy(&self, primary: &Self) {
        let (folder, port) = (&self.folder, self.port);
        let data = folder.join("data");
        guest::run(
            guest::command(self.version.program("pg_basebackup"))
                .arg("-D")
                .arg(&data)
                .args([
                    "-d",
                    &primary.source(self.standby_name),
                    "-R",
                    "-X",
                    "stream",
                    "-c",
                    "fast",
                    "--no-sync",
                ])
                .current_dir(folder),
        );
        let place = format!("port = {port}\nunix_socket_directories = '{}'\n", folder.display());
        append(&data.join("postgresql.conf"), &place);
        self.listen_at_its_host();
    }

    /// Starts this server, which has stopped or was killed, as a new copy of another one.
    pub fn remake(&self, primary: &Self) {
        fs::remove_dir_all(self.folder.join("data")).expect("our own folder");
        self.copy(primary);
        self.launch();
    }

    /// Copies the data of this server, which does not run, to a folder beside it.
    pub fn back_up(&self) {
        self.replace("backup", "data");
    }

    /// Gives this server, which does not run, the data of its backup.
    pub fn restore(&self) {
        self.replace("data", "backup");
    }

    fn replace(&self, old: &str, new: &str) {
        let (old, new) = (self.folder.join(old), self.folder.join(new));
        let _ = fs::remove_dir_all(&old);
        guest::run(guest::command("cp").arg("-a").arg(new).arg(old));
    }

    /// Returns the connection string for a standby of this server with this name.
    fn source(&self, name: impl Display) -> String {
        let (host, port) = (self.address(), self.port);
        let login = "user=copyist password=copyist-secret";
        format!("host={host} port={port} {login} application_name={name}")
    }

    /// Starts `pg_receivewal --synchronous`, which is no standby, under this name. It ends when it
    /// is dropped.
    pub fn receive_wal(&self, name: &str) -> Receiver {
        let folder = scratch::open_folder("wal");
        let mut command = guest::command(self.version.program("pg_receivewal"));
        command.args(["--synchronous", "--no-loop", "-d", &self.source(name), "-D"]).arg(folder);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let receiver = Receiver(child.expect("cannot run pg_receivewal"));
        eventually("pg_receivewal streams", PATIENCE, || {
            let count = format!(
                "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'
                 AND application_name = '{name}' AND flush_lsn IS NOT NULL"
            );
            (self.sql("postgres", &count)[0][0].as_deref() != Some("0")).then_some(())
        });
        receiver
    }

    /// Sends a signal to the WAL sender of each standby with one of these names.
    pub fn signal_senders(&self, names: &[&str], signal: &str) {
        for name in names {
            let pid = "SELECT pid FROM pg_stat_replication WHERE application_name";
            for row in self.sql("postgres", &format!("{pid} = '{name}'")) {
                let pid = row[0].as_ref().and_then(|pid| pid.parse().ok());
                send_signal(pid.expect("a process"), signal);
            }
        }
    }

    /// Makes this standby a primary, and waits until it is one.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()")[0][0].as_deref(), Some("t"));
    }

    /// Has this standby follow another server, without a restart.
    pub fn follow(&self, primary: &Self) {
        let source = primary.source(self.standby_name);
        self.sql("postgres", &format!("ALTER SYSTEM SET primary_conninfo = '{source}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// Shuts the server down as `pg_ctl stop -m fast` does: its standbys get all of its WAL.
    pub fn shut_down(&self) {
        if let Some(child) = self.lock().as_mut()
            && let Some(input) = child.stdin.as_mut()
        {
            writeln!(input, "INT").expect("the shell reads");
        }
        let pidfile = self.folder.join("data/postmaster.pid");
        eventually("the server has stopped", PATIENCE, || (!pidfile.exists()).then_some(()));
        self.stop();
    }

    /// Starts this server, which was shut down, as a standby of another one.
    pub fn rejoin(&self, primary: &Self) {
        let data = self.folder.join("data");
        fs::write(data.join("standby.signal"), "").expect("cannot write standby.signal");
        let source = primary.source(self.standby_name);
        let line = format!("primary_conninfo = '{source}'\n");
        append(&data.join("postgresql.auto.conf"), &line);
        self.launch();
    }

    /// Starts this standby, which was stopped, so that it finds no primary.
    pub fn start_away(&self) {
        let line = format!("primary_conninfo = 'host=127.0.0.1 port={}'\n", scratch::free_port());
        append(&self.folder.join("data/postgresql.auto.conf"), &line);
        self.launch();
    }

    /// Starts this standby, which was stopped, as a primary of the same timeline.
    pub fn start_alone(&self) {
        let signal = self.folder.join("data/standby.signal");
        fs::remove_file(signal).expect("it was a standby");
        self.launch();
    }
}
