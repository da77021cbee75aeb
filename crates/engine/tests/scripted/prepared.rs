//! Named prepared statements in transaction mode. A client keeps its names on every server. A
//! server knows each text by one name, `weir_N`.

use engine::ledger::OWED_MAX;

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

/// The client's messages, the server's part of them, the server's answer, the client's part of
/// that.
fn talk<const A: usize, const B: usize, const C: usize, const D: usize>(
    (client, server): (&Client, &Server),
    asked: [Message; A],
    forwarded: [Message; B],
    answered: [Message; C],
    returned: [Message; D],
) {
    client.send(asked);
    server.expect(forwarded);
    server.send(answered);
    client.expect(returned);
}

#[test]
fn a_statement_is_used_under_the_clients_name() {
    let (_rig, client, server) = prepared();
    talk(
        (&client, &server),
        [bind("a"), describe("a"), execute(), sync()],
        [bind("weir_1"), describe("weir_1"), execute(), sync()],
        [bound(), no_data(), complete("SELECT 1"), ready('I')],
        [bound(), no_data(), complete("SELECT 1"), ready('I')],
    );
    assert!(server.is_parked());
}

#[test]
fn equal_texts_are_parsed_once() {
    let (rig, _client, server) = prepared();
    let other = rig.client();
    talk(
        (&other, &server),
        [parse("b", "select 1"), bind("b"), execute(), sync()],
        [bind("weir_1"), execute(), sync()],
        [bound(), complete("SELECT 1"), ready('I')],
        [parsed(), bound(), complete("SELECT 1"), ready('I')],
    );
}

