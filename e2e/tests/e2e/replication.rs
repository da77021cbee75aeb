//! Replication through the pooler: PostgreSQL's own programs, and PostgreSQL as a subscriber.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{self, WAYS, Way, only_weir, run};
use testkit::{Message, Pooler, Postgres, RawClient, Role, Setup, eventually, frontend};

const PATIENCE: Duration = Duration::from_secs(30);

/// In each mode, replication clients have sessions of their own.
fn ways() -> impl Iterator<Item = Way> {
    WAYS.into_iter().chain([TRANSACTION, Way::of("statement")])
}

const TRANSACTION: Way = Way::of("transaction");

/// A program that runs until it is ended, at the latest with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(child.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Creates a role that may replicate.
fn replicator(postgres: &Postgres) -> String {
    let name = postgres.name("replicator");
    postgres.sql("postgres", &format!("CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'r-secret'"));
    name
}

fn setup(postgres: &Postgres, role: &str, database: &str, way: Way) -> Setup {
    way.set(Pooler::before(postgres))
        .secret(role, "r-secret")
        .database(database, "")
        .database("replication", "")
}

/// Returns a program of PostgreSQL that replicates through the pooler.
fn program(pooler: &Pooler, name: &str, role: &str) -> Command {
    let mut command = pooler.client_program(name, "");
    command.env_remove("PGDATABASE").env("PGUSER", role).env("PGPASSWORD", "r-secret");
    command
}

/// Returns a raw connection with the replication protocol.
fn raw(pooler: &Pooler, role: &str, database: &str, value: &str) -> RawClient {
    let mut client = RawClient::try_connect(pooler.port()).expect("the pooler listens");
    let parameters = [("user", role), ("database", database), ("replication", value)];
    client.authenticate(&parameters, "r-secret").unwrap_or_else(|e| panic!("{e:?}"));
    client
}

/// Returns the application names of the walsenders of this role.
fn walsenders(postgres: &Postgres, role: &str) -> Vec<String> {
    let sql = format!("SELECT application_name FROM pg_stat_activity WHERE usename = '{role}'");
    postgres.sql("postgres", &sql).into_iter().filter_map(|mut row| row.remove(0)).collect()
}

#[test]
fn a_base_backup_is_taken_and_its_log_streamed() {
    if !only_weir() {
        return;
    }
    // Not the shared server: a backup would copy the databases of hundreds of tests.
    let postgres = &Postgres::start();
    let role = replicator(postgres);
    let database = postgres.database();
    for way in ways() {
        base_backup(postgres, &role, &setup(postgres, &role, &database, way).start());
    }
}

fn base_backup(postgres: &Postgres, role: &str, pooler: &Pooler) {
    let target = testkit::open_folder("backup").join("data");
    // By default it streams the WAL over a second connection meanwhile.
    run(program(pooler, "pg_basebackup", role)
        .args(["--checkpoint=fast", "--no-sync", "--wal-method=stream", "-D"])
        .arg(&target));
    assert!(target.join("backup_manifest").is_file(), "no whole backup");
    pooler.log_contains("replication=yes");
    eventually("its connections are gone", PATIENCE, || {
        walsenders(postgres, role).is_empty().then_some(())
    });
    pooler.wait_for_servers("replication", 0);
}

#[test]
fn the_log_is_received_until_the_receiver_leaves_core() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    for way in ways() {
        let role = replicator(postgres);
        let setup = setup(postgres, &role, &postgres.database(), way);
        receive_the_log(postgres, &role, &setup.workers(2).start());
    }
}

fn receive_the_log(postgres: &Postgres, role: &str, pooler: &Pooler) {
    let folder = testkit::open_folder("wal");
    let mut receiver = Running::start(
        program(pooler, "pg_receivewal", role).arg("--no-sync").arg("-D").arg(&folder),
    );
    eventually("a segment is being written", PATIENCE, || {
        let mut files = std::fs::read_dir(&folder).ok()?.flatten();
        files.any(|file| file.file_name().to_string_lossy().ends_with(".partial")).then_some(())
    });
    assert_eq!(walsenders(postgres, role), ["pg_receivewal"]);
    for command in ["SHOW CLIENTS", "SHOW SERVERS"] {
        let shown = pooler.admin(command).with("database", "replication");
        assert_eq!(shown.only("replication"), "physical", "{command}");
        assert_eq!(shown.only("state"), "active", "{command}");
    }
    support::interrupt(receiver.0.id());
    assert!(receiver.0.wait().expect("our own child").success(), "it ends in order");
    pooler.log_contains("client close request");
    pooler.wait_for_servers("replication", 0);
}

