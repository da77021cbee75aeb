//! A Parse of a name that an earlier batch of the same pipeline may have given. The Parse waits for
//! the answer to that batch.

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// One server. One pipeline parses `a` with a text that may be wrong, and then with another text.
fn pipeline(chunk: Option<usize>) -> (Rig, Client, Server) {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    chunk.into_iter().for_each(|chunk| rig.set_chunk(chunk));
    client.send([parse("a", "selec"), sync(), parse("a", "select 2"), bind("a"), sync()]);
    server.expect([parse("weir_1", "selec"), sync()]);
    (rig, client, server)
}

fn failed() -> Message {
    error("42601", "syntax error at or near \"selec\"")
}

/// The name now stands for the second text.
fn goes_on(client: &Client, server: &Server) {
    server.expect([parse("weir_2", "select 2"), bind("weir_2"), sync()]);
    server.send([parsed(), bound(), ready('I')]);
    client.expect([parsed(), bound(), ready('I')]);
    assert!(server.is_parked());
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_2"), sync()]);
}

#[test]
fn the_name_is_free_if_the_first_has_failed() {
    for chunk in [None, Some(1), Some(7), Some(20)] {
        let (_rig, client, server) = pipeline(chunk);
        server.send([failed(), ready('I')]);
        client.expect([failed(), ready('I')]);
        goes_on(&client, &server);
    }
}

#[test]
fn the_name_is_taken_if_it_has_not() {
    let (_rig, client, server) = pipeline(None);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    server.expect([parse("weir_1", "select 2"), bind("weir_1"), sync()]);
    server.send([error("42P05", "prepared statement \"weir_1\" already exists"), ready('I')]);
    client.expect([error("42P05", "prepared statement \"a\" already exists"), ready('I')]);
    assert!(server.is_parked());
}

/// While Weir is suspended, it reads no server, so waiting for one would have no end.
#[test]
fn a_client_that_waits_for_a_name_counts_as_idle() {
    let (_rig, client, server) = pipeline(None);
    assert!(client.is_at_rest());
    server.send([failed(), ready('I')]);
    client.expect([failed(), ready('I')]);
    goes_on(&client, &server);
    client.send([query("half a message")[..7].to_vec()]);
    assert!(!client.is_at_rest());
}

/// There is no Flush, since there is nothing to wait for.
#[test]
fn earlier_messages_of_its_own_batch_are_not_waited_for() {
    let (rig, server) = (Rig::of_size(1), 0);
    let (client, server) = (rig.client(), rig.server(server));
    client.send([parse("a", "selec"), sync(), parse("b", "select 3"), parse("a", "select 2")]);
    client.send([sync()]);
    server.expect([parse("weir_1", "selec"), sync(), parse("weir_2", "select 3")]);
    server.send([failed(), ready('I')]);
    client.expect([failed(), ready('I')]);
    server.expect([parse("weir_3", "select 2"), sync()]);
    server.send([parsed(), parsed(), ready('I')]);
    client.expect([parsed(), parsed(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn messages_after_it_wait_as_well() {
    let (_rig, client, server) = pipeline(None);
    client.send([query("commit")]);
    server.expect([]);
    server.send([failed(), ready('T')]);
    client.expect([failed(), ready('T')]);
    server.expect([parse("weir_2", "select 2"), bind("weir_2"), sync(), query("commit")]);
    server.send([parsed(), bound(), ready('T'), done("COMMIT")]);
    client.expect([parsed(), bound(), ready('T'), done("COMMIT")]);
    assert!(server.is_parked());
}

#[test]
fn in_the_batch_that_has_given_it_the_name_is_taken() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), parse("a", "select 2"), sync()]);
    server.expect([parse("weir_1", "select 1"), parse("weir_1", "select 2"), sync()]);
}

#[test]
fn a_client_that_loses_its_server_meanwhile_is_told() {
    let (_rig, client, server) = pipeline(None);
    server.send([failed()]);
    client.expect([failed()]);
    server.die();
    client.expect_lost();
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_no_trace() {
    let (rig, client, server) = pipeline(None);
    client.leave();
    server.send([failed(), ready('I')]);
    assert_eq!((rig.clients_in_tables(), rig.clients_counted()), (0, 0));
}
