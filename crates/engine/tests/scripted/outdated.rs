//! A client knows what its statement returns, the schema changes, and the server it is given next
//! has never seen the statement: it would prepare it as its table is now. On a connection of its
//! own the client would be told if that is something else.

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// What a connection of its own would have told the client.
fn changed() -> Message {
    error_of("0A000", "cached plan must not change result type", "RevalidateCachedQuery")
}

fn confirmation() -> [Message; 4] {
    [close("weir_1"), parse("weir_1", "select"), describe("weir_1"), sync()]
}

fn confirmed(column: &str) -> [Message; 5] {
    [closed(), parsed(), parameters(), columns(column), ready('I')]
}

fn use_it() -> [Message; 3] {
    [bind("mine"), execute(), sync()]
}

/// A client that was told of column `a` by the first server, on which somebody else changes the
/// schema now; and the second server.
fn moved() -> (Rig, Client, Server) {
    let rig = Rig::of_size(2);
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    first.send([parsed(), parameters(), columns("a"), ready('I')]);
    client.take();
    let other = rig.client();
    other.send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    other.send([query("alter")]);
    first.send([complete("ALTER TABLE"), ready('T')]);
    (rig, client, first)
}

/// The client's request brings it to the second server.
fn second(rig: &Rig) -> Server {
    let server = rig.server(1);
    server.expect(confirmation());
    server
}

#[test]
fn what_returns_the_same_is_used() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    server.send(confirmed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    assert!(server.is_parked());
    client.send(use_it());
    server.expect([bind("weir_1"), execute(), sync()]);
}

#[test]
fn what_returns_something_else_is_refused() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    server.send(confirmed("b"));
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([changed(), ready('I')]);
    assert!(server.is_parked());
    // What a driver does then works at once.
    client.send([close("mine"), parse("mine", "select"), describe("mine"), sync()]);
    server.expect([parse("weir_2", "select"), describe("weir_2"), sync()]);
    server.send([parsed(), parameters(), columns("b"), ready('I')]);
    client.expect([closed(), parsed(), parameters(), columns("b"), ready('I')]);
}

#[test]
fn whatever_the_pieces_in_which_it_comes() {
    for chunk in 1..40 {
        let (rig, client, _first) = moved();
        rig.set_chunk(chunk);
        client.send(use_it());
        let server = second(&rig);
        server.send(confirmed("b"));
        server.expect([sync()]);
        server.send([ready('I')]);
        client.expect([changed(), ready('I')]);
        assert!(server.is_parked());
    }
}

#[test]
fn what_cannot_be_prepared_any_more_gives_postgresqls_own_error() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    let gone = || error("42P01", "relation \"t\" does not exist");
    server.send([closed(), gone(), ready('I')]);
    server.expect([close("weir_1"), parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
    server.send([closed(), gone(), ready('I')]);
    client.expect([gone(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn who_was_never_told_need_not_be() {
    let rig = Rig::of_size(2);
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), sync()]);
    first.send([parsed(), ready('I')]);
    client.take();
    let other = rig.client();
    other.send([query("alter")]);
    first.send([complete("ALTER TABLE"), ready('T')]);
    client.send(use_it());
    let server = rig.server(1);
    server.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
}

#[test]
fn within_a_transaction_it_is_taken_as_it_is() {
    let (rig, client, _first) = moved();
    client.send([query("begin")]);
    let server = rig.server(1);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    client.send(use_it());
    server.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_a_clean_server() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    client.leave();
    server.send(confirmed("a"));
    assert!(server.is_parked());
}

#[test]
fn if_the_server_dies_another_one_is_asked_and_only_once() {
    let (rig, client, first) = moved();
    client.send(use_it());
    let server = second(&rig);
    server.die();
    let third = rig.server(2);
    third.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
    third.die();
    client.expect_lost();
    drop(first);
}
