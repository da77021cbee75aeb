//! A cluster that runs the pooler under test itself, by the library in `shared_preload_libraries`.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use super::{Postgres, append};
use crate::binaries::{Version, pooler_binary};
use crate::pooler::{assert_sound, tail};
use crate::wait::eventually;
use crate::{RawClient, Role, ServerError, guest, library, scratch};

const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of its own, and the port of its pooler.
#[derive(Debug)]
pub struct Builtin {
    postgres: Postgres,
    pooler_port: u16,
}

impl Builtin {
    /// Makes and starts a cluster, with these additional lines in its `postgresql.conf`. The
    /// pooler may not serve yet.
    pub fn start(version: Version, settings: &str) -> Self {
        let pooler_port = scratch::free_port();
        let path = if library::is_direct() { "weir.data_path = direct\n" } else { "" };
        let lines = format!(
            "shared_preload_libraries = '{}'\nweir.program = '{}'\nweir.proxy_port = \
             {pooler_port}\nweir.create_extension = off\n{path}{settings}\n",
            library::file(version).display(),
            pooler_binary().display(),
        );
        Self { postgres: Postgres::start_as(version, &lines), pooler_port }
    }

    /// Does the same for the installed version, and waits until the pooler serves.
    pub fn serving(settings: &str) -> Self {
        Self::serving_on(Version::Installed, settings)
    }

    /// Does the same for a given version.
    pub fn serving_on(version: Version, settings: &str) -> Self {
        let own = Self::start(version, settings);
        own.wait_until_serving();
        own
    }

    /// Makes and starts a standby of this cluster, with a pooler of its own.
    pub fn standby(&self) -> Self {
        append(&self.data().join("pg_hba.conf"), "local replication postgres trust\n");
        self.reload();
        let folder = scratch::folder("standby");
        let data = folder.join("data");
        let copied = guest::command(self.postgres.version.program("pg_basebackup"))
            .args(["-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "-U", "postgres"])
            .args(["-p", &self.port().to_string(), "-h"])
            .arg(self.socket_folder())
            .arg("-D")
            .arg(&data)
            .current_dir(&folder)
            .output()
            .expect("cannot run pg_basebackup");
        let said = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(copied.status.success() && said.is_empty(), "pg_basebackup: {said}");
        let (port, pooler_port) = (scratch::free_port(), scratch::free_port());
        let lines = format!(
            "port = {port}\nunix_socket_directories = '{}'\nweir.proxy_port = {pooler_port}\n",
            folder.display()
        );
        append(&data.join("postgresql.conf"), &lines);
        let postgres = Postgres::at(self.postgres.version, folder, port);
        postgres.launch();
        Self { postgres, pooler_port }
    }

    /// Returns the port of the pooler.
    pub fn pooler_port(&self) -> u16 {
        self.pooler_port
    }

    /// Waits until the pooler lets a client in, and returns that client.
    pub fn wait_until_serving(&self) -> RawClient {
        eventually("the pooler in the server serves", PATIENCE, || {
            // While no process listens, there is no connection either.
            RawClient::try_connect(self.pooler_port).ok()?;
            self.login(Role::APP, "postgres", Role::APP_PASSWORD).ok()
        })
    }

    /// Logs in through the pooler.
    ///
    /// # Errors
    /// The pooler's refusal.
    pub fn login(
        &self,
        user: &str,
        database: &str,
        password: &str,
    ) -> Result<RawClient, ServerError> {
        RawClient::login(self.pooler_port, user, database, password)
    }

    /// Logs in through the pooler as the role that most tests use.
    pub fn client(&self, database: &str) -> RawClient {
        self.login(Role::APP, database, Role::APP_PASSWORD).expect("the pooler lets it in")
    }

    /// Runs the statements of `CREATE EXTENSION weir` in this database.
    pub fn create_functions(&self, database: &str) {
        let file = self.superuser(database).value("SHOW shared_preload_libraries");
        self.postgres.sql(database, &library::statements(&file));
    }

    /// Returns the process of the pooler.
    pub fn pooler_pid(&self) -> u32 {
        let log = self.postgres.log();
        let last = log.rsplit_once("serves port").map(|(_, rest)| rest);
        let pid = last.and_then(|rest| rest.split_once("(PID ")?.1.split_once(')')?.0.parse().ok());
        pid.unwrap_or_else(|| panic!("no pooler has served: {log}"))
    }

    /// Returns the process of the supervisor.
    pub fn supervisor_pid(&self) -> Option<u32> {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'weir supervisor'";
        self.postgres.sql("postgres", sql).pop()?.pop()??.parse().ok()
    }

    /// Sets a parameter of the server and reloads it.
    pub fn set(&self, parameter: &str, value: &str) {
        self.postgres.sql("postgres", &format!("ALTER SYSTEM SET {parameter} = '{value}'"));
        self.reload();
    }

    /// Reloads the server's configuration.
    pub fn reload(&self) {
        self.postgres.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// Replaces `pg_hba.conf` and reloads it. The superuser can log in over the unix socket.
    pub fn set_rules(&self, rules: &str) {
        let text = format!("local all postgres trust\n{rules}\n");
        fs::write(self.data().join("pg_hba.conf"), text).expect("cannot write pg_hba.conf");
        self.reload();
    }

    /// Returns the data folder.
    pub fn data(&self) -> PathBuf {
        self.postgres.folder.join("data")
    }

    /// Adds lines to `postgresql.conf`.
    pub fn configure(&self, lines: &str) {
        append(&self.data().join("postgresql.conf"), &format!("{lines}\n"));
    }

    /// Waits for a line of the server's log that contains all of these texts.
    #[track_caller]
    pub fn log_contains(&self, texts: &[&str]) {
        eventually(&format!("the server's log has {texts:?}"), PATIENCE, || {
            let log = self.postgres.log();
            log.lines().any(|line| texts.iter().all(|text| line.contains(text))).then_some(())
        });
    }

    /// Has the server reinitialised after the crash of one of its processes?
    pub fn has_crashed(&self) -> bool {
        self.postgres.log().contains("terminating any other active server processes")
    }
}

/// The server's log has the pooler's lines, too.
impl Drop for Builtin {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the server:\n{}", tail(&self.postgres.log()));
            return;
        }
        assert_sound(&self.postgres.log());
    }
}

impl Deref for Builtin {
    type Target = Postgres;

    fn deref(&self) -> &Postgres {
        &self.postgres
    }
}
