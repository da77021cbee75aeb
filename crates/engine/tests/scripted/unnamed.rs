//! The unnamed statement: each client has one, and each server has one.

use config::{PoolMode, Unsupported};

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// Two clients of one server.
fn three() -> (Client, Client, Server) {
    let rig = Rig::of_size(1);
    (rig.client(), rig.client(), rig.server(0))
}

fn parses(client: &Client, server: &Server, sql: &str) {
    client.send([parse("", sql), sync()]);
    server.expect([parse("", sql), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
}

#[test]
fn it_is_there_in_the_next_transaction() {
    let (client, _, server) = three();
    parses(&client, &server, "select 1");
    client.send([bind(""), execute(), sync()]);
    server.expect([bind(""), execute(), sync()]);
}

#[test]
fn it_is_parsed_again_where_another_clients_is() {
    let (client, other, server) = three();
    parses(&client, &server, "select 1");
    parses(&other, &server, "select 2");
    client.send([bind(""), execute(), sync()]);
    server.expect([parse("", "select 1"), bind(""), execute(), sync()]);
    server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), complete("SELECT 1"), ready('I')]);
    client.send([describe(""), sync()]);
    server.expect([describe(""), sync()]);
}

#[test]
fn it_is_parsed_again_on_another_server() {
    let rig = Rig::of_size(2);
    let (client, server) = (rig.client(), rig.server(0));
    parses(&client, &server, "select 1");
    rig.client().send([query("begin")]);
    client.send([describe(""), sync()]);
    rig.server(1).expect([parse("", "select 1"), describe(""), sync()]);
}

#[test]
fn another_clients_is_never_bound() {
    let (client, other, server) = three();
    parses(&other, &server, "select secret");
    client.send([bind(""), execute(), sync()]);
    server.expect([close(""), bind(""), execute(), sync()]);
    let missing = error("26000", "unnamed prepared statement does not exist");
    server.send([closed(), missing.clone(), ready('I')]);
    client.expect([missing, ready('I')]);
}

#[test]
fn a_simple_query_destroys_it() {
    let (client, _, server) = three();
    parses(&client, &server, "select 1");
    client.send([query("select 2")]);
    server.answers("select 2");
    client.send([bind(""), sync()]);
    server.expect([close(""), bind(""), sync()]);
}

#[test]
fn a_query_of_ours_destroys_the_servers() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    parses(&client, &server, "select 1");
    let other = rig.client_with(0, &[("TimeZone", "Asia/Tokyo")]);
    other.send([sync()]);
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    server.send([status("TimeZone", "Asia/Tokyo"), done("SET")]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.send([bind(""), sync()]);
    server.answers("RESET TimeZone;");
    server.expect([parse("", "select 1"), bind(""), sync()]);
}

#[test]
fn one_that_failed_is_not_there() {
    let (client, _, server) = three();
    client.send([parse("", "selec"), sync()]);
    server.take();
    server.send([error("42601", "no"), ready('I')]);
    client.send([bind(""), sync()]);
    server.expect([close(""), bind(""), sync()]);
}

#[test]
fn a_long_one_is_not_kept() {
    let (client, other, server) = three();
    let long = "x".repeat(20_000);
    parses(&client, &server, &long);
    client.send([bind(""), sync()]);
    server.expect([bind(""), sync()]);
    server.send([bound(), ready('I')]);
    parses(&other, &server, "select 2");
    client.send([bind(""), sync()]);
    server.expect([close(""), bind(""), sync()]);
}

#[test]
fn it_is_closed_when_the_client_says_so() {
    let (client, _, server) = three();
    parses(&client, &server, "select 1");
    client.send([close(""), sync()]);
    server.expect([close(""), sync()]);
    server.send([closed(), ready('I')]);
    client.expect([closed(), ready('I')]);
    client.send([bind(""), sync()]);
    server.expect([close(""), bind(""), sync()]);
}

#[test]
fn a_parse_that_failed_does_not_undo_the_one_sent_after_it() {
    let (client, _, server) = three();
    client.send([parse("", "bad"), sync(), parse("", "select 1")]);
    server.expect([parse("", "bad"), sync(), parse("", "select 1")]);
    server.send([error("42601", "no"), ready('I')]);
    client.expect([error("42601", "no"), ready('I')]);
    client.send([bind(""), execute(), sync()]);
    server.expect([bind(""), execute(), sync()]);
}

#[test]
fn a_skipped_parse_does_not_undo_the_one_of_the_next_batch() {
    let (client, _, server) = three();
    let failing = [parse("", "select 1/0"), bind(""), execute(), parse("", "skipped"), sync()];
    client.send(failing);
    client.send([parse("", "select 2")]);
    server.take();
    server.send([parsed(), bound(), error("22012", "no"), ready('I')]);
    client.expect([parsed(), bound(), error("22012", "no"), ready('I')]);
    client.send([bind(""), execute(), sync()]);
    server.expect([bind(""), execute(), sync()]);
}

