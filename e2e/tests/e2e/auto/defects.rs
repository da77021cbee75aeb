//! What was wrong with poolers that tried to keep sessions before: each as a test that it is not so
//! here, unless another module has it as its topic. `docs/testing.md` lists all of them.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, ServerError, eventually, frontend, open_folder};

use crate::support;

/// Clients that have prepared statements when one of them discards all that it has.
const PREPARED_CLIENTS: usize = 2_000;
/// So many of these are sampled behind each order.
const ASKED: usize = 200;

fn pooler(size: u32) -> (Pooler, String) {
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(1).set("default_pool_size", size).set("max_client_conn", 4_000);
    (setup.start(), database)
}

fn prepare(client: &mut RawClient, sql: &str) {
    client.send([frontend::parse("P0_4", sql), frontend::sync()].concat());
}

/// What the statement's first row says.
fn execute(client: &mut RawClient) -> Option<String> {
    let ask = [frontend::bind("", "P0_4", &[]), frontend::execute("", 0)].concat();
    client.send([ask, frontend::sync()].concat());
    let answer = client.read_to_ready();
    let row = answer.iter().find(|message| message.tag == b'D');
    row.unwrap_or_else(|| panic!("no row but {answer:?}")).row().remove(0)
}

#[test]
fn discard_all_discards_no_state_of_other_clients_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(4);
    let mut clients: Vec<_> = (0..PREPARED_CLIENTS).map(|_| pooler.client(&database)).collect();
    // A dozen texts, all under one name.
    let text = |number: usize| format!("SELECT {}", number % 12);
    for (number, client) in clients.iter_mut().enumerate() {
        prepare(client, &text(number));
    }
    clients.iter_mut().for_each(|client| drop(client.read_to_ready()));
    let mut discarding = pooler.client(&database);
    for (turn, order) in
        ["DISCARD ALL", "DISCARD PLANS", "DEALLOCATE ALL", "DISCARD ALL", "RESET ALL"]
            .into_iter()
            .cycle()
            .take(20)
            .enumerate()
    {
        prepare(&mut discarding, &text(turn));
        discarding.read_to_ready();
        assert_eq!(execute(&mut discarding), Some((turn % 12).to_string()));
        discarding.rows(order);
        for asked in 0..ASKED {
            let number = (turn * 97 + asked * 11) % PREPARED_CLIENTS;
            assert_eq!(execute(&mut clients[number]), Some((number % 12).to_string()), "{order}");
        }
        // Its own are gone, where that is what it has asked for.
        discarding.rows("DEALLOCATE ALL");
        discarding.send([frontend::bind("", "P0_4", &[]), frontend::sync()].concat());
        let gone = discarding.read_to_ready().remove(0).error().expect("there is no statement");
        assert_eq!(gone.code(), "26000", "{order}");
    }
}

#[test]
fn an_abandoned_transaction_is_never_committed_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    support::direct(&database).rows("CREATE TABLE kept (a int)");
    for last in ["SELECT 1", "SET work_mem = '5MB'", "CREATE TEMP TABLE mine (a int)", "SELECT 1/0"]
    {
        let mut leaving = pooler.client(&database);
        leaving.rows("BEGIN; INSERT INTO kept VALUES (1)");
        leaving.query(last);
        drop(leaving);
        let mut next = pooler.client(&database);
        assert_eq!(next.value("SELECT count(*) FROM kept"), "0", "{last}");
        next.query("COMMIT");
        assert_eq!(next.value("SELECT count(*) FROM kept"), "0", "{last}");
        assert_eq!(next.value("SHOW work_mem"), "4MB");
        assert_eq!(next.value("SELECT to_regclass('mine') IS NULL"), "t");
    }
}

#[test]
fn everybodys_startup_packet_counts_on_a_server_that_another_one_has_opened_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let enter = |value: usize| {
        let options = format!("-c work_mem={value}MB -c app.own={value}");
        let mut client = RawClient::connect(pooler.port());
        let startup = [
            ("user", Role::APP),
            ("database", &database),
            ("options", &options),
            ("TimeZone", "UTC"),
        ];
        client.authenticate(&startup, Role::APP_PASSWORD).expect("it may come in");
        client
    };
    let mut clients: Vec<_> = (5..15).map(enter).collect();
    for turn in 0..3 {
        for (client, value) in clients.iter_mut().zip(5..) {
            assert_eq!(client.value("SHOW work_mem"), format!("{value}MB"), "turn {turn}");
            assert_eq!(client.value("SHOW app.own"), value.to_string());
            assert_eq!(client.value("SHOW TimeZone"), "UTC");
        }
    }
}

