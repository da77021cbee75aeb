//! A restart during runs of PostgreSQL's own programs: pgbench, psql, pg_receivewal.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::PATIENCE;
use crate::support;
use testkit::{Authority, Pooler, Postgres, eventually, frontend};

/// A psql with pipes for its input and output.
struct Psql {
    child: Child,
    says: ChildStdin,
    hears: Lines<BufReader<ChildStdout>>,
}

impl Psql {
    fn start(command: &mut Command) -> Self {
        command.args(["-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let says = child.stdin.take().expect("piped");
        let hears = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, says, hears }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.says, "{line}").expect("psql reads");
    }

    /// Sends a line and returns the first line of the answer.
    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hears.next().expect("psql goes on").expect("text")
    }

    /// Ends psql and checks its exit status.
    #[track_caller]
    fn quit(mut self) {
        drop(self.says);
        assert!(self.child.wait().expect("our own child").success());
    }
}

#[track_caller]
fn until_ended(old: &mut Child) {
    let status = eventually("the old process ends", PATIENCE, || old.try_wait().expect("ours"));
    assert_eq!(status.code(), Some(0));
}

#[track_caller]
fn pgbench_goes_on(mode: &str, over_unix: bool, protocol: &str) {
    let (setup, database) = support::setup(mode);
    let mut pooler = setup.set("default_pool_size", 6).workers(2).start();
    let port = Postgres::shared().port();
    support::run(Postgres::client_program("pgbench", port, &database).args(["-i", "-q", "-n"]));
    let mut command = pooler.client_program("pgbench", &database);
    if over_unix {
        command.env("PGHOST", pooler.socket_folder());
    }
    let bench = command
        .args(["-n", "-c", "6", "-j", "2", "-T", "12", "-M", protocol])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pgbench starts");
    let served = |pooler: &Pooler| pooler.admin("SHOW STATS_TOTALS").with("database", &database);
    for _ in 0..3 {
        // The counters begin anew with each process.
        eventually("it is at work", PATIENCE, || {
            let count = served(&pooler).sum("xact_count");
            (count > 20).then_some(())
        });
        assert_eq!(pooler.take_over().code(), Some(0));
    }
    support::pgbench_ends_well(bench);
}

#[test]
fn pgbench_runs_through_three_restarts_in_transaction_mode() {
    if support::only_weir() {
        pgbench_goes_on("transaction", false, "prepared");
    }
}

#[test]
fn pgbench_runs_through_three_restarts_in_session_mode_over_unix_sockets() {
    if support::only_weir() {
        pgbench_goes_on("session", true, "prepared");
    }
}

#[test]
fn a_session_of_psql_outlives_three_restarts() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("session");
    let mut pooler = setup.workers(2).start();
    let mut psql = Psql::start(&mut pooler.client_program("psql", &database));
    psql.tell("SET work_mem = '1234kB';");
    psql.tell("CREATE TEMP TABLE own (n int); PREPARE put(int) AS INSERT INTO own VALUES ($1);");
    let backend = psql.ask("SELECT pg_backend_pid();");
    for round in 1..=3 {
        psql.tell(&format!("EXECUTE put({round}); BEGIN; EXECUTE put({round});"));
        assert_eq!(psql.ask("SELECT txid_current() IS NOT NULL;"), "t");
        assert_eq!(pooler.take_over().code(), Some(0));
        psql.tell("COMMIT;");
        assert_eq!(psql.ask("SELECT count(*) FROM own;"), (2 * round).to_string());
        assert_eq!(psql.ask("SHOW work_mem;"), "1234kB");
        assert_eq!(psql.ask("SELECT pg_backend_pid();"), backend);
    }
    psql.quit();
}

#[test]
fn a_copy_under_way_is_brought_to_its_end_by_the_old_process() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("suspend_timeout", 0.3).workers(2).start();
    let mut client = pooler.client(&database);
    client.rows("CREATE TABLE copied (n int)");
    client.send(frontend::query("COPY copied FROM STDIN"));
    client.read_until(|message| message.tag == b'G');
    client.send(frontend::copy_data(b"1\n2\n"));
    let mut other = pooler.client(&database);
    let mut old = pooler.begin_take_over();
    pooler.log_contains("has taken over");
    assert_eq!(other.value("SELECT 'served'"), "served");
    client.send([frontend::copy_data(b"3\n"), frontend::copy_done()].concat());
    assert_eq!(client.read_to_ready().iter().filter(|message| message.tag == b'C').count(), 1);
    assert_eq!(client.value("SELECT sum(n) FROM copied"), "6");
    drop(client);
    until_ended(&mut old);
    assert_eq!(other.value("SELECT sum(n) FROM copied"), "6");
}

#[test]
fn a_secured_client_stays_with_the_old_process_and_is_not_waited_for() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let own = authority.server();
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup
        .set("client_tls_sslmode", "allow")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        // A restart that waited for this client would take longer than the test.
        .set("suspend_timeout", 600)
        .start();
    let mut plain = pooler.client(&database);
    let mut secured = Psql::start(
        pooler
            .client_program("psql", &database)
            .envs([("PGSSLMODE", "require"), ("PGHOST", "localhost")]),
    );
    assert_eq!(secured.ask("SELECT 'secured';"), "secured");
    const LONG: &str = "SELECT 7 FROM pg_sleep(2);";
    secured.tell(LONG);
    support::until_running(&database, LONG);
    let mut old = pooler.begin_take_over();
    pooler.log_contains("has taken over");
    assert_eq!(plain.value("SELECT 'plain'"), "plain");
    assert_eq!(secured.ask("SELECT 'secured still';"), "7");
    assert_eq!(secured.hears.next().expect("psql goes on").expect("text"), "secured still");
    assert!(matches!(old.try_wait(), Ok(None)), "the old process has left its client");
    secured.quit();
    until_ended(&mut old);
    assert_eq!(plain.value("SELECT 'plain'"), "plain");
}

#[test]
fn a_stream_of_the_log_stays_with_the_old_process_and_is_not_waited_for() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let role = postgres.name("replicator");
    postgres.sql("postgres", &format!("CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'r-secret'"));
    let database = postgres.database();
    let mut pooler = Pooler::before(postgres)
        .set("pool_mode", "transaction")
        .set("suspend_timeout", 600)
        .secret(&role, "r-secret")
        .database(&database, "")
        .database("replication", "")
        .start();
    let mut plain = pooler.client(&database);
    let folder = testkit::open_folder("wal");
    let mut receiver = pooler
        .client_program("pg_receivewal", "")
        .env_remove("PGDATABASE")
        .envs([("PGUSER", role.as_str()), ("PGPASSWORD", "r-secret")])
        .args(["--no-sync", "--no-loop", "-D"])
        .arg(&folder)
        .stdin(Stdio::null())
        .spawn()
        .expect("pg_receivewal starts");
    eventually("a segment is being written", PATIENCE, || {
        let mut files = std::fs::read_dir(&folder).ok()?.flatten();
        files.any(|file| file.file_name().to_string_lossy().ends_with(".partial")).then_some(())
    });
    let mut old = pooler.begin_take_over();
    pooler.log_contains("has taken over");
    assert_eq!(plain.value("SELECT 'plain'"), "plain");
    assert!(matches!(receiver.try_wait(), Ok(None)), "it has lost its server");
    support::interrupt(receiver.id());
    assert!(receiver.wait().expect("our own child").success(), "it ends in order");
    until_ended(&mut old);
}
