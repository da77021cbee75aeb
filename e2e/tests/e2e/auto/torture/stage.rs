//! PostgreSQL with two databases made the same way, Weir before one of them, hostile clients, and
//! the switch: between any two transactions of a victim all servers that nobody keeps are used by
//! hostile clients, and the one that the victim has left is not the one that is given out next. Servers
//! are given out in turn, so that no settings are a reason to be given one.

use std::fmt::Write as _;
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, Version, frontend, poll_until};

use super::scenes::ROLES;
use super::settings;

/// How many play at the same time.
pub(super) const VICTIMS: usize = 2;
/// Each victim may keep one, and two are left for hostile clients to take turns with.
const SERVERS: usize = VICTIMS + 2;
/// One in so many visits of a hostile client is its last: it leaves things behind.
const LAST_VISIT: usize = 50;
const PATIENCE: Duration = Duration::from_secs(20);
/// No more of what went wrong is told.
const FAILURES_MAX: usize = 12;

/// What a hostile client leaves on its server, to be gone before anybody else comes.
const LEFTOVERS: &str = "CREATE TEMP TABLE mine (stranger int); INSERT INTO mine VALUES (1); \
    CREATE TEMP VIEW mine_view AS SELECT 'stranger' AS whose; \
    CREATE FUNCTION pg_temp.mine() RETURNS text LANGUAGE sql AS $$ SELECT 'stranger' $$; \
    DECLARE mine CURSOR WITH HOLD FOR SELECT 'stranger'; \
    DEALLOCATE mine; PREPARE mine AS SELECT 'stranger'; LISTEN everybody; \
    SELECT pg_advisory_lock(424242), pg_advisory_lock_shared(424243)";

#[derive(Debug)]
pub(super) struct Stage {
    pooler: Pooler,
    user: Role,
    through: String,
    straight: String,
    console: RawClient,
    hostile: Vec<Option<RawClient>>,
    visits: usize,
    number: usize,
    failures: Vec<String>,
    played: usize,
    switches: usize,
    chances: usize,
    /// Scripts whose state is carried and whose victims never were given another server: on a busy
    /// machine one in a thousand.
    pub(super) stayed: usize,
}

/// Roles that are the same for all databases.
fn roles(postgres: &Postgres) {
    let mut superuser = postgres.superuser("postgres");
    superuser.rows("BEGIN");
    // Other tests of this server make them, too.
    superuser.rows("SELECT pg_advisory_xact_lock(1)");
    if superuser.rows(&format!("SELECT FROM pg_roles WHERE rolname = '{}'", ROLES[0])).is_empty() {
        for role in ROLES {
            superuser.rows(&format!("CREATE ROLE {role}"));
        }
        // A session that has become one of them may become the stranger's.
        superuser.rows("GRANT torture_stranger TO torture_a, torture_b");
    }
    superuser.rows("COMMIT");
}

/// A database with what scripts speak of, and defaults of its own for some settings.
fn database(postgres: &Postgres, user: &str) -> String {
    let name = postgres.database();
    let mut sql = String::new();
    for schema in ["s1", "s2", "hostile", "\"s 3\""] {
        let whose = schema.trim_matches('"');
        write!(
            sql,
            "CREATE SCHEMA {schema}; CREATE TABLE {schema}.place AS SELECT '{whose}' AS name; \
             GRANT ALL ON SCHEMA {schema} TO PUBLIC; GRANT ALL ON {schema}.place TO PUBLIC;"
        )
        .expect("a text");
    }
    postgres.sql(&name, &sql);
    postgres.sql(&name, "GRANT ALL ON SCHEMA public TO PUBLIC");
    for default in [
        // What a library defines is there wherever it is loaded, which is chance otherwise.
        format!("ALTER DATABASE {name} SET session_preload_libraries = {}", libraries()),
        format!("ALTER DATABASE {name} SET search_path = s2, public"),
        format!("ALTER DATABASE {name} SET IntervalStyle = 'postgres_verbose'"),
        format!("ALTER ROLE {user} IN DATABASE {name} SET lock_timeout = '77s'"),
        format!("ALTER ROLE {user} IN DATABASE {name} SET TimeZone = 'Asia/Tokyo'"),
    ] {
        postgres.sql("postgres", &default);
    }
    name
}