#[test]
fn no_other_server_is_opened_for_physical_replication() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let role = replicator(postgres);
    let setup = setup(postgres, &role, &postgres.database(), TRANSACTION);
    let pooler = setup.set("min_pool_size", 2).set("server_login_retry", 600).start();
    for round in 0..3 {
        let folder = testkit::open_folder("wal");
        let mut receiver = Running::start(
            program(&pooler, "pg_receivewal", &role).arg("--no-sync").arg("-D").arg(&folder),
        );
        eventually("a segment is being written", PATIENCE, || {
            assert!(matches!(receiver.0.try_wait(), Ok(None)), "refused in round {round}");
            let mut files = std::fs::read_dir(&folder).ok()?.flatten();
            files.any(|file| file.file_name().to_string_lossy().ends_with(".partial")).then_some(())
        });
        // Servers for min_pool_size are opened at a tick, so the test waits for some ticks.
        let began = std::time::Instant::now();
        eventually("some ticks", PATIENCE, || {
            (began.elapsed() > Duration::from_secs(1)).then_some(())
        });
        assert_eq!(walsenders(postgres, &role), ["pg_receivewal"]);
        support::interrupt(receiver.0.id());
        assert!(receiver.0.wait().expect("our own child").success(), "it ends in order");
    }
    assert!(!pooler.log().contains("login failed"), "{}", pooler.log());
    assert!(!pooler.log().contains("does not exist"), "{}", pooler.log());
}

#[test]
fn changes_are_decoded_for_programs_and_subscribers() {
    if !only_weir() {
        return;
    }
    let subscriber = Postgres::start();
    for way in ways() {
        decode_and_subscribe(&subscriber, way);
    }
}

fn decode_and_subscribe(subscriber: &Postgres, way: Way) {
    let publisher = Postgres::shared();
    let role = replicator(publisher);
    let database = publisher.database();
    publisher.sql(&database, "CREATE TABLE t (id int PRIMARY KEY, word text)");
    publisher.sql(
        &database,
        &format!("INSERT INTO t VALUES (1, 'before'); GRANT SELECT ON t TO {role}"),
    );
    publisher.sql(&database, "CREATE PUBLICATION p FOR TABLE t");
    let pooler = setup(publisher, &role, &database, way).start();

    // A program creates its slot, receives the changes, and ends in the middle of them.
    let slot = format!("--slot={}", publisher.name("decoded"));
    let slot = [slot.as_str(), "-d", &database];
    run(program(&pooler, "pg_recvlogical", &role).args(slot).args([
        "--create-slot",
        "-P",
        "test_decoding",
    ]));
    let file = testkit::open_folder("decoded").join("changes");
    let mut reader = Running::start(
        program(&pooler, "pg_recvlogical", &role)
            .args(slot)
            .args(["--start", "--no-loop", "-f"])
            .arg(&file),
    );
    publisher.sql(&database, "INSERT INTO t VALUES (2, 'decoded')");
    eventually("the change is told", PATIENCE, || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains("word[text]:'decoded'").then_some(())
    });
    let shown = pooler.admin("SHOW SERVERS").with("replication", "logical");
    assert_eq!(shown.only("application_name"), "pg_recvlogical");
    support::interrupt(reader.0.id());
    assert!(reader.0.wait().expect("our own child").success(), "it ends in order");

    // A PostgreSQL server first copies the table and then follows the changes.
    let copy = subscriber.database();
    subscriber.sql(&copy, "CREATE TABLE t (id int PRIMARY KEY, word text)");
    let connection = format!(
        "host=127.0.0.1 port={} user={role} password=r-secret dbname={database}",
        pooler.port()
    );
    let name = subscriber.name("subscription");
    subscriber
        .sql(&copy, &format!("CREATE SUBSCRIPTION {name} CONNECTION '{connection}' PUBLICATION p"));
    let words = || {
        let rows = subscriber.sql(&copy, "SELECT word FROM t ORDER BY id");
        rows.into_iter().filter_map(|mut row| row.remove(0)).collect::<Vec<_>>()
    };
    eventually("the table is copied", PATIENCE, || {
        (words() == ["before", "decoded"]).then_some(())
    });
    publisher.sql(&database, "INSERT INTO t VALUES (3, 'after')");
    eventually("changes follow", PATIENCE, || {
        (words() == ["before", "decoded", "after"]).then_some(())
    });
    // Meanwhile other clients use the same pool and get other servers.
    let mut client = pooler.login(&role, &database, "r-secret").expect("a client like any other");
    assert_eq!(client.value("SELECT count(*) FROM t"), "3");
    subscriber.sql(&copy, &format!("DROP SUBSCRIPTION {name}"));
    eventually("nobody replicates any more", PATIENCE, || {
        // Other tests use the same cluster, so some slots are theirs.
        let active = "SELECT count(*) FROM pg_replication_slots \
                      WHERE active AND database = current_database()";
        (client.value(active) == "0").then_some(())
    });
}

