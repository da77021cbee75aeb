//! A transaction on a reader moves to the writer if the reader refuses its first statement.

use config::PoolMode;
use engine::ids::NodeId;
use engine::routing::Place;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const BEGIN: &str = "begin isolation level repeatable read, read only";

/// Sends what begins with these words to a reader.
fn route(request: &[u8]) -> Place {
    let is_read = |word: &[u8]| word == b"begin" || word == b"selec";
    match request.windows(5).any(is_read) {
        true => Place::Reader(NodeId(1)),
        false => Place::Writer,
    }
}

/// A rig, a client, an idle server of the writer and one of the reader.
fn opened(mode: PoolMode) -> (Rig, Client, Server, Server) {
    let rig = Rig::new(|config| config.global.pool_mode = mode).routed(route);
    let client = rig.client();
    for (at, sql) in ["insert", "select 1"].into_iter().enumerate() {
        client.send([query(sql)]);
        rig.server(at).answers(sql);
        client.expect([done("OK")]);
    }
    let (writer, reader) = (rig.server(0), rig.server(1));
    (rig, client, writer, reader)
}

fn refusal() -> Message {
    error("25006", "cannot execute NOTIFY during recovery")
}

/// The client's request runs on this server, and the transaction goes on.
#[track_caller]
fn runs(client: &Client, server: &Server, sql: &str, tag: &str) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    server.send([complete(tag), ready('T')]);
    client.expect([complete(tag), ready('T')]);
}

/// The reader refuses its client's request, and rolls back.
#[track_caller]
fn refuses(reader: &Server) {
    reader.send([refusal(), ready('E')]);
    reader.expect([query("ROLLBACK")]);
    reader.send([complete("ROLLBACK"), ready('I')]);
    assert!(reader.is_parked());
}

/// The writer begins the transaction with these texts.
#[track_caller]
fn begins_again(writer: &Server, texts: &[&str]) {
    let all: String = texts.iter().flat_map(|text| [text, "\n;\n"]).collect();
    writer.expect([query(&all)]);
    writer.send([texts.iter().flat_map(|_| complete("SET")).collect(), ready('T')]);
}

#[test]
pub(crate) fn the_first_statement_that_a_reader_refuses_runs_on_the_writer() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (rig, client, writer, reader) = opened(mode);
        runs(&client, &reader, BEGIN, "BEGIN");
        client.send([query("notify a")]);
        reader.expect([query("notify a")]);
        refuses(&reader);
        begins_again(&writer, &[BEGIN]);
        writer.expect([query("notify a")]);
        writer.send([complete("NOTIFY"), ready('T')]);
        client.expect([complete("NOTIFY"), ready('T')]);
        runs(&client, &writer, "select 1", "SELECT 1");
        client.send([query("commit")]);
        writer.answers("commit");
        client.expect([done("OK")]);
        client.send([query("select 1")]);
        reader.answers("select 1");
        client.expect([done("OK")]);
        assert_eq!(rig.servers(), 2);
    }
}

#[test]
pub(crate) fn statements_that_read_nothing_are_run_again() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (_rig, client, writer, reader) = opened(mode);
        let texts = [BEGIN, "set local work_mem = '1MB' -- more", "savepoint a"];
        for (text, tag) in texts.into_iter().zip(["BEGIN", "SET", "SAVEPOINT"]) {
            runs(&client, &reader, text, tag);
        }
        client.send([parse("n", "lock t"), sync()]);
        reader.take();
        reader.send([parsed(), ready('T')]);
        client.expect([parsed(), ready('T')]);
        client.send([bind("n"), execute(), sync()]);
        reader.take();
        reader.send([bound()]);
        refuses(&reader);
        begins_again(&writer, &texts);
        let sent = String::from_utf8_lossy(&writer.take()).into_owned();
        assert!(sent.contains("lock t"), "the writer gets the statement: {sent}");
        let answer = [bound(), complete("LOCK TABLE"), ready('T')];
        writer.send([&[parsed()], &answer[..]].concat());
        client.expect(answer);
    }
}

#[test]
pub(crate) fn a_transaction_that_has_read_stays() {
    let read = vec![columns("a"), row("1"), complete("SELECT 1"), ready('T')];
    let empty = vec![columns("a"), complete("SELECT 0"), ready('T')];
    for answer in [read, empty, vec![complete("RELEASE"), ready('T')]] {
        let (_rig, client, writer, reader) = opened(PoolMode::Auto);
        runs(&client, &reader, BEGIN, "BEGIN");
        client.send([query("select 1")]);
        reader.expect([query("select 1")]);
        reader.send(answer.clone());
        client.expect(answer);
        client.send([query("notify a")]);
        reader.expect([query("notify a")]);
        reader.send([refusal(), ready('E')]);
        client.expect([refusal(), ready('E')]);
        assert!(writer.is_parked());
    }
}

#[test]
fn rows_of_the_first_statement_are_passed_on_at_once() {
    let (_rig, client, writer, reader) = opened(PoolMode::Auto);
    runs(&client, &reader, BEGIN, "BEGIN");
    client.send([query("select 1")]);
    reader.expect([query("select 1")]);
    reader.send([columns("a")]);
    client.expect([]);
    reader.send([row("1")]);
    client.expect([columns("a"), row("1")]);
    reader.send([refusal(), ready('E')]);
    client.expect([refusal(), ready('E')]);
    assert!(writer.is_parked());
}

