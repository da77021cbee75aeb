//! A node that does not answer, whose connections stay open.

use std::sync::Arc;

use engine::ids::NodeId;
use engine::routing::Place;
use engine::routing::readers::Readers;
use engine::switches::{Fitness, Switches};

use crate::clusters::{SILENT, clustered, tell};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn rig() -> Rig {
    let rig = Rig::new(clustered);
    rig.client().leave();
    tell(&rig, Some("10.0.0.1"), None);
    rig
}

/// Sends the text, which the server gets.
fn asks(rig: &Rig, text: &str) -> (Client, Server) {
    let client = rig.client();
    client.send([query(text)]);
    let server = rig.server(rig.servers() - 1);
    server.expect([query(text)]);
    (client, server)
}

#[track_caller]
fn is_unknown(client: &Client) {
    let told = show(&client.take()).concat();
    assert!(told.contains("08007") && told.contains("the node does not answer"), "{told}");
    assert!(client.is_open());
}

#[test]
pub(crate) fn a_client_of_a_silent_primary_is_told_in_time() {
    let rig = rig();
    let (client, server) = asks(&rig, "insert");
    tell(&rig, Some("10.0.0.1"), Some(SILENT));
    rig.wait(29);
    client.expect([]);
    rig.wait(2);
    is_unknown(&client);
    assert!(!server.is_open());
}

#[test]
pub(crate) fn a_primary_that_answers_its_client_is_not_silent() {
    let rig = rig();
    let (client, server) = asks(&rig, "select");
    tell(&rig, Some("10.0.0.1"), Some(SILENT));
    for _ in 0..3 {
        rig.wait(20);
        server.send([row("1")]);
        client.expect([row("1")]);
    }
    rig.wait(31);
    is_unknown(&client);
}

#[test]
pub(crate) fn a_primary_that_is_lost_for_another_reason_keeps_its_client() {
    let rig = rig();
    let (client, server) = asks(&rig, "insert");
    tell(&rig, Some("10.0.0.1"), Some("primary a is lost: PostgreSQL starts or shuts down"));
    rig.wait(100);
    server.send([done("OK")]);
    client.expect([done("OK")]);
}

/// PostgreSQL does nothing for a lone BEGIN that could be lost.
#[test]
pub(crate) fn a_request_that_can_move_waits_with_the_others() {
    let rig = rig();
    let (client, server) = asks(&rig, "BEGIN");
    tell(&rig, Some("10.0.0.1"), Some(SILENT));
    rig.wait(3);
    assert!(!server.is_open());
    client.expect([]);
    tell(&rig, Some("10.0.0.2"), None);
    let next = rig.server(rig.servers() - 1);
    next.expect([query("BEGIN")]);
    next.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
}

#[test]
pub(crate) fn a_read_leaves_a_silent_standby() {
    let router = |request: &[u8]| match request.windows(6).any(|part| part == b"select") {
        true => Place::Reader(NodeId(0)),
        false => Place::Writer,
    };
    let rig = Rig::new(clustered).routed(router);
    let (client, standby) = asks(&rig, "select");
    let readers = Arc::new(Readers::new([("a".to_owned(), 1)]));
    let mut switches = Switches::default();
    switches.set_readers("main", readers.clone());
    switches.set_fitness("main", &readers, vec![Fitness::Silent]);
    rig.order_at(1, |pool| switches.apply(pool, true));
    rig.wait(1);
    client.expect([]);
    rig.wait(2);
    assert!(!standby.is_open());
    let primary = rig.server(0);
    primary.answers("select");
    client.expect([done("OK")]);
}
