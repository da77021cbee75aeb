//! A PostgreSQL with two equal databases: one for direct connections, one behind Weir.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use testkit::{
    Pooler, Postgres, RawClient, Role, ServerAuth, Version, frontend, library_file, poll_until,
};

use crate::path::DataPath;
use crate::script::{Event, Login, Script, Start};
use crate::texts::OBJECTS;

/// The time after which a step counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The number of log lines that are shown if Weir does not answer.
const LOG_LINES: usize = 12;
const ROLES: [&str; 3] = ["fuzz_a", "fuzz_b", "fuzz_stranger"];
/// In a direct pool more kinds of state keep a server until the client leaves. This many servers are
/// enough for all clients.
const DIRECT_POOL_SIZE: usize = 16;

/// The databases of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Direct,
    Through,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Direct, Self::Through];
}

/// Two databases, on which scripts are played one after the other.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) path: DataPath,
    postgres: &'static Postgres,
    owner: Role,
    /// The names of `Login::Chief` and `Login::Clerk`.
    others: [String; 2],
    databases: [String; 2],
    superusers: [RawClient; 2],
    /// The socket of a direct pool's backends.
    socket: PathBuf,
    /// Requests on standbys, or pools, that took the data path in the last script.
    pub(crate) on_path: u64,
    /// Requests that ran on standbys before the script began.
    probes: Cell<u64>,
}

/// Locks of a database's sessions, except those for reading.
pub(crate) type Locks = Vec<Vec<Option<String>>>;

impl Stage {
    /// Creates the roles, which all stages share.
    pub(crate) fn roles(path: DataPath) {
        let postgres = path.postgres();
        let known = "SELECT 1 FROM pg_roles WHERE rolname = 'fuzz_a'";
        if !postgres.sql("postgres", known).is_empty() {
            return;
        }
        for role in ROLES {
            postgres.sql("postgres", &format!("CREATE ROLE {role}"));
        }
        let strangers = "GRANT fuzz_stranger TO fuzz_a, fuzz_b";
        postgres.sql("postgres", strangers);
    }

    pub(crate) fn new(path: DataPath) -> Self {
        let postgres = path.postgres();
        let owner = postgres.role(ServerAuth::Trust);
        postgres.sql("postgres", &format!("GRANT {} TO {}", ROLES.join(", "), owner.name));
        let others = ["chief", "clerk"].map(|prefix| postgres.name(prefix));
        let databases = ["direct", "through"].map(|prefix| postgres.name(prefix));
        let socket = postgres.socket_folder().join(&databases[1]);
        let superusers = [(); 2].map(|()| postgres.superuser("postgres"));
        let mut stage = Self {
            path,
            postgres,
            owner,
            others,
            databases,
            superusers,
            socket,
            on_path: 0,
            probes: Cell::new(0),
        };
        Side::BOTH.into_iter().for_each(|side| stage.create_database(side));
        stage
    }

    /// Returns how often a backend of PostgreSQL has crashed.
    pub(crate) fn crashes(&self) -> usize {
        self.postgres.log().matches("was terminated by signal").count()
    }

    fn create_database(&mut self, side: Side) {
        let name = &self.databases[side as usize];
        self.postgres.sql("postgres", &format!("CREATE DATABASE {name}"));
        let mut settings = vec![
            "lock_timeout = '60ms'".to_owned(),
            "search_path = s2, public".to_owned(),
            "IntervalStyle = 'postgres_verbose'".to_owned(),
        ];
        match self.path {
            DataPath::Library | DataPath::Direct => {
                let library = library_file(Version::Installed).display();
                settings.push(format!("session_preload_libraries = '{library}', 'plpgsql'"));
                settings.push(format!("weir.control_socket = '{}'", self.socket.display()));
            }
            DataPath::Proxied | DataPath::Standbys => {
                settings.push("session_preload_libraries = 'plpgsql'".to_owned());
            }
        }
        for setting in settings {
            self.postgres.sql("postgres", &format!("ALTER DATABASE {name} SET {setting}"));
        }
        self.superusers[side as usize] = self.postgres.superuser(name);
    }

    /// Restores the objects that scripts use on this side.
    pub(crate) fn reset(&mut self, side: Side) {
        let is_up = poll_until(PATIENCE, || self.postgres.is_ready());
        is_up.expect("PostgreSQL recovers");
        self.create_roles();
        let name = self.databases[side as usize].clone();
        self.superusers[side as usize] = self.postgres.superuser(&name);
        let left =
            poll_until(PATIENCE, || (self.postgres.backends(&name).len() <= 1).then_some(()));
        assert!(left.is_some(), "sessions of the script before are still there");
        self.create_objects(side);
    }

