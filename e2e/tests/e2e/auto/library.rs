//! PostgreSQL with the library `weir`, which tells what a session holds: what no text shows is known,
//! and nothing is asked.

mod differences;

use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, eventually};

use super::{assert_pinned, backend, for_switching, settle, switch};
use crate::support;

/// Functions that change the session, and what calls them unseen.
const OBJECTS: &str = "
CREATE FUNCTION sets() RETURNS int VOLATILE LANGUAGE plpgsql AS
    $$BEGIN PERFORM set_config('work_mem', '5MB', false),
        set_config('app.tenant', '7', false), set_config('TimeZone', 'Asia/Tokyo', false);
        RETURN 1; END$$;
CREATE FUNCTION sets(int, int) RETURNS int LANGUAGE sql AS 'SELECT sets()';
CREATE FUNCTION sets_by_trigger() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM sets(); RETURN NEW; END';
CREATE TABLE triggering (a int);
CREATE TRIGGER one BEFORE INSERT ON triggering FOR EACH ROW EXECUTE FUNCTION sets_by_trigger();
CREATE TABLE defaulting (a int DEFAULT sets(), b int);
CREATE TABLE checking (a int CHECK (a + sets() > 0));
CREATE VIEW viewing AS SELECT sets() AS a;
CREATE DOMAIN checked AS int CHECK (VALUE + sets() > 0);
CREATE TYPE pair AS (a int, b int);
CREATE FUNCTION sets(pair) RETURNS int LANGUAGE sql AS 'SELECT sets()';
CREATE CAST (pair AS int) WITH FUNCTION sets(pair);
CREATE OPERATOR ### (LEFTARG = int, RIGHTARG = int, FUNCTION = sets);
CREATE FUNCTION abs(pair) RETURNS int LANGUAGE sql AS 'SELECT sets()';
CREATE TABLE ruling (a int);
CREATE RULE one AS ON INSERT TO ruling DO ALSO SELECT sets();
CREATE TABLE policing (a int);
INSERT INTO policing VALUES (1);
ALTER TABLE policing ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY one ON policing USING (sets() > 0);
CREATE AGGREGATE setting(int) (SFUNC = sets, STYPE = int, INITCOND = '0');
CREATE TABLE attributed (b int);
INSERT INTO attributed VALUES (1);
CREATE FUNCTION a(attributed) RETURNS int LANGUAGE sql AS 'SELECT sets()';
CREATE FUNCTION sets_fixed(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
    'BEGIN PERFORM sets(); RETURN $1; END';
CREATE TABLE indexing (a int);
CREATE INDEX ON indexing (sets_fixed(a));
CREATE TABLE generating (a int, b int GENERATED ALWAYS AS (sets_fixed(a)) STORED);
CREATE TABLE locking (a int);
INSERT INTO locking VALUES (7);
CREATE FUNCTION locks() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_lock(NEW.a); RETURN NEW; END';
CREATE TRIGGER one BEFORE UPDATE ON locking FOR EACH ROW EXECUTE FUNCTION locks();
CREATE TABLE numbered (a serial, b int);
CREATE FUNCTION asks() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN lastval(); END';
CREATE VIEW seeding AS SELECT setseed(0.5)::text AS a;
";

/// What only a superuser may do.
const LOADING: &str = "
CREATE FUNCTION loads() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
    $$BEGIN EXECUTE 'LOAD ''plpgsql'''; RETURN 1; END$$;
CREATE VIEW loading AS SELECT loads() AS a;
GRANT SELECT ON loading TO app;
CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM sets(); END';
CREATE EVENT TRIGGER one ON ddl_command_end WHEN TAG IN ('COMMENT') EXECUTE FUNCTION on_ddl();
";

/// Texts that call `sets`, most of them unseen.
const SETTING: [&str; 17] = [
    "INSERT INTO triggering VALUES (1)",
    "INSERT INTO defaulting (b) VALUES (1)",
    "INSERT INTO checking VALUES (1)",
    "TABLE viewing",
    "SELECT 1::checked",
    "SELECT ROW(1, 2)::pair::int",
    "SELECT 1 ### 2",
    "SELECT abs(ROW(1, 2)::pair)",
    "INSERT INTO ruling VALUES (1)",
    "TABLE policing",
    "SELECT setting(1)",
    "SELECT t.a FROM attributed t",
    "INSERT INTO indexing VALUES (1)",
    "INSERT INTO generating (a) VALUES (1)",
    "COMMENT ON TABLE ruling IS 'one'",
    "SELECT sets()",
    "DO 'BEGIN PERFORM sets(); END'",
];

/// Databases with this prefix have servers that do not report, so they are probed. All others must
/// not be (`scripts/auto-with-library`).
const PROBED: &str = "probed";

struct Stage {
    postgres: &'static Postgres,
    pooler: Pooler,
    database: String,
}

impl Stage {
    fn new(size: u32, unsupported: &str) -> Self {
        Self::of_database("db", size, unsupported)
    }

    /// Does the same with a database whose name begins so.
    fn of_database(prefix: &str, size: u32, unsupported: &str) -> Self {
        let postgres = Postgres::shared_with_library();
        let database = postgres.database_called(prefix);
        postgres.sql("postgres", &format!("ALTER DATABASE {database} SET log_statement = 'all'"));
        let direct = RawClient::login(postgres.port(), Role::APP, &database, Role::APP_PASSWORD);
        direct.expect("the server lets its own role in").rows(OBJECTS);
        postgres.sql(&database, LOADING);
        let setup = Pooler::before(postgres).set("pool_mode", "auto").database(&database, "");
        let setup = setup.workers(1).set("default_pool_size", size);
        let pooler = for_switching(setup.set("auto_unsupported", unsupported)).start();
        Self { postgres, pooler, database }
    }

    fn client(&self) -> RawClient {
        self.pooler.client(&self.database)
    }

    #[track_caller]
    fn assert_pinned(&self, reasons: &[&str]) {
        assert_pinned(&self.pooler, reasons);
    }

    /// Nothing was asked about the sessions of this database.
    #[track_caller]
    fn nothing_was_asked(&self) {
        let log = self.postgres.log();
        let of_database = format!("@{} ", self.database);
        let mut own = log.lines().filter(|line| line.contains(&of_database));
        assert!(own.clone().any(|line| line.contains("statement: ")), "statements are logged");
        assert_eq!(own.find(|line| line.contains("found (kind")), None);
    }
}

#[test]
fn settings_that_no_text_shows_go_with_the_client_strict() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(8, "pin");
    let values = |client: &mut RawClient| {
        let rows = client.rows(
            "SELECT current_setting('work_mem'), coalesce(current_setting('app.tenant', true), ''),
                current_setting('TimeZone')",
        );
        rows[0].iter().map(|value| value.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    for text in SETTING {
        let mut client = stage.client();
        let zone = values(&mut client)[2].clone();
        client.rows(text);
        // Behind an INSERT it keeps the server for a few transactions, in case it asks for the number.
        for _ in 0..5 {
            client.rows("SELECT 1");
        }
        let before = backend(&mut client);
        let held = switch(&stage.pooler, &stage.database);
        assert_ne!(backend(&mut client), before, "{text}");
        assert_eq!(values(&mut client), ["5MB", "7", "Asia/Tokyo"], "{text}");
        client.rows("RESET work_mem; RESET app.tenant; RESET TimeZone");
        assert_eq!(values(&mut client), ["4MB", "", &zone], "{text}");
        let mut other = stage.client();
        assert_eq!(values(&mut other), ["4MB", "", &zone], "{text}");
        drop(held);
        // What is rolled back was never set.
        client.rows(&format!("BEGIN; {text}; ROLLBACK"));
        assert_eq!(values(&mut client), ["4MB", "", &zone], "{text}");
    }
    stage.assert_pinned(&[]);
    // A direct pool has no servers of Weir's own.
    let state = if testkit::pools_are_direct() { "" } else { "report" };
    let pools = stage.pooler.admin("SHOW POOLS").with("database", &stage.database);
    assert_eq!(pools.only("session_state"), state);
    stage.nothing_was_asked();
}

#[test]
fn state_left_by_a_trigger_or_a_block_pins_until_it_is_gone() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(4, "pin");
    let mut client = stage.client();
    for (make, reason, end) in [
        (
            "UPDATE locking SET a = a",
            "advisory lock",
            "DO 'BEGIN PERFORM pg_advisory_unlock(7); END'",
        ),
        (
            "DO 'BEGIN CREATE TEMP TABLE mine (a int); END'",
            "temporary object",
            "DO 'BEGIN DROP TABLE mine; END'",
        ),
    ] {
        client.rows(make);
        stage.assert_pinned(&[reason]);
        client.rows("SELECT 1");
        stage.assert_pinned(&[reason]);
        client.rows(end);
        stage.assert_pinned(&[]);
    }
    stage.nothing_was_asked();
}

#[test]
fn a_function_that_asks_for_a_number_keeps_the_server() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(4, "pin");
    let mut client = stage.client();
    // A backend of a direct pool only waits for the next transactions of such a client.
    let reasons: &[_] = if testkit::pools_are_direct() { &[] } else { &["sequence"] };
    for number in 1..4 {
        client.rows("INSERT INTO numbered (b) VALUES (1)");
        assert_eq!(client.value("SELECT asks()"), number.to_string());
        stage.assert_pinned(reasons);
    }
    client.rows("DISCARD SEQUENCES");
    stage.assert_pinned(&[]);
    client.rows("INSERT INTO numbered (b) VALUES (1)");
    client.rows("SELECT 1");
    // Nobody is told a stranger's number.
    let mut other = stage.client();
    assert_eq!(other.query("SELECT asks()").error.expect("it is refused").code(), "55000");
    stage.nothing_was_asked();
}

