//! Requests that are sent again: a lone BEGIN, a batch that only prepares and describes, and a
//! request of which the server has received no byte. No other request is.

use crate::carried::auto;
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// Pool size 1, transaction mode.
fn pair() -> (Rig, Client, Server) {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    (rig, client, server)
}

/// The server dies before it answers the request. The next server gets the whole request.
#[track_caller]
fn is_repeated<const N: usize>(request: [Message; N]) -> (Rig, Client, Server) {
    let (rig, client, server) = pair();
    client.send(request.clone());
    server.expect(request.clone());
    server.die();
    client.expect([]);
    let second = rig.server(1);
    second.expect(request);
    (rig, client, second)
}

/// The server dies before it answers the request. The client gets an error.
#[track_caller]
fn is_reported<const N: usize>(request: [Message; N]) {
    let (_rig, client, server) = pair();
    client.send(request);
    server.die();
    client.expect_lost();
}

#[test]
fn a_lone_begin() {
    let (_rig, client, second) = is_repeated([query("BEGIN")]);
    second.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    client.send([query("select 1")]);
    second.expect([query("select 1")]);
}

/// The client has got half a message of this server. Another server's answer cannot follow.
#[test]
pub(crate) fn no_request_in_the_middle_of_a_reply() {
    let (_rig, client, server) = pair();
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    let notice = notice("half");
    let (half, _) = notice.split_at(notice.len() - 2);
    server.send([[done("OK"), half.to_vec()].concat()]);
    client.expect([[done("OK"), half.to_vec()].concat()]);
    server.break_silently();
    client.send([query("SELECT 2")]);
    server.die();
    assert!(!client.is_open());
}

/// The server has sent half a message after the transaction, so its traces are not known yet. No
/// other server has them.
#[test]
fn no_request_while_the_last_transaction_has_no_verdict() {
    let rig = auto(|config| config.global.default_pool_size = 1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("SET a.b = 'mine'")]);
    server.expect([query("SET a.b = 'mine'")]);
    server.send([complete("SET"), ready('I'), notice("half")[..3].to_vec()]);
    client.expect([complete("SET"), ready('I')]);
    client.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.die();
    client.expect_lost();
}

#[test]
fn a_batch_that_describes() {
    let (_rig, client, second) = is_repeated([parse("", "select 1"), describe(""), sync()]);
    second.send([parsed(), no_data(), ready('I')]);
    client.expect([parsed(), no_data(), ready('I')]);
}

#[test]
fn a_batch_that_prepares_keeps_the_clients_name() {
    let (rig, client, server) = pair();
    client.send([parse("a", "select 1"), sync()]);
    server.die();
    let second = rig.server(1);
    // No client has the first statement any more.
    second.expect([parse("weir_2", "select 1"), sync()]);
    second.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    client.send([bind("a"), execute(), sync()]);
    second.expect([bind("weir_2"), execute(), sync()]);
}

