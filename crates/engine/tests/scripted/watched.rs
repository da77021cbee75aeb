//! The texts of clients as an operator sees them: fingerprints, and advice on auto mode.

use config::{Config, PoolMode};
use engine::watch::Watched;
use engine::watch::advice::{PoolRow, REASONS_MAX};
use engine::watch::fingerprints::{ENTRIES_MAX, Row};

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn rig(change: impl FnOnce(&mut Config)) -> Rig {
    Rig::new(|config| {
        (config.global.fingerprints, config.global.advise) = (true, true);
        change(config);
    })
}

fn watched(rig: &Rig) -> Watched {
    rig.report(0).watched
}

fn fingerprint(rig: &Rig, text: &str) -> Row {
    let rows = watched(rig).fingerprints;
    let found = rows.iter().find(|row| &*row.text.sample == text);
    found.unwrap_or_else(|| panic!("{text} is not among {rows:?}")).clone()
}

fn advice(rig: &Rig) -> PoolRow {
    let rows = watched(rig).pools;
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]
}

/// Each reason with its effect and the number of clients.
fn reasons(rig: &Rig) -> Vec<(&'static str, &'static str, u64)> {
    let rows = watched(rig).reasons;
    let mut all: Vec<_> =
        rows.iter().map(|it| (it.reason.effect().words(), it.reason.words(), it.clients)).collect();
    all.sort_unstable();
    all
}

fn run(client: &Client, server: &Server, sql: &str) {
    client.send([query(sql)]);
    server.send([done("SELECT 1")]);
}

