//! Routing: an idle client's first whole request is read before a pool is chosen (decision 018).

use config::PoolMode;
use engine::ids::NodeId;
use engine::routing::Place;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// Longer than any request that Weir keeps for the router.
const TOO_LONG: usize = 20_000;

/// Sends SELECTs to a reader.
fn reads_to_a_reader(request: &[u8]) -> Place {
    match request.windows(6).any(|word| word == b"select") {
        true => Place::Reader(NodeId(1)),
        false => Place::Writer,
    }
}

fn rig(mode: PoolMode) -> Rig {
    Rig::new(|config| config.global.pool_mode = mode).routed(reads_to_a_reader)
}

/// A rig, a client, an idle server of the writer and one of the reader.
fn opened(mode: PoolMode) -> (Rig, Client, Server, Server) {
    let rig = rig(mode);
    let client = rig.client();
    let writer = rig.server(0);
    asks(&client, &writer, "insert");
    client.send([query("select 1")]);
    let reader = rig.server(1);
    reader.answers("select 1");
    client.expect([done("OK")]);
    (rig, client, writer, reader)
}

fn asks(client: &Client, server: &Server, sql: &str) {
    client.send([query(sql)]);
    server.answers(sql);
    client.expect([done("OK")]);
}

#[test]
fn each_request_goes_where_the_router_says() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (rig, client, writer, reader) = opened(mode);
        asks(&client, &writer, "insert");
        asks(&client, &reader, "select 1");
        assert_eq!(rig.servers(), 2);
    }
}

#[test]
fn a_transaction_stays_where_it_began() {
    let (_rig, client, writer, _) = opened(PoolMode::Transaction);
    client.send([query("begin")]);
    writer.expect([query("begin")]);
    writer.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    asks(&client, &writer, "select 1");
}

#[test]
fn part_of_a_request_takes_no_server() {
    let (rig, client, writer, reader) = opened(PoolMode::Transaction);
    rig.set_chunk(3);
    client.send([parse("", "select 1"), bind("")]);
    assert!(writer.is_parked() && reader.is_parked());
    client.send([sync()]);
    reader.expect([parse("", "select 1"), bind(""), sync()]);
    assert!(writer.is_parked());
}

#[test]
fn a_request_too_long_to_be_kept_goes_to_the_writer() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (rig, client, writer, reader) = opened(mode);
        let sql = format!("select '{}'", "x".repeat(TOO_LONG));
        // The parts arrive one by one. The first ones are too short to route.
        rig.set_chunk(1_000);
        asks(&client, &writer, &sql);
        client.send([parse("", &sql), bind(""), execute(), sync()]);
        writer.expect([parse("", &sql), bind(""), execute(), sync()]);
        writer.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
        client.expect([parsed(), bound(), complete("SELECT 1"), ready('I')]);
        assert!(reader.is_parked());
        asks(&client, &reader, "select 1");
    }
}

#[test]
fn on_a_reader_the_next_request_waits_for_the_answer_before() {
    let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([query("select 1"), query("insert")]);
    reader.expect([query("select 1")]);
    assert!(writer.is_parked());
    reader.send([done("OK")]);
    writer.expect([query("insert")]);
    writer.send([done("OK")]);
    client.expect([done("OK"), done("OK")]);
}

#[test]
fn on_the_writer_the_next_request_follows_at_once() {
    let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([query("insert"), query("select 1")]);
    writer.expect([query("insert"), query("select 1")]);
    assert!(reader.is_parked());
}

#[test]
fn a_goodbye_takes_no_server() {
    let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([terminate()]);
    assert!(!client.is_open());
    assert!(writer.is_parked() && reader.is_parked());
}

#[test]
fn a_request_begins_after_a_message_that_is_dropped() {
    let rig = Rig::of_size(1).routed(|_| Place::Writer);
    let (client, other) = (rig.client(), rig.client());
    let writer = rig.server(0);
    // A server refused the copy before this arrived. It needs no server, and arrives in two parts.
    let late = copy_fail("no more");
    let (begin, rest) = late.split_at(7);
    client.send([begin.to_vec()]);
    other.send([query("slow")]);
    writer.expect([query("slow")]);
    client.send([rest.to_vec(), query("insert")]);
    writer.send([done("OK")]);
    other.expect([done("OK")]);
    writer.answers("insert");
    client.expect([done("OK")]);
}

const READ_ONLY: &str = "25006";

fn refusal() -> Vec<u8> {
    error(READ_ONLY, "cannot execute nextval() in a read-only transaction")
}

#[test]
fn what_a_reader_refuses_is_asked_again_on_the_writer() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (_rig, client, writer, reader) = opened(mode);
        client.send([query("select 2")]);
        reader.expect([query("select 2")]);
        // The columns come before the refusal, and in another read.
        reader.send([columns("nextval")]);
        client.expect([]);
        reader.send([refusal()]);
        client.expect([]);
        reader.send([ready('I')]);
        writer.answers("select 2");
        client.expect([done("OK")]);
        assert!(reader.is_parked() && writer.is_parked());
        asks(&client, &reader, "select 1");
    }
}

#[test]
fn a_refused_batch_is_asked_again_with_its_names() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (_rig, client, writer, reader) = opened(mode);
        let sql = "select nextval('s')";
        client.send([parse("a", sql), bind("a"), describe_portal(), execute(), sync()]);
        let sent = reader.take();
        reader.send([parsed(), bound(), columns("nextval"), refusal(), ready('I')]);
        assert_eq!(writer.take(), sent);
        writer.send([parsed(), bound(), columns("nextval"), row("1"), done("SELECT 1")]);
        client.expect([parsed(), bound(), columns("nextval"), row("1"), done("SELECT 1")]);
        // Both servers have the statement now.
        client.send([bind("a"), execute(), sync()]);
        assert!(!String::from_utf8_lossy(&writer.take()).contains(sql));
    }
}