#[test]
fn statements_without_visible_state_are_pinned_or_refused_within_functions() {
    if !support::only_weir() {
        return;
    }
    let texts = [
        ("TABLE loading", "load"),
        ("TABLE seeding", "setseed"),
        ("DO 'BEGIN PERFORM setseed(0.5); END'", "setseed"),
    ];
    let stage = Stage::new(4, "pin");
    for (text, reason) in texts {
        let mut client = stage.client();
        client.rows(text);
        stage.assert_pinned(&[reason]);
        drop(client);
        eventually("the client has gone", Duration::from_secs(10), || {
            stage.pooler.admin("SHOW PINS").rows.is_empty().then_some(())
        });
    }
    stage.nothing_was_asked();
    let stage = Stage::new(4, "error");
    for (text, _) in texts {
        let mut client = stage.client();
        assert_eq!(client.query(text).error.expect("it is refused").code(), "0A000", "{text}");
        client.rows("SELECT 1");
        stage.assert_pinned(&[]);
    }
    stage.nothing_was_asked();
}

#[test]
fn with_the_library_state_is_carried_without_a_probe_core() {
    if !support::only_proxied("PREPARE and SET ROLE keep a backend") {
        return;
    }
    let stage = Stage::new(8, "pin");
    let mut client = stage.client();
    client.rows("PREPARE one AS SELECT 41 + 1");
    client.rows("LISTEN news");
    eventually("the listener listens", Duration::from_secs(10), || {
        stage.pooler.admin("SHOW PINS").rows.is_empty().then_some(())
    });
    client.rows("SET ROLE app; SET search_path = pg_catalog; SET app.x = 'y'");
    let before = backend(&mut client);
    let _held = switch(&stage.pooler, &stage.database);
    assert_ne!(backend(&mut client), before);
    assert_eq!(client.value("EXECUTE one"), "42");
    assert_eq!(client.value("SHOW search_path"), "pg_catalog");
    assert_eq!(client.value("SELECT current_setting('app.x')"), "y");
    client.rows("DISCARD ALL");
    assert_eq!(client.value("SHOW search_path"), "\"$user\", public");
    stage.nothing_was_asked();
}