#[test]
fn a_statement_that_sets_is_run_once_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2);
    support::direct(&database).rows("CREATE SEQUENCE runs");
    let counted = "set_config('app.run', nextval('runs')::text, false)";
    let mut client = pooler.client(&database);
    let mut runs = 0;
    for text in [
        format!("SELECT {counted}"),
        format!("/* SET */ select {counted} -- BEGIN"),
        format!("WITH a AS (SELECT {counted} AS b) SELECT b FROM a"),
        format!("BEGIN; SELECT {counted}; COMMIT"),
        format!("DO $$BEGIN PERFORM {counted}; END$$"),
    ] {
        client.rows(&text);
        runs += 1;
        let mut stranger = pooler.client(&database);
        stranger.rows("SET app.run = 'stranger'");
        assert_eq!(client.value("SHOW app.run"), runs.to_string(), "{text}");
        assert_eq!(client.value("SELECT last_value FROM runs"), runs.to_string(), "{text}");
    }
}

#[test]
fn a_key_cancels_the_query_of_its_own_client_only_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut resting = pooler.client(&database);
    let mut working = pooler.client(&database);
    // Both have had the same server.
    resting.rows("SET app.own = '1'");
    working.rows("SET app.own = '2'");
    assert_ne!((resting.pid, &resting.secret), (working.pid, &working.secret));
    let sleep = "SELECT pg_sleep(3600), 2";
    working.send(frontend::query(sleep));
    support::until_running(&database, sleep);
    resting.cancel(pooler.port());
    eventually("no cancel request is under way", Duration::from_secs(10), || {
        let requests = ["cl_active_cancel_req", "cl_waiting_cancel_req"];
        (pooler.pool_sums(&database, requests) == [0, 0]).then_some(())
    });
    support::until_running(&database, sleep);
    working.cancel(pooler.port());
    working.set_timeout(Duration::from_secs(20));
    let answer = working.read_to_ready();
    let error = answer.iter().find_map(testkit::Message::error).expect("it was cancelled");
    assert_eq!(error.code(), "57014");
    assert_eq!(resting.value("SHOW app.own"), "1");
    assert_eq!(working.value("SHOW app.own"), "2");
}

/// A way to PostgreSQL on which the first connection gets through and all others are accepted and
/// never answered.
fn way_for_one() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let (near, _) = listener.accept()?;
        let far = TcpStream::connect(("127.0.0.1", Postgres::shared().port()))?;
        let (mut from_near, mut to_far) = (near.try_clone()?, far.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut from_near, &mut to_far);
            to_far.shutdown(Shutdown::Both)
        });
        let silent = thread::spawn(move || listener.incoming().collect::<Vec<_>>());
        let (mut from_far, mut to_near) = (far, near);
        let _ = io::copy(&mut from_far, &mut to_near);
        drop(silent);
        to_near.shutdown(Shutdown::Both)
    });
    port
}

#[test]
fn a_slow_server_login_delays_no_other_client() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup
        .workers(1)
        .set("default_pool_size", 4)
        // Far longer than any test is patient.
        .set("server_connect_timeout", 600)
        .set("query_wait_timeout", 600)
        .database_at("narrow", &format!("host=127.0.0.1 port={} dbname={database}", way_for_one()))
        .start();
    let mut lucky = pooler.client("narrow");
    assert_eq!(lucky.value("SELECT 1"), "1");
    let mut elsewhere = pooler.client(&database);
    lucky.rows("BEGIN");
    let mut waiting: Vec<_> = (0..10).map(|_| pooler.client("narrow")).collect();
    for client in &mut waiting {
        client.send(frontend::query("SELECT 2"));
    }
    support::until_waiting(&pooler, "narrow", 10);
    eventually("servers are being opened", Duration::from_secs(10), || {
        (pooler.pool_sums("narrow", ["sv_login"]) != [0]).then_some(())
    });
    for number in 0..500 {
        let asked = number.to_string();
        assert_eq!(lucky.value(&format!("SELECT {number}")), asked);
        assert_eq!(elsewhere.value(&format!("SELECT {number}")), asked);
    }
    // And who waits need not wait for the server that was to be opened for it.
    lucky.rows("COMMIT");
    for client in &mut waiting {
        let answer = client.read_to_ready();
        assert!(answer.iter().any(|message| message.tag == b'D'), "{answer:?}");
    }
}

/// Files that the process has open, where the test may know.
fn open_files(pooler: &Pooler) -> Option<usize> {
    fs::read_dir(format!("/proc/{}/fd", pooler.pid())).ok().map(Iterator::count)
}

#[test]
fn silent_connections_that_close_leave_nothing_behind() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    // Connections are to come in before they have said anything.
    let pooler = setup.set("tcp_defer_accept", 0).start();
    let mut resting = pooler.client(&database);
    assert_eq!(resting.value("SELECT 1"), "1");
    // The console's own connection is in either count.
    let logins = || pooler.admin("SHOW LISTS").with("list", "login_clients").sum("items");
    let before = open_files(&pooler);
    let packet = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    for number in 0..6_000 {
        let mut stranger = RawClient::connect(pooler.port());
        if let Some(length) = [0, 0, 5].get(number % 3).filter(|length| **length != 0) {
            stranger.send(&packet[..*length]);
        }
    }
    eventually("all of them are forgotten", Duration::from_secs(20), || {
        (logins() == 0 && open_files(&pooler) <= before).then_some(())
    });
    assert_eq!(resting.value("SELECT 2"), "2");
}

