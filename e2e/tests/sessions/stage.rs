//! A PostgreSQL with two equal databases: one for direct connections, one behind Weir.

use std::fmt::Write as _;
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, poll_until};

use crate::script::Setting;
use crate::texts::OBJECTS;

/// The time after which a step counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The number of log lines that are shown if Weir does not answer.
const LOG_LINES: usize = 12;
const ROLES: [&str; 3] = ["fuzz_a", "fuzz_b", "fuzz_stranger"];

/// Two databases, on which scripts are played one after the other.
#[derive(Debug)]
pub(crate) struct Stage {
    user: Role,
    /// The database for direct connections, and the one behind Weir.
    databases: [String; 2],
    superusers: [RawClient; 2],
}

/// Returns how often a backend of PostgreSQL has crashed.
pub(crate) fn crashes() -> usize {
    Postgres::shared().log().matches("was terminated by signal").count()
}

/// Locks of a database's sessions, except those for reading.
pub(crate) type Locks = Vec<Vec<Option<String>>>;

impl Stage {
    /// Creates the roles, which all stages share.
    pub(crate) fn roles(postgres: &Postgres) {
        for role in ROLES {
            postgres.sql("postgres", &format!("CREATE ROLE {role}"));
        }
        let strangers = "GRANT fuzz_stranger TO fuzz_a, fuzz_b";
        postgres.sql("postgres", strangers);
    }

    pub(crate) fn new(postgres: &Postgres) -> Self {
        let user = postgres.role(ServerAuth::Trust);
        postgres.sql("postgres", &format!("GRANT {} TO {}", ROLES.join(", "), user.name));
        let databases = [(); 2].map(|()| {
            let name = postgres.database();
            for setting in [
                "lock_timeout = '60ms'",
                "search_path = s2, public",
                "session_preload_libraries = 'plpgsql'",
                "IntervalStyle = 'postgres_verbose'",
            ] {
                postgres.sql("postgres", &format!("ALTER DATABASE {name} SET {setting}"));
            }
            name
        });
        let superusers = [0, 1].map(|side: usize| postgres.superuser(&databases[side]));
        Self { user, databases, superusers }
    }

    /// Restores the objects that scripts use.
    pub(crate) fn reset(&mut self) {
        let is_up = poll_until(PATIENCE, || Postgres::shared().is_ready());
        is_up.expect("PostgreSQL recovers");
        for side in [0, 1] {
            self.superusers[side] = Postgres::shared().superuser(&self.databases[side]);
            let left = poll_until(PATIENCE, || {
                (Postgres::shared().backends(&self.databases[side]).len() <= 1).then_some(())
            });
            assert!(left.is_some(), "sessions of the script before are still there");
            self.superusers[side].rows("SET lock_timeout = 0; SET client_min_messages = error");
            self.superusers[side].rows(OBJECTS);
            self.superusers[side].rows(&format!(
                "GRANT CREATE ON DATABASE {} TO PUBLIC; \
                 ALTER TABLE public.changing OWNER TO {1}; ALTER TABLE public.t OWNER TO {1}; \
                 ALTER TABLE public.sink OWNER TO {1}; ALTER TABLE s2.place OWNER TO {1}",
                self.databases[side], self.user.name,
            ));
        }
    }

    pub(crate) fn pooler(&self, setting: Setting) -> Pooler {
        Pooler::before(Postgres::shared())
            .workers(setting.workers)
            .set("pool_mode", "auto")
            .set("default_pool_size", setting.pool_size)
            .set("server_round_robin", u8::from(setting.round_robin))
            .database(&self.databases[1], "")
            .secret(&self.user.name, &self.user.password)
            .start()
    }

    pub(crate) fn direct(&self, startup: &[(&str, &str)]) -> RawClient {
        self.login(Postgres::shared().port(), &self.databases[0], startup)
    }

    pub(crate) fn through(&self, pooler: &Pooler, startup: &[(&str, &str)]) -> RawClient {
        self.login(pooler.port(), &self.databases[1], startup)
    }

    fn login(&self, port: u16, database: &str, more: &[(&str, &str)]) -> RawClient {
        let mut client = RawClient::connect(port);
        client.set_timeout(PATIENCE);
        let mut startup = vec![("user", &*self.user.name), ("database", database)];
        startup.extend(more);
        client.authenticate(&startup, &self.user.password).expect("it may come in");
        client
    }

    /// Waits until a direct connection's backend has ended. Returns the remaining locks.
    pub(crate) fn direct_locks_without(&mut self, backend: i32) -> Locks {
        let sql = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {backend}");
        let ended = poll_until(PATIENCE, || self.superusers[0].rows(&sql).is_empty().then_some(()));
        assert!(ended.is_some(), "a backend outlives its client");
        self.locks(0)
    }

    /// Waits until the sessions behind Weir have these locks. The error contains their actual
    /// locks.
    pub(crate) fn wait_for_locks(&mut self, expected: &Locks) -> Result<(), Locks> {
        let mut seen = Locks::new();
        let reached = poll_until(PATIENCE, || {
            seen = self.locks(1);
            (seen == *expected).then_some(())
        });
        reached.ok_or(seen)
    }

    fn locks(&mut self, side: usize) -> Locks {
        self.superusers[side].rows(
            "SELECT locktype, mode, objid, regexp_replace(relation::regclass::text, \
             '^([0-9]+|pg_temp.*)$', 'a new or temporary one'), count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() \
             AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
             AND (locktype = 'advisory' AND objid < 9 OR locktype = 'relation' AND mode <> 'AccessShareLock' \
                  AND relation::regclass::text NOT LIKE 'pg_%') \
             GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
        )
    }

    /// Waits until no client and no server of the pool is busy. The error contains the remaining
    /// ones.
    pub(crate) fn wait_for_rest(&self, pooler: &Pooler) -> Result<(), String> {
        const BUSY: [&str; 4] = ["cl_active", "cl_waiting", "sv_active", "sv_tested"];
        let mut seen = [0; 4];
        let rest = poll_until(PATIENCE, || {
            seen = pooler.pool_sums(&self.databases[1], BUSY);
            (seen == [0; 4]).then_some(())
        });
        rest.ok_or_else(|| format!("{BUSY:?} = {seen:?}; {}", state(pooler)))
    }
}

/// Returns a text that helps to explain why Weir does not answer: pins, servers, the end of its
/// log.
pub(crate) fn state(pooler: &Pooler) -> String {
    let mut text = String::new();
    for command in ["SHOW PINS", "SHOW SERVERS"] {
        for row in pooler.try_admin(command).rows {
            let row: Vec<_> = row.into_iter().map(Option::unwrap_or_default).collect();
            let _ = write!(text, "\n    {command}: {}", row.join(" "));
        }
    }
    let log = pooler.log();
    let lines: Vec<_> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        let _ = write!(text, "\n    log: {line}");
    }
    text
}
