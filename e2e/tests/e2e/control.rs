//! PAUSE and similar commands: the answers to the operator, and the effects on clients.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support;
use testkit::{Message, Outcome, Pooler, RawClient, Role, eventually, frontend};

#[track_caller]
fn error(outcome: &Outcome) -> (&str, &str, &str) {
    outcome.error.as_ref().expect("an error").summary()
}

/// Checks a state in SHOW STATE. The PgBouncer that the tests can run with does not have this
/// command.
#[track_caller]
fn assert_state(pooler: &Pooler, state: &str, value: &str) {
    if support::only_weir() {
        assert_eq!(pooler.admin("SHOW STATE").with("key", state).only("value"), value);
    }
}

#[track_caller]
fn last_words(client: &mut RawClient) -> String {
    let error = client.read_to_end().iter().find_map(Message::error);
    error.expect("an error").message().to_owned()
}

#[test]
fn a_pause_waits_for_transactions_and_holds_clients_back_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let mut busy = pooler.client(&database);
    busy.rows("BEGIN");
    let mut other = pooler.client(&database);
    let mut console = pooler.console();
    console.send(frontend::query("PAUSE"));
    pooler.log_contains("PAUSE command issued");
    assert_state(&pooler, "paused", "yes");
    assert_state(&pooler, "active", "no");
    other.send(frontend::query("SELECT 'late'"));
    support::until_waiting(&pooler, &database, 1);
    assert_eq!(busy.query("COMMIT").tags, ["COMMIT"]);
    let answer = console.read_to_ready();
    assert!(answer.iter().any(|message| message.text() == "PAUSE"), "{answer:?}");
    pooler.wait_for_servers(&database, 0);
    let refused = pooler.try_admin("PAUSE");
    assert_eq!(error(&refused), ("ERROR", "08P01", "already suspended/paused"));
    assert_eq!(console.query("RESUME").tags, ["RESUME"]);
    let rows = other.read_to_ready();
    assert!(rows.iter().any(|message| message.row().contains(&Some("late".into()))), "{rows:?}");
    let refused = console.query("RESUME");
    assert_eq!(error(&refused), ("ERROR", "08P01", "pooler is not paused/suspended"));
}

#[test]
fn one_database_is_paused_and_the_others_go_on() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.database("other", &format!("dbname={database}")).start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    let mut console = pooler.console();
    assert_eq!(console.query(&format!("PAUSE {database}")).tags, ["PAUSE"]);
    let shown = pooler.admin("SHOW DATABASES").with("name", &database);
    assert_eq!(shown.only("paused"), "1");
    assert_eq!(pooler.client("other").value("SELECT 2"), "2");
    client.send(frontend::query("SELECT 3"));
    support::until_waiting(&pooler, &database, 1);
    for (command, text) in [
        ("PAUSE nowhere".to_owned(), "no such database: nowhere"),
        ("RESUME nowhere".to_owned(), "no such database: nowhere"),
        ("RESUME other".to_owned(), "database other is not paused"),
        ("PAUSE pgbouncer".to_owned(), "cannot pause admin db: pgbouncer"),
        ("DISABLE".to_owned(), "a database is required"),
        ("SUSPEND".to_owned(), "cannot suspend with paused databases"),
    ] {
        assert_eq!(error(&console.query(&command)), ("ERROR", "08P01", text), "{command}");
    }
    assert_eq!(console.query(&format!("RESUME {database}")).tags, ["RESUME"]);
    client.read_to_ready();
}

#[test]
fn ctrl_c_ends_a_pause_that_waits() {
    let (pooler, database) = support::pooler("session");
    let mut busy = pooler.client(&database);
    busy.rows("SELECT 1");
    let mut console = pooler.console();
    console.send(frontend::query("PAUSE"));
    pooler.log_contains("PAUSE command issued");
    console.cancel(pooler.port());
    let mut late = pooler.client(&database);
    assert_eq!(late.value("SELECT 'on it goes'"), "on it goes");
    assert_state(&pooler, "paused", "no");
    if support::only_weir() {
        let answer = console.read_to_ready();
        let canceled = answer.iter().find_map(Message::error).expect("an error");
        let text = "canceling statement due to user request";
        assert_eq!(canceled.summary(), ("ERROR", "57014", text));
        assert_eq!(console.query("SHOW VERSION").rows.len(), 1);
    }
}

