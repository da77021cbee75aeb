//! What a client's session holds is that client's alone, on a pool of few servers (requirements
//! the proposal of 2019 for a built-in pooler).

use std::time::Duration;

use testkit::{Builtin, RawClient, Version, eventually, frontend};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(10);

/// A session state: how a client makes it, and what clients see of it.
struct State {
    name: &'static str,
    make: &'static str,
    look: &'static str,
    /// What the client itself and the others see.
    own: &'static str,
    others: &'static str,
    /// How many server connections the client keeps between transactions.
    kept: u32,
}

const fn carried(
    name: &'static str,
    make: &'static str,
    look: &'static str,
    own: &'static str,
    others: &'static str,
) -> State {
    State { name, make, look, own, others, kept: 0 }
}

const fn pinned(
    name: &'static str,
    make: &'static str,
    look: &'static str,
    own: &'static str,
    others: &'static str,
) -> State {
    State { name, make, look, own, others, kept: 1 }
}

const WORK_MEM: &str = "SHOW work_mem";
const IS_T: &str = "SELECT to_regclass('pg_temp.t') IS NOT NULL";
const CURSORS: &str = "SELECT count(*) FROM pg_cursors WHERE name = 'c'";
const LOCKS: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";

const STATES: [State; 23] = [
    carried("SET", "SET work_mem = '7MB'", WORK_MEM, "7MB", "4MB"),
    carried("SET, RESET", "SET work_mem = '7MB'; RESET work_mem", WORK_MEM, "4MB", "4MB"),
    carried("SET ROLE", "SET ROLE kin", "SELECT current_user", "kin", "app"),
    carried(
        "SET SESSION AUTHORIZATION",
        "SET SESSION AUTHORIZATION DEFAULT",
        "SELECT session_user",
        "app",
        "app",
    ),
    carried("D-10 a comment", "/* begin */ set /**/ work_mem = '7MB'", WORK_MEM, "7MB", "4MB"),
    carried("D-10 several", "SELECT 1; SET work_mem = '7MB'; SELECT 2", WORK_MEM, "7MB", "4MB"),
    carried("D-10 only a word", "SELECT 'set work_mem = 7MB'", WORK_MEM, "4MB", "4MB"),
    carried("SET LOCAL", "BEGIN; SET LOCAL work_mem = '8MB'; COMMIT", WORK_MEM, "4MB", "4MB"),
    carried("PREPARE", "PREPARE mine AS SELECT 'own'", "EXECUTE mine", "own", "26000"),
    pinned("temporary table", "CREATE TEMP TABLE t (a int)", IS_T, "t", "f"),
    carried(
        "ON COMMIT DROP",
        "BEGIN; CREATE TEMP TABLE t (a int) ON COMMIT DROP; COMMIT",
        IS_T,
        "f",
        "f",
    ),
    pinned("temporary view", "CREATE TEMP VIEW t AS SELECT 1", IS_T, "t", "f"),
    pinned(
        "temporary function",
        "CREATE FUNCTION pg_temp.mine() RETURNS text LANGUAGE sql AS 'SELECT ''own'''",
        "SELECT pg_temp.mine()",
        "own",
        "3F000 42883",
    ),
    pinned(
        "cursor WITH HOLD",
        "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT",
        CURSORS,
        "1",
        "0",
    ),
    carried("cursor", "BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT", CURSORS, "0", "0"),
    pinned("lock", "SELECT pg_advisory_lock(7)", LOCKS, "1", "0"),
    carried(
        "lock of a transaction",
        "BEGIN; SELECT pg_advisory_xact_lock(7); COMMIT",
        LOCKS,
        "0",
        "0",
    ),
    carried("set_config", "SELECT set_config('work_mem', '9MB', false)", WORK_MEM, "9MB", "4MB"),
    carried("SET in a function", "SELECT sets()", WORK_MEM, "6MB", "4MB"),
    carried("SET in DO", "DO $$BEGIN SET work_mem = '6MB'; END$$", WORK_MEM, "6MB", "4MB"),
    carried(
        "a setting of the application's own",
        "SET app.tenant = '7'",
        "SELECT coalesce(current_setting('app.tenant', true), '')",
        "7",
        "",
    ),
    carried(
        "PREPARE in DO",
        "DO $$BEGIN EXECUTE 'PREPARE mine AS SELECT ''own'''; END$$",
        "EXECUTE mine",
        "own",
        "26000",
    ),
    carried("LISTEN", "LISTEN news", "SELECT 1", "1", "1"),
];