    fn create_roles(&self) {
        let mut superuser = self.postgres.superuser("postgres");
        superuser.rows("SET client_min_messages = error");
        for name in &self.others {
            for database in &self.databases {
                self.postgres.sql(
                    database,
                    &format!(
                        "DO $$BEGIN IF to_regrole('{name}') IS NOT NULL THEN \
                         DROP OWNED BY {name}; END IF; END$$"
                    ),
                );
            }
        }
        for name in &self.others {
            superuser.rows(&format!("DROP ROLE IF EXISTS {name}"));
            superuser.rows(&self.creation(name));
        }
    }

    fn creation(&self, name: &str) -> String {
        format!(
            "CREATE ROLE {name} LOGIN PASSWORD 'other' IN ROLE auth_trust, {}",
            ROLES.join(", ")
        )
    }

    fn create_objects(&mut self, side: Side) {
        let [chief, _] = &self.others;
        let superuser = &mut self.superusers[side as usize];
        superuser.rows("SET lock_timeout = 0; SET client_min_messages = error");
        superuser.rows(OBJECTS);
        superuser.rows(&format!(
            "GRANT CREATE ON DATABASE {} TO PUBLIC; GRANT SELECT ON public.secrets TO {chief}; \
             ALTER TABLE public.changing OWNER TO {1}; ALTER TABLE public.t OWNER TO {1}; \
             ALTER FUNCTION public.own_value() OWNER TO {1}; \
             ALTER TABLE public.sink OWNER TO {1}; ALTER TABLE s2.place OWNER TO {1}",
            self.databases[side as usize], self.owner.name,
        ));
        self.wait_for_standbys();
    }

    /// Waits until the standbys have replayed everything.
    fn wait_for_standbys(&self) {
        for standby in self.path.nodes().iter().skip(1) {
            standby.wait_until_like(self.postgres);
        }
    }

    /// Lets the operator act. No client is connected.
    pub(crate) fn happen(&mut self, event: Event, side: Side) {
        let [chief, clerk] = self.others.clone();
        let rename = |from: &str, to: &str| {
            self.postgres.sql("postgres", &format!("ALTER ROLE {from} RENAME TO {to}"));
        };
        match event {
            Event::SwapRoles => {
                let between = format!("{chief}_or_{clerk}");
                rename(&chief, &between);
                rename(&clerk, &chief);
                rename(&between, &clerk);
            }
            Event::RenewRole => {
                for database in &self.databases {
                    self.postgres.sql(database, &format!("DROP OWNED BY {clerk}"));
                }
                self.postgres.sql("postgres", &format!("DROP ROLE {clerk}"));
                self.postgres.sql("postgres", &self.creation(&clerk));
            }
            Event::SetRole(value) => {
                let sql = format!("ALTER ROLE {clerk} SET work_mem = '{value}'");
                self.postgres.sql("postgres", &sql);
            }
            Event::RenewDatabase => {
                let name = &self.databases[side as usize];
                self.superusers[side as usize] = self.postgres.superuser("postgres");
                self.postgres.sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
                self.create_database(side);
                self.create_objects(side);
            }
        }
        self.wait_for_standbys();
    }

    /// Waits until new clients of this role get servers of its own on every node: Weir checks its
    /// servers at a bounded rate.
    pub(crate) fn settle(&self, pooler: &Pooler, login: Login) -> Result<(), String> {
        let nodes: &[&str] = match self.path {
            DataPath::Proxied | DataPath::Library | DataPath::Direct => &[""],
            DataPath::Standbys => &["", "/* weir: node=b */ ", "/* weir: node=c */ "],
        };
        let start = Start { login, parameters: Vec::new() };
        let what = "SELECT session_user || ' ' || current_setting('work_mem')";
        let expected = self.direct(&start).value(what);
        for node in nodes {
            let mut seen = None;
            let settled = poll_until(PATIENCE, || {
                seen = value(self.through(pooler, &start), &format!("{node}{what}"));
                (seen.as_ref() == Some(&expected)).then_some(())
            });
            if settled.is_none() {
                return Err(format!("{login:?} gets {seen:?} and not {expected:?}"));
            }
        }
        Ok(())
    }

