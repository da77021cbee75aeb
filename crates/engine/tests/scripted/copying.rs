//! A Sync in a copy that fails. The server ignores it in copy-in mode, and answers it behind the
//! error. Weir finds out which of them it was before it sends anything else.

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// Weir asks how many Syncs are answered.
fn question() -> [Message; 3] {
    [sync(), close_portal("weir_count"), sync()]
}

fn fails() -> Message {
    error("23505", "duplicate key")
}

/// One client, which copies by a batch without a Sync.
fn copying() -> (Rig, Client, Server) {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("", "copy"), bind(""), execute(), flush()]);
    server.take();
    server.send([parsed(), bound(), copy_in()]);
    client.expect([parsed(), bound(), copy_in()]);
    (rig, client, server)
}

/// The client goes on as on a direct connection: the server runs the Query.
fn runs(client: &Client, server: &Server) {
    client.send([query("one")]);
    server.answers("one");
    client.expect([done("OK")]);
    assert!(server.is_parked());
}

/// The server discards the Query, and answers the Sync.
fn skips(client: &Client, server: &Server) {
    client.send([query("one")]);
    server.expect([]);
    client.send([sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([ready('I')]);
    assert!(server.is_parked());
}

#[test]
pub(crate) fn the_server_has_read_the_sync_behind_the_error() {
    for end in [vec![], vec![copy_done()], vec![copy_fail("no more")], vec![copy_data("2\n")]] {
        let (_rig, client, server) = copying();
        client.send([copy_data("1\n"), sync(), copy_data("2\n")]);
        server.expect([copy_data("1\n"), sync(), copy_data("2\n")]);
        server.send([fails()]);
        server.expect(question());
        client.send(end.clone());
        server.send([ready('I'), ready('I'), closed(), ready('I')]);
        client.expect([fails(), ready('I')]);
        server.expect([]);
        runs(&client, &server);
    }
}

#[test]
pub(crate) fn the_server_has_ignored_it() {
    for end in [vec![], vec![copy_done()], vec![copy_fail("no more")], vec![copy_data("2\n")]] {
        let (_rig, client, server) = copying();
        client.send([sync(), copy_data("1\n")]);
        server.send([fails()]);
        server.expect([sync(), copy_data("1\n")].into_iter().chain(question()));
        client.send(end.clone());
        server.send([ready('I'), closed(), ready('I')]);
        client.expect([fails()]);
        skips(&client, &server);
    }
}

#[test]
fn the_copy_is_ended_before_the_error_arrives() {
    for end in [copy_done(), copy_fail("no more")] {
        let (_rig, client, server) = copying();
        client.send([copy_data("1\n"), sync(), end.clone(), query("one")]);
        server.expect([copy_data("1\n"), sync(), end, flush()]);
        server.send([fails(), ready('I')]);
        server.expect(question());
        server.send([ready('I'), closed(), ready('I')]);
        client.expect([fails(), ready('I')]);
        server.expect([query("one")]);
        server.send([done("OK")]);
        client.expect([done("OK")]);
        assert!(server.is_parked());
    }
}

#[test]
fn the_copy_succeeds() {
    let (_rig, client, server) = copying();
    client.send([sync(), copy_data("1\n"), copy_done(), query("one")]);
    server.expect([sync(), copy_data("1\n"), copy_done(), flush()]);
    server.send([complete("COPY 1")]);
    client.expect([complete("COPY 1")]);
    runs_held(&client, &server);
}

/// The Query that was held is sent.
fn runs_held(client: &Client, server: &Server) {
    server.answers("one");
    client.expect([done("OK")]);
    assert!(server.is_parked());
}

#[test]
fn an_error_in_the_middle_of_a_message() {
    let (_rig, client, server) = copying();
    client.send([sync()]);
    let row = copy_data("1234567890\n");
    let (head, rest) = row.split_at(8);
    client.send([head.to_vec()]);
    server.send([fails(), ready('I')]);
    client.expect([fails(), ready('I')]);
    client.send([rest.to_vec()]);
    server.expect([sync(), row.clone()].into_iter().chain(question()));
    server.send([ready('I'), closed(), ready('I')]);
    runs(&client, &server);
}

/// A client that does not end its copy. The server runs the Query if the copy has failed before.
#[test]
fn a_request_in_the_copy() {
    let (_rig, client, server) = copying();
    client.send([copy_data("1\n"), sync(), query("one")]);
    let end = copy_fail("unexpected message during COPY from stdin");
    server.expect([copy_data("1\n"), sync(), end, flush()]);
    server.send([fails(), ready('I')]);
    server.expect(question());
    server.send([ready('I'), closed(), ready('I')]);
    client.expect([fails(), ready('I')]);
    runs_held(&client, &server);
}

#[test]
fn data_without_a_look_at_the_answers() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("", "copy"), bind(""), execute(), sync(), copy_data("1\n"), copy_done()]);
    client.send([query("one")]);
    server.expect([parse("", "copy"), bind(""), execute(), sync()]);
    server.send([parsed(), bound(), copy_in()]);
    server.expect([copy_data("1\n"), copy_done(), flush()]);
    server.send([complete("COPY 1")]);
    client.expect([parsed(), bound(), copy_in(), complete("COPY 1")]);
    runs_held(&client, &server);
}