/// Replies without a server could otherwise pile up without limit.
#[test]
fn with_many_owed_replies_messages_without_a_server_are_answered_at_once() {
    let (_rig, client, server) = prepared();
    for _ in 0..OWED_MAX {
        client.send([parse("b", "select 1"), close("b")]);
    }
    server.expect([]);
    client.send([sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    let answers = client.take();
    assert_eq!(
        answers,
        [vec![[parsed(), closed()].concat(); OWED_MAX].concat(), ready('I')].concat()
    );
    assert!(server.is_parked());
}

#[test]
fn after_a_change_of_the_schema_a_text_is_parsed_anew() {
    for change in ["CREATE TABLE", "ALTER TABLE", "DROP TABLE", "DROP FUNCTION"] {
        let (rig, client, server) = prepared();
        let other = rig.client();
        talk(
            (&other, &server),
            [query("change")],
            [query("change")],
            [complete(change), ready('I')],
            [complete(change), ready('I')],
        );
        talk(
            (&other, &server),
            [parse("b", "select 1"), bind("b"), sync()],
            [parse("weir_2", "select 1"), bind("weir_2"), sync()],
            [parsed(), bound(), ready('I')],
            [parsed(), bound(), ready('I')],
        );
        // A client that had the name before keeps it, as on a direct connection.
        client.send([bind("a"), sync()]);
        server.expect([bind("weir_1"), sync()]);
    }
}

#[test]
fn a_statement_parsed_during_a_schema_change_may_have_seen_either_schema() {
    let (rig, client, server) = prepared();
    for (asked, done, status) in [("begin", "BEGIN", 'T'), ("drop", "DROP TABLE", 'T')] {
        client.send([query(asked)]);
        server.take();
        server.send([complete(done), ready(status)]);
    }
    client.send([parse("b", "select 1"), sync()]);
    server.expect([parse("weir_2", "select 1"), sync()]);
    server.send([parsed(), ready('T')]);
    client.send([query("rollback")]);
    server.take();
    server.send([complete("ROLLBACK"), ready('I')]);
    rig.client().send([parse("c", "select 1"), sync()]);
    server.expect([parse("weir_3", "select 1"), sync()]);
}

#[test]
fn equal_names_may_stand_for_different_texts() {
    let (rig, client, server) = prepared();
    let other = rig.client();
    talk(
        (&other, &server),
        [parse("a", "select 2"), bind("a"), sync()],
        [parse("weir_2", "select 2"), bind("weir_2"), sync()],
        [parsed(), bound(), ready('I')],
        [parsed(), bound(), ready('I')],
    );
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
}

#[test]
fn another_server_is_taught_first() {
    let rig = Rig::of_size(2);
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    first.take();
    first.send([parsed(), ready('I')]);
    client.take();
    let busy = rig.client();
    busy.send([query("begin")]);
    client.send([bind("a"), execute(), sync()]);
    let second = rig.server(1);
    second.expect([parse("weir_1", "select 1"), bind("weir_1"), execute(), sync()]);
    second.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    client.expect([bound(), complete("SELECT 1"), ready('I')]);
}

#[test]
fn teaching_that_fails_is_the_clients_error_and_is_tried_again() {
    let rig = Rig::of_size(2);
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    first.send([parsed(), ready('I')]);
    client.take();
    rig.client().send([query("begin")]);
    client.send([bind("a"), execute(), sync()]);
    let second = rig.server(1);
    let failed = error("42P01", "relation does not exist");
    for _ in 0..2 {
        second.expect([parse("weir_1", "select 1"), bind("weir_1"), execute(), sync()]);
        second.send([failed.clone(), ready('I')]);
        client.expect([failed.clone(), ready('I')]);
        client.send([bind("a"), execute(), sync()]);
    }
}

#[test]
fn an_unknown_name_is_the_servers_to_refuse_in_the_clients_words() {
    let (_rig, client, server) = prepared();
    let unknown = error("26000", "prepared statement \"x\" does not exist");
    for ask in [bind, describe] {
        talk(
            (&client, &server),
            [ask("x"), sync()],
            [ask("x"), sync()],
            [unknown.clone(), ready('I')],
            [unknown.clone(), ready('I')],
        );
    }
    assert!(client.is_open() && server.is_parked());
}

#[test]
fn a_name_of_ours_in_a_clients_mouth_finds_nothing() {
    let (_rig, client, server) = prepared();
    client.send([bind("weir_1"), describe("weir_1"), sync()]);
    server.expect([bind("client's weir_1"), describe("client's weir_1"), sync()]);
    let unknown = error("26000", "prepared statement \"client's weir_1\" does not exist");
    server.send([unknown.clone(), ready('I')]);
    client.expect([unknown, ready('I')]);
    // The client may use such a name like any other.
    talk(
        (&client, &server),
        [parse("weir_1", "select 2"), bind("weir_1"), sync()],
        [parse("weir_2", "select 2"), bind("weir_2"), sync()],
        [parsed(), bound(), ready('I')],
        [parsed(), bound(), ready('I')],
    );
}

#[test]
fn a_taken_name_is_refused_in_the_clients_words() {
    let (_rig, client, server) = prepared();
    talk(
        (&client, &server),
        [parse("a", "select 2"), sync()],
        [parse("weir_1", "select 2"), sync()],
        [error("42P05", "prepared statement \"weir_1\" already exists"), ready('I')],
        [error("42P05", "prepared statement \"a\" already exists"), ready('I')],
    );
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
}

#[test]
fn a_taken_name_is_told_even_if_the_text_has_others() {
    let (_rig, client, server) = prepared();
    let names: Vec<String> = (0..8).map(|n| format!("name {n}")).collect();
    for name in &names {
        client.send([parse(name, "select 1"), sync()]);
        server.expect([sync()]);
        server.send([ready('I')]);
        client.expect([parsed(), ready('I')]);
    }
    for name in &names {
        client.send([parse(name, "select 2"), sync()]);
        server.take();
        server.send([error("42P05", "prepared statement \"weir_1\" already exists"), ready('I')]);
        let told = format!("prepared statement \"{name}\" already exists");
        client.expect([error("42P05", &told), ready('I')]);
    }
}

#[test]
fn a_taken_name_is_refused_by_a_server_that_must_learn_it_first() {
    let rig = Rig::of_size(2);
    let (client, first) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), sync()]);
    first.send([parsed(), ready('I')]);
    client.take();
    rig.client().send([query("begin")]);
    client.send([parse("a", "select 2"), sync()]);
    let second = rig.server(1);
    second.expect([parse("weir_1", "select 1"), parse("weir_1", "select 2"), sync()]);
    let taken = |name| error("42P05", &format!("prepared statement \"{name}\" already exists"));
    second.send([parsed(), taken("weir_1"), ready('I')]);
    client.expect([taken("a"), ready('I')]);
}

