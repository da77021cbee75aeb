//! A reload of the configuration while clients work.

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn prepares(client: &Client, server: &Server, name: &str) {
    client.send([parse(name, name), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
}

#[test]
fn fewer_statements_are_allowed() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    for name in ["a", "b", "c"] {
        prepares(&client, &server, name);
    }
    rig.reload(|config| config.global.max_prepared_statements = 2);
    client.send([parse("d", "d"), sync()]);
    server.expect([close("weir_1"), close("weir_2"), parse("weir_4", "d"), sync()]);
}

#[test]
fn a_client_keeps_its_statements_when_names_become_the_servers() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    prepares(&client, &server, "a");
    rig.reload(|config| config.global.max_prepared_statements = 0);
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([bound(), ready('I')]);
    let other = rig.client();
    other.send([parse("b", "b"), sync()]);
    server.expect([parse("b", "b"), sync()]);
}

#[test]
fn a_batch_is_not_torn() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "a")]);
    server.expect([parse("weir_1", "a")]);
    rig.reload(|config| config.global.max_prepared_statements = 0);
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
}

#[test]
fn a_smaller_pool_lets_servers_in_use_come_to_their_end() {
    let rig = Rig::of_size(2);
    let (one, two) = (rig.client(), rig.client());
    one.send([query("begin")]);
    two.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    rig.server(1).send([complete("BEGIN"), ready('T')]);
    rig.reload(|config| config.global.default_pool_size = 1);
    one.expect([complete("BEGIN"), ready('T')]);
    one.send([query("commit")]);
    rig.server(0).send([complete("COMMIT"), ready('I')]);
    one.expect([complete("COMMIT"), ready('I')]);
    assert!(!rig.server(0).is_open());
    assert!(rig.server(1).is_open());
}