#[test]
fn a_pooler_in_between_that_refuses_the_parameter_is_logged_in_to_without_it() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared_with_library();
    let database = postgres.database_called(PROBED);
    let inner =
        Pooler::before(postgres).set("pool_mode", "session").database(&database, "").start();
    let place = format!("host=127.0.0.1 port={}", inner.port());
    let outer = Pooler::before(postgres).set("pool_mode", "auto").database_at(&database, &place);
    let outer = outer.start();
    let mut client = outer.client(&database);
    client.rows("SET work_mem = '5MB'");
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    settle(&outer);
    assert!(outer.admin("SHOW POOLS").column("session_state").contains(&"probe"));
    inner.log_contains("unsupported startup parameter: weir.report");
}

/// A setting that the next server refuses: the client has lost the right to its role.
#[test]
fn a_request_does_not_run_without_its_settings() {
    if !support::only_proxied("a client with SET ROLE keeps its backend") {
        return;
    }
    let stage = Stage::new(4, "pin");
    let role = format!("role_of_{}", stage.database);
    stage.postgres.sql("postgres", &format!("CREATE ROLE {role}; GRANT {role} TO app"));
    let mut client = stage.client();
    client.rows("CREATE TABLE effects (a int)");
    client.rows(&format!("GRANT INSERT ON effects TO {role}"));
    client.rows(&format!("SET ROLE {role}"));
    assert_eq!(client.value("SELECT current_user"), role);
    // Both go out at once: another client has used the server meanwhile.
    let mut other = stage.client();
    assert_eq!(other.value("SELECT current_user"), "app");
    assert_eq!(client.value("SELECT current_user"), role);
    assert_eq!(other.value("SELECT current_user"), "app");
    stage.postgres.sql("postgres", &format!("REVOKE {role} FROM app"));
    client.send(testkit::frontend::query("INSERT INTO effects VALUES (1)"));
    let error = client.read_to_end().iter().find_map(testkit::Message::error);
    let error = error.expect("the client is told");
    assert!(error.message().contains("refused session settings"), "{}", error.message());
    assert_eq!(other.value("SELECT count(*) FROM effects"), "0");
    let log = stage.postgres.log();
    assert!(log.contains("the client's settings were not restored"), "they were sent at once");
    stage.nothing_was_asked();
}

#[test]
fn pg_stat_activity_shows_the_client() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared_with_library();
    let database = postgres.database();
    let setup = Pooler::before(postgres).set("pool_mode", "auto").database(&database, "");
    let setup = setup.workers(1).set("default_pool_size", 1).set("server_client_address", 1);
    let pooler = setup.start();
    let shown = "SELECT host(client_addr), client_port, application_name FROM pg_stat_activity \
        WHERE pid = pg_backend_pid()";
    let mut clients = ["client 0", "client 1"].map(|name| {
        let mut client = RawClient::connect(pooler.port());
        let startup = [("user", Role::APP), ("database", &*database), ("application_name", name)];
        client.authenticate(&startup, Role::APP_PASSWORD).expect("it may come in");
        client
    });
    for _ in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let name = format!("client {number}");
            let row = client.rows(shown).remove(0);
            let shown: Vec<_> = row.into_iter().map(Option::unwrap_or_default).collect();
            let table = pooler.admin("SHOW CLIENTS");
            let table = table.with("application_name", &name);
            assert_eq!(shown, ["127.0.0.1", table.only("port"), &name]);
        }
    }
}
