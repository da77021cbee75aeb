//! A reload changes `pool_mode`. A server in use stays in its old mode until its client returns it.
//! Then the server is closed, and no other client gets it.

use config::PoolMode;
use engine::pins::Pins;

use crate::carried::tells;
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn rig(mode: PoolMode) -> Rig {
    Rig::new(|config| {
        config.global.pool_mode = mode;
        config.global.server_reset_query = "DISCARD ALL".into();
    })
}

fn change(rig: &Rig, mode: PoolMode) {
    rig.reload(|config| config.global.pool_mode = mode);
}

/// Runs the client's query. Weir sends nothing before or after it.
#[track_caller]
fn runs(client: &Client, server: &Server, sql: &str, status: char) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    server.send([complete("OK"), ready(status)]);
    client.expect([complete("OK"), ready(status)]);
    server.expect([]);
}

#[test]
fn a_session_stays_on_its_server_in_auto_mode() {
    let rig = rig(PoolMode::Session);
    let client = rig.client();
    let server = rig.server(0);
    client.send([parse("a", "SELECT 1"), sync()]);
    server.expect([parse("a", "SELECT 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    runs(&client, &server, "CREATE TEMP TABLE mine (a int)", 'I');
    change(&rig, PoolMode::Auto);
    // There is no probe, and statement names are not translated.
    runs(&client, &server, "SET work_mem = '5MB'", 'I');
    client.send([bind("a"), execute(), sync()]);
    server.expect([bind("a"), execute(), sync()]);
    server.send([bound(), done("SELECT 1")]);
    client.expect([bound(), done("SELECT 1")]);
    let pinned = rig.report(0).servers[0].pinned.expect("a reason");
    assert_eq!(pinned.pins, Pins::SESSION);
    let other = rig.client();
    other.send([query("SELECT 2")]);
    rig.server(1).expect([query("SELECT 2")]);
    client.leave();
    assert!(!server.is_open() || !server.is_parked());
    server.expect([query("DISCARD ALL")]);
    server.send([done("DISCARD ALL")]);
    assert!(!server.is_open(), "it was a session's");
}

#[test]
fn discard_all_ends_a_session_that_has_outlived_its_mode() {
    let rig = rig(PoolMode::Session);
    let client = rig.client();
    let server = rig.server(0);
    runs(&client, &server, "SET work_mem = '5MB'", 'I');
    change(&rig, PoolMode::Auto);
    // The client has already sent another message, which may leave something.
    client.send([query("DISCARD ALL"), query("SET work_mem = '6MB'")]);
    server.send([done("DISCARD ALL"), done("SET")]);
    server.take();
    client.expect([done("DISCARD ALL"), done("SET")]);
    assert!(server.is_open());
    runs(&client, &server, "SELECT 1", 'I');
    client.send([query("DISCARD ALL")]);
    server.expect([query("DISCARD ALL")]);
    server.send([complete("DISCARD ALL"), ready('I')]);
    client.expect([complete("DISCARD ALL"), ready('I')]);
    assert!(!server.is_open());
    client.send([query("SELECT 1")]);
    rig.server(1).expect([query("SELECT 1")]);
    assert!(rig.report(0).servers.iter().all(|server| server.pinned.is_none()));
}

#[test]
pub(crate) fn discard_all_resets_earlier_values() {
    let rig = rig(PoolMode::Auto);
    let client = rig.client();
    let is_set = || [complete("SET"), status("TimeZone", "Mars"), ready('I')];
    client.send([query("SET TimeZone = 'Mars'")]);
    let server = rig.server(0);
    server.expect([query("SET TimeZone = 'Mars'")]);
    server.send(is_set());
    client.expect(is_set());
    tells(&server, &[("TimeZone", "Mars")]);
    change(&rig, PoolMode::Session);
    client.send([query("SELECT 1")]);
    let server = rig.server(1);
    server.expect([query("SET TimeZone = 'Mars';")]);
    server.send(is_set());
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    change(&rig, PoolMode::Auto);
    client.send([query("DISCARD ALL")]);
    server.expect([query("DISCARD ALL")]);
    let reset = || [complete("DISCARD ALL"), status("TimeZone", "UTC"), ready('I')];
    server.send(reset());
    client.expect(reset());
    assert!(!server.is_open());
    client.send([query("SELECT 1")]);
    rig.server(2).expect([query("SELECT 1")]);
}

#[test]
fn state_from_before_auto_mode_is_not_passed_on() {
    let rig = rig(PoolMode::Transaction);
    let client = rig.client();
    let server = rig.server(0);
    runs(&client, &server, "BEGIN", 'T');
    runs(&client, &server, "SET work_mem = '5MB'", 'T');
    change(&rig, PoolMode::Auto);
    // Weir cannot tell whether this client has set it.
    runs(&client, &server, "SET work_mem = '6MB'", 'T');
    client.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([done("COMMIT")]);
    client.expect([done("COMMIT")]);
    assert!(!server.is_open());
    client.send([query("SELECT 1")]);
    rig.server(1).expect([query("SELECT 1")]);
}

#[test]
fn a_server_that_was_parked_before_auto_mode_is_replaced() {
    for mode in [PoolMode::Session, PoolMode::Transaction, PoolMode::Statement] {
        let rig = rig(mode);
        let client = rig.client();
        let server = rig.server(0);
        runs(&client, &server, "SELECT 1", 'I');
        client.leave();
        if mode == PoolMode::Session {
            server.answers("DISCARD ALL");
        }
        assert!(server.is_parked());
        change(&rig, PoolMode::Auto);
        assert!(!server.is_open(), "{mode}");
        change(&rig, PoolMode::Auto);
        rig.client().send([query("SELECT 2")]);
        rig.server(1).expect([query("SELECT 2")]);
    }
}

#[test]
fn pins_last_until_their_reason_is_gone_in_other_modes_too() {
    for mode in [PoolMode::Session, PoolMode::Transaction] {
        let rig = rig(PoolMode::Auto);
        let client = rig.client();
        let server = rig.server(0);
        let left = |rows: &[&str]| {
            let question = show(&server.take()).join("");
            assert!(question.contains("pg_locks"), "{question}");
            let rows = rows.iter().map(|kind| row(kind));
            server.send(rows.chain([done("SELECT")]));
        };
        client.send([query("CREATE TEMP TABLE mine (a int)")]);
        server.answers("CREATE TEMP TABLE mine (a int)");
        left(&["t"]);
        client.expect([done("OK")]);
        change(&rig, mode);
        runs(&client, &server, "SELECT 1", 'I');
        client.send([query("DROP TABLE mine")]);
        server.answers("DROP TABLE mine");
        left(&[]);
        client.expect([done("OK")]);
        assert!(!server.is_open(), "{mode}");
        client.send([query("SELECT 1")]);
        rig.server(1).expect([query("SELECT 1")]);
    }
}

#[test]
fn carried_settings_are_there_in_other_modes_too() {
    for mode in [PoolMode::Session, PoolMode::Transaction] {
        let rig = rig(PoolMode::Auto);
        let client = rig.client();
        let server = rig.server(0);
        client.send([query("SET work_mem = '5MB'")]);
        server.answers("SET work_mem = '5MB'");
        server.take();
        server.send([item_of('s', "work_mem", "5MB"), done("SELECT")]);
        client.expect([done("OK")]);
        change(&rig, mode);
        client.send([query("SELECT 1")]);
        let server = rig.server(1);
        server.answers("SELECT pg_catalog.set_config('work_mem','5MB',false) IS NULL;");
        server.answers("SELECT 1");
        client.expect([done("OK")]);
        assert_eq!(server.is_parked(), mode == PoolMode::Transaction);
    }
}

#[test]
fn state_of_a_session_is_not_passed_on_in_transaction_mode() {
    let rig = rig(PoolMode::Session);
    let client = rig.client();
    let server = rig.server(0);
    runs(&client, &server, "SET work_mem = '5MB'", 'I');
    change(&rig, PoolMode::Transaction);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    assert!(!server.is_open());
    rig.client().send([query("SELECT 2")]);
    rig.server(1).expect([query("SELECT 2")]);
}

#[test]
fn a_session_stays_on_its_server_in_a_process_in_auto_mode() {
    let rig = rig(PoolMode::Session);
    let client = rig.client();
    let server = rig.server(0);
    runs(&client, &server, "SET work_mem = '5MB'", 'I');
    rig.hand_over_to(|config| config.global.pool_mode = PoolMode::Auto);
    runs(&client, &server, "SELECT 1", 'I');
    assert!(server.is_open());
    let other = rig.client();
    other.send([query("SELECT 2")]);
    rig.server(1).expect([query("SELECT 2")]);
}

#[test]
fn an_unnamed_statement_of_auto_mode_is_there_in_session_mode() {
    let rig = rig(PoolMode::Auto);
    let client = rig.client();
    let server = rig.server(0);
    client.send([parse("", "SELECT 1"), sync()]);
    server.expect([parse("", "SELECT 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    change(&rig, PoolMode::Session);
    assert!(!server.is_open());
    client.send([bind(""), execute(), sync()]);
    rig.server(1).expect([parse("", "SELECT 1"), bind(""), execute(), sync()]);
}
