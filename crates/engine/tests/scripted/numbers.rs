//! Whose numbers `currval` and `lastval` tell in auto mode: never a stranger's.

use config::Unsupported;

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const FORGET: &str = "DISCARD SEQUENCES";
const ASKS: &str = "SELECT lastval()";

/// A pool of that size, in which nobody is pinned for asking.
fn sharing(size: u32) -> Rig {
    auto(|config| {
        config.global.default_pool_size = size;
        config.global.auto_unsupported = Unsupported::Warn;
    })
}

fn works(client: &Client, server: &Server, sql: &str) {
    client.send([query(sql)]);
    server.answers(sql);
    client.take();
}

fn works_within(client: &Client, server: &Server, sql: &str, tag: &str) {
    client.send([query(sql)]);
    server.take();
    server.send([complete(tag), ready('T')]);
    client.take();
}

/// A client on a server that a stranger has drawn numbers on.
fn behind_a_stranger() -> (Rig, Client, Server) {
    let rig = sharing(1);
    let [stranger, client] = [rig.client(), rig.client()];
    let server = rig.server(0);
    works(&stranger, &server, "INSERT INTO t VALUES (1)");
    (rig, client, server)
}

#[test]
fn the_first_question_of_all_behind_what_may_have_drawn_nothing_is_told_nothing() {
    let (_rig, client, server) = behind_a_stranger();
    works_within(&client, &server, "BEGIN", "BEGIN");
    works_within(&client, &server, "INSERT INTO plain VALUES (1)", "INSERT 0 1");
    client.send([query(ASKS)]);
    server.expect([query(FORGET), query(ASKS)]);
    server.send([complete(FORGET), ready('T'), error("55000", "not yet defined"), ready('E')]);
    client.take();
    works_within(&client, &server, "ROLLBACK", "ROLLBACK");
    // What it draws now is its own.
    client.send([query(ASKS)]);
    server.expect([query(ASKS)]);
}

#[test]
fn a_question_within_a_batch_is_refused() {
    let (_rig, client, server) = behind_a_stranger();
    let insert = "INSERT INTO plain VALUES (1)";
    client.send([parse("a", insert), bind("a"), execute()]);
    client.send([parse("mine", ASKS), bind("mine"), execute(), sync()]);
    server.expect([parse("weir_1", insert), bind("weir_1"), execute()].into_iter().chain([
        parse("weir_2", ASKS),
        bind("weir_numbers_of_others"),
        execute(),
        sync(),
    ]));
    let missing = error("26000", "prepared statement does not exist");
    server.send([parsed(), bound(), complete("INSERT 0 1"), parsed(), missing, ready('I')]);
    client.take();
    // Its own statement is there, and the next batch begins with forgetting.
    client.send([bind("mine"), execute(), sync()]);
    server.expect([query(FORGET), bind("weir_2"), execute(), sync()]);
}

#[test]
fn what_the_server_does_not_get_is_not_in_the_way() {
    let (_rig, client, server) = behind_a_stranger();
    client.send([close("gone"), parse("", ASKS), bind(""), execute(), sync()]);
    server.expect([query(FORGET), parse("", ASKS), bind(""), execute(), sync()]);
    server.send([done(FORGET), parsed(), bound(), error("55000", "not yet defined"), ready('I')]);
    let sent = client.take();
    assert!(sent.starts_with(&closed()), "{sent:?}");
}

#[test]
fn a_question_behind_another_query_is_refused() {
    let (_rig, client, server) = behind_a_stranger();
    client.send([query("INSERT INTO plain VALUES (1)"), query(ASKS)]);
    let sent = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(!sent.contains(ASKS) && sent.contains("'55000'"), "{sent}");
}

#[test]
fn a_statement_parsed_elsewhere_finds_no_strangers_number() {
    let rig = sharing(2);
    let [client, stranger] = [rig.client(), rig.client()];
    let first = rig.server(0);
    client.send([parse("mine", ASKS), sync()]);
    first.expect([parse("weir_1", ASKS), sync()]);
    first.send([parsed(), ready('I')]);
    works_within(&client, &first, "BEGIN", "BEGIN");
    stranger.send([query("INSERT INTO t VALUES (1)")]);
    let second = rig.server(1);
    second.answers("INSERT INTO t VALUES (1)");
    client.send([query("COMMIT")]);
    first.answers("COMMIT");
    client.take();
    works_within(&stranger, &first, "BEGIN", "BEGIN");
    client.send([bind("mine"), execute(), sync()]);
    let asks = [parse("weir_1", ASKS), bind("weir_1"), execute(), sync()];
    second.expect([query(FORGET)].into_iter().chain(asks));
}

#[test]
fn what_is_forgotten_takes_no_unnamed_statement_along() {
    let rig = sharing(2);
    let [client, other, third] = [rig.client(), rig.client(), rig.client()];
    let first = rig.server(0);
    works_within(&other, &first, "BEGIN", "BEGIN");
    third.send([query("INSERT INTO t VALUES (1)")]);
    let second = rig.server(1);
    second.answers("INSERT INTO t VALUES (1)");
    client.send([parse("", "SELECT 1"), sync()]);
    second.expect([parse("", "SELECT 1"), sync()]);
    second.send([parsed(), ready('I')]);
    client.take();
    // From now on everybody's server forgets.
    other.send([query(ASKS)]);
    client.send([bind(""), execute(), sync()]);
    second.expect([query(FORGET), parse("", "SELECT 1"), bind(""), execute(), sync()]);
}

#[test]
fn before_a_long_text_a_strangers_numbers_are_forgotten() {
    let (rig, client, server) = behind_a_stranger();
    rig.set_chunk(10_000);
    let long = format!("SELECT '{}', lastval()", "x".repeat(70_000));
    client.send([query(&long)]);
    server.expect([query(FORGET), query(&long)]);
}

#[test]
fn the_next_process_tells_nobody_a_strangers_number() {
    let (rig, client, server) = behind_a_stranger();
    rig.hand_over();
    client.send([query(ASKS)]);
    server.expect([query(FORGET), query(ASKS)]);
}

#[test]
fn who_keeps_its_server_for_numbers_has_them_in_the_next_process() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    works(&client, &server, ASKS);
    tells(&server, &[]);
    rig.hand_over();
    client.send([query(ASKS)]);
    server.expect([query(ASKS)]);
}
