//! What a backslash means in a string is the session's business (`standard_conforming_strings`), and a
//! text that is read in the wrong way hides what it does.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Server};

/// It sets something where a backslash is no ordinary character.
const SETS: &str = r"SELECT 'a\'', set_config('app.x', '1', false) --'";

/// In a transaction, and before PostgreSQL has answered to anything of it.
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
fn behind_a_set_local_that_is_not_answered_both_readings_are_thought_of() {
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

/// PostgreSQL read it as one statement and then an INSERT, which must not be run anywhere again.
#[test]
fn what_is_prepared_with_a_backslash_stays_where_it_is() {
    const BOTH: &str = r"PREPARE a AS SELECT 'it\'s'; INSERT INTO t VALUES ('x')";
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    client.send([query(BOTH)]);
    server.answers(BOTH);
    client.expect([done("OK")]);
    server.take();
    let text = BOTH.replace('\\', r"\\");
    server.send([row_of(&[Some("p"), Some("a"), Some(&text)]), done("SELECT")]);
    assert!(!server.is_parked());
    other.send([query("SELECT 1")]);
    server.expect([]);
    client.send([query("EXECUTE a")]);
    server.answers("EXECUTE a");
}

/// It was seen to leave nothing, and changes what a backslash is for the transaction only.
#[test]
fn behind_a_function_that_is_trusted_both_readings_are_thought_of() {
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
    server.send([row_of(&[Some("a"), None, None]), done("SELECT")]);
    assert!(!server.is_parked());
}
