//! A pooler with two servers, one of which is in use throughout, and the checks after a death.

use std::time::{Duration, Instant};

use super::flows::{Flow, ROWS};
use super::fuse::Fuse;
use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, eventually, frontend, poll_until};

/// Longer than a loaded machine needs, and shorter than any timeout of the pooler: a recovery that
/// needs such a timeout is a failure.
const PATIENCE: Duration = Duration::from_secs(10);

const BUSY: &str = "SELECT pg_sleep(0.7)";

/// The bystander is in a transaction all the time. The victim and the clients after it share the
/// other server.
pub(super) struct Rig<'a> {
    postgres: &'a Postgres,
    pub(super) pooler: Pooler,
    pub(super) database: String,
    pub(super) fuse: Fuse,
    bystander: Option<RawClient>,
    bystanders_server: u32,
    pub(super) mode: &'static str,
}

impl<'a> Rig<'a> {
    pub(super) fn new(postgres: &'a Postgres, mode: &'static str) -> Self {
        let database = postgres.database();
        let fuse = Fuse::before(postgres.port());
        let setup = Pooler::before(postgres)
            .set("pool_mode", mode)
            .set("auth_type", "plain")
            .set("default_pool_size", 2)
            .set("server_login_retry", 0)
            // The pooler's own questions would come at times that differ from run to run.
            .set("role_check_interval", 0)
            // The relay cuts the server's bytes at message boundaries, and the answer to an
            // SSLRequest is not a message.
            .set("server_tls_sslmode", "disable")
            .database_at(&database, &format!("host=127.0.0.1 port={}", fuse.port()));
        let pooler = setup.workers(2).start();
        postgres.sql(&database, "CREATE TABLE t (n int); GRANT ALL ON t TO app");
        // Some deaths crash the cluster, which must not lose committed rows.
        postgres.sql(&database, "CHECKPOINT");
        postgres
            .sql("postgres", &format!("ALTER DATABASE {database} SET synchronous_commit = local"));
        let (bystander, bystanders_server) = (None, 0);
        let mut rig = Self { postgres, pooler, database, fuse, bystander, bystanders_server, mode };
        rig.bring_bystander();
        rig
    }

    /// Lets the bystander begin a transaction. It must not notice anything from then on.
    pub(super) fn bring_bystander(&mut self) {
        let mut bystander = self.pooler.client(&self.database);
        bystander.rows("BEGIN");
        let server = bystander.value("SELECT pg_backend_pid()");
        self.bystanders_server = server.parse().expect("a process id");
        self.bystander = Some(bystander);
        self.fuse.spare_present();
    }

    /// Sends a query of the bystander, whose answer it must get.
    pub(super) fn keep_bystander_busy(&mut self) {
        self.bystander.as_mut().expect("there is one").send(frontend::query(BUSY));
        support::until_running(&self.database, BUSY);
    }

    /// Checks the answer to the bystander's query.
    #[track_caller]
    pub(super) fn assert_bystander_undisturbed(&mut self, cell: &str) {
        let messages = self.bystander.as_mut().expect("there is one").read_to_ready();
        assert!(messages.iter().all(|m| m.tag != b'E'), "{cell}: {messages:?}");
    }

    /// Returns the bystander, for deaths that no client survives.
    pub(super) fn take_bystander(&mut self) -> RawClient {
        self.bystander.take().expect("there is one")
    }

    /// Returns a client in the state in which a flow begins.
    pub(super) fn victim(&self, flow: &Flow) -> RawClient {
        if flow.logs_in {
            self.end_other_servers();
            RawClient::connect(self.pooler.port())
        } else {
            // The server may have statements of the victim before. This victim must not find them,
            // or its conversation would differ.
            self.pooler.client(&self.database).query("DISCARD ALL");
            self.pooler.client(&self.database)
        }
    }

    /// Returns the servers except the bystander's.
    pub(super) fn other_servers(&self) -> Vec<u32> {
        let mut servers = self.postgres.backends(&self.database);
        servers.retain(|server| *server != self.bystanders_server);
        servers
    }

    /// Ends the servers except the bystander's, so that a login needs a new server.
    pub(super) fn end_other_servers(&self) {
        for server in self.other_servers() {
            self.terminate(server);
        }
        eventually("the pooler has noticed", PATIENCE, || {
            (self.pooler.pool_sums(&self.database, ["sv_idle", "sv_used"]) == [0, 0]).then_some(())
        });
    }

    pub(super) fn terminate(&self, server: u32) {
        self.postgres.sql("postgres", &format!("SELECT pg_terminate_backend({server})"));
        eventually("the backend has ended", PATIENCE, || {
            (!self.postgres.backends(&self.database).contains(&server)).then_some(())
        });
    }

