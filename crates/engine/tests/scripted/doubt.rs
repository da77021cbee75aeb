//! Statement names in a pipeline with unanswered messages. An error undoes what its batch has
//! prepared and closed. A discard removes all names. A message whose meaning depends on that waits.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// One server, on which the client has prepared `a` as weir_1.
fn prepared() -> (Rig, Client, Server) {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    (rig, client, server)
}

fn fails() -> Message {
    error("22012", "division by zero")
}

fn unknown(name: &str) -> Message {
    error("26000", &format!("prepared statement \"{name}\" does not exist"))
}

/// A batch that fails in its middle.
fn failing(behind: &[Message]) -> Vec<Message> {
    let begin = [parse("", "select 1/0"), bind(""), execute()];
    [&begin[..], behind, &[sync()]].concat()
}

#[test]
fn a_failed_batch_leaves_the_statements_that_it_was_to_close_and_prepare() {
    let (_rig, client, server) = prepared();
    let batch = failing(&[close("a"), parse("a", "select 2")]);
    client.send([batch.concat(), [bind("a"), execute(), sync()].concat()]);
    let [parse_2, bind_0] = [parse("weir_2", "select 2"), bind("")];
    server.expect([parse("", "select 1/0"), bind_0, execute(), parse_2, sync()]);
    server.send([parsed(), bound(), fails(), ready('I')]);
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([
        parsed(),
        bound(),
        fails(),
        ready('I'),
        bound(),
        row("1"),
        complete("SELECT 1"),
        ready('I'),
    ]);
    assert!(server.is_parked());
}

#[test]
fn a_statement_that_a_failed_batch_was_to_prepare_is_not_run() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    let batch = failing(&[parse("a", "insert")]);
    client.send([batch.concat(), [bind("a"), execute(), sync()].concat()]);
    server.expect(failing(&[parse("weir_1", "insert")]));
    server.send([parsed(), bound(), fails(), ready('I')]);
    server.expect([bind("a"), execute(), sync()]);
    server.send([unknown("a"), ready('I')]);
    client.expect([parsed(), bound(), fails(), ready('I'), unknown("a"), ready('I')]);
}

#[test]
fn a_failed_batch_closes_no_statement() {
    let (_rig, client, server) = prepared();
    let batch = [parse("", "nosuch"), close("a"), sync()].concat();
    client.send([batch, [bind("a"), execute(), sync()].concat()]);
    server.expect([parse("", "nosuch"), sync()]);
    server.send([fails(), ready('I')]);
    server.expect([bind("weir_1"), execute(), sync()]);
}

#[test]
fn close_describe_and_parse_of_it_wait_as_well() {
    for (asked, forwarded) in [
        (close("a"), None),
        (describe("a"), Some(describe("weir_1"))),
        (parse("a", "select 3"), Some(parse("weir_1", "select 3"))),
    ] {
        let (_rig, client, server) = prepared();
        let batch = failing(&[close("a"), parse("a", "select 2")]);
        client.send([batch.concat(), [asked, sync()].concat()]);
        server.take();
        server.send([parsed(), bound(), fails(), ready('I')]);
        server.expect(forwarded.into_iter().chain([sync()]));
    }
}

/// The client has a statement on the first server. Another client has that server now.
fn stage(rig: &Rig) -> (Client, Server) {
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("b", "insert"), sync()]);
    first.expect([parse("weir_1", "insert"), sync()]);
    first.send([parsed(), ready('I')]);
    client.take();
    rig.client().send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    (client, first)
}

#[test]
fn a_discarded_statement_is_not_run() {
    for discard in ["discard all", "DEALLOCATE ALL", "select 1; deallocate prepare all"] {
        let rig = Rig::of_size(2);
        let (client, _first) = stage(&rig);
        client.send([query(discard), [bind("b"), execute(), sync()].concat()]);
        let second = rig.server(1);
        second.expect([query(discard)]);
        let tag = if discard.starts_with('d') { "DISCARD ALL" } else { "DEALLOCATE ALL" };
        second.send([complete(tag), ready('I')]);
        second.expect([bind("b"), execute(), sync()]);
        second.send([unknown("b"), ready('I')]);
        client.expect([complete(tag), ready('I'), unknown("b"), ready('I')]);
        assert!(second.is_parked());
    }
}