#[test]
fn a_replicating_client_has_a_session_and_its_own_settings() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let role = replicator(postgres);
    let database = postgres.database();
    let pooler = setup(postgres, &role, &database, TRANSACTION).start();
    let mut client = RawClient::try_connect(pooler.port()).expect("the pooler listens");
    let parameters = [
        ("user", role.as_str()),
        ("database", &database),
        ("replication", "database"),
        ("application_name", "one's own"),
        // Neither setting is tracked, so the server gets them unchanged.
        ("options", "-c search_path=pg_catalog -c work_mem=1234kB"),
    ];
    client.authenticate(&parameters, "r-secret").expect("a login");
    assert_eq!(client.value("SHOW work_mem"), "1234kB");
    assert_eq!(client.value("SHOW search_path"), "pg_catalog");
    assert_eq!(client.value("SELECT current_setting('application_name')"), "one's own");
    let pid = client.value("SELECT pg_backend_pid()");
    assert_eq!(client.value("SELECT pg_backend_pid()"), pid, "a server of its own");
    let mut other = pooler.login(&role, &database, "r-secret").expect("an ordinary client");
    assert_ne!(other.value("SELECT pg_backend_pid()"), pid);
    let rows = client.rows("IDENTIFY_SYSTEM");
    assert_eq!(rows[0][3].as_deref(), Some(database.as_str()));
    drop(client);
    pooler.log_contains("client unexpected eof");
    eventually("its server is gone", PATIENCE, || {
        (!postgres.backends(&database).contains(&pid.parse().expect("a number"))).then_some(())
    });
    assert_eq!(other.value("SELECT 1"), "1");
}

#[test]
fn replication_values_that_mean_no_are_ordinary_clients() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let role = replicator(postgres);
    let database = postgres.database();
    let pooler = setup(postgres, &role, &database, TRANSACTION).start();
    for (value, kind) in [
        ("off", "none"),
        ("false", "none"),
        ("0", "none"),
        ("on", "physical"),
        ("1", "physical"),
        ("true", "physical"),
        ("database", "logical"),
    ] {
        let client = raw(&pooler, &role, &database, value);
        let shown = pooler.admin("SHOW CLIENTS").with("database", &database);
        assert_eq!(shown.only("replication"), kind, "{value}");
        drop(client);
        pooler.wait_until_quiet(&database, 1);
    }
}

#[test]
fn a_full_pool_makes_room_for_replication_or_lets_it_wait() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let role = replicator(postgres);
    let database = postgres.database();
    let pooler = setup(postgres, &role, &database, TRANSACTION).set("default_pool_size", 1).start();
    let mut ordinary = pooler.login(&role, &database, "r-secret").expect("a client");
    let idle = ordinary.value("SELECT pg_backend_pid()");
    let mut first = raw(&pooler, &role, &database, "database");
    pooler.log_contains("closing because: evicted");
    assert_ne!(first.value("SELECT pg_backend_pid()"), idle);
    // The replication client now keeps the only server.
    ordinary.send(frontend::query("SELECT 'served'"));
    support::until_waiting(&pooler, &database, 1);
    drop(first);
    let served = ordinary.read_to_ready();
    assert!(served.iter().any(|message| message.row().contains(&Some("served".into()))));
    // A replication client waits for the end of a transaction.
    ordinary.rows("BEGIN");
    let (port, name, target) = (pooler.port(), role.clone(), database.clone());
    let late = std::thread::spawn(move || {
        let mut client = RawClient::try_connect(port).expect("the pooler listens");
        let parameters =
            [("user", name.as_str()), ("database", &target), ("replication", "database")];
        client.authenticate(&parameters, "r-secret").map(|_| client.value("SELECT 'late'"))
    });
    support::until_waiting(&pooler, &database, 1);
    ordinary.rows("COMMIT");
    assert_eq!(late.join().expect("no panic").expect("a login"), "late");
}

#[test]
fn reconnect_ends_replication_at_once_and_a_refusal_affects_no_other_client() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let role = replicator(postgres);
    let database = postgres.database();
    let pooler = setup(postgres, &role, &database, Way::of("session")).start();
    let mut client = raw(&pooler, &role, &database, "database");
    assert_eq!(client.value("SELECT 1"), "1");
    pooler.admin("RECONNECT");
    let words = client.read_to_end();
    let error = words.iter().find_map(Message::error).expect("an error");
    assert_eq!(error.message(), "database configuration changed");

    // PostgreSQL refuses a role that may not replicate. The pool is not affected.
    let mut refused = RawClient::try_connect(pooler.port()).expect("the pooler listens");
    let parameters = [("user", Role::APP), ("database", &database), ("replication", "database")];
    let error = refused.authenticate(&parameters, Role::APP_PASSWORD).expect_err("no right to it");
    assert_eq!(error.code(), "42501", "{error:?}");
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}
