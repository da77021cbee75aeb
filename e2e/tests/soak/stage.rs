//! A PostgreSQL with the library `weir`, Weir before it, and two databases.

use std::path::PathBuf;
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role};

use crate::plan::Plan;
use crate::verdict::Verdict;

/// The time after which a client that waits counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
const POOL_SIZE: u32 = 8;

#[derive(Debug)]
pub(crate) struct Stage {
    // Dropped first.
    pub(crate) pooler: Pooler,
    pub(crate) postgres: Postgres,
    /// Its backends live as long as the soak.
    pub(crate) steady: String,
    /// Its backends come and go.
    pub(crate) rough: String,
}

/// The ports and databases that clients log in to.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) port: u16,
    /// The folder and the port of PostgreSQL's own socket.
    server: (PathBuf, u16),
    pub(crate) steady: String,
    pub(crate) rough: String,
}

impl Stage {
    pub(crate) fn start(plan: &Plan) -> Self {
        let postgres = Postgres::start_with_library(plan.version);
        let socket = postgres.socket_folder().join("direct");
        postgres.set("weir.control_socket", &socket.to_string_lossy());
        postgres.set("autovacuum", "on");
        let (steady, rough) = (postgres.database(), postgres.database());
        for database in [&steady, &rough] {
            postgres.sql(database, TABLES);
        }
        // Backends shall live as long as the soak.
        let pooler = Pooler::before(&postgres)
            .workers(2)
            .set("pool_mode", "auto")
            .set("default_pool_size", POOL_SIZE)
            .set("server_lifetime", 10 * plan.seconds.as_secs() + 3600)
            .set("server_idle_timeout", 0)
            .set("data_path", &plan.data_path)
            .set("direct_socket", socket.display())
            .set("log_connections", 0)
            .set("log_disconnections", 0)
            .database(&steady, "")
            .database(&rough, "")
            .start();
        let stage = Self { pooler, postgres, steady, rough };
        for database in [&stage.steady, &stage.rough] {
            drop(stage.access().client(database));
            let shown = stage.pooler.admin("SHOW POOLS").with("database", database);
            assert_eq!(shown.only("data_path"), plan.data_path, "{}", stage.pooler.log());
        }
        stage
    }

    pub(crate) fn access(&self) -> Access {
        let (steady, rough) = (self.steady.clone(), self.rough.clone());
        let server = (self.postgres.socket_folder().to_owned(), self.postgres.port());
        Access { port: self.pooler.port(), server, steady, rough }
    }

    /// Each account's balance must be the sum of its history.
    pub(crate) fn check_balances(&self, verdict: &Verdict) {
        let wrong = "SELECT id FROM accounts WHERE balance <> \
                     (SELECT coalesce(sum(delta), 0) FROM history WHERE account = id)";
        let wrong = self.postgres.sql(&self.steady, wrong);
        verdict.judge("accounts", || assert!(wrong.is_empty(), "wrong balances: {wrong:?}"));
    }
}

impl Access {
    #[track_caller]
    pub(crate) fn client(&self, database: &str) -> RawClient {
        let client = RawClient::login(self.port, Role::APP, database, Role::APP_PASSWORD);
        let client = client.unwrap_or_else(|e| panic!("login refused: {e:?}"));
        client.set_timeout(PATIENCE);
        client
    }

    /// Logs in to PostgreSQL itself.
    #[track_caller]
    pub(crate) fn superuser(&self, database: &str) -> RawClient {
        let (folder, port) = &self.server;
        let client = RawClient::connect_unix(folder, *port);
        let mut client = client.unwrap_or_else(|e| panic!("cannot connect: {e}"));
        let parameters = [("user", "postgres"), ("database", database)];
        client.authenticate(&parameters, "").unwrap_or_else(|e| panic!("login refused: {e:?}"));
        client
    }
}

const TABLES: &str = "
    CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
    INSERT INTO accounts SELECT n, 0 FROM generate_series(0, 999) n;
    CREATE TABLE history (account int, delta int);
    CREATE TABLE copied (client int, n int, line text);
    CREATE INDEX ON copied (client);
    CREATE SEQUENCE numbers;
    GRANT ALL ON accounts, history, copied, numbers TO PUBLIC";