    /// Checks everything that must hold after a death. `rows` are the numbers of rows that the flow
    /// may have left in the table.
    #[track_caller]
    pub(super) fn assert_unharmed(&mut self, cell: &str, rows: &[u64]) {
        if let Some(bystander) = &mut self.bystander {
            assert_own_answer(bystander, cell, "bystander", b"T");
        }
        // The next client comes at once, so that it meets the victim's server in any state.
        let begun = Instant::now();
        let mut next = self.pooler.client(&self.database);
        assert_own_answer(&mut next, cell, "next", b"I");
        assert!(begun.elapsed() < PATIENCE, "{cell}: the next client waits for a timeout");
        if self.mode == "session" {
            let left = next.value("SELECT count(*) FROM pg_prepared_statements");
            assert_eq!(left, "0", "{cell}: statements of another");
        }
        drop(next);
        self.assert_quiet(cell);
        let delete = "WITH gone AS (DELETE FROM t RETURNING n) SELECT count(*) FROM gone";
        let found = self.postgres.sql(&self.database, delete)[0][0].clone();
        let found = found.and_then(|text| text.parse().ok()).expect("a number");
        assert!(rows.contains(&found), "{cell}: {found} rows, not {rows:?} of them");
    }

    /// Checks that neither the pooler nor PostgreSQL has connections left, except the bystander's.
    #[track_caller]
    fn assert_quiet(&self, cell: &str) {
        const COLUMNS: [&str; 5] =
            ["cl_active", "cl_waiting", "sv_active", "sv_tested", "sv_login"];
        let held = u64::from(self.bystander.is_some());
        let busy = format!(
            "SELECT state, query FROM pg_stat_activity WHERE datname = '{}' \
             AND pid NOT IN (pg_backend_pid(), {}) AND backend_type = 'client backend'",
            self.database, self.bystanders_server
        );
        let mut seen = ([0; 5], Vec::new());
        let quiet = poll_until(PATIENCE, || {
            seen = (
                self.pooler.pool_sums(&self.database, COLUMNS),
                self.postgres.sql("postgres", &busy),
            );
            let idle = seen.1.iter().all(|row| row[0].as_deref() == Some("idle"));
            (seen.0 == [held, 0, held, 0, 0] && idle && seen.1.len() <= 2).then_some(())
        });
        assert!(quiet.is_some(), "{cell}: left over: {COLUMNS:?} = {:?}, {:?}", seen.0, seen.1);
    }

    /// Waits until PostgreSQL accepts clients again, also through the pooler.
    pub(super) fn until_recovered(&self) {
        eventually("PostgreSQL has recovered", PATIENCE, || self.postgres.is_ready());
        eventually("clients are served again", PATIENCE, || {
            let mut client =
                self.pooler.login(Role::APP, &self.database, Role::APP_PASSWORD).ok()?;
            client.try_send(frontend::query("SELECT 1")).ok()?;
            (client.try_read().ok()??.tag == b'T').then_some(())
        });
    }

    /// Waits until PostgreSQL has none of the pooler's servers left.
    pub(super) fn until_servers_are_gone(&self) {
        eventually("the servers are gone", PATIENCE, || {
            self.postgres.backends(&self.database).is_empty().then_some(())
        });
    }
}

/// Checks that the messages of a client are the beginning of the undisturbed ones, followed by at
/// most the reason for the end.
#[track_caller]
pub(super) fn assert_cut_short(cell: &str, heard: &[Message], undisturbed: &[Message]) {
    let fatal = |m: &Message| m.tag == b'E' && m.error().is_some_and(|e| e.severity() == "FATAL");
    let end = heard.iter().position(fatal).unwrap_or(heard.len());
    let (told, reasons) = heard.split_at(end);
    assert!(reasons.iter().all(fatal), "{cell}: more after the end: {reasons:?}");
    let same = told.len() <= undisturbed.len()
        && told.iter().zip(undisturbed).all(|(one, other)| alike(one, other));
    assert!(same, "{cell}: heard {told:?}, which is no part of {undisturbed:?}");
}

/// Returns the possible numbers of rows after an undisturbed flow that has been answered up to some
/// step.
pub(super) fn rows_after(flow: &Flow, answered: usize) -> &'static [u64] {
    match flow.commits {
        None => &[0],
        Some(step) if answered > step => &[ROWS],
        Some(_) => &[0, ROWS],
    }
}

/// Returns whether two messages are equal, except for salts, keys and process ids, which differ
/// from login to login.
fn alike(one: &Message, other: &Message) -> bool {
    one.tag == other.tag && (matches!(one.tag, b'R' | b'K' | b'S') || one.body == other.body)
}

#[track_caller]
fn assert_own_answer(client: &mut RawClient, cell: &str, who: &str, status: &[u8]) {
    let own = format!("{who} of {cell}");
    client.send(frontend::query(&format!("SELECT '{own}'")));
    let messages = client.read_until(|m| matches!(m.tag, b'Z' | b'E'));
    let tags: Vec<u8> = messages.iter().map(|message| message.tag).collect();
    assert_eq!(tags, b"TDCZ", "{own}: {messages:?}");
    assert_eq!(messages[1].row(), [Some(own.clone())]);
    assert_eq!(messages[3].body, status, "{own}: another's transaction");
}

/// Returns all places where a stream of messages can be cut: between messages, in a header, and in
/// a body.
pub(super) fn cuts(stream: &[u8]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        // The first packet of a connection has no type byte.
        let header = if stream[at] == 0 { 4 } else { 5 };
        let length = stream[at + header - 4..at + header].try_into().expect("whole messages");
        let end = at + header - 4 + usize::try_from(u32::from_be_bytes(length)).expect("small");
        cuts.extend([at, at + 2]);
        if end > at + header {
            cuts.push(at + header + (end - at - header) / 2);
        }
        at = end;
    }
    cuts.push(at);
    cuts.dedup();
    cuts
}