/// The answer, or the SQLSTATE of the error.
fn seen(client: &mut RawClient, look: &str) -> String {
    let outcome = client.query(look);
    match outcome.error {
        Some(error) => error.code().to_owned(),
        None => outcome.rows[0][0].clone().unwrap_or_default(),
    }
}

/// A server with a pool of `size` servers, and what the states need.
fn server(version: Version, size: u32) -> (Builtin, String) {
    let server = Builtin::start(
        version,
        &format!(
            "weir.connection_proxies = 1\nweir.session_pool_size = {size}\n\
             max_prepared_transactions = 2"
        ),
    );
    server.wait_until_serving();
    server.create_functions("postgres");
    let database = server.database();
    server.sql("postgres", "CREATE ROLE kin; GRANT kin TO app");
    server.sql(
        &database,
        "CREATE FUNCTION sets() RETURNS void LANGUAGE plpgsql AS \
         $$BEGIN PERFORM set_config('work_mem', '6MB', false); END$$; \
         CREATE TABLE facts (a int); GRANT ALL ON facts TO app; \
         CREATE SEQUENCE numbers; GRANT ALL ON numbers TO app",
    );
    (server, database)
}

fn kept(server: &Builtin) -> u32 {
    let sql = "SELECT sum(n_dedicated_backends) FROM pg_pooler_state()";
    server.superuser("postgres").value(sql).parse().expect("a number")
}

#[test]
fn each_state_is_kept_for_its_client_and_hidden_from_others_core_strict() {
    if !support::only_proxied("SET ROLE keeps a backend") {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        // One server for a client that keeps it, and one for all others.
        let (server, database) = server(version, 2);
        for State { name, make, look, own, others, kept: expected } in STATES {
            let name = format!("{version:?}, {name}");
            let mut first = server.client(&database);
            first.rows(make);
            eventually(&format!("{name}: {expected} kept"), PATIENCE, || {
                (kept(&server) == expected).then_some(())
            });
            let backend = first.value("SELECT pg_backend_pid()");
            let mut second = server.client(&database);
            for _ in 0..2 {
                assert!(others.split(' ').any(|one| one == seen(&mut second, look)), "{name}");
                assert_eq!(seen(&mut first, look), own, "{name}");
            }
            if expected == 1 {
                assert_ne!(second.value("SELECT pg_backend_pid()"), backend, "{name}");
            }
            drop(first);
            eventually(&format!("{name}: none kept"), PATIENCE, || {
                (kept(&server) == 0).then_some(())
            });
            let mut third = server.client(&database);
            assert!(others.split(' ').any(|one| one == seen(&mut third, look)), "{name}");
        }
        assert!(!server.has_crashed());
    }
}

/// All of them on one server: the pool has no other.
#[test]
fn carried_states_share_one_server() {
    if !support::only_proxied("SQL's PREPARE keeps a backend") {
        return;
    }
    let (server, database) = server(Version::Installed, 1);
    // The pool's connection that listens would take the only place.
    let fits = |state: &&State| state.kept == 0 && !state.make.starts_with("LISTEN");
    let carried: Vec<_> = STATES.iter().filter(fits).collect();
    let mut clients: Vec<_> = carried
        .iter()
        .map(|state| {
            let mut client = server.client(&database);
            client.rows(state.make);
            client
        })
        .collect();
    for _ in 0..2 {
        for (client, state) in clients.iter_mut().zip(&carried) {
            assert_eq!(seen(client, state.look), state.own, "{}", state.name);
        }
    }
    let backends: Vec<_> =
        clients.iter_mut().map(|client| client.value("SELECT pg_backend_pid()")).collect();
    assert!(backends.iter().all(|one| *one == backends[0]), "{backends:?}");
}