#[test]
fn a_closed_name_is_free_and_the_server_keeps_the_text() {
    let (_rig, client, server) = prepared();
    talk((&client, &server), [close("a"), sync()], [sync()], [ready('I')], [closed(), ready('I')]);
    client.send([bind("a"), sync()]);
    server.expect([bind("a"), sync()]);
    server.send([error("26000", "no"), ready('I')]);
    client.take();
    talk(
        (&client, &server),
        [parse("a", "select 2"), close("a"), parse("a", "select 1"), bind("a"), sync()],
        [parse("weir_2", "select 2"), bind("weir_1"), sync()],
        [parsed(), bound(), ready('I')],
        [parsed(), closed(), parsed(), bound(), ready('I')],
    );
}

#[test]
fn closing_what_is_not_there_is_no_error() {
    let (_rig, client, server) = prepared();
    talk((&client, &server), [close("x"), sync()], [sync()], [ready('I')], [closed(), ready('I')]);
}

#[test]
fn portals_are_the_clients_own_affair() {
    let (_rig, client, server) = prepared();
    talk(
        (&client, &server),
        [describe_portal(), close_portal("a"), sync()],
        [describe_portal(), close_portal("a"), sync()],
        [no_data(), closed(), ready('I')],
        [no_data(), closed(), ready('I')],
    );
}

#[test]
fn a_failing_parse_takes_the_later_ones_of_its_batch_along() {
    let (rig, client, server) = prepared();
    let failed = error("42601", "syntax error");
    talk(
        (&client, &server),
        [parse("b", "selec"), parse("c", "select 3"), parse("d", "select 1"), close("a"), sync()],
        [parse("weir_2", "selec"), parse("weir_3", "select 3"), sync()],
        [failed.clone(), ready('I')],
        [failed, ready('I')],
    );
    // None of the three names is in use. The server has only the first text.
    talk(
        (&client, &server),
        [parse("b", "select 3"), parse("d", "select 1"), sync()],
        [parse("weir_4", "select 3"), sync()],
        [parsed(), ready('I')],
        [parsed(), parsed(), ready('I')],
    );
    // The server skipped the Close as well.
    client.send([bind("a"), bind("c"), sync()]);
    server.expect([bind("weir_1"), bind("c"), sync()]);
    drop(rig);
}

#[test]
fn an_earlier_success_of_the_batch_stays() {
    let (_rig, client, server) = prepared();
    client.send([parse("b", "select 2"), bind("x"), parse("c", "select 3"), sync()]);
    server.take();
    server.send([parsed(), error("26000", "no"), ready('I')]);
    client.take();
    client.send([bind("b"), bind("c"), sync()]);
    server.expect([bind("weir_2"), bind("c"), sync()]);
}

#[test]
fn in_a_failed_transaction_the_server_judges_the_text() {
    let (rig, _client, server) = prepared();
    let other = rig.client();
    other.send([query("begin"), query("fails")]);
    server.take();
    server.send([complete("BEGIN"), ready('T'), error("1", "no"), ready('E')]);
    other.take();
    let aborted = error("25P02", "current transaction is aborted");
    talk(
        (&other, &server),
        [parse("b", "select 1"), sync()],
        [close("weir_1"), parse("weir_1", "select 1"), sync()],
        [closed(), aborted.clone(), ready('E')],
        [aborted, ready('E')],
    );
    other.send([query("rollback")]);
    server.answers("rollback");
    other.take();
    other.send([bind("b"), sync()]);
    server.expect([bind("b"), sync()]);
}

