//! A PostgreSQL with Weir on one of the three paths, as a requirement wants them.

use std::fs;
use std::ops::Deref;
use std::time::Duration;

use testkit::{
    Builtin, Pooler, Postgres, RawClient, ServerError, eventually, folder, frontend, give_away,
};

/// The longest wait for a state that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The way from a client to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Weir is a process of its own, and passes all bytes on.
    Proxied,
    /// Backends with the library serve the clients' sockets.
    Direct,
    /// PostgreSQL runs Weir, which passes all bytes on.
    Builtin,
}

impl Path {
    pub(crate) const ALL: [Self; 3] = [Self::Proxied, Self::Direct, Self::Builtin];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Proxied => "proxied",
            Self::Direct => "direct pools",
            Self::Builtin => "in the server",
        }
    }

    /// Returns the name as a part of a file's name.
    pub(crate) fn file(self) -> String {
        self.name().replace(' ', "-")
    }

    /// Returns the pool mode in which a client keeps its server longest on this path. Direct pools
    /// have servers of auto mode.
    fn mode(self) -> &'static str {
        match self {
            Self::Proxied | Self::Builtin => "session",
            Self::Direct => "auto",
        }
    }
}

/// The wishes of a requirement.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    keys: Vec<(String, String)>,
    settings: String,
    databases: Vec<&'static str>,
    roles: Vec<(&'static str, &'static str)>,
    asks: bool,
}

/// The role as which Weir asks for the passwords of others.
const ASKER: &str = "asker";

impl Wish {
    /// Returns a site with these databases and with these ordinary roles.
    pub(crate) fn new(databases: &[&'static str], roles: &[&'static str]) -> Self {
        let roles = roles.iter().map(|role| (*role, "")).collect();
        let (keys, settings, databases) = (Vec::new(), String::new(), databases.to_vec());
        Self { keys, settings, databases, roles, asks: false }
    }

    /// Adds a superuser.
    pub(crate) fn superuser(mut self, role: &'static str) -> Self {
        self.roles.push((role, "SUPERUSER"));
        self
    }

    /// Sets a key of Weir's.
    pub(crate) fn key(mut self, key: &str, value: impl ToString) -> Self {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.to_owned(), value.to_string()));
        self
    }

    /// Weir asks PostgreSQL for the roles' passwords, instead of knowing them.
    pub(crate) fn asks_passwords(mut self) -> Self {
        self.asks = true;
        self.superuser(ASKER)
    }

    /// Adds a line of `postgresql.conf`.
    pub(crate) fn setting(mut self, line: &str) -> Self {
        self.settings.push_str(line);
        self.settings.push('\n');
        self
    }
}

#[derive(Debug)]
enum Server {
    Plain(Postgres),
    Builtin(Builtin),
}

/// A PostgreSQL with Weir.
#[derive(Debug)]
pub(crate) struct Site {
    // Dropped first.
    pub(crate) pooler: Option<Pooler>,
    server: Server,
    port: u16,
}

impl Site {
    /// Starts a PostgreSQL and Weir on this path. The roles have their names as passwords.
    pub(crate) fn start(path: Path, wish: &Wish) -> Self {
        let mut wish = wish.clone();
        for (key, value) in [("default_pool_size", "100"), ("pool_mode", path.mode())] {
            if !wish.keys.iter().any(|(known, _)| known == key) {
                wish = wish.key(key, value);
            }
        }
        match path {
            Path::Proxied | Path::Direct => Self::start_beside(path, &wish),
            Path::Builtin => Self::start_inside(&wish),
        }
    }

    fn start_beside(path: Path, wish: &Wish) -> Self {
        let is_direct = path == Path::Direct;
        let postgres = Postgres::start_configured(is_direct, &wish.settings);
        create(&postgres, wish);
        let mut setup = Pooler::before(&postgres).set("auth_type", "scram-sha-256").workers(2);
        if wish.asks {
            setup = setup.set("auth_user", ASKER);
        }
        for (role, _) in wish.roles.iter().filter(|(role, _)| !wish.asks || *role == ASKER) {
            setup = setup.secret(role, role);
        }
        for database in &wish.databases {
            setup = setup.database(database, "");
        }
        if is_direct {
            let socket = postgres.socket_folder().join("direct");
            postgres.set("weir.control_socket", &socket.to_string_lossy());
            setup = setup.set("data_path", "direct").set("direct_socket", socket.display());
        }
        for (key, value) in &wish.keys {
            setup = setup.set(key, value);
        }
        let pooler = setup.start();
        let port = pooler.port();
        Self { pooler: Some(pooler), server: Server::Plain(postgres), port }
    }