/// Also the library `weir`, if all servers load it.
fn libraries() -> String {
    match testkit::library_is_everywhere() {
        true => format!("plpgsql, '{}'", testkit::library_file(Version::Installed).display()),
        false => "plpgsql".to_owned(),
    }
}

impl Stage {
    pub(super) fn ordinary() -> Self {
        Self::of("NOSUPERUSER")
    }

    pub(super) fn of_superuser() -> Self {
        Self::of("SUPERUSER")
    }

    fn of(rank: &str) -> Self {
        let postgres = Postgres::shared();
        roles(postgres);
        let user = postgres.role(ServerAuth::Trust);
        let roles = ROLES.join(", ");
        postgres
            .sql("postgres", &format!("ALTER ROLE {0} {rank}; GRANT {roles} TO {0}", user.name));
        let [through, straight] = [(); 2].map(|()| database(postgres, &user.name));
        let pooler = Pooler::before(postgres)
            .workers(1)
            .set("pool_mode", "auto")
            .set("default_pool_size", SERVERS)
            .set("server_round_robin", 1)
            .database(&through, "")
            .secret(&user.name, &user.password)
            .start();
        let console = pooler.console();
        let hostile = (0..SERVERS).map(|_| None).collect();
        let mut stage = Self {
            pooler,
            user,
            through,
            straight,
            console,
            hostile,
            visits: 0,
            number: 0,
            failures: Vec::new(),
            played: 0,
            switches: 0,
            chances: 0,
            stayed: 0,
        };
        // All servers are there from the beginning.
        let mut clients: Vec<_> = (0..SERVERS).map(|_| stage.client(&[])).collect();
        clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
        clients.iter_mut().for_each(|client| drop(client.rows("COMMIT")));
        drop(clients);
        stage.wait_until_free().expect("nobody has left anything");
        stage
    }

    /// Another one each time.
    pub(super) fn number(&mut self) -> usize {
        self.number += 1;
        self.number
    }

    pub(super) fn direct(&self, startup: &[(String, String)]) -> RawClient {
        self.login(RawClient::connect(Postgres::shared().port()), &self.straight, startup)
    }

    pub(super) fn client(&self, startup: &[(String, String)]) -> RawClient {
        self.login(RawClient::connect(self.pooler.port()), &self.through, startup)
    }

    fn login(&self, mut client: RawClient, database: &str, more: &[(String, String)]) -> RawClient {
        let mut startup = vec![("user", &*self.user.name), ("database", database)];
        startup.extend(more.iter().map(|(name, value)| (&**name, &**value)));
        client.authenticate(&startup, &self.user.password).expect("it may come in");
        client.set_timeout(PATIENCE);
        if testkit::pools_are_direct() {
            // It is told its parameters again in its first transaction.
            client.rows("SELECT 1");
        }
        client
    }

    /// How many servers are idle, are in use, and are neither. The one that listens is not counted.
    fn servers(&mut self) -> [usize; 3] {
        let shown = self.console.query("SHOW SERVERS");
        let column = |name: &str| shown.columns.iter().position(|known| known == name);
        let (database, state) = (column("database"), column("state"));
        let (database, state) = (database.expect("its name"), state.expect("its state"));
        let mut count = [0; 3];
        for row in &shown.rows {
            if row[database].as_ref() == Some(&self.through) {
                let place = match row[state].as_deref() {
                    Some("idle" | "used") => 0,
                    Some("active") => 1,
                    Some("listening") => continue,
                    _ => 2,
                };
                count[place] += 1;
            }
        }
        count
    }

    /// Waits until no server is being looked into; returns how many are in use. `passes`: a client that
    /// listens keeps its server only until the listener listens for it. `inside`: so many are in a
    /// transaction. A backend of a direct pool may linger with a client that it does not keep.
    pub(super) fn wait_for_rest(&mut self, passes: bool, inside: usize) -> usize {
        let found = poll_until(PATIENCE, || {
            let seen = self.servers();
            let [_, used, busy] = seen;
            let lingers = testkit::pools_are_direct() && self.pinned() + inside < used;
            let mut is_passing = || {
                lingers || passes && self.pins().contains("\"listen\"") || self.servers() != seen
            };
            (busy == 0 && (used == 0 || !is_passing())).then_some(used)
        });
        found.unwrap_or_else(|| panic!("servers do not come to rest: {}", self.pins()))
    }

