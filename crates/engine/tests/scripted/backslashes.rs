//! Backslashes in strings. Their meaning depends on the session (`standard_conforming_strings`). A
//! text that is read with the wrong meaning hides its effect.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Server};

/// Sets something only if a backslash escapes the quote.
const SETS: &str = r"SELECT 'a\'', set_config('app.x', '1', false) --'";

/// Sends SET LOCAL and the text in a transaction, before PostgreSQL has answered anything.
fn sends_behind_set_local(client: &Client, server: &Server, text: &str) {
    client.send([
        query("BEGIN"),
        query("SET LOCAL standard_conforming_strings = off"),
        query(text),
        query("COMMIT"),
    ]);
    server.take();
    server.send([
        [complete("BEGIN"), ready('T')].concat(),
        [status("standard_conforming_strings", "off"), complete("SET"), ready('T')].concat(),
        [complete("SELECT 1"), ready('T')].concat(),
        [status("standard_conforming_strings", "on"), done("COMMIT")].concat(),
    ]);
}

#[test]
fn after_an_unanswered_set_local_both_readings_of_a_backslash_count() {
    let long = format!("SELECT '{}'; {SETS}", "x".repeat(70_000));
    for text in [SETS, &long] {
        let rig = auto(|_| {});
        rig.set_chunk(10_000);
        let client = rig.client();
        let server = rig.server(0);
        sends_behind_set_local(&client, &server, text);
        tells(&server, &[("app.x", "1")]);
        assert!(server.is_parked());
    }
}

#[test]
fn the_startup_packets_spelling_is_read_as_postgresql_reads_it() {
    let rig = auto(|_| {}).manual();
    let client = rig.connect();
    client.say_hello(&[("standard_conforming_strings", "OFF")]);
    let server = rig.server(0);
    server.connect();
    let off = ("standard_conforming_strings", "off");
    server.send([crate::rig::server_welcome_with(0, &[off])]);
    server.take();
    client.take();
    client.send([query(SETS)]);
    server.answers(SETS);
    tells(&server, &[("app.x", "1")]);
}

/// PostgreSQL read one statement and an INSERT. No other server may run the INSERT.
#[test]
fn a_statement_prepared_with_a_backslash_is_not_carried() {
    const BOTH: &str = r"PREPARE a AS SELECT 'it\'s'; INSERT INTO t VALUES ('x')";
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    client.send([query(BOTH)]);
    server.answers(BOTH);
    client.expect([done("OK")]);
    server.take();
    server.send([item_of('p', "a", BOTH), done("SELECT")]);
    assert!(!server.is_parked());
    other.send([query("SELECT 1")]);
    server.expect([]);
    client.send([query("EXECUTE a")]);
    server.answers("EXECUTE a");
}

/// The function is known to leave nothing. It changes the meaning of a backslash for the
/// transaction.
#[test]
fn after_a_trusted_function_both_readings_of_a_backslash_count() {
    const LOCKS: &str = r"SELECT 'a\'', pg_advisory_lock(7) --'";
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let mine = "SELECT mine()";
    for _ in 0..8 {
        client.send([query(mine)]);
        server.expect([query(mine)]);
        server.send([done("SELECT 1")]);
        tells(&server, &[]);
    }
    client.send([query(mine)]);
    server.expect([query(mine)]);
    server.send([done("SELECT 1")]);
    assert!(server.is_parked(), "it is trusted");
    client.send([query("BEGIN"), query(mine), query(LOCKS), query("COMMIT")]);
    server.take();
    let steps = ["BEGIN", "SELECT 1", "SELECT 1"].map(|tag| [complete(tag), ready('T')].concat());
    server.send([steps.concat(), done("COMMIT")]);
    let question = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(question.contains("pg_locks"), "{question}");
    server.send([row("k"), done("SELECT")]);
    assert!(!server.is_parked());
}