#[test]
fn nor_after_it_in_the_same_batch() {
    let rig = Rig::of_size(2);
    let (client, _first) = stage(&rig);
    let batch = [parse("", "deallocate all"), bind(""), execute()];
    client.send([batch.concat(), [bind("b"), execute(), sync()].concat()]);
    let second = rig.server(1);
    second.expect([batch.concat(), flush()]);
    second.send([parsed(), bound(), complete("DEALLOCATE ALL")]);
    second.expect([bind("b"), execute(), sync()]);
    second.send([unknown("b"), ready('I')]);
    let answers = [parsed(), bound(), complete("DEALLOCATE ALL"), unknown("b"), ready('I')];
    client.expect(answers);
}

#[test]
fn a_name_that_was_discarded_does_not_come_back() {
    let (_rig, client, server) = prepared();
    let batch = [close("a"), parse("", "nosuch"), sync()].concat();
    client.send([query("discard all"), batch]);
    server.expect([query("discard all")]);
    server.send([complete("DISCARD ALL"), ready('I')]);
    server.expect([parse("", "nosuch"), sync()]);
    server.send([fails(), ready('I')]);
    client.expect([complete("DISCARD ALL"), ready('I'), closed(), fails(), ready('I')]);
    client.send([parse("a", "select 4"), sync()]);
    server.expect([parse("weir_2", "select 4"), sync()]);
}

#[test]
fn a_statement_parsed_after_a_discard_stays() {
    let (_rig, client, server) = prepared();
    let batch = [parse("b", "select 1"), bind("b"), execute(), sync()].concat();
    client.send([query("discard all"), batch]);
    let again = [close("weir_1"), parse("weir_1", "select 1"), bind("weir_1"), execute(), sync()];
    server.expect([vec![query("discard all")], again.to_vec()].concat());
}

/// A message waits only if its meaning depends on the answer.
#[test]
fn messages_with_a_certain_meaning_do_not_wait() {
    let (_rig, client, server) = prepared();
    let batch = [parse("c", "select 3"), bind("c"), bind("a"), execute(), sync()].concat();
    client.send([query("select 1"), batch, [bind("a"), execute(), sync()].concat()]);
    let use_a = [bind("weir_1"), execute(), sync()];
    let batch = [parse("weir_2", "select 3"), bind("weir_2")];
    server.expect([&[query("select 1")][..], &batch, &use_a, &use_a].concat());
}

/// During a copy, the server waits for the client.
#[test]
fn no_message_waits_during_a_copy() {
    let (_rig, client, server) = prepared();
    client.send([query("copy discard from stdin"), bind("a"), sync()]);
    server.expect([query("copy discard from stdin")]);
    server.send([copy_in()]);
    assert!(server.take().ends_with(&[bind("weir_1"), sync()].concat()));
}

