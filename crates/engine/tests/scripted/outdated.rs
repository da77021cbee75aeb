//! A client knows what its statement returns, and then the schema changes. Its next server lacks
//! the statement, or has prepared it since the change. On a direct connection, PostgreSQL would
//! report a changed result. Weir must do so, too.

use config::PoolMode;
use wire::backend;
use wire::error_fields::ErrorFields;

use crate::carried::auto;
use crate::clusters;
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// The error of a direct connection, with the fields by which drivers know it.
pub(crate) fn changed() -> Message {
    let text = "cached plan must not change result type";
    let mut fields = ErrorFields::new("ERROR", "0A000", text);
    fields.replace(b'V', b"ERROR".as_slice());
    fields.replace(b'R', b"RevalidateCachedQuery".as_slice());
    built(|out| backend::error(out, &fields))
}

/// PostgreSQL's error for the name that Weir sends in place of the statement's.
fn refused() -> Message {
    error("26000", "prepared statement \"weir_changed_result\" does not exist")
}

fn refusal() -> [Message; 3] {
    [bind("weir_changed_result"), execute(), sync()]
}

fn confirmation() -> [Message; 4] {
    [close("weir_1"), parse("weir_1", "select"), describe("weir_1"), sync()]
}

fn confirmed(column: &str) -> [Message; 5] {
    [closed(), parsed(), parameters(), columns(column), ready('I')]
}

fn use_it() -> [Message; 3] {
    [bind("mine"), execute(), sync()]
}

/// A client that the first server has told of column `a`. Another session is changing the schema
/// there. Also returns the second server.
fn moved() -> (Rig, Client, Server) {
    moved_in(Rig::of_size(2))
}

fn moved_in(rig: Rig) -> (Rig, Client, Server) {
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    first.send([parsed(), parameters(), columns("a"), ready('I')]);
    client.take();
    let other = rig.client();
    other.send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    other.send([query("alter")]);
    first.send([complete("ALTER TABLE"), ready('T')]);
    (rig, client, first)
}

/// The client's request goes to the second server.
fn second(rig: &Rig) -> Server {
    let server = rig.server(1);
    server.expect(confirmation());
    server
}

#[test]
fn a_statement_with_the_same_result_is_used() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    server.send(confirmed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    assert!(server.is_parked());
    client.send(use_it());
    server.expect([bind("weir_1"), execute(), sync()]);
}

#[test]
fn a_statement_with_a_changed_result_is_refused() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    // Each use gets the same answer.
    for _ in 0..2 {
        server.send(confirmed("b"));
        server.expect(refusal());
        server.send([refused(), ready('I')]);
        client.expect([changed(), ready('I')]);
        assert!(server.is_parked());
        client.send(use_it());
        server.expect(confirmation());
    }
    server.send(confirmed("b"));
    server.take();
    server.send([refused(), ready('I')]);
    client.take();
    // A driver's recovery works at once.
    client.send([close("mine"), parse("mine", "select"), describe("mine"), sync()]);
    server.expect([parse("weir_2", "select"), describe("weir_2"), sync()]);
    server.send([parsed(), parameters(), columns("b"), ready('I')]);
    client.expect([closed(), parsed(), parameters(), columns("b"), ready('I')]);
}

#[test]
fn however_the_message_is_split() {
    for chunk in 1..40 {
        let (rig, client, _first) = moved();
        rig.set_chunk(chunk);
        client.send(use_it());
        let server = second(&rig);
        server.send(confirmed("b"));
        server.expect(refusal());
        server.send([refused(), ready('I')]);
        client.expect([changed(), ready('I')]);
        assert!(server.is_parked());
    }
}

#[test]
fn notifications_in_the_meantime_are_delivered() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    let news = crate::messages::told(5, "news", "1");
    server.send([closed(), parsed(), news.clone(), parameters(), columns("a")]);
    client.expect([news]);
    server.send([ready('I')]);
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), row("1"), complete("SELECT 1"), ready('I')]);
}