    pub(crate) fn pooler(&self, script: &Script) -> Pooler {
        let setting = script.setting;
        let database = &self.databases[1];
        let size = match self.path {
            DataPath::Direct => DIRECT_POOL_SIZE,
            DataPath::Proxied | DataPath::Library | DataPath::Standbys => setting.pool_size,
        };
        let mut setup = Pooler::before(self.postgres)
            .workers(setting.workers)
            .set("pool_mode", "auto")
            .set("default_pool_size", size)
            // While a database is away, logins fail.
            .set("server_login_retry", 0.1)
            .set("server_round_robin", u8::from(setting.round_robin))
            .secret(&self.owner.name, &self.owner.password);
        for name in &self.others {
            setup = setup.secret(name, "other");
        }
        match self.path {
            DataPath::Proxied | DataPath::Library => setup.database(database, "").start(),
            DataPath::Direct => {
                let setup = setup.set("data_path", "direct");
                let setup = setup.set("direct_socket", self.socket.display());
                setup.database(database, "").start()
            }
            DataPath::Standbys => {
                let names = ["a", "b", "c"].into_iter().zip(self.path.nodes());
                let list = names.map(|(name, node)| format!("{name}=127.0.0.1:{}", node.port()));
                let list = list.collect::<Vec<_>>().join(", ");
                // A session must see the writes of the others, as it does directly.
                let keys = format!(
                    "cluster=main reads=standby read_after_write={} when_stale={} balance={}",
                    if script.has_one_role() { "user" } else { "strict" },
                    if setting.round_robin { "wait" } else { "primary" },
                    if setting.workers == 1 { "session" } else { "statement" },
                );
                let pooler = setup
                    .cluster("main", &format!("nodes='{list}' password=weir-secret"))
                    .database_at(database, &keys)
                    .start();
                self.wait_for_routes(&pooler);
                pooler
            }
        }
    }

    /// Waits until reads run on standbys.
    fn wait_for_routes(&self, pooler: &Pooler) {
        let owner = Start { login: Login::Owner, parameters: Vec::new() };
        let mut client = self.through(pooler, &owner);
        let routed = poll_until(PATIENCE, || {
            client.rows("SELECT 1");
            self.probes.set(requests_on_standbys(pooler));
            (self.probes.get() > 0).then_some(())
        });
        assert!(routed.is_some(), "no read runs on a standby: {}", state(pooler));
    }

    pub(crate) fn direct(&self, start: &Start) -> RawClient {
        self.login(self.postgres.port(), Side::Direct, start)
    }

    pub(crate) fn through(&self, pooler: &Pooler, start: &Start) -> RawClient {
        self.login(pooler.port(), Side::Through, start)
    }

    fn login(&self, port: u16, side: Side, start: &Start) -> RawClient {
        let mut client = RawClient::connect(port);
        client.set_timeout(PATIENCE);
        let (user, password) = match start.login {
            Login::Owner => (&self.owner.name, &*self.owner.password),
            Login::Chief => (&self.others[0], "other"),
            Login::Clerk => (&self.others[1], "other"),
        };
        let mut startup = vec![("user", &**user), ("database", &self.databases[side as usize])];
        startup.extend(&start.parameters);
        client.authenticate(&startup, password).expect("it may come in");
        client
    }

    /// Waits until a direct connection's backend has ended. Returns the remaining locks.
    pub(crate) fn direct_locks_without(&mut self, backend: i32) -> Locks {
        let sql = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {backend}");
        let ended = poll_until(PATIENCE, || self.superusers[0].rows(&sql).is_empty().then_some(()));
        assert!(ended.is_some(), "a backend outlives its client");
        self.locks(Side::Direct)
    }

    /// Waits until the sessions behind Weir have these locks. The error contains their actual
    /// locks.
    pub(crate) fn wait_for_locks(&mut self, expected: &Locks) -> Result<(), Locks> {
        let mut seen = Locks::new();
        let reached = poll_until(PATIENCE, || {
            seen = self.locks(Side::Through);
            (seen == *expected).then_some(())
        });
        reached.ok_or(seen)
    }

    fn locks(&mut self, side: Side) -> Locks {
        self.superusers[side as usize].rows(
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

    /// Notes how many requests or pools took the data path of this stage.
    pub(crate) fn note_path(&mut self, pooler: &Pooler) {
        let pools = pooler.admin("SHOW POOLS").with("database", &self.databases[1]);
        let count = |column, value| pools.with(column, value).rows.len() as u64;
        self.on_path = match self.path {
            DataPath::Proxied => count("data_path", "proxy"),
            DataPath::Library => count("session_state", "report"),
            DataPath::Direct => count("data_path", "direct"),
            DataPath::Standbys => requests_on_standbys(pooler) - self.probes.get(),
        };
    }
}

/// Returns the value of a query, or `None` if there is none: Weir may disconnect a client whose
/// role is another one now.
fn value(mut client: RawClient, sql: &str) -> Option<String> {
    client.try_send(frontend::query(sql)).ok()?;
    let mut row = None;
    loop {
        let message = client.try_read().ok()??;
        match message.tag {
            b'D' => row = message.row().into_iter().next().flatten(),
            b'Z' => return row,
            _ => {}
        }
    }
}

fn requests_on_standbys(pooler: &Pooler) -> u64 {
    pooler.admin("SHOW ROUTES").with("place", "standby").sum("requests")
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