#[test]
fn discard_all_forgets_what_was_before_it_in_the_pipeline() {
    for (tag, forgets) in [("DISCARD ALL", true), ("DEALLOCATE ALL", true), ("DISCARD TEMP", false)]
    {
        let (_rig, client, server) = prepared();
        client.send([query("discard"), parse("b", "select 2"), sync()]);
        server.expect([query("discard"), parse("weir_2", "select 2"), sync()]);
        server.send([done(tag), parsed(), ready('I')]);
        client.expect([done(tag), parsed(), ready('I')]);
        client.send([bind("a"), bind("b"), sync()]);
        let a = if forgets { "a" } else { "weir_1" };
        server.expect([bind(a), bind("weir_2"), sync()]);
    }
}

#[test]
fn a_failure_is_told_with_the_name_that_was_used() {
    let unknown = |name| error("26000", &format!("prepared statement \"{name}\" does not exist"));
    let (_rig, client, server) = prepared();
    // By the time of the error, the client has closed the name.
    client.send([query("do"), bind("a"), sync()]);
    server.expect([query("do"), bind("weir_1"), sync()]);
    server.send([done("DEALLOCATE ALL"), unknown("weir_1"), ready('I')]);
    client.expect([done("DEALLOCATE ALL"), unknown("a"), ready('I')]);

    let (_rig, client, server) = prepared();
    let refused = |name| error("08P01", &format!("\"{name}\" requires 2"));
    client.send([bind("a"), sync(), close("a"), sync()]);
    server.expect([bind("weir_1"), sync(), sync()]);
    server.send([refused("weir_1"), ready('I'), ready('I')]);
    client.expect([refused("a"), ready('I'), closed(), ready('I')]);

    // A client may have several names for one statement.
    let (_rig, client, server) = prepared();
    for name in ["b", "c", "d", "e"] {
        client.send([parse(name, "select 1"), bind(name), sync()]);
        server.expect([bind("weir_1"), sync()]);
        server.send([refused("weir_1"), ready('I')]);
        client.expect([parsed(), refused(name), ready('I')]);
    }
}

#[test]
fn one_clients_discard_leaves_the_others_their_names() {
    let (rig, client, server) = prepared();
    let other = rig.client();
    other.send([query("discard all")]);
    server.take();
    server.send([done("DISCARD ALL")]);
    client.send([bind("a"), sync()]);
    server.expect([parse("weir_1", "select 1"), bind("weir_1"), sync()]);
}

#[test]
pub(crate) fn a_statement_that_the_server_has_lost_is_prepared_again() {
    // A function may run DEALLOCATE, and no tag reports it.
    let (_rig, client, server) = prepared();
    let lost = |name| error("26000", &format!("prepared statement \"{name}\" does not exist"));
    client.send([parse("b", "select 2"), sync()]);
    server.expect([parse("weir_2", "select 2"), sync()]);
    server.send([parsed(), ready('I')]);
    client.take();
    // Outside a transaction, the client does not notice.
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([lost("weir_1"), ready('I')]);
    server.expect([close("weir_1"), parse("weir_1", "select 1"), describe("weir_1"), sync()]);
    server.send([closed(), parsed(), parameters(), no_data(), ready('I')]);
    server.expect([bind("weir_1"), sync()]);
    server.send([bound(), ready('I')]);
    client.expect([bound(), ready('I')]);
    // The other one may be lost as well, or still be there.
    client.send([bind("b"), sync()]);
    server.expect([close("weir_2"), parse("weir_2", "select 2"), bind("weir_2"), sync()]);
    server.send([closed(), parsed(), bound(), ready('I')]);
    client.expect([bound(), ready('I')]);
    // In a transaction, the client is told, once.
    client.send([query("begin")]);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    talk(
        (&client, &server),
        [bind("a"), sync()],
        [bind("weir_1"), sync()],
        [lost("weir_1"), ready('E')],
        [lost("a"), ready('E')],
    );
    talk(
        (&client, &server),
        [query("rollback")],
        [query("rollback")],
        [complete("ROLLBACK"), ready('I')],
        [complete("ROLLBACK"), ready('I')],
    );
    client.send([bind("b"), sync()]);
    server.expect([close("weir_2"), parse("weir_2", "select 2"), bind("weir_2"), sync()]);
}