#[test]
fn a_statement_that_can_no_longer_be_prepared_gives_postgresqls_error() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    let gone = || error("42P01", "relation \"t\" does not exist");
    server.send([closed(), gone(), ready('I')]);
    server.expect([close("weir_1"), parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
    server.send([closed(), gone(), ready('I')]);
    client.expect([gone(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn a_client_that_never_described_the_rows_is_not_told() {
    let rig = Rig::of_size(2);
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), sync()]);
    first.send([parsed(), ready('I')]);
    client.take();
    let other = rig.client();
    other.send([query("alter")]);
    first.send([complete("ALTER TABLE"), ready('T')]);
    client.send(use_it());
    let server = rig.server(1);
    server.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
}

/// The client begins a transaction on the second server.
fn begun(rig: &Rig, client: &Client) -> Server {
    client.send([query("begin")]);
    let server = rig.server(1);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    server
}

#[test]
fn within_a_transaction_too() {
    for (column, is_same) in [("a", true), ("b", false)] {
        let (rig, client, _first) = moved();
        let server = begun(&rig, &client);
        client.send(use_it());
        server.expect(confirmation());
        server.send([closed(), parsed(), parameters(), columns(column), ready('T')]);
        if is_same {
            server.expect([bind("weir_1"), execute(), sync()]);
            server.send([bound(), row("1"), complete("SELECT 1"), ready('T')]);
            client.expect([bound(), row("1"), complete("SELECT 1"), ready('T')]);
            continue;
        }
        server.expect(refusal());
        server.send([refused(), ready('E')]);
        client.expect([changed(), ready('E')]);
        client.send([query("rollback")]);
        server.answers("rollback");
        assert!(server.is_parked());
    }
}

#[test]
fn a_statement_that_cannot_be_prepared_fails_its_transaction() {
    let (rig, client, _first) = moved();
    let server = begun(&rig, &client);
    client.send(use_it());
    server.take();
    let gone = || error("42P01", "relation \"t\" does not exist");
    server.send([closed(), gone(), ready('E')]);
    server.expect([sync()]);
    server.send([ready('E')]);
    client.expect([gone(), ready('E')]);
    client.send([query("rollback")]);
    server.answers("rollback");
    assert!(server.is_parked());
}

#[test]
fn if_the_server_dies_with_its_transaction_the_client_is_told() {
    let (rig, client, _first) = moved();
    let server = begun(&rig, &client);
    client.send(use_it());
    server.die();
    client.expect_lost();
}

/// The client holds a lock on the second server. Weir asks that server what its statement returns.
fn kept(rig: &Rig, client: &Client) -> Server {
    const LOCK: &str = "SELECT pg_advisory_lock(1)";
    client.send([query(LOCK)]);
    let server = rig.server(1);
    server.answers(LOCK);
    client.expect([done("OK")]);
    server.take();
    server.send([row("k"), done("SELECT")]);
    client.send(use_it());
    server.expect(confirmation());
    server
}

#[test]
fn if_the_server_dies_that_it_keeps_the_client_is_told() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    kept(&rig, &client).die();
    client.expect_lost();
    assert_eq!(rig.servers(), 2);
}

#[test]
fn a_query_that_waits_for_a_lock_keeps_its_server() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    let server = kept(&rig, &client);
    rig.wait(60);
    server.send(confirmed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), row("1"), complete("SELECT 1"), ready('I')]);
    assert!(!server.is_parked());
}

#[test]
fn a_question_that_is_cancelled_fails_the_request() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    let server = kept(&rig, &client);
    let cancelled = || error("57014", "canceling statement due to user request");
    server.send([closed(), cancelled(), ready('I')]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([cancelled(), ready('I')]);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
}

#[test]
fn a_client_that_leaves_in_a_transaction_meanwhile_costs_its_server() {
    let (rig, client, _first) = moved();
    let server = begun(&rig, &client);
    client.send(use_it());
    server.take();
    client.leave();
    server.send([closed(), parsed(), parameters(), columns("a"), ready('T')]);
    assert!(!server.is_open());
}

#[test]
fn after_other_messages_the_copy_is_used_without_a_question() {
    let (rig, client, _first) = moved();
    client.send([parse("", "other")]);
    client.send(use_it());
    let server = rig.server(1);
    let asked = [parse("", "other"), parse("weir_1", "select"), bind("weir_1"), execute(), sync()];
    server.expect(asked);
}

/// The first request of a transaction, as drivers send it, and the messages for the server.
fn begin_and_use_it(name: &str) -> Vec<Message> {
    let begin = [parse("", "begin"), bind(""), execute()];
    begin.into_iter().chain([bind(name), execute(), sync()]).collect()
}

#[test]
fn messages_before_it_in_the_same_input_wait_as_well() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    client.send(begin_and_use_it("mine"));
    let server = second(&rig);
    server.send(confirmed("a"));
    server.expect(begin_and_use_it("weir_1"));
    let begun = || [parsed(), bound(), complete("BEGIN"), bound()];
    let answer = || begun().into_iter().chain([complete("SELECT 1"), ready('T')]);
    server.send(answer());
    client.expect(answer());
    client.send([query("commit")]);
    server.answers("commit");
    assert!(server.is_parked());

    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    client.send(begin_and_use_it("mine"));
    let server = second(&rig);
    server.send(confirmed("b"));
    server.expect(begin_and_use_it("weir_changed_result"));
    server.send([parsed(), bound(), complete("BEGIN"), refused(), ready('E')]);
    client.expect([parsed(), bound(), complete("BEGIN"), changed(), ready('E')]);
}