#[test]
fn weirs_refusals_have_severity_code_and_text() {
    if !support::only_proxied("a message of an unknown kind is called a bad packet") {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup
        .set("auth_type", "md5")
        .set("default_pool_size", 1)
        .set("max_client_conn", 4)
        .set("query_wait_timeout", 1)
        .set("pin_timeout", 1)
        .set("auto_unsupported", "error")
        .start();
    let last = |client: &mut RawClient| {
        let heard = client.read_until(|message| message.tag == b'E');
        heard.last().and_then(testkit::Message::error).expect("an error")
    };
    let login = |user: &str, name: &str, password: &str| {
        pooler.login(user, name, password).map(drop).expect_err("it is refused")
    };
    let is_whole = |error: &ServerError, severity: &str, code: &str, text: &str| {
        assert_eq!((error.severity(), error.code(), error.message()), (severity, code, text));
    };
    let wrong = login(Role::APP, &database, "wrong");
    is_whole(&wrong, "FATAL", "08P01", "password authentication failed");
    let nowhere = login(Role::APP, "nowhere", Role::APP_PASSWORD);
    is_whole(&nowhere, "FATAL", "08P01", "no such database: nowhere");

    let mut client = pooler.client(&database);
    let refused = client.query("SELECT setseed(0)").error.expect("it is refused");
    assert_eq!((refused.severity(), refused.code()), ("ERROR", "0A000"));
    client.rows("BEGIN");
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 1"));
    is_whole(&last(&mut waiting), "FATAL", "08P01", "query_wait_timeout");
    client.rows("COMMIT");
    client.rows("CREATE TEMP TABLE mine (a int)");
    is_whole(&last(&mut client), "FATAL", "08P01", "pin_timeout");

    let mut talking = pooler.client(&database);
    talking.send(b"\x01\0\0\0\x04");
    is_whole(&last(&mut talking), "FATAL", "08P01", "unknown pkt");
    let _all: Vec<_> = (0..4).map(|_| pooler.client(&database)).collect();
    let full = login(Role::APP, &database, Role::APP_PASSWORD);
    is_whole(&full, "FATAL", "08P01", "no more connections allowed (max_client_conn)");
}

#[test]
fn a_load_that_is_interrupted_leaves_nothing_behind() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(4);
    let script = open_folder("interrupted").join("script.sql");
    let text = "BEGIN;\nSET work_mem = '5MB';\nSELECT pg_sleep(0.01);\nCOMMIT;\n";
    fs::write(&script, text).expect("our own folder");
    for protocol in ["simple", "extended", "prepared"] {
        // A thread for each: it waits within a thread until a statement is prepared.
        let mut load = pooler
            .client_program("pgbench", &database)
            .args(["-n", "-c", "16", "-j", "16", "-T", "600", "-M", protocol, "-f"])
            .arg(&script)
            .spawn()
            .expect("pgbench starts");
        let transactions = || pooler.admin("SHOW STATS").with("database", &database);
        let before = transactions().sum("total_xact_count");
        eventually("they are at work", Duration::from_secs(20), || {
            (transactions().sum("total_xact_count") > before + 200).then_some(())
        });
        support::interrupt(load.id());
        load.wait().expect("our own child");
        pooler.wait_until_quiet(&database, 4);
        let mut next = pooler.client(&database);
        assert_eq!(next.value("SHOW work_mem"), "4MB", "{protocol}");
    }
}

#[test]
fn discard_all_lets_go_of_everything_but_what_it_cannot_undo() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup.set("pin_functions", "pg_backend_pid").start();
    let reasons = || {
        let pins = pooler.admin("SHOW PINS");
        pins.column("reason").join("; ")
    };
    let until = |what: &str, wanted: &str| {
        eventually(what, Duration::from_secs(10), || (reasons() == wanted).then_some(()));
    };
    support::direct(&database).rows("CREATE SEQUENCE numbers");
    let many = |number: usize| format!("PREPARE mine{number} AS SELECT {number}");
    let many: Vec<_> = (0..20).map(many).collect();
    for (make, reason) in [
        ("CREATE TEMP TABLE mine (a int)", "temporary object"),
        ("SELECT pg_advisory_lock(7)", "advisory lock"),
        ("DECLARE mine CURSOR WITH HOLD FOR SELECT 1", "cursor with hold"),
        (&*many.join("; "), "prepared statement"),
        ("SELECT nextval('numbers'), lastval()", "sequence"),
        ("SELECT pg_backend_pid()", "function"),
        ("CREATE TEMP TABLE mine (a int); SELECT pg_backend_pid()", "temporary object, function"),
    ] {
        let mut client = pooler.client(&database);
        client.rows(make);
        until(make, reason);
        client.rows("DISCARD ALL");
        until(make, "");
        assert_eq!(client.value("SELECT 1"), "1");
    }
    let mut client = pooler.client(&database);
    client.rows("SELECT setseed(0.5), pg_backend_pid()");
    until("it has begun a series", "setseed, function");
    client.rows("DISCARD ALL");
    until("only the series is left", "setseed");
    drop(client);
    until("nobody keeps anything", "");
}