/// The server has sent nothing before the error, so the client gets the whole answer.
#[test]
pub(crate) fn a_lost_statement_is_described_as_a_whole() {
    let (_rig, client, server) = prepared();
    let lost = |name| error("26000", &format!("prepared statement \"{name}\" does not exist"));
    client.send([describe("a"), sync()]);
    server.expect([describe("weir_1"), sync()]);
    server.send([lost("weir_1"), ready('I')]);
    server.expect([close("weir_1"), parse("weir_1", "select 1"), describe("weir_1"), sync()]);
    server.send([closed(), parsed(), parameters(), columns("one"), ready('I')]);
    server.expect([describe("weir_1"), sync()]);
    server.send([parameters(), columns("one"), ready('I')]);
    client.expect([parameters(), columns("one"), ready('I')]);
}

#[test]
fn a_lost_statement_that_cannot_be_prepared_again_fails_with_the_reason() {
    let (_rig, client, server) = prepared();
    let lost = |name| error("26000", &format!("prepared statement \"{name}\" does not exist"));
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([lost("weir_1"), ready('I')]);
    server.expect([close("weir_1"), parse("weir_1", "select 1"), describe("weir_1"), sync()]);
    server.send([closed(), error("42P01", "no such table"), ready('I')]);
    client.expect([error("42P01", "no such table"), ready('I')]);
}

/// Its table has changed since the client was told the columns: PostgreSQL's error for that, and not that
/// the statement is missing.
#[test]
fn a_lost_statement_with_other_columns_is_refused() {
    let (_rig, client, server) = prepared();
    let lost = |name| error("26000", &format!("prepared statement \"{name}\" does not exist"));
    talk(
        (&client, &server),
        [describe("a"), sync()],
        [describe("weir_1"), sync()],
        [parameters(), columns("one"), ready('I')],
        [parameters(), columns("one"), ready('I')],
    );
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([lost("weir_1"), ready('I')]);
    server.expect([close("weir_1"), parse("weir_1", "select 1"), describe("weir_1"), sync()]);
    server.send([closed(), parsed(), parameters(), columns("other"), ready('I')]);
    client.expect([crate::outdated::changed(), ready('I')]);
}

#[test]
fn a_server_that_already_has_one_of_weirs_names_is_closed() {
    let (_rig, client, server) = prepared();
    let taken = |name| error("42P05", &format!("prepared statement \"{name}\" already exists"));
    talk(
        (&client, &server),
        [parse("b", "select 2"), sync()],
        [parse("weir_2", "select 2"), sync()],
        [taken("weir_2"), ready('I')],
        [taken("weir_2"), ready('I')],
    );
    assert!(!server.is_open());
}

#[test]
fn session_mode_leaves_names_alone() {
    let rig = Rig::session();
    let (client, server) = (rig.client(), rig.server(0));
    let asked = [parse("a", "select 1"), bind("a"), describe("a"), close("a"), sync()];
    client.send(asked.clone());
    server.expect(asked);
}