#[test]
fn statements_parsed_and_closed_before_it_are_so_only_once() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    let input = [parse("new", "other"), bind("new"), execute(), close("new"), bind("mine")];
    client.send(input.into_iter().chain([execute(), parse("new", "third"), sync()]));
    let server = second(&rig);
    server.send(confirmed("a"));
    // No server has the first statement.
    let asked = [parse("weir_3", "other"), bind("weir_3"), execute(), bind("weir_1"), execute()];
    server.expect(asked.into_iter().chain([parse("weir_4", "third"), sync()]));
    let done = || complete("SELECT 1");
    server.send([parsed(), bound(), done(), bound(), done(), parsed(), ready('I')]);
    client.expect([parsed(), bound(), done(), closed(), bound(), done(), parsed(), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn a_client_that_leaves_meanwhile_is_not_signaled() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    client.send(begin_and_use_it("mine"));
    let server = second(&rig);
    client.leave();
    rig.finish_cancel();
    server.send(confirmed("a"));
    server.expect([]);
    assert!(server.is_parked());
}

#[test]
fn two_statements_where_there_is_room_for_one_are_asked_about_once() {
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 2;
        config.global.max_prepared_statements = 1;
    });
    let (client, first) = (rig.client(), rig.server(0));
    for (name, text) in [("mine", "select"), ("also", "other")] {
        client.send([parse(name, text), describe(name), sync()]);
        first.take();
        let closes = (name == "also").then(closed);
        let told = [parsed(), parameters(), columns("a"), ready('I')];
        first.send(closes.into_iter().chain(told));
        client.take();
    }
    rig.client().send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    client.send([bind("mine"), execute(), bind("also"), execute(), sync()]);
    let server = second(&rig);
    server.send(confirmed("a"));
    server.take();
    server.send([closed(), closed(), parsed(), parameters(), columns("a"), ready('I')]);
    let asked = [close("weir_2"), parse("weir_1", "select"), bind("weir_1"), execute()];
    let more = [close("weir_1"), parse("weir_2", "other"), bind("weir_2"), execute(), sync()];
    server.expect(asked.into_iter().chain(more));
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_a_clean_server() {
    let (rig, client, _first) = moved();
    client.send(use_it());
    let server = second(&rig);
    client.leave();
    assert_eq!(rig.cancels().len(), 1);
    rig.finish_cancel();
    server.send(confirmed("a"));
    assert!(server.is_parked());
}

/// Otherwise the loss of the next client's request would count as that of a refused one.
#[test]
pub(crate) fn a_client_that_leaves_meanwhile_leaves_no_refusal() {
    let (rig, client, _first) = moved_in(clusters::rig());
    client.send(use_it());
    let server = second(&rig);
    client.leave();
    rig.finish_cancel();
    server.send(confirmed("a"));
    let next = rig.client();
    next.send([query("insert")]);
    server.expect([query("insert")]);
    server.die();
    let told = show(&next.take()).concat();
    assert!(told.contains("08007"), "{told}");
}

#[test]
fn if_the_server_dies_another_one_is_asked_and_only_once() {
    let (rig, client, first) = moved();
    client.send(use_it());
    let server = second(&rig);
    server.die();
    let third = rig.server(2);
    third.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
    third.die();
    client.expect_lost();
    drop(first);
}

/// A client that was told the columns of its statement; None for no columns. Another client has the
/// server now, and no server has reported a schema change.
fn told(mode: PoolMode, column: Option<&str>) -> (Rig, Client, Server) {
    told_of("select", mode, column)
}

fn told_of(text: &str, mode: PoolMode, column: Option<&str>) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.pool_mode = mode;
        config.global.default_pool_size = 2;
    });
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("mine", text), describe("mine"), sync()]);
    first.send([parsed(), parameters(), column.map_or_else(no_data, columns), ready('I')]);
    client.take();
    if text.starts_with("execute") {
        // The first server is probed.
        first.send([done("SELECT")]);
    }
    rig.client().send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    (rig, client, first)
}

#[test]
fn in_auto_mode_a_change_need_not_have_been_seen() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    client.send(use_it());
    let server = second(&rig);
    server.send(confirmed("b"));
    server.expect(refusal());
    server.send([refused(), ready('I')]);
    client.expect([changed(), ready('I')]);
}

