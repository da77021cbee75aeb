//! Auto mode: `currval` and `lastval` never return another client's numbers.

use std::time::Duration;

use config::Unsupported;

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const FORGET: &str = "DISCARD SEQUENCES";
const ASKS: &str = "SELECT lastval()";

/// A pool of that size in which `currval` pins no client.
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

/// A client whose server has another client's numbers.
fn after_another_client() -> (Rig, Client, Server) {
    let rig = sharing(1);
    let [stranger, client] = [rig.client(), rig.client()];
    let server = rig.server(0);
    works(&stranger, &server, "INSERT INTO t VALUES (1)");
    (rig, client, server)
}

#[test]
fn a_first_question_after_an_unwatched_text_gets_no_number() {
    let (_rig, client, server) = after_another_client();
    works_within(&client, &server, "BEGIN", "BEGIN");
    works_within(&client, &server, "UPDATE plain SET a = 1", "UPDATE 1");
    client.send([query(ASKS)]);
    server.expect([query(FORGET), query(ASKS)]);
    server.send([complete(FORGET), ready('T'), error("55000", "not yet defined"), ready('E')]);
    client.take();
    works_within(&client, &server, "ROLLBACK", "ROLLBACK");
    // The client's next number is its own.
    client.send([query(ASKS)]);
    server.expect([query(ASKS)]);
}

#[test]
fn set_transaction_comes_before_numbers_are_forgotten() {
    let (_rig, client, server) = after_another_client();
    works_within(&client, &server, "BEGIN", "BEGIN");
    let long = format!("SET TRANSACTION READ ONLY /*{}*/", "x".repeat(70_000));
    for sql in ["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", &long] {
        client.send([query(sql)]);
        server.expect([query(sql)]);
        server.send([complete("SET"), ready('T')]);
        client.take();
    }
    // A text with more than the SET may do anything.
    client.send([query("SET LOCAL a.b = 1; SELECT lastval()")]);
    server.expect([query(FORGET), query("SET LOCAL a.b = 1; SELECT lastval()")]);
}

#[test]
fn a_question_within_a_batch_is_refused() {
    let (_rig, client, server) = after_another_client();
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
    // The client's statement is there. The next batch begins with DISCARD SEQUENCES.
    client.send([bind("mine"), execute(), sync()]);
    server.expect([query(FORGET), bind("weir_2"), execute(), sync()]);
}

#[test]
fn messages_that_the_server_does_not_get_prevent_no_forgetting() {
    let (_rig, client, server) = after_another_client();
    client.send([close("gone"), parse("", ASKS), bind(""), execute(), sync()]);
    server.expect([query(FORGET), parse("", ASKS), bind(""), execute(), sync()]);
    server.send([done(FORGET), parsed(), bound(), error("55000", "not yet defined"), ready('I')]);
    let sent = client.take();
    assert!(sent.starts_with(&closed()), "{sent:?}");
}

#[test]
fn a_question_after_an_unanswered_query_is_refused() {
    let (_rig, client, server) = after_another_client();
    client.send([query("UPDATE plain SET a = 1"), query(ASKS)]);
    let sent = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(!sent.contains(ASKS) && sent.contains("'55000'"), "{sent}");
}

#[test]
fn a_statement_parsed_elsewhere_returns_no_other_clients_number() {
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
fn forgetting_numbers_costs_no_client_its_unnamed_statement() {
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
    // From now on every server forgets.
    other.send([query(ASKS)]);
    client.send([bind(""), execute(), sync()]);
    second.expect([query(FORGET), parse("", "SELECT 1"), bind(""), execute(), sync()]);
}

#[test]
fn before_a_long_text_a_strangers_numbers_are_forgotten() {
    let (rig, client, server) = after_another_client();
    rig.set_chunk(10_000);
    let long = format!("SELECT '{}', lastval()", "x".repeat(70_000));
    client.send([query(&long)]);
    server.expect([query(FORGET), query(&long)]);
}

#[test]
fn the_next_process_tells_no_client_anothers_number() {
    let (rig, client, server) = after_another_client();
    rig.hand_over();
    client.send([query(ASKS)]);
    server.expect([query(FORGET), query(ASKS)]);
}

#[test]
fn a_client_pinned_for_numbers_keeps_them_in_the_next_process() {
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

/// A client draws a number on the only server, while another client waits for that server.
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
fn also_within_a_transaction_after_another_clients_draw() {
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
    // A driver deallocates its statement and looks up the sequence's name.
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
fn an_idle_client_whose_server_is_lost_loses_only_its_number() {
    for says_why in [false, true] {
        let rig = auto(|_| {});
        let client = rig.client();
        let server = rig.server(0);
        works(&client, &server, DRAW);
        if says_why {
            server.send([warning("57P01", "terminating connection because of crash")]);
            server.send([fatal("57P01", "terminating connection due to administrator command")]);
        }
        server.die();
        client.expect([]);
        client.send([query("SELECT 1")]);
        rig.server(1).answers("SELECT 1");
        client.expect([done("OK")]);
    }
}

#[test]
fn a_client_that_uses_its_lost_server_is_told() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    works(&client, &server, DRAW);
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    server.die();
    client.expect_lost();
}

#[test]
fn texts_that_no_question_follows_hold_no_server() {
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
    // Weir watches again after a question.
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
    // Weir lends the statement for the text, and deallocates it after the probe.
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
