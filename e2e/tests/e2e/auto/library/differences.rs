//! "What is different" in docs/auto-mode.md: entries that are gone with the library, and entries that
//! remain with it. Entries that remain and have a test elsewhere are tested both ways, by
//! `WEIR_LIBRARY=1`.

use testkit::{Pooler, Postgres, RawClient, Version, frontend};

use super::super::{backend, settle, switch};
use super::{PROBED, Stage};
use crate::support;

/// The client is on another server afterwards, and keeps none.
#[track_caller]
fn moves(stage: &Stage, client: &mut RawClient) -> Vec<RawClient> {
    stage.assert_pinned(&[]);
    let before = backend(client);
    let held = switch(&stage.pooler, &stage.database);
    assert_ne!(backend(client), before);
    held
}

#[test]
fn a_function_that_changes_the_session_only_sometimes_is_noticed_each_time() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(4, "pin");
    let mut client = stage.client();
    client.rows(
        "CREATE FUNCTION may(boolean) RETURNS int LANGUAGE plpgsql AS
         $$BEGIN IF $1 THEN PERFORM sets(); END IF; RETURN 1; END$$",
    );
    for _ in 0..20 {
        client.rows("SELECT may(false)");
    }
    client.rows("SELECT may(true)");
    let _held = moves(&stage, &mut client);
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    let mut other = stage.client();
    assert_eq!(other.value("SHOW work_mem"), "4MB");
    stage.nothing_was_asked();
}

#[test]
fn settings_are_carried_whatever_their_names_and_number() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(4, "pin");
    let mut client = stage.client();
    client.rows(
        "DO $$ BEGIN FOR i IN 1..600 LOOP
            PERFORM set_config('app.' || repeat('n', 20) || i, i::text, false);
         END LOOP;
         PERFORM set_config('app.' || repeat('long', 2000), 'yes', false); END $$",
    );
    let _held = moves(&stage, &mut client);
    let found = "SELECT count(*) FROM generate_series(1, 600) i
        WHERE current_setting('app.' || repeat('n', 20) || i, true) = i::text";
    assert_eq!(client.value(found), "600");
    assert_eq!(client.value("SELECT current_setting('app.' || repeat('long', 2000))"), "yes");
    let mut other = stage.client();
    assert_eq!(other.value(found), "0");
    stage.nothing_was_asked();
}

#[test]
fn an_empty_setting_is_carried_and_one_that_was_reset_is_not() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(4, "pin");
    let database = &stage.database;
    let initial = format!("ALTER DATABASE {database} SET app.place = 'of the database'");
    stage.postgres.sql("postgres", &initial);
    let mut client = stage.client();
    client.rows("DO $$ BEGIN PERFORM set_config('app.' || 'place', '', false); END $$");
    let _held = moves(&stage, &mut client);
    assert_eq!(client.value("SHOW app.place"), "");
    let mut other = stage.client();
    assert_eq!(other.value("SHOW app.place"), "of the database");
    client.rows("DO $$ BEGIN EXECUTE 'RESET app.' || 'place'; END $$");
    let _others = moves(&stage, &mut client);
    assert_eq!(client.value("SHOW app.place"), "of the database");
    stage.nothing_was_asked();
}

/// PostgreSQL itself cannot make a setting NULL again.
#[test]
fn a_setting_that_was_made_once_on_a_server_stays_empty_there() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(1, "pin");
    let mut client = stage.client();
    let is_null = "SELECT current_setting('app.unknown', true) IS NULL";
    let mut other = stage.client();
    assert_eq!(other.value(is_null), "t");
    client.rows("SET app.unknown = 'a'; RESET app.unknown");
    assert_eq!(other.value(is_null), "f");
}

#[test]
fn a_setting_that_postgresql_hides_is_carried() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(4, "pin");
    let path = "GRANT SET ON PARAMETER dynamic_library_path TO app;
        CREATE FUNCTION path() RETURNS text SECURITY DEFINER LANGUAGE sql AS
            $$SELECT current_setting('dynamic_library_path')$$";
    stage.postgres.sql(&stage.database, path);
    let mut client = stage.client();
    client.rows("SET dynamic_library_path = '$libdir:/hidden'");
    assert!(client.query("SHOW dynamic_library_path").error.is_some(), "the client may not see it");
    let _held = moves(&stage, &mut client);
    assert_eq!(client.value("SELECT path()"), "$libdir:/hidden");
    let mut other = stage.client();
    assert_eq!(other.value("SELECT path()"), "$libdir");
    stage.nothing_was_asked();
}