#[test]
fn signals_pause_and_resume() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    pooler.signal("USR1");
    pooler.log_contains("got SIGUSR1, pausing all activity");
    pooler.wait_for_servers(&database, 0);
    pooler.signal("USR1");
    pooler.log_contains("got SIGUSR1, but already paused/suspended");
    client.send(frontend::query("SELECT 1"));
    support::until_waiting(&pooler, &database, 1);
    pooler.signal("USR2");
    pooler.log_contains("got SIGUSR2, continuing from PAUSE");
    client.read_to_ready();
    pooler.signal("USR2");
    pooler.log_contains("got SIGUSR2, but not paused/suspended");
}

#[test]
fn a_kill_drops_everybody_and_leaves_the_database_paused_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let mut busy = pooler.client(&database);
    busy.rows("BEGIN");
    let mut idle = pooler.client(&database);
    let mut console = pooler.console();
    assert_eq!(console.query(&format!("KILL {database}")).tags, ["KILL"]);
    assert_eq!(last_words(&mut busy), "database removed");
    assert_eq!(last_words(&mut idle), "database removed");
    assert_eq!(pooler.admin("SHOW DATABASES").with("name", &database).only("paused"), "1");
    assert_eq!(console.query(&format!("RESUME {database}")).tags, ["RESUME"]);
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

/// As in PgBouncer 1.25, KILL without a name kills the databases that have a pool. Each of them is
/// resumed by its name. The PgBouncer of Debian 12 requires a name.
#[test]
fn a_kill_without_a_name_is_undone_database_by_database() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let setup = setup.database("other", &format!("dbname={database}"));
    let pooler = setup.database("*", "").start();
    let names = [database.as_str(), "postgres"];
    let mut clients = names.map(|name| pooler.client(name));
    // Its client has left, but its pool still exists.
    assert_eq!(pooler.client("other").value("SELECT 1"), "1");
    let mut console = pooler.console();
    assert_eq!(console.query("KILL").tags, ["KILL"]);
    for client in &mut clients {
        assert_eq!(last_words(client), "database removed");
    }
    let text = "pooler is not paused/suspended";
    assert_eq!(error(&console.query("RESUME")), ("ERROR", "08P01", text));
    for name in names.into_iter().chain(["other"]) {
        assert_eq!(console.query(&format!("RESUME {name}")).tags, ["RESUME"], "{name}");
        assert_eq!(pooler.client(name).value("SELECT 1"), "1", "{name}");
        let refused = console.query(&format!("RESUME {name}"));
        let text = format!("database {name} is not paused");
        assert_eq!(error(&refused), ("ERROR", "08P01", text.as_str()));
    }
}

#[test]
fn one_client_is_dropped_by_its_id_core() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let mut victim = pooler.client(&database);
    victim.rows("BEGIN");
    let mut spared = pooler.client(&database);
    let clients = pooler.admin("SHOW CLIENTS").with("database", &database);
    let id = clients.with("state", "active").only("id").to_owned();
    pooler.admin(&format!("KILL_CLIENT {id}"));
    assert_eq!(last_words(&mut victim), "admin forced disconnect");
    assert_eq!(spared.value("SELECT 1"), "1");
    assert_eq!(error(&pooler.try_admin("KILL_CLIENT 99999")).2, "client not found");
    let refused = pooler.try_admin("KILL_CLIENT x");
    assert_eq!(error(&refused).2, "invalid client pointer supplied");
}

/// Unlike an id, a descriptor is reused for the next connection. Debian's PgBouncer does not have
/// `id` yet.
#[test]
fn no_connection_has_the_id_of_another_one_strict() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.workers(2).set("verbose", 1).start();
    let ids = |pooler: &Pooler, what: &str| -> Vec<u64> {
        let shown = pooler.admin(what);
        shown.column("id").iter().map(|id| id.parse().expect("a number")).collect()
    };
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let mut client = pooler.client(&database);
        assert_eq!(client.value("SELECT 1"), "1");
        let shown = pooler.admin("SHOW CLIENTS").with("database", &database);
        let id = shown.only("id").to_owned();
        // Connections of the console have ids from the same sequence.
        let sockets = ids(&pooler, "SHOW SOCKETS");
        assert_eq!(BTreeSet::from_iter(&sockets).len(), sockets.len(), "{sockets:?}");
        assert!(seen.insert(id.clone()), "{id} was another client's");
        let server = pooler.admin("SHOW SERVERS").with("database", &database).only("id").to_owned();
        assert!(seen.insert(server.clone()), "{server} was another connection's");
        drop(client);
        pooler.wait_until_quiet(&database, 1);
        assert_eq!(error(&pooler.try_admin(&format!("KILL_CLIENT {id}"))).2, "client not found");
        pooler.admin("RECONNECT");
    }
    let last = ids(&pooler, "SHOW CLIENTS").into_iter().max();
    pooler.take_over();
    let client = pooler.client(&database);
    let clients = ids(&pooler, "SHOW CLIENTS");
    assert!(clients.iter().all(|id| Some(*id) > last), "{clients:?} behind {last:?}");
    drop(client);
}