#[test]
fn the_next_request_waits_behind_one_that_is_asked_again() {
    let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([query("select nextval('s')"), query("insert")]);
    reader.expect([query("select nextval('s')")]);
    reader.send([refusal(), ready('I')]);
    writer.expect([query("select nextval('s')"), query("insert")]);
    writer.send([done("OK"), done("INSERT 0 1")]);
    client.expect([done("OK"), done("INSERT 0 1")]);
}

#[test]
fn an_error_that_the_writer_would_give_too_is_the_answer() {
    let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([query("select 1/0")]);
    reader.expect([query("select 1/0")]);
    let failed = error("22012", "division by zero");
    reader.send([columns("?"), failed.clone(), ready('I')]);
    client.expect([columns("?"), failed, ready('I')]);
    assert!(writer.is_parked() && reader.is_parked());
}

#[test]
fn an_error_behind_rows_is_the_answer() {
    let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([query("select 1")]);
    reader.expect([query("select 1")]);
    reader.send([columns("a"), row("1")]);
    client.expect([columns("a"), row("1")]);
    let conflict = error("40001", "canceling statement due to conflict with recovery");
    reader.send([conflict.clone(), ready('I')]);
    client.expect([conflict, ready('I')]);
    assert!(writer.is_parked());
}

fn asks_in_transaction(client: &Client, server: &Server, sql: &str) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    let answer = [columns("a"), row("1"), complete("SELECT 1"), ready('T')];
    server.send(answer.clone());
    client.expect(answer);
}

#[test]
fn in_a_transaction_on_a_reader_a_refusal_is_the_answer() {
    let rig = Rig::new(|config| config.global.pool_mode = PoolMode::Transaction);
    let rig = rig.routed(|_| Place::Reader(NodeId(1)));
    let client = rig.client();
    client.send([query("begin read only")]);
    let reader = rig.server(1);
    reader.expect([query("begin read only")]);
    reader.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    asks_in_transaction(&client, &reader, "select 1");
    client.send([query("insert")]);
    reader.expect([query("insert")]);
    reader.send([refusal(), ready('E')]);
    client.expect([refusal(), ready('E')]);
}

#[test]
fn the_request_of_a_lost_reader_goes_to_the_writer() {
    for is_said in [false, true] {
        let (_rig, client, writer, reader) = opened(PoolMode::Transaction);
        client.send([query("select 1")]);
        reader.expect([query("select 1")]);
        reader.send([columns("a")]);
        if is_said {
            reader.send([fatal("57P01", "terminating connection")]);
        }
        reader.die();
        writer.answers("select 1");
        client.expect([done("OK")]);
    }
}

#[test]
pub(crate) fn a_client_that_no_reader_serves_is_read() {
    let rig = rig(PoolMode::Transaction);
    let (client, writer) = (rig.client(), rig.server(0));
    asks(&client, &writer, "insert");
    rig.set_automatic(false);
    client.send([query("begin; select 1")]);
    client.send([query("commit")]);
    let reader = rig.server(1);
    reader.connect();
    reader.send([fatal("28000", "go away")]);
    writer.expect([query("begin; select 1"), query("commit")]);
}

#[test]
fn a_client_that_leaves_while_a_refusal_arrives_harms_nobody() {
    let (rig, client, writer, reader) = opened(PoolMode::Transaction);
    client.send([query("select nextval('s')")]);
    reader.expect([query("select nextval('s')")]);
    reader.send([columns("nextval"), refusal()]);
    client.leave();
    assert!(writer.is_parked() && !reader.is_parked());
    rig.finish_cancel();
    reader.send([ready('I')]);
    assert!(reader.is_parked());
}

/// A client that keeps its reader, where it has a lock.
fn keeping_a_reader() -> (Rig, Client, Server) {
    let rig = Rig::new(|config| config.global.pool_mode = PoolMode::Auto);
    let rig = rig.routed(|_| Place::Reader(NodeId(1)));
    let client = rig.client();
    client.send([query("select pg_advisory_lock(1)")]);
    let reader = rig.server(1);
    reader.answers("select pg_advisory_lock(1)");
    assert!(!reader.take().is_empty(), "a probe");
    reader.send([row("k"), done("SELECT 1")]);
    client.expect([done("OK")]);
    assert!(!reader.is_parked());
    (rig, client, reader)
}

#[test]
fn replies_before_a_flush_reach_a_client_that_keeps_its_reader() {
    let (_rig, client, reader) = keeping_a_reader();
    client.send([parse("", "select 1"), flush()]);
    reader.take();
    reader.send([parsed()]);
    client.expect([parsed()]);
}

/// The router has judged the request before it. A standby that was promoted a moment ago may have
/// committed this one.
#[test]
fn an_unjudged_request_is_not_repeated() {
    let (rig, client, reader) = keeping_a_reader();
    client.send([query("insert")]);
    reader.expect([query("insert")]);
    reader.die();
    client.expect_lost();
    assert_eq!(rig.servers(), 2);
}

/// It could not write any more.
#[test]
fn no_client_keeps_a_reader_because_its_state_is_unknown() {
    let (_rig, client, writer, reader) = opened(PoolMode::Auto);
    let sql = "select set_config('app.tenant', '1', false)";
    client.send([query(sql)]);
    reader.answers(sql);
    client.expect([done("OK")]);
    // The probe fails.
    assert!(!reader.take().is_empty());
    reader.send([error("57014", "canceling statement due to statement timeout"), ready('I')]);
    reader.answers("DISCARD ALL");
    assert!(reader.is_parked());
    asks(&client, &writer, "insert");
}