#[test]
fn requests_are_counted_by_their_text_without_literals() {
    let rig = rig(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    let texts = ["SELECT a FROM t WHERE b = 'x'", "select a\nfrom t where b = 2;"];
    for sql in texts {
        client.send([query(sql)]);
        rig.later(1_000);
        server.send([columns("a"), row("1"), done("SELECT 1")]);
    }
    let found = fingerprint(&rig, "select a from t where b = ?");
    assert_eq!((found.count, found.missed, found.time), (2, 0, 2_000));
    assert!((976..=1_953).contains(&found.times.per_mille(990)));
    let sent = [columns("a"), row("1"), done("SELECT 1")].concat().len() as u64;
    assert_eq!(found.sent, 2 * sent);
    assert_eq!(found.received, texts.map(query).concat().len() as u64);
    let md5 = wire::md5::fingerprint(b"select a from t where b = ?");
    assert_eq!(found.text.fingerprint, md5);
}

#[test]
fn a_text_counts_where_it_is_run_however_it_is_cut() {
    let rig = rig(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    rig.set_chunk(3);
    client.send([parse("", "BEGIN"), bind(""), execute()]);
    client.send([parse("s", "SELECT b FROM t WHERE c = $1"), bind("s"), execute(), sync()]);
    let bound = || [parsed(), bound(), complete("BEGIN")].concat();
    server.send([bound(), bound(), ready('T')]);
    rig.set_chunk(usize::MAX);
    client.send([bind("s"), execute(), sync()]);
    server.send([crate::messages::bound(), complete("SELECT 1"), ready('T')]);
    run(&client, &server, "COMMIT");
    assert_eq!(fingerprint(&rig, "select b from t where c = ?").count, 2);
    assert_eq!(fingerprint(&rig, "commit").count, 1);
    assert_eq!(watched(&rig).fingerprints.len(), 2, "BEGIN goes with what it begins");
}

#[test]
fn many_texts_leave_the_frequent_one_in_a_table_of_fixed_size() {
    let rig = rig(|config| config.global.pin_functions = Vec::new());
    let (client, server) = (rig.client(), rig.server(0));
    for n in 0..5_000 {
        run(&client, &server, &format!("SET column_{n} = 1"));
        if n % 20 == 0 {
            run(&client, &server, "SELECT 'frequent'");
        }
    }
    let rows = watched(&rig);
    assert_eq!(rows.fingerprints.len(), ENTRIES_MAX);
    assert_eq!(rows.reasons.len(), REASONS_MAX);
    let found = fingerprint(&rig, "select ?");
    assert!(found.count + found.missed >= 250, "{found:?}");
    assert!(found.count > 200, "it has not lost its place often: {found:?}");
}

#[test]
fn a_long_text_is_known_by_its_beginning() {
    let rig = rig(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    for end in ["a", "b"] {
        let long = format!("INSERT INTO t VALUES ('{}', {end})", end.repeat(1 << 20));
        rig.set_chunk(10_000);
        run(&client, &server, &long);
    }
    assert_eq!(fingerprint(&rig, "insert into t values(?").count, 2);
    client.send([[&b"Q\0\0\0\x0eSELECT \xff\xfe\0"[..]].concat()]);
    server.send([done("SELECT 1")]);
    assert_eq!(fingerprint(&rig, "select \u{fffd}\u{fffd}").count, 1);
}

#[test]
fn the_keys_switch_it_on_and_off() {
    let rig = Rig::transaction();
    let (client, server) = (rig.client(), rig.server(0));
    run(&client, &server, "SELECT 1");
    let none = watched(&rig);
    assert!(none.fingerprints.is_empty() && none.pools.is_empty() && none.reasons.is_empty());
    // The statement was prepared before.
    client.send([parse("s", "SELECT 1, now()"), sync()]);
    server.send([parsed(), ready('I')]);
    rig.reload(|config| config.global.fingerprints = true);
    client.send([bind("s"), execute(), sync()]);
    server.send([bound(), done("SELECT 1")]);
    assert_eq!(fingerprint(&rig, "select ?, now()").count, 1);
    assert!(watched(&rig).pools.is_empty());
    rig.reload(|config| config.global.fingerprints = false);
    assert!(watched(&rig).fingerprints.is_empty());
}

#[test]
fn advice_names_the_clients_that_would_be_pinned_and_why() {
    let rig = rig(|config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.default_pool_size = 11;
    });
    let texts = [
        ("SELECT 1", None),
        ("SET work_mem = '1MB'; LISTEN c", Some(("carried", "setting"))),
        ("SELECT pg_advisory_lock(7)", Some(("pinned", "advisory lock"))),
        ("CREATE TEMP TABLE t (a int)", Some(("pinned", "temporary object"))),
        ("CREATE TABLE t (a int)", Some(("possibly pinned", "temporary object"))),
        ("SELECT of_its_own(1)", Some(("possibly pinned", "unknown function"))),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Some(("pinned", "cursor with hold"))),
        ("LOAD 'plpgsql'", Some(("pinned", "load"))),
        ("SELECT setseed(0.5)", Some(("pinned", "setseed"))),
        ("SELECT lastval()", Some(("pinned", "sequence"))),
        ("PREPARE s AS SELECT 1", Some(("carried", "prepared statement"))),
    ];
    let mut expected: Vec<_> =
        texts.iter().filter_map(|(_, it)| it.map(|(effect, word)| (effect, word, 1))).collect();
    expected.push(("carried", "listen", 1));
    expected.sort_unstable();
    let mut clients = Vec::new();
    for (sql, _) in texts {
        // In session mode, each has a server from its login on.
        let client = rig.client();
        let server = rig.server(rig.servers() - 1);
        run(&client, &server, sql);
        run(&client, &server, sql);
        clients.push(client);
    }
    assert_eq!(reasons(&rig), expected);
    let advice = advice(&rig);
    assert_eq!((advice.clients, advice.pinned, advice.possibly), (11, 6, 2));
    assert_eq!(advice.transactions, 1);
    // The last one works while those before it are pinned.
    assert_eq!((advice.servers, advice.servers_possible), (7, 9));
    drop(clients);
}

#[test]
fn transactions_at_the_same_time_and_discard_all_count() {
    let rig = rig(|config| config.global.pool_mode = PoolMode::Session);
    let clients: Vec<_> = (0..3).map(|at| (rig.client(), rig.server(at))).collect();
    for (client, server) in &clients {
        client.send([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
    }
    run(&clients[0].0, &clients[0].1, "COMMIT");
    run(&clients[1].0, &clients[1].1, "COMMIT");
    let seen = advice(&rig);
    assert_eq!((seen.transactions, seen.servers), (3, 3));
    // One with a lock, which it gives up, and another one: never two pinned beside the third.
    for (client, server) in &clients[..2] {
        run(client, server, "SELECT pg_advisory_lock(1)");
        run(client, server, "DISCARD ALL");
    }
    let seen = advice(&rig);
    assert_eq!((seen.pinned, seen.servers), (2, 3));
    // An unlock alone pins nothing, nor does a lock of a transaction, nor a table that ends with it.
    for sql in [
        "SELECT pg_advisory_unlock(1)",
        "SELECT pg_advisory_xact_lock(1)",
        "CREATE TEMP TABLE t (a int) ON COMMIT DROP",
    ] {
        run(&clients[2].0, &clients[2].1, sql);
    }
    let seen = advice(&rig);
    assert_eq!((seen.pinned, seen.possibly), (2, 0));
}

#[test]
fn a_pool_in_auto_mode_needs_no_advice() {
    let rig = rig(|config| config.global.pool_mode = PoolMode::Auto);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("SELECT 1")]);
    server.send([done("SELECT 1")]);
    assert!(watched(&rig).pools.is_empty());
    assert_eq!(fingerprint(&rig, "select ?").count, 1);
}

/// Job queues are known by it. A comparison within the statement is right on every server.
#[test]
fn advice_names_texts_that_ask_for_the_process_id() {
    let rig = rig(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    run(&client, &server, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()");
    assert_eq!(reasons(&rig), []);
    run(&client, &server, "INSERT INTO lockers VALUES (pg_backend_pid())");
    assert_eq!(reasons(&rig), [("not kept", "process id", 1)]);
    assert_eq!((advice(&rig).pinned, advice(&rig).possibly), (0, 0));
}
