//! Functions of the user's own may do anything, and the name does not tell. Those that have left
//! nothing for a while are trusted; these tests lull Weir first and then leave something.

use testkit::{Pooler, RawClient, frontend};

use super::pooler;
use crate::support;

/// More often than it takes to be trusted.
const OFTEN: usize = 20;

/// Sets `work_mem` to what it is given, unless that is NULL.
const SETS: &str = "CREATE FUNCTION sets(value text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN \
    IF value IS NOT NULL THEN PERFORM set_config('work_mem', value, false); END IF; RETURN 1; \
    END $$; CREATE TABLE nothing (value text)";

fn stage() -> (Pooler, String) {
    let (pooler, database) = pooler(1);
    pooler.client(&database).rows(SETS);
    (pooler, database)
}

/// `one.f` is trusted, and `two.f` leaves something.
fn lull_in_one(client: &mut RawClient, leaves: &str) {
    client.rows(&format!(
        "CREATE SCHEMA one; CREATE FUNCTION one.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; \
         CREATE SCHEMA two; CREATE FUNCTION two.f() RETURNS int LANGUAGE sql AS \
         $$ SELECT {leaves}; SELECT 1 $$"
    ));
    client.rows("SET search_path = one");
    for _ in 0..OFTEN {
        client.rows("SELECT f()");
    }
}

/// The client has what it has set, and another one on the same server has not.
#[track_caller]
fn is_its_own(pooler: &Pooler, database: &str, client: &mut RawClient, value: &str) {
    assert_ne!(pooler.client(database).value("SHOW work_mem"), value);
    assert_eq!(client.value("SHOW work_mem"), value);
}

#[test]
fn one_that_was_only_prepared_is_not_known() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = stage();
    let mut client = pooler.client(&database);
    for round in 0..OFTEN {
        let name = format!("s{round}");
        client.send([frontend::parse(&name, "SELECT sets($1)"), frontend::sync()].concat());
        client.read_to_ready();
        // Rows have come in the same transaction, but not of the function.
        let batch = [
            frontend::parse("", "SELECT 1"),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            frontend::parse(&format!("{name}b"), "SELECT sets($1)"),
            frontend::sync(),
        ];
        client.send(batch.concat());
        client.read_to_ready();
    }
    let run = [frontend::bind("", "s0", &[Some("5MB")]), frontend::execute("", 0)].concat();
    client.send([run, frontend::sync()].concat());
    client.read_to_ready();
    is_its_own(&pooler, &database, &mut client, "5MB");
}

#[test]
fn one_that_has_not_run_or_was_rolled_back_is_not_known() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = stage();
    let mut client = pooler.client(&database);
    for sql in [
        "EXPLAIN SELECT sets('5MB')",
        "BEGIN; SELECT sets('5MB'); ROLLBACK",
        "BEGIN; SAVEPOINT a; SELECT sets('5MB'); ROLLBACK TO a; SELECT 1; COMMIT",
        "SELECT sets('5MB'), 1 / (SELECT 0)",
        "SELECT sets(value) FROM nothing",
    ] {
        for _ in 0..OFTEN {
            // Some of them fail.
            let _ = client.query(sql);
        }
        assert_eq!(client.value("SHOW work_mem"), "4MB");
        client.rows("SELECT sets('5MB')");
        is_its_own(&pooler, &database, &mut client, "5MB");
        client.rows("RESET work_mem; CREATE OR REPLACE VIEW v AS SELECT 1");
    }
}

#[test]
fn one_that_has_left_something_once_is_never_trusted() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = stage();
    let mut client = pooler.client(&database);
    client.rows("SELECT sets('5MB')");
    for _ in 0..OFTEN {
        // It is there already, so nothing changes.
        client.rows("SELECT sets('5MB')");
        client.rows("SELECT sets(NULL)");
    }
    client.rows("SELECT sets('6MB')");
    is_its_own(&pooler, &database, &mut client, "6MB");
}

#[test]
fn one_that_was_replaced_is_not_known_to_any_worker_strict() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup.workers(2).set("default_pool_size", 1).start();
    let harmless = "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'";
    pooler.client(&database).rows(harmless);
    let mut clients: Vec<_> = (0..8).map(|_| pooler.client(&database)).collect();
    for client in &mut clients {
        for _ in 0..OFTEN {
            client.rows("SELECT f()");
        }
    }
    // By somebody of one worker, or the other.
    pooler.client(&database).rows(
        "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS \
         $$ SELECT set_config('work_mem', '5MB', false); SELECT 1 $$",
    );
    for client in &mut clients {
        client.rows("SELECT f()");
        is_its_own(&pooler, &database, client, "5MB");
    }
}