#[test]
fn statements_of_the_protocol_are_pooled() {
    if !support::only_weir() {
        return;
    }
    let (server, database) = server(Version::Installed, 1);
    let mut clients = [server.client(&database), server.client(&database)];
    for (client, text) in clients.iter_mut().zip(["SELECT 'first'", "SELECT 'second'"]) {
        client.send([frontend::parse("same", text), frontend::sync()].concat());
        client.read_to_ready();
    }
    for _ in 0..2 {
        for (client, text) in clients.iter_mut().zip(["first", "second"]) {
            let request =
                [frontend::bind("", "same", &[]), frontend::execute("", 0), frontend::sync()];
            client.send(request.concat());
            let answer = client.read_to_ready();
            let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
            assert_eq!(row[0].as_deref(), Some(text));
        }
    }
    assert_eq!(kept(&server), 0);
}

#[test]
fn numbers_of_a_sequence_are_each_clients_own_strict() {
    if !support::only_proxied("currval may fail after another client") {
        return;
    }
    let (server, database) = server(Version::Installed, 2);
    let (mut first, mut second) = (server.client(&database), server.client(&database));
    let own = first.value("SELECT nextval('numbers')");
    let other = second.value("SELECT nextval('numbers')");
    assert_ne!(own, other);
    assert_eq!(first.value("SELECT currval('numbers')"), own);
    assert_eq!(second.value("SELECT currval('numbers')"), other);
}

/// The triggers of contrib's refint keep plans for as long as their backend lives. Each
/// client's values are checked with that client's tables and rights all the same.
#[test]
fn cached_plans_of_triggers_are_no_state_of_a_client() {
    if !support::only_proxied("SET ROLE keeps a backend") {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let (server, database) = server(version, 1);
        server.sql(&database, "CREATE EXTENSION refint");
        for (schema, known) in [("one", 1), ("two", 2)] {
            server.sql(
                &database,
                &format!(
                    "CREATE SCHEMA {schema}; SET search_path = {schema}, public; \
                     CREATE TABLE parents (a int); INSERT INTO parents VALUES ({known}); \
                     CREATE TABLE children (a int); \
                     CREATE TRIGGER child AFTER INSERT ON children FOR EACH ROW \
                     EXECUTE FUNCTION check_primary_key('a', 'parents', 'a'); \
                     GRANT USAGE ON SCHEMA {schema} TO app, kin; \
                     GRANT SELECT ON parents TO app; GRANT INSERT ON children TO app, kin"
                ),
            );
        }
        let mut clients = [("one", "1"), ("two", "2")].map(|(schema, known)| {
            let mut client = server.client(&database);
            client.rows(&format!("SET search_path = {schema}, public"));
            (client, known)
        });
        for _ in 0..2 {
            for (client, known) in &mut clients {
                for value in ["1", "2"] {
                    let insert = format!("INSERT INTO children VALUES ({value})");
                    let is_taken = client.query(&insert).error.is_none();
                    assert_eq!(is_taken, value == *known, "{version:?} {known} {value}");
                }
            }
        }
        // Another role has no right to read the parents.
        let mut other = server.client(&database);
        other.rows("SET search_path = one, public; SET ROLE kin");
        let error = other.query("INSERT INTO children VALUES (1)").error.expect("it is refused");
        assert_eq!(error.code(), "42501", "{version:?}");
        let mut backends = vec![other.value("SELECT pg_backend_pid()")];
        for (client, _) in &mut clients {
            backends.push(client.value("SELECT pg_backend_pid()"));
        }
        assert!(backends.iter().all(|one| *one == backends[0]), "{version:?} {backends:?}");
        assert_eq!(kept(&server), 0, "{version:?}");
    }
}

