//! `cached plan must not change result type`: a statement that clients share may be older than this
//! client's own Parse. The client cannot know that. Weir prepares the statement again if the client
//! cannot notice a difference. Otherwise the client gets the error.

use config::{PoolMode, ReuseAfterError, Unsupported};

use crate::carried::auto;
use crate::clusters;
use crate::messages::*;
use crate::rig::{Client, Rig, Server};
use crate::state_reports::{done_with, reporting};

/// PostgreSQL's error for a statement whose columns have changed.
fn changed() -> Message {
    error_of("0A000", "cached plan must not change result type", "RevalidateCachedQuery")
}

/// Weir's messages after that error.
fn renewal() -> [Message; 4] {
    [close("weir_1"), parse("weir_1", "select"), describe("weir_1"), sync()]
}

fn renewed(column: &str) -> [Message; 5] {
    [closed(), parsed(), parameters(), columns(column), ready('I')]
}

/// One server, on which another client has prepared a statement. Weir answers this client's Parse
/// of the same text itself.
fn shared() -> (Rig, Client, Server) {
    shared_in(Rig::of_size(1))
}

fn shared_in(rig: Rig) -> (Rig, Client, Server) {
    let (first, server) = (rig.client(), rig.server(0));
    first.send([parse("theirs", "select"), sync()]);
    server.send([parsed(), ready('I')]);
    server.take();
    let client = rig.client();
    client.send([parse("mine", "select"), sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([parsed(), ready('I')]);
    (rig, client, server)
}

/// The client describes the statement.
fn described(client: &Client, server: &Server, column: &str) {
    client.send([describe("mine"), sync()]);
    server.expect([describe("weir_1"), sync()]);
    server.send([parameters(), columns(column), ready('I')]);
    client.expect([parameters(), columns(column), ready('I')]);
}

fn use_it() -> [Message; 3] {
    [bind("mine"), execute(), sync()]
}

#[test]
fn an_execution_is_repeated_if_the_server_knew_the_statement_first() {
    let (_rig, client, server) = shared();
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    client.expect([]);
    server.expect(renewal());
    server.send(renewed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    assert!(server.is_parked());
}

/// The client has seen no error, so `reuse_after_error = never` keeps the server.
#[test]
fn a_repeated_execution_is_a_success() {
    let (_rig, client, server) = shared_in(Rig::new(|config| {
        config.global.pool_mode = PoolMode::Transaction;
        config.global.default_pool_size = 1;
        config.global.reuse_after_error = ReuseAfterError::Never;
    }));
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.expect(renewal());
    server.send(renewed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    assert!(server.is_parked());
    client.send(use_it());
    server.expect(use_it_on_server());
    server.send([error("22012", "division by zero"), ready('I')]);
    assert!(!server.is_open());
}

fn use_it_on_server() -> [Message; 3] {
    [bind("weir_1"), execute(), sync()]
}

#[test]
fn in_the_batch_of_its_own_parse() {
    let (rig, _client, server) = shared();
    let other = rig.client();
    other.send([parse("b", "select"), describe("b"), sync()]);
    server.expect([describe("weir_1"), sync()]);
    server.send([parameters(), changed(), ready('I')]);
    server.expect(renewal());
    other.expect([parsed(), parameters()]);
    server.send(renewed("a"));
    server.expect([describe("weir_1"), sync()]);
    server.send([parameters(), columns("a"), ready('I')]);
    other.expect([columns("a"), ready('I')]);
}

#[test]
fn however_the_message_is_split() {
    for chunk in 1..40 {
        let (rig, client, server) = shared();
        rig.set_chunk(chunk);
        client.send(use_it());
        server.take();
        server.send([changed(), ready('I')]);
        server.expect(renewal());
        server.send(renewed("a"));
        server.expect([bind("weir_1"), execute(), sync()]);
        server.send([bound(), complete("SELECT 1"), ready('I')]);
        client.expect([bound(), complete("SELECT 1"), ready('I')]);
    }
}

#[test]
fn before_the_sync_of_its_batch() {
    let (_rig, client, server) = shared();
    client.send([describe("mine"), flush()]);
    server.take();
    server.send([parameters(), changed()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    server.expect(renewal());
    server.send(renewed("a"));
    server.expect([describe("weir_1"), flush()]);
    server.send([parameters(), columns("a")]);
    client.expect([parameters(), columns("a")]);
    client.send([bind("mine"), execute(), sync()]);
    server.expect([bind("weir_1"), execute(), sync()]);
}

#[test]
fn in_the_middle_of_a_message_the_server_discards_the_rest() {
    let (_rig, client, server) = shared();
    let half = 7;
    let (bind, execute) = (bind("mine"), execute());
    client.send([describe("mine"), bind[..half].to_vec()]);
    client.send([bind[half..].to_vec(), execute[..half].to_vec()]);
    server.take();
    server.send([parameters(), changed()]);
    // The half-sent message must end first, or PostgreSQL would read the Sync as part of it.
    server.expect([vec![0; execute.len() - half], sync()]);
    server.send([ready('I')]);
    server.expect(renewal());
    server.send(renewed("a"));
    client.send([execute[half..].to_vec(), sync()]);
    server.expect([describe("weir_1"), super::messages::bind("weir_1"), execute, sync()]);
    server.send([parameters(), columns("a"), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([parameters(), columns("a"), bound(), complete("SELECT 1"), ready('I')]);
}

/// Outside a copy, PostgreSQL ignores copy data. But the half that the server has received must not
/// swallow the next message.
#[test]
fn half_a_copy_data_message_outside_a_copy_is_completed_after_the_sync() {
    for column in ["a", "b"] {
        let (_rig, client, server) = shared();
        described(&client, &server, "a");
        let data = copy_data("to nobody");
        let (half, rest) = data.split_at(9);
        client.send([use_it().concat(), half.to_vec()]);
        server.take();
        server.send([changed(), ready('I')]);
        let [close, parse, describe, sync] = renewal();
        server.expect([close, parse, describe, sync.clone()]);
        server.send(renewed(column));
        if column == "a" {
            client.send([rest.to_vec()]);
            server.expect([bind("weir_1"), execute(), sync]);
            server.send([bound(), complete("SELECT 1"), ready('I')]);
            client.expect([bound(), complete("SELECT 1"), ready('I')]);
        } else {
            client.expect([changed(), ready('I')]);
            client.send([rest.to_vec()]);
            server.expect([]);
        }
        assert!(server.is_parked());
        client.send([query("select 2")]);
        server.answers("select 2");
    }
}

#[test]
fn a_request_answered_in_part_does_not_move_to_another_server() {
    let (_rig, client, server) = shared();
    client.send([describe("mine"), sync()]);
    server.take();
    server.send([parameters(), changed(), ready('I')]);
    server.expect(renewal());
    server.send(renewed("a"));
    server.expect([describe("weir_1"), sync()]);
    client.expect([parameters()]);
    server.die();
    client.expect_lost();
}

#[test]
fn if_the_rows_are_what_the_client_was_told() {
    let (_rig, client, server) = shared();
    described(&client, &server, "a");
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.expect(renewal());
    server.send(renewed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
}

#[test]
fn not_if_the_client_was_told_of_other_rows() {
    let (_rig, client, server) = shared();
    described(&client, &server, "a");
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.send(renewed("b"));
    client.expect([changed(), ready('I')]);
    assert!(server.is_parked());
    // A driver's recovery works at once: the server's copy is new.
    client.send([close("mine"), parse("mine", "select"), bind("mine"), execute(), sync()]);
    server.take();
    server.send([bound(), complete("SELECT 1"), ready('I')]);
    client.expect([closed(), parsed(), bound(), complete("SELECT 1"), ready('I')]);
}

#[test]
fn a_description_under_another_name_does_not_count() {
    let (_rig, client, server) = shared();
    described(&client, &server, "a");
    client.send([parse("again", "select"), bind("again"), execute(), sync()]);
    server.take();
    server.send([changed(), ready('I')]);
    server.send(renewed("b"));
    server.take();
    server.send([bound(), complete("SELECT 1"), ready('I')]);
    client.expect([parsed(), bound(), complete("SELECT 1"), ready('I')]);
}

#[test]
fn not_if_the_portal_was_of_other_rows() {
    let (_rig, client, server) = shared();
    client.send([bind("mine"), describe_portal(), execute(), sync()]);
    server.take();
    server.send([bound(), columns("a"), complete("SELECT 0"), ready('I')]);
    client.take();
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.send(renewed("b"));
    client.expect([changed(), ready('I')]);
}

#[test]
fn a_refusal_before_the_sync_leaves_the_batch_failed() {
    let (_rig, client, server) = shared();
    described(&client, &server, "a");
    client.send([bind("mine"), execute(), flush()]);
    server.take();
    server.send([changed()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    server.send(renewed("b"));
    client.expect([changed()]);
    server.take();
    client.send([execute(), query("select 1"), sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn not_if_the_client_itself_had_it_prepared() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.send(renewed("a"));
    client.expect([changed(), ready('I')]);
}

#[test]
fn not_in_a_transaction() {
    let (_rig, client, server) = shared();
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    client.send(use_it());
    server.take();
    server.send([changed(), ready('E')]);
    client.expect([changed(), ready('E')]);
    client.send([query("rollback")]);
    server.send([done("ROLLBACK")]);
    client.take();
    server.take();
    // Weir forgets the server's copy.
    client.send(use_it());
    server.expect([close("weir_1"), parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
}

#[test]
fn not_after_another_answer_of_the_batch() {
    let (_rig, client, server) = shared();
    client.send([parse("", "select 2"), bind("mine"), execute(), sync()]);
    server.take();
    server.send([parsed(), changed(), ready('I')]);
    client.expect([parsed(), changed(), ready('I')]);
}

#[test]
fn not_before_another_request() {
    let (_rig, client, server) = shared();
    client.send(use_it());
    client.send([query("select 2")]);
    server.take();
    server.send([changed(), ready('I'), done("SELECT 1")]);
    client.expect([changed(), ready('I'), done("SELECT 1")]);
    assert!(server.is_parked());
}

#[test]
fn a_text_that_is_wrong_by_now_gives_the_first_error() {
    let (_rig, client, server) = shared();
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.send([closed(), error("42P01", "relation \"t\" does not exist"), ready('I')]);
    client.expect([changed(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn a_server_that_dies_of_it_is_reported() {
    for answered in 0..2 {
        let (_rig, client, server) = shared();
        client.send(use_it());
        server.send([changed()]);
        if answered > 0 {
            server.send([ready('I')]);
        }
        server.die();
        client.expect_lost();
    }
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_a_clean_server() {
    let (rig, client, server) = shared();
    client.send(use_it());
    server.send([changed(), ready('I')]);
    client.leave();
    rig.finish_cancel();
    server.send(renewed("a"));
    assert!(server.is_parked());
    server.take();
    // The outcome was not recorded.
    let again = rig.client();
    again.send([parse("again", "select"), sync()]);
    server.expect([close("weir_1"), parse("weir_1", "select"), sync()]);
    server.send([closed(), parsed(), ready('I')]);
    again.expect([parsed(), ready('I')]);
    let next = rig.client();
    next.send([query("select 1")]);
    server.answers("select 1");
    next.expect([done("OK")]);
}

#[test]
fn it_happens_once_to_a_request() {
    let (_rig, client, server) = shared();
    client.send(use_it());
    server.take();
    server.send([changed(), ready('I')]);
    server.expect(renewal());
    server.send(renewed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([changed(), ready('I')]);
    client.expect([changed(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn it_is_cancelled_with_the_request() {
    let (rig, _, server) = shared();
    let client = rig.connect();
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    client.send([parse("mine", "select"), bind("mine"), execute(), sync()]);
    server.take();
    server.send([changed(), ready('I')]);
    server.expect(renewal());
    client.expect([parsed()]);
    rig.connect().send([cancel_request(pid, &secret)]);
    assert_eq!(rig.cancels().len(), 1);
    let cancelled = error("57014", "canceling statement due to user request");
    server.send([closed(), cancelled.clone(), ready('I')]);
    client.expect([cancelled, ready('I')]);
    rig.finish_cancel();
    assert!(server.is_parked());
}

#[test]
fn after_the_server_had_to_forget_numbers() {
    let rig = auto(|config| {
        config.global.default_pool_size = 1;
        config.global.auto_unsupported = Unsupported::Warn;
    });
    let (first, client) = (rig.client(), rig.client());
    let server = rig.server(0);
    first.send([parse("theirs", "select"), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    first.take();
    client.send([parse("mine", "select"), sync()]);
    server.take();
    server.send([ready('I')]);
    client.take();
    // From now on every client gets a server without other clients' numbers.
    first.send([query("SELECT lastval()")]);
    server.expect([query("DISCARD SEQUENCES"), query("SELECT lastval()")]);
    server.send([complete("DISCARD SEQUENCES"), ready('I'), complete("SELECT 1"), ready('I')]);
    first.take();
    client.send(use_it());
    server.expect([query("DISCARD SEQUENCES"), bind("weir_1"), execute(), sync()]);
    server.send([complete("DISCARD SEQUENCES"), ready('I'), changed(), ready('I')]);
    client.expect([]);
    server.expect(renewal());
}

#[test]
fn a_request_that_moved_to_a_server_with_an_older_copy_asks_there() {
    let rig = Rig::of_size(2);
    let (client, other) = (rig.client(), rig.client());
    let first = rig.server(0);
    client.send([query("BEGIN")]);
    first.take();
    first.send([complete("BEGIN"), ready('T')]);
    client.take();
    other.send([parse("theirs", "select"), describe("theirs"), sync()]);
    let second = rig.server(1);
    second.take();
    second.send([parsed(), parameters(), columns("b"), ready('I')]);
    other.take();
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    first.take();
    first.send([parsed(), parameters(), columns("a"), ready('T')]);
    client.take();
    client.send([query("COMMIT")]);
    first.take();
    first.send([complete("COMMIT"), ready('I')]);
    client.take();
    first.break_silently();
    client.send(use_it());
    second.expect(renewal());
    second.send(renewed("a"));
    second.expect([bind("weir_1"), execute(), sync()]);
}

/// Only the same server can take the request again.
#[test]
pub(crate) fn in_an_unknown_session() {
    let (_rig, client, server) = reporting(|_| {});
    client.send([parse("one", "select"), sync()]);
    server.expect([parse("weir_1", "select"), sync()]);
    server.send([parsed(), ready('I')]);
    client.send([parse("two", "select"), sync()]);
    server.expect([sync()]);
    server.send([status("weir.state", "v1;u"), ready('I')]);
    client.expect([parsed(), ready('I'), parsed(), ready('I')]);
    assert!(!server.is_parked());
    client.send([bind("two"), execute(), sync()]);
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([changed(), ready('I')]);
    client.expect([]);
    // The present meaning of the text is unknown, too.
    server.expect([close("weir_2"), parse("weir_2", "select"), describe("weir_2"), sync()]);
    server.send(renewed("b"));
    server.expect([bind("weir_2"), execute(), sync()]);
    server.send([bound(), row("1"), done_with("v1")]);
    client.expect([bound(), row("1"), done("OK")]);
    assert!(server.is_parked());
}

/// The refusal is held until its cause is known. The client may not have deserved it.
#[test]
pub(crate) fn a_held_refusal_is_told_as_a_loss() {
    for is_synced in [true, false] {
        let (rig, client, server) = shared_in(clusters::rig());
        client.send([describe("mine"), if is_synced { sync() } else { flush() }]);
        server.take();
        let farewell = fatal("57P01", "terminating connection due to administrator command");
        server.send([[parameters(), changed(), farewell].concat()]);
        client.expect_part([parameters()]);
        let told = client.take();
        assert!(show(&told).concat().contains("40001") && client.is_open(), "{:?}", show(&told));
        assert_eq!(told.ends_with(&ready('I')), is_synced);
        if !is_synced {
            client.send([sync()]);
            client.expect([ready('I')]);
        }
        client.send([query("SELECT 1")]);
        rig.server(rig.servers() - 1).answers("SELECT 1");
        client.expect([done("OK")]);
    }
}