#[test]
fn tracking_can_be_switched_off() {
    let rig = Rig::new(|config| config.global.max_prepared_statements = 0);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "select 1"), bind("a"), sync()]);
    server.expect([parse("a", "select 1"), bind("a"), sync()]);
}

#[test]
fn a_server_keeps_so_many_texts_and_closes_the_least_used() {
    let rig = Rig::new(|config| config.global.max_prepared_statements = 2);
    let (client, server) = (rig.client(), rig.server(0));
    for (name, own) in [("a", "weir_1"), ("b", "weir_2")] {
        client.send([parse(name, name), sync()]);
        server.expect([parse(own, name), sync()]);
        server.send([parsed(), ready('I')]);
    }
    client.send([bind("a"), sync()]);
    server.take();
    server.send([bound(), ready('I')]);
    client.take();
    talk(
        (&client, &server),
        [parse("c", "c"), sync()],
        [close("weir_2"), parse("weir_3", "c"), sync()],
        [closed(), parsed(), ready('I')],
        [parsed(), ready('I')],
    );
    talk(
        (&client, &server),
        [bind("b"), sync()],
        [close("weir_1"), parse("weir_2", "b"), bind("weir_2"), sync()],
        [closed(), parsed(), bound(), ready('I')],
        [bound(), ready('I')],
    );
}

/// Weir does not know whether the server had the statement before.
#[test]
fn after_an_eviction_that_was_skipped_the_statement_is_prepared_again() {
    let rig = Rig::new(|config| config.global.max_prepared_statements = 1);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("a", "a"), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    client.take();
    client.send([bind("x"), parse("b", "b"), sync()]);
    server.expect([bind("x"), close("weir_1"), parse("weir_2", "b"), sync()]);
    server.send([error("26000", "no"), ready('I')]);
    client.send([bind("a"), sync()]);
    server.expect([close("weir_1"), parse("weir_1", "a"), bind("weir_1"), sync()]);
}

/// A client has prepared `a`. A query with this command tag has reset its server.
fn prepared_and_reset(tag: &str) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        config.global.server_reset_query = "clean up".into();
        config.global.server_reset_query_always = true;
    });
    let client = rig.client();
    let server = rig.server(0);
    server.answers("clean up");
    client.send([parse("a", "select 1"), sync()]);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    server.expect([query("clean up")]);
    server.send([done(tag)]);
    client.expect([parsed(), ready('I')]);
    (rig, client, server)
}

#[test]
fn a_reset_that_spares_the_statements_is_not_taken_for_one_that_does_not() {
    let (_rig, client, server) = prepared_and_reset("RESET");
    client.send([bind("a"), sync()]);
    server.expect([bind("weir_1"), sync()]);
}

#[test]
fn after_a_reset_that_discards_them_statements_are_prepared_again() {
    let (_rig, client, server) = prepared_and_reset("DISCARD ALL");
    client.send([bind("a"), sync()]);
    server.expect([parse("weir_1", "select 1"), bind("weir_1"), sync()]);
}

/// It was to be evicted in a batch that failed. Meanwhile it was discarded, so it may not be there.
#[test]
pub(crate) fn a_discarded_statement_is_prepared_again() {
    let rig = Rig::new(|config| config.global.max_prepared_statements = 1);
    let (other, server) = (rig.client(), rig.server(0));
    other.send([parse("a", "select 1"), sync()]);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    let client = rig.client();
    client.send([query("DEALLOCATE ALL"), parse("", "bad"), parse("b", "select 2"), sync()]);
    let batch = [parse("", "bad"), close("weir_1"), parse("weir_2", "select 2"), sync()];
    server.expect([query("DEALLOCATE ALL"), batch.concat()]);
    server.send([done("DEALLOCATE ALL"), error("42601", "syntax error"), ready('I')]);
    client.take();
    client.send([parse("c", "select 1"), sync()]);
    server.expect([close("weir_1"), parse("weir_1", "select 1"), sync()]);
}