/// It belongs to the database, so any session may end it.
#[test]
fn a_prepared_transaction_can_be_ended_by_another_client() {
    if !support::only_weir() {
        return;
    }
    let (server, database) = server(Version::Installed, 1);
    let (mut first, mut second) = (server.client(&database), server.client(&database));
    first.rows("BEGIN; INSERT INTO facts VALUES (1); PREPARE TRANSACTION 'x'");
    assert_eq!(second.value("SELECT count(*) FROM facts"), "0");
    second.rows("COMMIT PREPARED 'x'");
    assert_eq!(first.value("SELECT count(*) FROM facts"), "1");
}

#[test]
fn notifications_reach_the_client_that_listens() {
    if !support::only_weir() {
        return;
    }
    let (server, database) = server(Version::Installed, 2);
    let (mut first, mut second) = (server.client(&database), server.client(&database));
    first.rows("LISTEN news");
    second.rows("NOTIFY news, 'text'");
    first.read_until(|message| message.tag == b'A');
    assert_eq!(second.value("SELECT count(*) FROM pg_listening_channels()"), "0");
}

/// Issue 8 of the proposal: the next session saw and could commit what the first had not.
#[test]
fn a_client_that_leaves_its_transaction_leaves_nothing_strict() {
    if !support::only_weir() {
        return;
    }
    let (server, database) = server(Version::Installed, 1);
    for ends_properly in [true, false] {
        let mut first = server.client(&database);
        first.rows("BEGIN; INSERT INTO facts VALUES (1)");
        if ends_properly {
            first.send(frontend::terminate());
        }
        drop(first);
        let mut second = server.client(&database);
        assert_eq!(second.value("SELECT count(*) FROM facts"), "0");
        second.rows("COMMIT");
        assert_eq!(second.value("SELECT count(*) FROM facts"), "0");
    }
}

#[test]
fn a_session_that_is_clean_again_is_pooled_again() {
    if !support::only_weir() {
        return;
    }
    let (server, database) = server(Version::Installed, 2);
    let mut client = server.client(&database);
    for (make, undo) in [
        ("CREATE TEMP TABLE t (a int)", "DROP TABLE t"),
        ("SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)"),
        ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "CLOSE c"),
        ("CREATE TEMP TABLE t (a int)", "DISCARD ALL"),
    ] {
        client.rows(make);
        eventually(make, PATIENCE, || (kept(&server) == 1).then_some(()));
        client.rows(undo);
        eventually(undo, PATIENCE, || (kept(&server) == 0).then_some(()));
    }
}

/// The first client's settings must not be those of the pool.
#[test]
fn settings_of_the_startup_packet_are_each_clients_own_strict() {
    if !support::only_weir() {
        return;
    }
    let (server, database) = server(Version::Installed, 1);
    let login = |zone: &str, path: &str| {
        let mut client = RawClient::connect(server.pooler_port());
        let options = format!("-c search_path={path}");
        let packet =
            [("user", "app"), ("database", &*database), ("TimeZone", zone), ("options", &*options)];
        client.authenticate(&packet, "app-secret").expect("it is let in");
        client
    };
    let mut clients = [login("Asia/Tokyo", "pg_catalog"), login("Europe/Rome", "public")];
    for _ in 0..2 {
        for (client, (zone, path)) in
            clients.iter_mut().zip([("Asia/Tokyo", "pg_catalog"), ("Europe/Rome", "public")])
        {
            assert_eq!(client.value("SHOW TimeZone"), zone);
            assert_eq!(client.value("SHOW search_path"), path);
        }
    }
}