#[test]
fn a_simple_query() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("copy")]);
    server.take();
    server.send([copy_in()]);
    client.send([copy_data("1\n"), sync(), sync()]);
    server.take();
    server.send([fails(), ready('I')]);
    server.expect(question());
    server.send([ready('I'), ready('I'), closed(), ready('I')]);
    client.expect([copy_in(), fails(), ready('I'), ready('I')]);
    runs(&client, &server);
}

/// The client has all its answers and sends nothing more.
#[test]
fn the_server_is_given_back_after_the_question() {
    let (rig, client, server) = copying();
    client.send([copy_data("1\n"), sync()]);
    server.take();
    server.send([fails(), ready('I')]);
    server.expect(question());
    server.send([ready('I'), closed(), ready('I')]);
    client.expect([fails(), ready('I')]);
    assert!(server.is_parked());
    let other = rig.client();
    other.send([query("other")]);
    server.answers("other");
    other.expect([done("OK")]);
}

#[test]
fn in_a_transaction() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.send([parse("", "copy"), bind(""), execute(), flush()]);
    server.take();
    server.send([parsed(), bound(), copy_in()]);
    client.take();
    client.send([sync(), copy_data("1\n"), copy_done()]);
    server.take();
    server.send([fails()]);
    server.expect(question());
    server.send([ready('E'), ready('E'), closed(), ready('E')]);
    client.expect([fails(), ready('E')]);
    client.send([query("rollback")]);
    server.expect([query("rollback")]);
    server.send([done("ROLLBACK")]);
    client.expect([done("ROLLBACK")]);
    assert!(server.is_parked());
}

#[test]
fn the_client_leaves_meanwhile() {
    let (_rig, client, server) = copying();
    client.send([sync(), copy_data("1\n"), copy_done()]);
    server.send([fails()]);
    client.leave();
    server.send([ready('I'), closed(), ready('I')]);
    assert!(!server.is_open());
}

/// Weir answers the Close of a name that does not exist, so the server does not read it in the copy.
#[test]
pub(crate) fn a_close_that_needs_no_server_is_not_part_of_the_copy() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("", "copy"), bind(""), execute(), close("x"), sync()]);
    server.expect([parse("", "copy"), bind(""), execute(), sync()]);
    server.send([parsed(), bound(), copy_in()]);
    client.expect([parsed(), bound(), copy_in()]);
    client.send([copy_data("1\n"), copy_done()]);
    server.expect([copy_data("1\n"), copy_done(), flush()]);
    server.send([complete("COPY 1")]);
    client.expect([complete("COPY 1"), closed()]);
    client.send([sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([ready('I')]);
    runs(&client, &server);
}