#[test]
fn a_parse_that_needed_no_server_keeps_its_answer() {
    let (rig, client, server) = pair();
    client.send([parse("a", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    client.send([parse("b", "select 1"), sync()]);
    server.die();
    let second = rig.server(1);
    second.expect([sync()]);
    second.send([ready('I')]);
    client.expect([parsed(), ready('I')]);
    client.send([bind("b"), sync()]);
    second.expect([parse("weir_1", "select 1"), bind("weir_1"), sync()]);
}

#[test]
fn an_unknown_end_is_kept_back_from_a_client_that_goes_on() {
    let (rig, client, server) = pair();
    client.send([query("begin")]);
    server.send([fatal("57P01", "terminating connection due to administrator command")]);
    assert!(!server.is_open());
    client.expect([]);
    rig.server(1).expect([query("begin")]);
}

#[test]
fn a_known_end_is_told_to_a_client_that_cannot_go_on() {
    let farewell = || fatal("57P01", "terminating connection due to administrator command");
    let rig = Rig::session();
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("begin")]);
    server.send([farewell()]);
    client.expect([farewell()]);
    // A request that has already moved once does not move again.
    let (_rig, client, second) = is_repeated([query("begin")]);
    second.send([farewell()]);
    client.expect([farewell()]);
}

#[test]
fn only_once() {
    let (rig, client, second) = is_repeated([query("begin")]);
    second.die();
    client.expect_lost();
    assert_eq!(rig.servers(), 2);
}

#[test]
fn once_for_each_request() {
    let (rig, client, second) = is_repeated([query("begin")]);
    second.send([complete("BEGIN"), ready('T')]);
    client.send([query("commit")]);
    second.send([done("COMMIT")]);
    client.take();
    client.send([query("begin")]);
    second.die();
    rig.server(2).expect([query("begin")]);
    assert!(client.is_open());
}

#[test]
fn never_a_request_that_may_have_had_an_effect() {
    is_reported([query("insert into t values (1)")]);
    is_reported([query("begin; insert into t values (1)")]);
    is_reported([query("begin"), query("insert into t values (1)")]);
    is_reported([parse("", "insert into t values (1)"), bind(""), execute(), sync()]);
    is_reported([parse("", "select 1"), bind(""), sync()]);
    is_reported([function_call()]);
}

#[test]
fn never_a_request_that_was_answered_in_part() {
    let (_rig, client, server) = pair();
    client.send([parse("", "select 1"), describe(""), sync()]);
    server.send([parsed()]);
    server.die();
    client.expect([parsed(), fatal("08006", engine::server::CloseReason::Lost.text())]);

    let (_rig, client, server) = pair();
    client.send([query("begin")]);
    server.send([complete("BEGIN")]);
    server.die();
    client.expect([complete("BEGIN"), fatal("08006", engine::server::CloseReason::Lost.text())]);
}

#[test]
fn never_in_a_transaction() {
    let (_rig, client, server) = pair();
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    client.send([parse("", "select 1"), describe(""), sync()]);
    server.die();
    client.expect_lost();
}

#[test]
fn never_in_a_session_which_is_its_server() {
    let rig = Rig::session();
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("begin")]);
    server.die();
    client.expect_lost();
}

#[test]
fn a_begin_with_other_messages_is_no_lone_begin() {
    let (_rig, client, server) = pair();
    client.send([query("begin")]);
    client.send([query("insert into t values (1)")]);
    server.die();
    client.expect_lost();
}

#[test]
fn the_rest_of_a_message_follows_its_beginning_to_the_next_server() {
    let (rig, client, server) = pair();
    let whole: Vec<u8> = [parse("", "select 1"), describe(""), sync()].concat();
    client.send([whole[..8].to_vec()]);
    client.send([whole[8..whole.len() - 3].to_vec()]);
    server.die();
    let second = rig.server(1);
    client.send([whole[whole.len() - 3..].to_vec()]);
    second.expect([whole]);
}

#[test]
fn any_request_of_which_the_server_has_no_byte() {
    let (rig, client, server) = pair();
    server.break_silently();
    client.send([query("insert into t values (1)")]);
    rig.server(1).answers("insert into t values (1)");
    client.expect([done("OK")]);
}

#[test]
fn replies_that_needed_no_server_are_not_repeated() {
    let (rig, client, server) = pair();
    client.send([parse("a", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    server.break_silently();
    client.send([parse("b", "select 1"), flush(), bind("b"), execute(), sync()]);
    client.expect([parsed()]);
    let second = rig.server(1);
    second.expect([parse("weir_1", "select 1"), bind("weir_1"), execute(), sync()]);
    second.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), complete("SELECT 1"), ready('I')]);
}

#[test]
fn but_not_if_something_of_it_was_sent_before() {
    let (_rig, client, server) = pair();
    client.send([parse("", "insert into t values (1)"), bind(""), execute()]);
    server.break_silently();
    client.send([sync()]);
    server.die();
    client.expect_lost();
}

#[test]
fn a_server_that_says_goodbye_is_heard_once() {
    let (_rig, client, server) = pair();
    client.send([query("select 1")]);
    let farewell = fatal("57P01", "terminating connection due to administrator command");
    server.send([farewell.clone()]);
    client.expect([farewell]);
    assert!(!client.is_open() && !server.is_open());
}