    fn start_inside(wish: &Wish) -> Self {
        let lines: String =
            wish.keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let file = folder("keys").join("weir.ini");
        fs::write(&file, lines).expect("our own folder");
        give_away(&file);
        let settings = format!("weir.config_file = '{}'\n{}", file.display(), wish.settings);
        let server = Builtin::serving(&settings);
        create(&server, wish);
        server.create_functions("postgres");
        let port = server.pooler_port();
        let site = Self { pooler: None, server: Server::Builtin(server), port };
        for (role, _) in &wish.roles {
            eventually("Weir knows the roles", PATIENCE, || {
                site.login(role, wish.databases[0]).ok()
            });
        }
        site
    }

    /// Returns Weir's port.
    pub(crate) fn weir_port(&self) -> u16 {
        self.port
    }

    /// Logs in through Weir.
    pub(crate) fn login(&self, role: &str, database: &str) -> Result<RawClient, ServerError> {
        RawClient::login(self.port, role, database, role)
    }

    /// Logs in through Weir, which must accept it.
    #[track_caller]
    pub(crate) fn client(&self, role: &str, database: &str) -> RawClient {
        self.login(role, database).unwrap_or_else(|e| panic!("the login of {role} fails: {e:?}"))
    }
}

impl Site {
    /// Returns the data path of a pool in SHOW POOLS, and why it is not direct.
    pub(crate) fn data_path(&self, role: &str, database: &str) -> (String, String) {
        let Some(pooler) = &self.pooler else { return ("proxy".to_owned(), String::new()) };
        let pools = pooler.admin("SHOW POOLS").with("database", database).with("user", role);
        (pools.only("data_path").to_owned(), pools.only("why").to_owned())
    }

    /// Returns how many servers Weir counts in the pools of a database.
    pub(crate) fn servers(&self, database: &str) -> usize {
        const SERVERS: [&str; 4] = ["sv_active", "sv_idle", "sv_used", "sv_login"];
        if let Some(pooler) = &self.pooler {
            return pooler.pool_sums(database, SERVERS).iter().sum::<u64>() as usize;
        }
        let sum = SERVERS.join(" + ");
        let sql = format!(
            "SELECT coalesce(sum({sum}), 0)::int FROM weir_pools WHERE database = '{database}'"
        );
        let count = self.sql("postgres", &sql)[0][0].clone();
        count.and_then(|count| count.parse().ok()).expect("a number")
    }

    /// Returns the process ids of the backends that serve the pool of a role and a database.
    pub(crate) fn backends_of(&self, role: &str, database: &str) -> Vec<u32> {
        let sql = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND usename = '{role}' \
             AND backend_type = 'client backend' ORDER BY pid"
        );
        let rows = self.sql("postgres", &sql);
        rows.iter().filter_map(|row| row[0].as_ref()?.parse().ok()).collect()
    }
}

impl Deref for Site {
    type Target = Postgres;

    fn deref(&self) -> &Postgres {
        match &self.server {
            Server::Plain(postgres) => postgres,
            Server::Builtin(server) => server,
        }
    }
}

fn create(postgres: &Postgres, wish: &Wish) {
    for (role, attributes) in &wish.roles {
        let sql = format!("CREATE ROLE {role} LOGIN PASSWORD '{role}' {attributes}");
        postgres.sql("postgres", &sql);
    }
    for database in &wish.databases {
        postgres.sql("postgres", &format!("CREATE DATABASE {database}"));
        // Ordinary roles create tables there, as with PostgreSQL 7.3.
        postgres.sql(database, "GRANT ALL ON SCHEMA public TO PUBLIC");
    }
}

/// Says goodbye, and waits until the connection is closed.
pub(crate) fn quit(mut client: RawClient) {
    // Weir may have closed it.
    let _ = client.try_send(frontend::terminate());
    let _ = client.read_to_end();
}

/// Returns the process that serves the client.
#[track_caller]
pub(crate) fn pid(client: &mut RawClient) -> u32 {
    client.value("SELECT pg_backend_pid()").parse().expect("a process id")
}
