//! Standbys: copies of a running server that follow it, and what happens to clusters.

use std::fs;
use std::io::Write;
use std::time::Duration;

use super::{Postgres, append};
use crate::wait::eventually;
use crate::{guest, scratch};

/// The role of the standbys.
const COPYIST: &str = "CREATE ROLE copyist LOGIN REPLICATION PASSWORD 'copyist-secret'";
/// The role of the pooler.
pub(super) const WEIR: &str = "\
CREATE ROLE weir LOGIN PASSWORD 'weir-secret';
GRANT pg_monitor TO weir;
GRANT EXECUTE ON FUNCTION pg_promote, pg_reload_conf TO weir;
GRANT ALTER SYSTEM ON PARAMETER primary_conninfo TO weir";

const PATIENCE: Duration = Duration::from_secs(60);

impl Postgres {
    /// Makes and starts a primary, and so many standbys that stream from it.
    pub fn start_cluster(standbys: usize) -> Vec<Self> {
        Self::start().with_standbys(standbys)
    }

    /// Makes and starts so many standbys that stream from this server. Returns all, itself first.
    pub fn with_standbys(self, standbys: usize) -> Vec<Self> {
        self.sql("postgres", COPYIST);
        self.sql("postgres", WEIR);
        let standbys: Vec<_> = (0..standbys).map(|_| self.standby()).collect();
        eventually("all standbys stream", PATIENCE, || {
            let count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            let wanted = standbys.len().to_string();
            (self.sql("postgres", count)[0][0].as_ref() == Some(&wanted)).then_some(())
        });
        std::iter::once(self).chain(standbys).collect()
    }

    /// Makes and starts a copy that follows this server.
    fn standby(&self) -> Self {
        let folder = scratch::folder("pg");
        let data = folder.join("data");
        let output = guest::command(self.version.program("pg_basebackup"))
            .arg("-D")
            .arg(&data)
            .args(["-d", &self.source(), "-R", "-X", "stream", "-c", "fast", "--no-sync"])
            .current_dir(&folder)
            .output()
            .expect("cannot run pg_basebackup");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let port = scratch::free_port();
        let place = format!("port = {port}\nunix_socket_directories = '{}'\n", folder.display());
        append(&data.join("postgresql.conf"), &place);
        let standby = Self::at(self.version, folder, port);
        standby.launch();
        standby
    }

    /// Returns the connection string for standbys of this server.
    fn source(&self) -> String {
        let port = self.port;
        format!("host=127.0.0.1 port={port} user=copyist password=copyist-secret")
    }

    /// Makes this standby a primary, and waits until it is one.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()")[0][0].as_deref(), Some("t"));
    }

    /// Has this standby follow another server, without a restart.
    pub fn follow(&self, primary: &Self) {
        let source = primary.source();
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
        let source = primary.source();
        let line = format!("primary_conninfo = '{source}'\n");
        append(&data.join("postgresql.auto.conf"), &line);
        self.launch();
    }

    /// Starts this standby, which was stopped, as a primary of the same timeline.
    pub fn start_alone(&self) {
        let signal = self.folder.join("data/standby.signal");
        fs::remove_file(signal).expect("it was a standby");
        self.launch();
    }
}
