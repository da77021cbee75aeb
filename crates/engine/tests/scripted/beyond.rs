//! Beyond limits of docs/auto-mode.md ("Limits"). A client is closed, or a statement is not prepared
//! again. Other clients go on.

use crate::messages::*;
use crate::rig::{Rig, Server};

/// Another client is served by this server.
#[track_caller]
fn others_go_on(rig: &Rig, server: &Server) {
    let other = rig.client();
    other.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    other.expect([done("OK")]);
}

#[test]
fn a_message_of_long_names_closes_its_client() {
    for (message, why) in [
        (bind as fn(&str) -> Message, "broken Bind packet"),
        (describe, "broken Describe packet"),
        (close, "broken Close packet"),
    ] {
        let rig = Rig::transaction();
        rig.set_chunk(16_384);
        let client = rig.client();
        client.send([message(&"n".repeat(60_000)), sync()]);
        assert!(client.is_open(), "{why}");
        assert!(!rig.server(0).take().is_empty(), "{why}");
        let client = rig.client();
        client.send([message(&"n".repeat(100_000)), sync()]);
        client.expect_fatal(why);
        others_go_on(&rig, &rig.server(1));
    }
}

#[test]
fn a_statement_too_long_to_prepare_again_closes_its_client() {
    let rig = Rig::of_size(2);
    let (client, server) = (rig.client(), rig.server(0));
    let text = "x".repeat((64 << 20) + 100);
    client.send([parse("long", &text)]);
    assert_eq!(server.take().len(), parse("weir_1", &text).len());
    // Weir reads on when so much is answered.
    server.send([parsed()]);
    client.send([bind("long"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([bound(), ready('I')]);
    client.expect([parsed(), bound(), ready('I')]);
    let other = rig.client();
    other.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.send([bind("long"), sync()]);
    client.expect_fatal("statement too long to prepare again");
    other.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([done("COMMIT")]);
    other.expect([complete("BEGIN"), ready('T'), done("COMMIT")]);
    others_go_on(&rig, &server);
}

#[test]
fn an_error_too_long_to_read_prepares_nothing_again() {
    for (len, is_read) in [(0, true), (1 << 20, false)] {
        let rig = Rig::of_size(1);
        rig.set_chunk(16_384);
        let (client, server) = (rig.client(), rig.server(0));
        client.send([parse("mine", "select 1"), sync()]);
        server.expect([parse("weir_1", "select 1"), sync()]);
        server.send([parsed(), ready('I')]);
        client.expect([parsed(), ready('I')]);
        client.send([bind("mine"), execute(), sync()]);
        server.expect([bind("weir_1"), execute(), sync()]);
        let lost = |name| error("26000", &format!("\"{name}\" does not exist{}", "!".repeat(len)));
        server.send([lost("weir_1"), ready('I')]);
        if is_read {
            let again = [close("weir_1"), parse("weir_1", "select 1"), describe("weir_1"), sync()];
            server.expect(again);
            continue;
        }
        client.expect([lost("weir_1"), ready('I')]);
        client.send([bind("mine"), execute(), sync()]);
        server.expect([bind("weir_1"), execute(), sync()]);
    }
}