#[test]
fn a_reconnect_replaces_every_server_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let mut busy = pooler.client(&database);
    busy.rows("BEGIN");
    let old = busy.value("SELECT pg_backend_pid()");
    let mut console = pooler.console();
    assert_eq!(console.query(&format!("RECONNECT {database}")).tags, ["RECONNECT"]);
    let server = pooler.admin("SHOW SERVERS").with("database", &database);
    assert_eq!(server.only("close_needed"), "1");
    console.send(frontend::query(&format!("WAIT_CLOSE {database}")));
    let new = pooler.client(&database).value("SELECT pg_backend_pid()");
    assert_ne!(new, old);
    assert_eq!(busy.query("COMMIT").tags, ["COMMIT"]);
    let answer = console.read_to_ready();
    assert!(answer.iter().any(|message| message.text() == "WAIT_CLOSE"), "{answer:?}");
    assert_ne!(busy.value("SELECT pg_backend_pid()"), old);
    assert_eq!(console.query("WAIT_CLOSE").tags, ["WAIT_CLOSE"]);
}

#[test]
fn a_disabled_database_lets_nobody_new_in() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let mut console = pooler.console();
    assert_eq!(console.query(&format!("DISABLE {database}")).tags, ["DISABLE"]);
    let refused = pooler.login(Role::APP, &database, Role::APP_PASSWORD).expect_err("a refusal");
    if support::only_weir() {
        let text = format!("database \"{database}\" is disabled");
        assert_eq!(refused.summary(), ("FATAL", "08P01", &*text));
    }
    assert_eq!(client.value("SELECT 1"), "1");
    assert_eq!(pooler.admin("SHOW DATABASES").with("name", &database).only("disabled"), "1");
    assert_eq!(console.query(&format!("ENABLE {database}")).tags, ["ENABLE"]);
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

#[test]
fn a_suspended_pooler_reads_nobody_until_it_resumes_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    let mut console = pooler.console();
    assert_eq!(console.query("SUSPEND").tags, ["SUSPEND"]);
    client.send(frontend::query("SELECT 'woken'"));
    if support::only_weir() {
        let state = console.query("SHOW STATE");
        assert!(state.rows.contains(&vec![Some("suspended".into()), Some("yes".into())]));
    }
    let clients = console.query("SHOW CLIENTS");
    let own = |row: &&Vec<Option<String>>| row.contains(&Some(database.clone()));
    let row = clients.rows.iter().find(own).expect("the client");
    assert!(!row.contains(&Some("waiting".into())), "its query is not read: {row:?}");
    assert_eq!(console.query("RESUME").tags, ["RESUME"]);
    let rows = client.read_to_ready();
    assert!(rows.iter().any(|message| message.row().contains(&Some("woken".into()))), "{rows:?}");
}

#[test]
fn a_suspension_ends_when_its_operator_disappears() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let mut console = pooler.console();
    assert_eq!(console.query("SUSPEND").tags, ["SUSPEND"]);
    drop(console);
    pooler.log_contains("admin disappeared when suspended, doing RESUME");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn a_key_can_be_set_until_the_next_reload() {
    let (pooler, _) = support::pooler("transaction");
    let mut console = pooler.console();
    let shown = |key: &str| pooler.admin("SHOW CONFIG").with("key", key).only("value").to_owned();
    assert_eq!(console.query("SET query_wait_timeout = 7").tags, ["SET query_wait_timeout=7"]);
    assert_eq!(shown("query_wait_timeout"), "7");
    let refused = console.query("SET query_wait_timeout = soon");
    assert_eq!(error(&refused), ("ERROR", "08P01", "SET failed"));
    assert_eq!(error(&console.query("SET no_such_key = 1")).2, "SET failed");
    let port = shown("listen_port");
    assert_eq!(console.query("SET listen_port = 1").tags, ["SET listen_port=1"]);
    assert_eq!(shown("listen_port"), port, "only a start reads it");
    pooler.reload();
    assert_eq!(shown("query_wait_timeout"), "120");
}