#[test]
pub(crate) fn a_transaction_stays_whose_set_the_client_has_heard_of() {
    let (_rig, client, writer, reader) = opened(PoolMode::Auto);
    runs(&client, &reader, BEGIN, "BEGIN");
    let answer = [complete("SET"), status("TimeZone", "Asia/Tokyo"), ready('T')];
    client.send([query("set local timezone = 'Asia/Tokyo'")]);
    reader.take();
    reader.send(answer.clone());
    client.expect(answer);
    client.send([query("notify a")]);
    reader.expect([query("notify a")]);
    reader.send([refusal(), ready('E')]);
    client.expect([refusal(), ready('E')]);
    assert!(writer.is_parked());
}

#[test]
fn requests_that_were_sent_together_follow_in_their_order() {
    let (rig, client, writer, reader) = opened(PoolMode::Auto);
    client.send([query(BEGIN), query("notify a"), query("select 1"), query("commit")]);
    reader.expect([query(BEGIN)]);
    reader.send([complete("BEGIN"), ready('T')]);
    reader.expect([query("notify a")]);
    refuses(&reader);
    begins_again(&writer, &[BEGIN]);
    writer.expect([query("notify a"), query("select 1"), query("commit")]);
    writer.send([complete("NOTIFY"), ready('T'), complete("SELECT 1"), ready('T'), done("COMMIT")]);
    client.expect([
        complete("BEGIN"),
        ready('T'),
        complete("NOTIFY"),
        ready('T'),
        complete("SELECT 1"),
        ready('T'),
        done("COMMIT"),
    ]);
    assert_eq!(rig.servers(), 2);
}

#[test]
fn a_batch_that_begins_and_is_refused_moves_as_a_whole() {
    let (_rig, client, writer, reader) = opened(PoolMode::Auto);
    let batch = [
        parse("", BEGIN),
        bind(""),
        execute(),
        parse("", "select nextval('s')"),
        bind(""),
        execute(),
        sync(),
    ];
    client.send(batch.clone());
    reader.expect(batch.clone());
    let begun = [parsed(), bound(), complete("BEGIN"), parsed(), bound()];
    reader.send(begun.clone());
    client.expect([]);
    refuses(&reader);
    writer.expect(batch);
    let answer = [&begun[..], &[row("1"), complete("SELECT 1"), ready('T')]].concat();
    writer.send(answer.clone());
    client.expect(answer);
}

#[test]
fn a_batch_begins_a_transaction_that_moves() {
    let (_rig, client, writer, reader) = opened(PoolMode::Auto);
    let begin = [parse("", BEGIN), bind(""), execute(), sync()];
    client.send(begin.clone());
    reader.expect(begin);
    let begun = [parsed(), bound(), complete("BEGIN"), ready('T')];
    reader.send(begun.clone());
    client.expect(begun);
    let batch = [parse("", "lock t"), bind(""), execute(), sync()];
    client.send(batch.clone());
    reader.expect(batch.clone());
    reader.send([parsed(), bound()]);
    refuses(&reader);
    begins_again(&writer, &[BEGIN]);
    writer.expect(batch);
    writer.send([parsed(), bound(), complete("LOCK TABLE"), ready('T')]);
    client.expect([parsed(), bound(), complete("LOCK TABLE"), ready('T')]);
}

#[test]
fn a_writer_that_is_lost_meanwhile_is_replaced() {
    let (rig, client, writer, reader) = opened(PoolMode::Auto);
    runs(&client, &reader, BEGIN, "BEGIN");
    client.send([query("notify a")]);
    reader.expect([query("notify a")]);
    refuses(&reader);
    writer.take();
    writer.die();
    let next = rig.server(2);
    begins_again(&next, &[BEGIN]);
    next.expect([query("notify a")]);
    next.send([complete("NOTIFY"), ready('T')]);
    client.expect([complete("NOTIFY"), ready('T')]);
}

#[test]
pub(crate) fn a_request_never_runs_outside_of_its_transaction() {
    let (_rig, client, writer, reader) = opened(PoolMode::Auto);
    runs(&client, &reader, BEGIN, "BEGIN");
    client.send([query("notify a")]);
    reader.expect([query("notify a")]);
    refuses(&reader);
    writer.take();
    writer.send([error("57014", "canceling statement due to user request"), ready('I')]);
    let fail = String::from_utf8_lossy(&writer.take()).into_owned();
    assert!(fail.contains("ROLLBACK TO SAVEPOINT"), "{fail}");
    writer.send([complete("BEGIN"), error("3B001", "no such savepoint"), ready('E')]);
    writer.expect([query("notify a")]);
    let aborted = error("25P02", "current transaction is aborted");
    writer.send([aborted.clone(), ready('E')]);
    client.expect([aborted, ready('E')]);
}

#[test]
fn a_client_that_leaves_meanwhile_harms_nobody() {
    let (rig, client, writer, reader) = opened(PoolMode::Auto);
    runs(&client, &reader, BEGIN, "BEGIN");
    client.send([query("notify a")]);
    reader.expect([query("notify a")]);
    refuses(&reader);
    writer.take();
    client.leave();
    writer.send([complete("BEGIN"), ready('T')]);
    assert!(!writer.is_open(), "its transaction is open");
    let other = rig.client();
    other.send([query("select 1")]);
    reader.answers("select 1");
    other.expect([done("OK")]);
}