    pub(super) fn wait_until_free(&mut self) -> Result<(), String> {
        let mut seen = [0; 3];
        let free = poll_until(PATIENCE, || {
            seen = self.servers();
            (seen[1] == 0 && seen[2] == 0).then_some(())
        });
        free.ok_or_else(|| format!("idle, used, busy servers: {seen:?}; {}", self.pins()))
    }

    fn pinned(&mut self) -> usize {
        self.console.query("SHOW PINS").rows.len()
    }

    pub(super) fn pins(&mut self) -> String {
        let pins = self.console.query("SHOW PINS");
        format!("{:?}", pins.rows)
    }

    /// Hostile clients use all servers that are free. Returns the backend that was given out last,
    /// which is the one that was left last; the one that will be given out next is not `avoid`.
    pub(super) fn switch(&mut self, avoid: Option<u32>) -> Option<u32> {
        let [free, kept, _] = self.servers();
        let mut used: Vec<(u32, usize)> = (0..free).map(|at| (self.visit(at), at)).collect();
        let left = used.last().map(|(backend, _)| *backend);
        // The first one to go leaves the server that is given out next.
        used.sort_by_key(|(backend, _)| (Some(*backend) == avoid, Some(*backend) == left));
        let mut inside = used.len();
        for (_, at) in used {
            self.visits += 1;
            let client = self.hostile[at].as_mut().expect("it is visiting");
            let is_last = self.visits.is_multiple_of(LAST_VISIT);
            if is_last {
                client.rows(LEFTOVERS);
            }
            client.rows("COMMIT");
            // In a direct pool it keeps its server, because it has set a role.
            if !is_last && !testkit::pools_are_direct() {
                inside -= 1;
                continue;
            }
            self.hostile[at] = None;
            inside -= 1;
            // What it has left is taken away.
            let cleared = poll_until(PATIENCE, || {
                let [_, used, busy] = self.servers();
                (busy == 0 && used <= kept + inside).then_some(())
            });
            cleared.expect("who goes leaves nothing");
        }
        left
    }

    /// A hostile client takes a server and keeps it for now.
    fn visit(&mut self, at: usize) -> u32 {
        if self.hostile[at].is_none() {
            let mut stranger = self.client(&[]);
            stranger.rows(&settings::of_stranger(at));
            stranger
                .send([frontend::parse("mine", "SELECT 'stranger'"), frontend::sync()].concat());
            stranger.read_to_ready();
            self.hostile[at] = Some(stranger);
        }
        let stranger = self.hostile[at].as_mut().expect("it has just come");
        stranger.send(frontend::query("BEGIN; SELECT pg_backend_pid()"));
        let unnamed = [frontend::parse("", "SELECT 'stranger'"), frontend::bind("", "", &[])];
        stranger.send([unnamed.concat(), frontend::execute("", 0), frontend::sync()].concat());
        let answer = stranger.read_to_ready();
        stranger.read_to_ready();
        let row = answer.iter().find(|message| message.tag == b'D').expect("a process id");
        row.row()[0].as_ref().and_then(|id| id.parse().ok()).expect("a number")
    }

    pub(super) fn note(&mut self, name: &str, victim: usize, step: &str, what: &str) {
        let step: String = step.chars().take(200).collect();
        self.failures.push(format!("{name}: victim {victim}, at {step}:\n    {what}"));
    }

    pub(super) fn count(&mut self, switches: usize, chances: usize) {
        self.played += 1;
        self.switches += switches;
        self.chances += chances;
    }

    pub(super) fn judge(self) {
        let Self { failures, played, switches, chances, stayed, .. } = self;
        println!("{played} played; another server {switches} times of {chances}");
        let told = failures.iter().take(FAILURES_MAX).cloned().collect::<Vec<_>>().join("\n");
        assert!(failures.is_empty(), "{} failures:\n{told}", failures.len());
        let is_part = std::env::var("TORTURE").is_ok();
        assert!(played > 0 || is_part, "nothing was played");
        assert!(stayed * 20 <= played, "{stayed} scripts were never given another server");
        assert!(switches * 3 >= chances, "hardly anybody was given another server");
    }
}