#[test]
fn one_of_the_same_name_in_another_schema_is_another() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    lull_in_one(&mut client, "set_config('work_mem', '5MB', false)");
    let mut other = pooler.client(&database);
    other.rows("SET search_path = two");
    other.rows("SELECT f()");
    is_its_own(&pooler, &database, &mut other, "5MB");
    client.rows("BEGIN; SET LOCAL search_path = two; SELECT f(); COMMIT");
    is_its_own(&pooler, &database, &mut client, "5MB");
}

#[test]
fn the_name_of_a_setting_may_come_late() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.unix_client(&database);
    // The last byte of a length is a letter or a dot, too.
    let [dot, letter] = [46, 97].map(|len| format!("late.{}", "n".repeat(len - 5)));
    for (name, padding) in [("late.one", 10), ("late.two", 20_000), (&dot, 46), (&letter, 97)] {
        // The value first: a name is found wherever it stands.
        let long = "x".repeat(padding);
        let swapped = "SELECT set_config($2, $1, $3::bool)";
        client.send([frontend::parse("", swapped), frontend::sync()].concat());
        client.read_to_ready();
        let bind = frontend::bind("", "", &[Some(&long), Some(name), Some("f")]);
        // The names of portal and statement are in the first part, and nothing else is.
        if testkit::pools_are_direct() {
            // They stay in the socket until the rest is there, or they begin a transaction.
            client.send(&bind[..7]);
        } else {
            client.send_apart(&bind[..7]).expect("the bytes go out");
        }
        super::settle(&pooler);
        let rest = [&bind[7..], &frontend::execute("", 0), &frontend::sync()];
        client.send(rest.concat());
        client.read_to_ready();
        let asked = format!("SELECT coalesce(current_setting('{name}', true), '')");
        assert_eq!(pooler.client(&database).value(&asked), "");
        assert_eq!(client.value(&asked), long);
    }
}

#[test]
fn one_that_moves_its_client_elsewhere_is_not_taken_for_another() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.rows(
        "CREATE SCHEMA t5; CREATE SCHEMA t7; \
         CREATE FUNCTION public.use_tenant(n int) RETURNS text LANGUAGE sql AS \
         $$ SELECT set_config('search_path', 't' || n || ', public', false) $$",
    );
    for _ in 0..OFTEN {
        // Nothing changes but the first time.
        client.rows("SELECT use_tenant(5)");
        pooler.client(&database).rows("CREATE TEMP TABLE of_its_own (a int)");
    }
    client.rows("SELECT use_tenant(7)");
    assert_eq!(pooler.client(&database).value("SHOW search_path"), "\"$user\", public");
    assert_eq!(client.value("SHOW search_path"), "t7, public");
}

#[test]
fn one_that_is_trusted_is_not_when_something_else_has_been_sent_ahead() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    lull_in_one(&mut client, "pg_advisory_lock(5)");
    for sql in ["BEGIN", "SET search_path = two", "SELECT f()", "COMMIT"] {
        client.rows(sql);
    }
    super::assert_pinned(&pooler, &["advisory lock"]);
    client.rows("SELECT pg_advisory_unlock(5); SET search_path = one");
    super::settle(&pooler);
    // Both at once.
    let replaced = "CREATE OR REPLACE FUNCTION one.f() RETURNS int LANGUAGE sql AS \
        $$ SELECT set_config('work_mem', '5MB', false); SELECT 1 $$";
    client.send([frontend::query(replaced), frontend::query("SELECT f()")].concat());
    client.read_to_ready();
    client.read_to_ready();
    is_its_own(&pooler, &database, &mut client, "5MB");
}

#[test]
fn one_that_releases_what_was_kept_is_asked_about() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.rows(
        "CREATE FUNCTION unlocks() RETURNS int LANGUAGE sql AS \
         $$ SELECT pg_advisory_unlock(5); SELECT 1 $$",
    );
    for _ in 0..OFTEN {
        client.rows("SELECT pg_advisory_lock(5)");
        super::assert_pinned(&pooler, &["advisory lock"]);
        client.rows("SELECT unlocks()");
        super::assert_pinned(&pooler, &[]);
    }
}