/// `EXECUTE` of a doubtful name, where the client's names are lent.
#[test]
fn a_text_that_names_a_doubtful_statement_waits() {
    let rig = auto(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    let batch = failing(&[parse("a", "insert")]);
    client.send([batch.concat(), query("EXECUTE a")]);
    server.expect(failing(&[parse("weir_1", "insert")]));
    server.send([parsed(), bound(), fails(), ready('I')]);
    server.expect([query("EXECUTE a")]);
    server.send([unknown("a"), ready('I')]);
    client.expect([parsed(), bound(), fails(), ready('I'), unknown("a"), ready('I')]);
    tells(&server, &[]);
}

/// The failed batch was to close all the client's names.
#[test]
fn sqls_execute_waits_for_a_name_that_may_not_have_been_closed() {
    let rig = auto(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    client.send([failing(&[close("a")]).concat(), query("EXECUTE a")]);
    server.expect(failing(&[]));
    server.send([parsed(), bound(), fails(), ready('I')]);
    server.expect([parse("a", "select 1"), sync(), query("EXECUTE a")]);
}

/// A client whose unnamed statement is `select 7`. Its server has another client's unnamed
/// statement.
fn with_another_clients_unnamed() -> (Rig, Client, Server) {
    let rig = Rig::of_size(1);
    let (client, stranger, server) = (rig.client(), rig.client(), rig.server(0));
    for (who, sql) in [(&client, "select 7"), (&stranger, "insert")] {
        who.send([parse("", sql), sync()]);
        server.expect([parse("", sql), sync()]);
        server.send([parsed(), ready('I')]);
        who.take();
    }
    (rig, client, server)
}

#[test]
fn the_unnamed_statement_that_a_failed_batch_was_to_replace_is_there_again() {
    let (_rig, client, server) = with_another_clients_unnamed();
    let batch = [parse("x", "nosuch"), parse("", "select 8"), sync()];
    client.send([batch.concat(), [bind(""), execute(), sync()].concat()]);
    server.expect([parse("weir_1", "nosuch"), parse("", "select 8"), sync()]);
    server.send([fails(), ready('I')]);
    server.expect([parse("", "select 7"), bind(""), execute(), sync()]);
    server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([fails(), ready('I'), bound(), complete("SELECT 1"), ready('I')]);
}

#[test]
fn the_unnamed_statement_that_a_failed_batch_was_to_take_away_is_there_again() {
    let (_rig, client, server) = with_another_clients_unnamed();
    let batch = [parse("x", "nosuch"), query("skipped"), sync()];
    client.send([batch.concat(), [describe("")].concat()]);
    server.expect([parse("weir_1", "nosuch"), query("skipped"), sync()]);
    server.send([fails(), ready('I')]);
    server.expect([parse("", "select 7"), describe("")]);
}

#[test]
fn the_unnamed_statement_that_was_sent_again_in_a_failed_batch_is_sent_once_more() {
    let (_rig, client, server) = with_another_clients_unnamed();
    let [parse_7, no_portal] = [parse("", "select 7"), error("34000", "no portal")];
    client.send([execute(), bind(""), sync(), bind(""), execute(), sync()]);
    server.expect([execute(), parse_7.clone(), bind(""), sync()]);
    server.send([no_portal.clone(), ready('I')]);
    server.expect([parse_7, bind(""), execute(), sync()]);
    server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([no_portal, ready('I'), bound(), complete("SELECT 1"), ready('I')]);
}

#[test]
fn a_statement_that_was_sent_again_in_a_failed_batch_is_sent_once_more() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    server.die();
    client.send([execute(), bind("a"), sync(), bind("a"), execute(), sync()]);
    let (server, no_portal) = (rig.server(1), error("34000", "no portal"));
    let again = [parse("weir_1", "select 1"), bind("weir_1")].concat();
    server.expect([execute(), again.clone(), sync(), close("weir_1"), again, execute(), sync()]);
    server.send([no_portal.clone(), ready('I')]);
    server.send([closed(), parsed(), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([no_portal, ready('I'), bound(), complete("SELECT 1"), ready('I')]);
}

/// The Query removes the statement. The Close in the failed batch before it would have removed it,
/// too.
#[test]
fn the_unnamed_statement_that_a_later_query_takes_away_is_not_there_again() {
    let (_rig, client, server) = with_another_clients_unnamed();
    let batch = [parse("x", "nosuch"), close(""), sync()];
    client.send([batch.concat(), [query("select 1"), describe(""), sync()].concat()]);
    let batch = [parse("weir_1", "nosuch"), close(""), sync()];
    server.expect([batch.concat(), [query("select 1"), close(""), describe(""), sync()].concat()]);
    server.send([fails(), ready('I'), complete("SELECT 1"), ready('I')]);
    server.send([closed(), unknown(""), ready('I')]);
    client.expect([fails(), ready('I'), complete("SELECT 1"), ready('I'), unknown(""), ready('I')]);
    // The statement is not there later either.
    client.send([describe(""), sync()]);
    server.expect([close(""), describe(""), sync()]);
}

#[test]
fn an_unnamed_statement_that_is_the_servers_too_is_not_waited_for() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("", "select 7"), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    client.send([parse("", "select 8"), sync(), bind(""), execute(), sync()]);
    server.expect([parse("", "select 8"), sync(), bind(""), execute(), sync()]);
}

/// The first batch fails before its Close, which was to make room for `b`. So the Close has no
/// effect. The second batch prepares the statement again, and closes it to make room for `c`.
#[test]
fn a_statement_that_a_later_batch_closed_again_does_not_come_back() {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        config.global.max_prepared_statements = 1;
    });
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    let second = [bind("a"), execute(), parse("c", "select 3"), sync()].concat();
    client.send([failing(&[parse("b", "select 2")]).concat(), second]);
    let begin = [parse("", "select 1/0"), bind(""), execute()];
    server.expect(begin.into_iter().chain([
        close("weir_1"),
        parse("weir_2", "select 2"),
        sync(),
        close("weir_1"),
        close("weir_2"),
        parse("weir_1", "select 1"),
        bind("weir_1"),
        execute(),
        close("weir_1"),
        parse("weir_3", "select 3"),
        sync(),
    ]));
    server.send([parsed(), bound(), fails(), ready('I'), closed(), closed(), parsed(), bound()]);
    server.send([complete("SELECT 1"), closed(), parsed(), ready('I')]);
    client.take();
    client.send([bind("a"), execute(), sync()]);
    server.expect([
        close("weir_3"),
        parse("weir_1", "select 1"),
        bind("weir_1"),
        execute(),
        sync(),
    ]);
}