#[test]
fn two_failed_batches_restore_the_state_before_both() {
    for skipped in [parse("", "skipped"), query("skipped"), close("")] {
        let (client, other, server) = three();
        parses(&client, &server, "select 1");
        client.send([execute(), skipped, sync()]);
        client.send([execute(), parse("", "skipped, too"), sync()]);
        server.take();
        server.send([error("34000", "no"), ready('I'), error("34000", "no"), ready('I')]);
        parses(&other, &server, "select 2");
        client.take();
        client.send([bind(""), execute(), sync()]);
        server.expect([parse("", "select 1"), bind(""), execute(), sync()]);
    }
}

/// Two clients of one server, in auto mode. Their bytes arrive in pieces.
fn auto() -> (Client, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 1;
    });
    rig.set_chunk(32_000);
    (rig.client(), rig.client(), rig.server(0))
}

#[test]
fn in_auto_mode_a_long_one_is_kept_as_well() {
    // The Parse arrives as a whole or in pieces, depending on its length.
    for length in [20_000, 70_000, 1_000_000] {
        let (client, other, server) = auto();
        let long = format!("SELECT '{}'", "x".repeat(length));
        parses(&client, &server, &long);
        parses(&other, &server, "SELECT 2");
        client.send([bind(""), execute(), sync()]);
        server.expect([parse("", &long), bind(""), execute(), sync()]);
        server.send([parsed(), bound(), done("SELECT 1")]);
        client.expect([bound(), done("SELECT 1")]);
    }
}

#[test]
fn in_auto_mode_too_there_is_one_too_long() {
    let (client, other, server) = auto();
    parses(&client, &server, &format!("SELECT '{}'", "x".repeat(1_100_000)));
    parses(&other, &server, "SELECT 2");
    client.send([bind(""), execute(), sync()]);
    server.expect([close(""), bind(""), execute(), sync()]);
}

#[test]
fn a_refused_text_is_refused_on_a_server_with_another_clients_statement() {
    for sql in ["SELECT lastval()", "SELECT setseed(0.5)", "LOAD 'plpgsql'"] {
        let rig = crate::carried::auto(|config| {
            config.global.auto_unsupported = Unsupported::Error;
        });
        let (client, other, server) = (rig.client(), rig.client(), rig.server(0));
        client.send([parse("", sql), sync()]);
        let sent = server.take();
        let refusal = sent.strip_suffix(&*sync()).expect("a Sync").to_vec();
        let text = String::from_utf8_lossy(&refusal).into_owned();
        assert!(text.contains("'0A000'") && !text.contains(sql), "{text}");
        server.send([parsed(), ready('I')]);
        client.expect([parsed(), ready('I')]);
        parses(&other, &server, "SELECT 2");
        client.send([bind(""), execute(), sync()]);
        server.expect([refusal, bind(""), execute(), sync()]);
    }
}

#[test]
fn a_long_parse_is_kept_after_another_clients_numbers_are_forgotten() {
    let (client, other, server) = auto();
    let long = format!("SELECT '{}'", "x".repeat(70_000));
    other.send([query("UPDATE t SET a = 1")]);
    server.answers("UPDATE t SET a = 1");
    other.take();
    client.send([parse("", &long), sync()]);
    server.expect([query("DISCARD SEQUENCES"), parse("", &long), sync()]);
    server.send([done("DISCARD SEQUENCES"), parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    other.send([parse("", "SELECT 2"), sync()]);
    server.expect([parse("", "SELECT 2"), sync()]);
    server.send([parsed(), ready('I')]);
    client.send([bind(""), execute(), sync()]);
    server.expect([parse("", &long), bind(""), execute(), sync()]);
}

#[test]
fn after_a_void_parse_and_a_void_close_the_unnamed_statement_is_there() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    parses(&client, &server, "select 1");
    let fails = |behind: &Message| [bind("missing"), behind.clone(), sync()].concat();
    let (first, second) = (fails(&parse("", "select 2")), fails(&close("")));
    client.send([first.clone(), second.clone()]);
    server.expect([first, second]);
    let missing = error("26000", "prepared statement \"missing\" does not exist");
    for _ in 0..2 {
        server.send([missing.clone(), ready('I')]);
        client.expect([missing.clone(), ready('I')]);
    }
    client.send([bind(""), execute(), sync()]);
    server.expect([parse("", "select 1"), bind(""), execute(), sync()]);
}

/// Two batches fail. The first was to prepare the client's statement on this server, the second was
/// to replace it. So the statement is not there.
#[test]
fn after_two_void_batches_the_unnamed_statement_is_not_believed_to_be_there() {
    let (client, other, server) = three();
    parses(&client, &server, "select 1");
    parses(&other, &server, "select 2");
    let batch = |behind: Message| [bind("missing"), behind, sync()].concat();
    let again = [bind("missing"), parse("", "select 1"), describe(""), sync()].concat();
    let (describes, replaces) = (batch(describe("")), batch(parse("", "select 3")));
    client.send([describes, replaces.clone(), bind(""), execute(), sync()]);
    server.expect([again, replaces]);
    let missing = error("26000", "prepared statement \"missing\" does not exist");
    for _ in 0..2 {
        server.send([missing.clone(), ready('I')]);
        client.expect([missing.clone(), ready('I')]);
    }
    server.expect([parse("", "select 1"), bind(""), execute(), sync()]);
}
