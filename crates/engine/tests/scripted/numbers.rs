//! Whose numbers `currval` and `lastval` tell in auto mode: never a stranger's.

use std::time::Duration;

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
    works_within(&client, &server, "UPDATE plain SET a = 1", "UPDATE 1");
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
fn set_transaction_comes_before_numbers_are_forgotten() {
    let (_rig, client, server) = behind_a_stranger();
    works_within(&client, &server, "BEGIN", "BEGIN");
    let long = format!("SET TRANSACTION READ ONLY /*{}*/", "x".repeat(70_000));
    for sql in ["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", &long] {
        client.send([query(sql)]);
        server.expect([query(sql)]);
        server.send([complete("SET"), ready('T')]);
        client.take();
    }
    // A SET with something behind it may be anything.
    client.send([query("SET LOCAL a.b = 1; SELECT lastval()")]);
    server.expect([query(FORGET), query("SET LOCAL a.b = 1; SELECT lastval()")]);
}

#[test]
fn a_question_within_a_batch_is_refused() {
    let (_rig, client, server) = behind_a_stranger();
    let update = "UPDATE plain SET a = 1";
    client.send([parse("a", update), bind("a"), execute()]);
    client.send([parse("mine", ASKS), bind("mine"), execute(), sync()]);
    server.expect([parse("weir_1", update), bind("weir_1"), execute()].into_iter().chain([
        parse("weir_2", ASKS),
        bind("weir_numbers_of_others"),
        execute(),
        sync(),
    ]));
    let missing = error("26000", "prepared statement does not exist");
    server.send([parsed(), bound(), complete("UPDATE 1"), parsed(), missing, ready('I')]);
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
    client.send([query("UPDATE plain SET a = 1"), query(ASKS)]);
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

const DRAW: &str = "INSERT INTO t VALUES (1)";

/// A client draws a number on the only server, while another one waits for that.
fn drawn_while_another_waits() -> (Rig, [Client; 2], Server) {
    let rig = auto(|_| {});
    let clients = [rig.client(), rig.client()];
    let server = rig.server(0);
    clients[0].send([query(DRAW)]);
    clients[1].send([query(DRAW)]);
    server.answers(DRAW);
    clients[0].expect([done("OK")]);
    (rig, clients, server)
}

#[test]
fn the_first_question_of_all_finds_the_number_drawn_before_it() {
    let (_rig, [client, other], server) = drawn_while_another_waits();
    client.send([query(ASKS)]);
    server.expect([query(ASKS)]);
    server.send([done("SELECT 1")]);
    client.take();
    tells(&server, &[]);
    client.leave();
    server.answers("DISCARD ALL");
    server.expect([query(FORGET), query(DRAW)]);
    server.send([done(FORGET), done("INSERT 0 1")]);
    other.take();
    other.send([query(ASKS)]);
    server.expect([query(ASKS)]);
}

#[test]
fn within_a_transaction_too_where_a_stranger_has_drawn_before() {
    let rig = auto(|_| {});
    let [stranger, client] = [rig.client(), rig.client()];
    let server = rig.server(0);
    works(&stranger, &server, DRAW);
    stranger.leave();
    works_within(&client, &server, "BEGIN", "BEGIN");
    client.send([query(DRAW)]);
    server.expect([query(FORGET), query(DRAW)]);
    server.send([complete(FORGET), ready('T'), complete("INSERT 0 1"), ready('T')]);
    client.expect([complete("INSERT 0 1"), ready('T')]);
    client.send([query(ASKS)]);
    server.expect([query(ASKS)]);
}

#[test]
fn a_client_may_do_something_else_before_it_asks() {
    let (_rig, [client, _other], server) = drawn_while_another_waits();
    // A driver gives up its statement, and looks up the sequence's name.
    works(&client, &server, "DEALLOCATE nothing");
    tells(&server, &[]);
    works(&client, &server, "SELECT relname FROM pg_class");
    client.send([parse("", ASKS), sync()]);
    server.expect([parse("", ASKS), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    tells(&server, &[]);
    client.send([bind(""), execute(), sync()]);
    server.expect([parse("", ASKS), bind(""), execute(), sync()]);
}

#[test]
fn a_client_that_does_not_ask_gives_its_server_back() {
    let (_rig, [client, other], server) = drawn_while_another_waits();
    for _ in 0..4 {
        works(&client, &server, "SELECT 1");
        server.expect([]);
    }
    works(&client, &server, "SELECT 1");
    server.expect([query(FORGET), query(DRAW)]);
    server.send([done(FORGET), done("INSERT 0 1")]);
    other.expect([done("INSERT 0 1")]);
}

#[test]
fn a_client_that_leaves_without_asking_leaves_nothing_to_discard() {
    let (_rig, [client, _other], server) = drawn_while_another_waits();
    client.leave();
    server.expect([query(FORGET), query(DRAW)]);
}

#[test]
fn an_idle_client_gives_its_server_back_when_others_wait() {
    let (rig, [_client, _other], server) = drawn_while_another_waits();
    rig.later(100_000);
    rig.wait(0);
    server.expect([]);
    rig.later(400_000);
    rig.wait(0);
    server.expect([query(FORGET), query(DRAW)]);
}

#[test]
fn an_idle_client_keeps_its_server_while_nobody_waits_and_is_not_closed_for_it() {
    let rig = auto(|config| config.global.pin_timeout = Duration::from_secs(1));
    let client = rig.client();
    let server = rig.server(0);
    works(&client, &server, DRAW);
    rig.wait(5);
    assert!(!server.is_parked());
    client.send([query(ASKS)]);
    server.expect([query(ASKS)]);
}

#[test]
fn where_nobody_asks_nobody_is_waited_for() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    for _ in 0..8 {
        works(&client, &server, DRAW);
    }
    assert!(server.is_parked());
    for client in [&client, &other, &client] {
        works(client, &server, DRAW);
        assert!(server.is_parked());
    }
    // And again when somebody asks.
    works_within(&client, &server, "BEGIN", "BEGIN");
    works_within(&client, &server, DRAW, "INSERT 0 1");
    client.send([query(ASKS)]);
    server.expect([query(FORGET), query(ASKS)]);
    server.send([done(FORGET), done("SELECT 1")]);
    tells(&server, &[]);
    client.leave();
    server.answers("DISCARD ALL");
    other.send([query(DRAW)]);
    server.expect([query(FORGET), query(DRAW)]);
    server.send([done(FORGET), done("INSERT 0 1")]);
    assert!(!server.is_parked());
}

#[test]
fn answers_to_our_own_questions_begin_no_transaction_of_an_idle_client() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    client.send([parse("a", "SELECT 1"), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    client.take();
    // The statement is lent for the text, and taken back behind the question what is left.
    client.send([query("INSERT INTO t VALUES (1); EXECUTE a")]);
    server.take();
    server.send([parsed(), ready('I'), done("SELECT 1")]);
    client.expect([done("SELECT 1")]);
    server.take();
    server.send([done("SELECT")]);
    server.send([closed(), ready('I')]);
    other.send([query("SELECT 2")]);
    server.expect([]);
    rig.later(400_000);
    rig.wait(0);
    server.expect([query("SELECT 2")]);
}
