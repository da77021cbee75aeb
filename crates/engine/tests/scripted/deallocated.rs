//! Auto mode: DEALLOCATE of a protocol statement within a transaction.

use config::PoolMode;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// A client that has prepared `a` and is in a transaction.
fn prepared() -> (Rig, Client, Server) {
    let rig = Rig::new(|config| config.global.pool_mode = PoolMode::Auto);
    let client = rig.client();
    let server = rig.server(0);
    client.send([query("BEGIN"), parse("a", "SELECT 1"), sync()]);
    server.expect([query("BEGIN"), parse("weir_1", "SELECT 1"), sync()]);
    server.send([complete("BEGIN"), ready('T'), parsed(), ready('T')]);
    client.expect([complete("BEGIN"), ready('T'), parsed(), ready('T')]);
    (rig, client, server)
}

/// Runs the text. The answer comes after those to the lent statements.
#[track_caller]
fn runs(client: &Client, server: &Server, request: &[Message], answer: &[Message]) {
    client.send(request.to_vec());
    let lent = show(&server.take());
    assert!(lent[0].starts_with("P a\\x00DO $weir$"), "{lent:?}");
    server.send([parsed(), ready('T')]);
    server.send(answer.to_vec());
    client.expect(answer.to_vec());
}

/// Parses `a` again. The server says whether the name is free.
#[track_caller]
fn is_free(client: &Client, server: &Server) -> bool {
    client.send([parse("a", "SELECT 2"), sync()]);
    let sent = server.take();
    let name =
        if sent == [parse("weir_2", "SELECT 2"), sync()].concat() { "weir_2" } else { "weir_1" };
    assert_eq!(show(&sent), show(&[parse(name, "SELECT 2"), sync()].concat()));
    name == "weir_2"
}

#[test]
fn a_name_is_free_when_its_statement_has_been_deallocated() {
    let (_rig, client, server) = prepared();
    let done = [complete("DEALLOCATE"), ready('T')];
    runs(&client, &server, &[query("DEALLOCATE a")], &done);
    assert!(is_free(&client, &server));
}

#[test]
fn a_name_is_free_when_its_statement_has_been_deallocated_by_the_protocol() {
    let (_rig, client, server) = prepared();
    client.send([parse("", "DEALLOCATE a"), bind(""), execute(), sync()]);
    let sent = show(&server.take()).join("");
    assert!(sent.contains("P a\\x00DO $weir$"), "{sent}");
    server.send([parsed(), ready('T'), parsed(), bound(), complete("DEALLOCATE"), ready('T')]);
    client.expect([parsed(), bound(), complete("DEALLOCATE"), ready('T')]);
    assert!(is_free(&client, &server));
}

#[test]
fn a_name_is_not_free_when_that_has_failed_or_is_not_certain() {
    let failed = [error("22012", "division by zero"), ready('T')];
    let done = [complete("SELECT 1"), complete("DEALLOCATE"), ready('T')];
    for (text, answer) in
        [("SELECT 1/0; DEALLOCATE a", &failed[..]), ("SELECT '\\'; DEALLOCATE a; --'", &done)]
    {
        let (_rig, client, server) = prepared();
        client.send([query(text)]);
        server.take();
        server.send([parsed(), ready('T')]);
        server.send(answer.to_vec());
        client.expect(answer.to_vec());
        assert!(!is_free(&client, &server), "{text}");
    }
}

/// Weir remembers 1,024 names.
#[test]
fn a_name_is_not_free_beyond_the_limit() {
    for (before, expected) in [(1_023, true), (1_024, false)] {
        let (_rig, client, server) = prepared();
        let text = "DEALLOCATE b;".repeat(before) + "DEALLOCATE a";
        let tags = vec![complete("DEALLOCATE"); before + 1];
        let answer: Vec<_> = tags.into_iter().chain([ready('T')]).collect();
        runs(&client, &server, &[query(&text)], &answer);
        assert_eq!(is_free(&client, &server), expected, "after {before} others");
    }
}

/// Two Queries in one write. Weir does not examine the second one again in between.
#[test]
fn a_placeholder_lent_to_a_failed_prepare_is_not_executed() {
    let rig = Rig::new(|config| config.global.pool_mode = PoolMode::Auto);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "SELECT 1"), sync()]);
    server.expect([parse("weir_1", "SELECT 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    client.send([query("PREPARE a AS SELECT 2"), query("EXECUTE a")]);
    let sent = show(&server.take()).join("|");
    let (_, behind) = sent.split_once("PREPARE a").expect("it is run");
    assert!(behind.contains("P a\\x00SELECT 1"), "{sent}");
    assert!(behind.find("P a\\x00SELECT 1") < behind.find("EXECUTE a"), "{sent}");
}