#[test]
fn a_set_pool_mode_acts_at_once_core() {
    let (setup, database) = support::setup("session");
    let pooler = setup.set("default_pool_size", 1).start();
    pooler.admin("SET pool_mode = transaction");
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for client in &mut clients {
        assert_eq!(client.value("SELECT 1"), "1");
    }
}

#[test]
fn a_reload_replaces_servers_that_lead_elsewhere() {
    let (mut pooler, database) = support::pooler("transaction");
    let elsewhere = testkit::Postgres::shared().database();
    let port = testkit::Postgres::shared().port();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT current_database()"), database);
    pooler.reconfigure(|ini| {
        ini.database(&database, &format!("host=127.0.0.1 port={port} dbname={elsewhere}"));
    });
    pooler.reload();
    assert_eq!(client.value("SELECT current_database()"), elsewhere);
}

#[test]
fn sessions_at_rest_may_be_ended_with_their_obsolete_servers() {
    let (setup, database) = support::setup("session");
    let pooler = setup.set("server_fast_close", 1).start();
    let [mut idle, mut busy] = [pooler.client(&database), pooler.client(&database)];
    assert_eq!(idle.value("SELECT 1"), "1");
    busy.rows("BEGIN");
    pooler.admin("RECONNECT");
    assert_eq!(last_words(&mut idle), "database configuration changed");
    assert_eq!(busy.value("SELECT 'still there'"), "still there");
    busy.send(frontend::query("COMMIT"));
    assert_eq!(last_words(&mut busy), "database configuration changed");
}

#[test]
fn without_fast_close_a_session_keeps_its_obsolete_server() {
    let (pooler, database) = support::pooler("session");
    let mut client = pooler.client(&database);
    let before = client.value("SELECT pg_backend_pid()");
    pooler.admin("RECONNECT");
    // Meanwhile another session begins and ends on a new server.
    assert_ne!(pooler.client(&database).value("SELECT pg_backend_pid()"), before);
    assert_eq!(client.value("SELECT pg_backend_pid()"), before);
}

#[test]
fn a_reload_drops_databases_that_are_gone() {
    let (setup, database) = support::setup("transaction");
    let port = testkit::Postgres::shared().port();
    let address = format!("host=127.0.0.1 port={port} dbname={database}");
    let mut pooler = setup.database_at("passing", &address).start();
    let mut idle = pooler.client("passing");
    let mut client = pooler.client(&database);
    pooler.reconfigure(|ini| ini.remove_database("passing"));
    pooler.reload();
    assert_eq!(last_words(&mut idle), "database removed");
    pooler.log_contains(
        "dropping database 'passing' as it does not exist anymore or inactive auto-database",
    );
    let refused = pooler.login(Role::APP, "passing", Role::APP_PASSWORD).expect_err("a refusal");
    assert_eq!(refused.message(), "no such database: passing");
    assert_eq!(pooler.admin("SHOW POOLS").with("database", "passing").rows.len(), 0);
    assert_eq!(client.value("SELECT 1"), "1");
    pooler.reconfigure(|ini| ini.database("passing", &address));
    pooler.reload();
    assert_eq!(pooler.client("passing").value("SELECT 'back'"), "back");
}

#[test]
fn reloads_and_sighups_at_once_all_end_well() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let mut consoles = [pooler.console(), pooler.console()];
    for _ in 0..5 {
        for console in &mut consoles {
            console.send(frontend::query("RELOAD"));
        }
        pooler.signal("HUP");
        assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
        for console in &mut consoles {
            assert!(console.read_to_ready().iter().all(|message| message.error().is_none()));
        }
    }
}

#[test]
fn suspend_drops_clients_that_are_not_at_rest_in_time() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("suspend_timeout", 0.3).start();
    let (mut half, mut whole) = (pooler.client(&database), pooler.client(&database));
    let query = frontend::query("SELECT 1");
    half.send(&query[..query.len() - 1]);
    eventually("the pooler has read all but a byte", Duration::from_secs(20), || {
        let shown = pooler.admin("SHOW ACTIVE_SOCKETS").with("state", "cl_active");
        (shown.column("pkt_remain") == ["1"]).then_some(())
    });
    let mut console = pooler.console();
    assert_eq!(console.query("SUSPEND").tags, ["SUSPEND"]);
    let error = half.read_to_end().iter().find_map(Message::error).expect("it is told");
    assert_eq!(
        (error.severity(), error.code(), error.message()),
        ("FATAL", "08P01", "suspend_timeout")
    );
    assert_eq!(console.query("RESUME").tags, ["RESUME"]);
    assert_eq!(whole.value("SELECT 'served'"), "served");
}