#[test]
fn with_warn_nothing_pins_that_a_function_does() {
    if !support::only_proxied("auto_unsupported = warn is as pin") {
        return;
    }
    let stage = Stage::new(4, "warn");
    let mut client = stage.client();
    for text in ["TABLE seeding", "TABLE loading", "DO 'BEGIN PERFORM setseed(0.5); END'"] {
        client.rows(text);
        stage.assert_pinned(&[]);
    }
    stage.nothing_was_asked();
}

/// PostgreSQL 17 has introduced such triggers.
#[test]
fn every_client_begins_with_the_settings_of_a_login_trigger_strict() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start_with_library(Version::Eighteen);
    let database = postgres.database();
    postgres.sql(
        &database,
        "CREATE FUNCTION on_login() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN
            PERFORM set_config('work_mem', '5MB', false), set_config('app.login', 'yes', false);
         END$$;
         CREATE EVENT TRIGGER one ON login EXECUTE FUNCTION on_login()",
    );
    let setup = Pooler::before(&postgres).set("pool_mode", "auto").database(&database, "");
    let pooler = setup.workers(1).set("default_pool_size", 4).start();
    let values =
        |client: &mut RawClient| [client.value("SHOW work_mem"), client.value("SHOW app.login")];
    let mut client = pooler.client(&database);
    assert_eq!(values(&mut client), ["5MB", "yes"]);
    client.rows("SET work_mem = '7MB'; SET app.login = 'mine'");
    let _held = switch(&pooler, &database);
    assert_eq!(values(&mut client), ["7MB", "mine"]);
    let mut other = pooler.client(&database);
    assert_eq!(values(&mut other), ["5MB", "yes"]);
    client.rows("DISCARD ALL");
    assert_eq!(values(&mut client), ["5MB", "yes"]);
    settle(&pooler);
    assert!(pooler.admin("SHOW PINS").rows.is_empty());
}

#[test]
fn in_a_pool_with_and_without_the_library_each_server_is_checked_in_its_way() {
    if !support::only_proxied("a direct pool has only servers with the library") {
        return;
    }
    let stage = Stage::of_database(PROBED, 2, "pin");
    let ways = || {
        let pools = stage.pooler.admin("SHOW POOLS");
        pools.with("database", &stage.database).only("session_state").to_owned()
    };
    let mut clients = [stage.client(), stage.client()];
    clients[0].rows("BEGIN");
    assert_eq!(ways(), "report");
    let (database, postgres) = (&stage.database, stage.postgres);
    let without = format!("ALTER DATABASE {database} SET session_preload_libraries = plpgsql");
    postgres.sql("postgres", &without);
    clients[1].rows("BEGIN");
    assert_eq!(ways(), "mixed");
    let own = clients.each_mut().map(backend);
    assert_ne!(own[0], own[1]);
    for (number, client) in clients.iter_mut().enumerate() {
        client.rows(&format!("SET work_mem = '{}MB'; SET app.own = '{number}'", number + 5));
        client.rows("COMMIT");
    }
    // Each client works on both servers.
    for order in [[0, 1], [1, 0], [0, 1], [1, 0]] {
        let mut seen = Vec::new();
        for number in order {
            let client = &mut clients[number];
            client.rows("BEGIN");
            seen.push(backend(client));
            assert_eq!(client.value("SHOW work_mem"), format!("{}MB", number + 5));
            assert_eq!(client.value("SHOW app.own"), number.to_string());
        }
        assert_ne!(seen[0], seen[1]);
        for number in order {
            clients[number].rows("COMMIT");
        }
    }
    postgres.sql("postgres", &format!("ALTER DATABASE {database} RESET session_preload_libraries"));
    stage.pooler.admin("RECONNECT");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.value("SHOW app.own"), number.to_string());
    }
    clients[0].rows("BEGIN");
    clients[1].rows("SELECT 1");
    assert_eq!(ways(), "report");
}

/// These remain with the library, too.
#[test]
fn the_temporary_schema_and_the_statements_of_other_clients_stay_on_a_server() {
    if !support::only_weir() {
        return;
    }
    let stage = Stage::new(1, "pin");
    let mut other = stage.client();
    assert_eq!(other.value("SELECT pg_my_temp_schema()"), "0");
    let mut client = stage.client();
    client.rows("CREATE TEMP TABLE mine (a int); DROP TABLE mine");
    client.send(frontend::parse("named", "SELECT 1"));
    client.send(frontend::sync());
    client.read_to_ready();
    stage.assert_pinned(&[]);
    assert_eq!(other.value("SELECT pg_my_temp_schema() <> 0"), "t");
    let shared = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 1'";
    // A backend of a direct pool shows a client its own statements only.
    let count = if testkit::pools_are_direct() { "0" } else { "1" };
    assert_eq!(other.value(shared), count);
}