#[test]
fn once_for_all_clients_of_a_server() {
    let (rig, client, first) = told(PoolMode::Auto, Some("a"));
    client.send(use_it());
    let server = second(&rig);
    server.send(confirmed("a"));
    server.send([bound(), complete("SELECT 1"), ready('I')]);
    server.take();
    let another = rig.client();
    another.send([parse("theirs", "select"), describe("theirs"), sync()]);
    server.expect([describe("weir_1"), sync()]);
    server.send([parameters(), columns("a"), ready('I')]);
    another.take();
    for name in ["theirs", "theirs"] {
        another.send([bind(name), execute(), sync()]);
        server.expect([bind("weir_1"), execute(), sync()]);
        server.send([bound(), complete("SELECT 1"), ready('I')]);
    }
    drop(first);
}

#[test]
fn a_copy_that_others_have_had_prepared_since_is_asked_about_or_known() {
    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    let other = rig.client();
    other.send([parse("theirs", "select"), sync()]);
    let server = rig.server(1);
    server.expect([parse("weir_1", "select"), sync()]);
    server.send([parsed(), ready('I')]);
    client.send(use_it());
    server.expect(confirmation());
    server.send(confirmed("a"));
    server.expect([bind("weir_1"), execute(), sync()]);

    let (rig, client, _first) = told(PoolMode::Auto, Some("a"));
    let other = rig.client();
    other.send([parse("theirs", "select"), describe("theirs"), sync()]);
    let server = rig.server(1);
    server.expect([parse("weir_1", "select"), describe("weir_1"), sync()]);
    server.send([parsed(), parameters(), columns("b"), ready('I')]);
    client.send(use_it());
    server.expect(confirmation());
    server.send(confirmed("b"));
    server.expect(refusal());
}

#[test]
fn a_copy_that_is_older_than_the_clients_description_is_prepared_again() {
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 2;
    });
    let [client, stranger, other] = [rig.client(), rig.client(), rig.client()];
    let first = rig.server(0);
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    first.send([parsed(), parameters(), columns("a"), ready('I')]);
    stranger.send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    first.take();
    other.send([parse("theirs", "select"), describe("theirs"), sync()]);
    rig.server(1).send([parsed(), parameters(), columns("b"), ready('I')]);
    other.take();
    stranger.send([query("commit")]);
    first.answers("commit");
    other.send([bind("theirs"), execute(), sync()]);
    first.expect(confirmation());
    first.send(confirmed("b"));
    first.expect([bind("weir_1"), execute(), sync()]);
}

#[test]
fn a_text_that_names_another_statement_is_not_asked_about() {
    let (rig, client, _first) = told_of("execute other", PoolMode::Auto, Some("a"));
    client.send(use_it());
    let server = rig.server(1);
    server.expect([parse("weir_1", "execute other"), bind("weir_1"), execute(), sync()]);
}

#[test]
fn a_statement_without_rows_is_not_asked_about() {
    let (rig, client, _first) = told(PoolMode::Auto, None);
    client.send(use_it());
    let server = rig.server(1);
    server.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
}

#[test]
fn in_transaction_mode_only_a_change_that_was_seen_costs_a_question() {
    let (rig, client, _first) = told(PoolMode::Transaction, Some("a"));
    client.send(use_it());
    let server = rig.server(1);
    server.expect([parse("weir_1", "select"), bind("weir_1"), execute(), sync()]);
}

/// PostgreSQL reports the new default while Weir asks about the statement.
#[test]
pub(crate) fn a_reload_changes_no_value() {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let client = rig.client_with(0, &[("TimeZone", "UTC")]);
    let first = rig.server(0);
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    first.send([parsed(), parameters(), columns("a"), ready('I')]);
    client.take();
    rig.client().send([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    client.send(use_it());
    let server = second(&rig);
    let [closed, parsed, parameters, columns, is_ready] = confirmed("a");
    server.send([closed, parsed, parameters, columns]);
    server.send([status("TimeZone", "Europe/Berlin"), is_ready]);
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    server.expect([bind("weir_1"), execute(), sync()]);
    server.send([bound(), row("1"), done("SELECT 1")]);
    client.expect([bound(), row("1"), done("SELECT 1")]);
}

/// Half a message follows the answer. The client's next request goes to the same server.
#[test]
pub(crate) fn once_for_each_request() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    server.take();
    server.send([parsed(), parameters(), columns("a"), ready('I')]);
    client.take();
    let (half, rest) = (notice("half")[..3].to_vec(), notice("half")[3..].to_vec());
    for before in [Vec::new(), rest] {
        client.send(use_it());
        server.expect([bind("weir_1"), execute(), sync()]);
        server.send([before, changed(), ready('I')]);
        client.take();
        server.expect(confirmation());
        server.send(confirmed("a"));
        server.expect([bind("weir_1"), execute(), sync()]);
        server.send([bound(), complete("SELECT 1"), ready('I'), half.clone()]);
        client.expect([bound(), complete("SELECT 1"), ready('I')]);
    }
}
