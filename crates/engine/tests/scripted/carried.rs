//! Auto mode: a client's settings are carried from server to server, whatever happens in between.

use std::time::Duration;

use config::{Config, PoolMode, Unsupported};
use engine::pool::Gate;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

pub(crate) fn auto(change: impl FnOnce(&mut Config)) -> Rig {
    Rig::new(|config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 1;
        change(config);
    })
}

/// Answers the probe: the server has these settings.
#[track_caller]
pub(crate) fn tells(server: &Server, settings: &[(&str, &str)]) {
    let question = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(question.starts_with("Q") && question.contains("found (kind"), "{question}");
    let rows = settings.iter().map(|(name, value)| item_of('s', name, value));
    server.send(rows.chain([done("SELECT")]));
}

#[track_caller]
pub(crate) fn sets(client: &Client, server: &Server, name: &str, value: &str) {
    let sql = format!("SET {name} = {value}");
    client.send([query(&sql)]);
    server.answers(&sql);
    client.expect([done("OK")]);
    tells(server, &[(name, value)]);
    assert!(server.is_parked());
}

pub(crate) const WORK_MEM: &str = "SELECT pg_catalog.set_config('work_mem','5MB',false) IS NULL;";
const ROLE: &str = "SELECT pg_catalog.set_config('role','r',false) IS NULL;";

#[test]
fn a_client_that_leaves_while_settings_are_applied_leaves_none() {
    let rig = auto(|_| {});
    let [first, second] = [rig.client(), rig.client()];
    let server = rig.server(0);
    sets(&first, &server, "work_mem", "5MB");
    second.send([query("SELECT 1")]);
    server.answers("RESET \"work_mem\";");
    server.answers("SELECT 1");
    first.send([query("SELECT 2")]);
    server.expect([query(WORK_MEM)]);
    first.leave();
    server.send([done("SELECT")]);
    server.answers("DISCARD ALL");
    second.send([query("SELECT 3")]);
    server.expect([query("SELECT 3")]);
}

#[test]
fn a_server_that_has_the_clients_settings_is_given_to_it_and_not_the_one_used_last() {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let [first, second, third] = [rig.client(), rig.client(), rig.client()];
    let one = rig.server(0);
    sets(&first, &one, "work_mem", "5MB");
    first.send([query("BEGIN")]);
    one.expect([query("BEGIN")]);
    one.send([complete("BEGIN"), ready('T')]);
    second.send([query("SET work_mem = 6MB")]);
    let other = rig.server(1);
    other.answers("SET work_mem = 6MB");
    tells(&other, &[("work_mem", "6MB")]);
    first.send([query("COMMIT")]);
    one.answers("COMMIT");
    assert!(one.is_parked() && other.is_parked());
    for (client, server) in
        [(&second, &other), (&second, &other), (&first, &one), (&second, &other)]
    {
        client.send([query("SELECT 1")]);
        server.answers("SELECT 1");
        assert!(server.is_parked());
    }
    // No server's settings match, so the one that was used longest ago is changed.
    third.send([query("SELECT 2")]);
    one.answers("RESET \"work_mem\";");
    one.answers("SELECT 2");
}

#[test]
fn a_client_that_loses_state_with_its_server_is_told() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    client.send([query("CREATE TEMP TABLE mine (n int)")]);
    server.answers("CREATE TEMP TABLE mine (n int)");
    client.expect([done("OK")]);
    server.take();
    server.send([row("t"), done("SELECT")]);
    // Any other server could begin the transaction, but does not have the table.
    client.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.die();
    client.expect_lost();
    assert_eq!(rig.servers(), 1);
}

#[test]
fn a_pinned_client_whose_server_refuses_its_setting_is_told() {
    for refused in [false, true] {
        let rig = auto(|_| {});
        let client = rig.client_with(0, &[("work_mem", "5MB")]);
        let server = rig.server(0);
        client.send([query("CREATE TEMP TABLE mine (n int); RESET work_mem")]);
        server.answers(WORK_MEM);
        server.answers("CREATE TEMP TABLE mine (n int); RESET work_mem");
        client.expect([done("OK")]);
        server.take();
        server.send([row("t"), done("SELECT")]);
        server.expect([query(WORK_MEM)]);
        if refused {
            server.send([error("55000", "not now"), ready('I')]);
            client.expect_fatal("server refused session settings: not now");
        } else {
            server.die();
            client.expect_lost();
        }
        assert!(!server.is_open());
        assert_eq!(rig.servers(), 1);
    }
}

#[test]
fn a_transaction_is_probed_also_if_half_a_message_followed_it() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    // Copy data after the copy has failed. The server does not answer it.
    let leftover = [b'd', 0, 0, 0, 8, b'r', b'o', b'w', b's'];
    client.send([query("SET work_mem = '5MB'"), leftover[..6].to_vec()]);
    server.expect([query("SET work_mem = '5MB'"), leftover[..6].to_vec()]);
    server.send([done("SET")]);
    client.expect([done("SET")]);
    client.send([leftover[6..].to_vec()]);
    let sent = server.take();
    let question = sent.strip_prefix(&leftover[6..]).expect("the rest of the message");
    assert!(String::from_utf8_lossy(question).contains("found (kind"), "{sent:?}");
}

#[test]
fn after_a_reset_query_weir_believes_that_no_setting_is_left() {
    let rig = auto(|config| config.global.server_reset_query_always = true);
    let client = rig.client();
    let server = rig.server(0);
    server.answers("DISCARD ALL");
    client.send([query("SET work_mem = '5MB'")]);
    server.answers("SET work_mem = '5MB'");
    tells(&server, &[("work_mem", "5MB")]);
    server.answers("DISCARD ALL");
    assert!(server.is_parked());
    client.send([query("SELECT 1")]);
    server.answers(WORK_MEM);
    server.answers("SELECT 1");
}

#[test]
fn a_server_that_ran_auth_query_has_no_clients_settings() {
    let rig = auto(|config| {
        config.global.auth_user = Some("alice".into());
        config.global.auth_type = config::AuthType::Plain;
    });
    let alice = rig.connect();
    alice.say_hello(&[]);
    alice.take();
    alice.send([password("secret")]);
    alice.take();
    let server = rig.server(0);
    sets(&alice, &server, "work_mem", "5MB");
    let bob = rig.connect();
    bob.say_hello_as("bob", "app");
    server.answers("RESET \"work_mem\";");
    server.take();
    // The probe's answer begins with the search_path that the probe sets for itself.
    server.send([parsed(), bound(), row("pg_catalog, pg_temp"), complete("SELECT 1")]);
    server.send([parsed(), bound(), no_data(), complete("SELECT 0"), ready('I')]);
    bob.expect_fatal("no such user");
    // Weir would not set it again if it believed that the server has it.
    alice.send([query("SELECT 1")]);
    server.answers(WORK_MEM);
    server.expect([query("SELECT 1")]);
}

#[test]
fn refused_settings_are_tried_in_another_order_and_then_on_a_new_server() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let first = rig.server(0);
    client.send([query("SET a.b = 1; SET ROLE r")]);
    first.answers("SET a.b = 1; SET ROLE r");
    client.expect([done("OK")]);
    tells(&first, &[("role", "r"), ("work_mem", "5MB")]);
    other.send([query("SELECT 1")]);
    first.answers("RESET ROLE;RESET \"work_mem\";");
    first.answers("SELECT 1");
    let (who_first, who_last) = (format!("{ROLE}{WORK_MEM}"), format!("{WORK_MEM}{ROLE}"));
    let refusal = || [error("42501", "permission denied"), ready('I')];
    client.send([query("SELECT 2")]);
    first.expect([query(&who_first)]);
    first.send(refusal());
    first.expect([query(&who_last)]);
    first.send(refusal());
    assert!(!first.is_open());
    let second = rig.server(1);
    second.expect([query(&who_first)]);
    second.send(refusal());
    second.answers(&who_last);
    second.answers("SELECT 2");
    client.expect([done("OK")]);
    // Weir starts with the order that worked. A client that a new server also refuses is
    // disconnected.
    other.take();
    other.send([query("SELECT 3")]);
    second.answers("RESET ROLE;RESET \"work_mem\";");
    second.answers("SELECT 3");
    client.send([query("SELECT 4")]);
    for at in [1, 2] {
        let server = rig.server(at);
        for sql in [&who_last, &who_first] {
            server.expect([query(sql)]);
            server.send(refusal());
        }
    }
    client.expect_fatal("server refused session settings: permission denied");
}

#[test]
fn a_client_whose_new_server_suits_it_is_given_a_new_one_again() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let first = rig.server(0);
    sets(&client, &first, "work_mem", "6MB");
    client.send([query("RESET work_mem")]);
    first.answers("RESET work_mem");
    client.expect([done("OK")]);
    tells(&first, &[]);
    sets(&other, &first, "work_mem", "5MB");
    client.send([query("SELECT 1")]);
    first.expect([query("RESET \"work_mem\";")]);
    first.send([error("55000", "not now"), ready('I')]);
    assert!(!first.is_open());
    // The second server needs no change.
    let second = rig.server(1);
    second.answers("SELECT 1");
    client.expect([done("OK")]);
    sets(&client, &second, "work_mem", "6MB");
    second.die();
    // Other clients have used the server and left nothing.
    let plain = rig.client();
    plain.send([query("SELECT 2")]);
    let third = rig.server(2);
    third.answers("SELECT 2");
    plain.expect([done("OK")]);
    let set = "SELECT pg_catalog.set_config('work_mem','6MB',false) IS NULL;";
    client.send([query("SELECT 3")]);
    third.expect([query(set)]);
    third.send([error("55000", "not now"), ready('I')]);
    let fourth = rig.server(3);
    fourth.answers(set);
    fourth.answers("SELECT 3");
    client.expect([done("OK")]);
}

#[test]
fn in_a_paused_pool_a_client_with_refused_settings_waits() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let first = rig.server(0);
    sets(&client, &first, "work_mem", "5MB");
    other.send([query("SELECT 1")]);
    first.answers("RESET \"work_mem\";");
    first.answers("SELECT 1");
    client.send([query("SELECT 2")]);
    first.expect([query(WORK_MEM)]);
    rig.order(|pool| pool.set_gate(Gate::Paused));
    first.send([error("22023", "not now"), ready('I')]);
    assert!(!first.is_open() && client.is_open());
    assert_eq!(rig.servers(), 1);
    rig.order(|pool| pool.set_gate(Gate::Open));
    let second = rig.server(1);
    second.answers(WORK_MEM);
    second.answers("SELECT 2");
    client.expect([done("OK")]);
}

#[test]
fn a_long_text_is_looked_at_while_it_is_passed_on() {
    let rig = auto(|_| {});
    rig.set_chunk(10_000);
    let client = rig.client();
    let server = rig.server(0);
    let long = |word: &str| format!("SELECT '{}' {word} b", "x".repeat(70_000));
    client.send([query(&long("AS"))]);
    server.answers(&long("AS"));
    client.expect([done("OK")]);
    assert!(server.is_parked());
    client.send([query(&long("; SET work_mem = 7 --"))]);
    server.answers(&long("; SET work_mem = 7 --"));
    client.expect([done("OK")]);
    tells(&server, &[("work_mem", "7kB")]);
    assert!(server.is_parked());
    // The unnamed statement, executed in its own transaction.
    let unnamed = |word: &str| parse("", &long(word));
    for (word, leaves) in [("AS", false), ("; LISTEN", true)] {
        let statement = [unnamed(word), bind(""), execute(), sync()];
        client.send(statement.clone());
        server.expect(statement);
        server.send([parsed(), bound(), done("OK")]);
        client.expect([parsed(), bound(), done("OK")]);
        if leaves {
            tells(&server, &[]);
        }
        assert!(server.is_parked(), "{word}");
    }
}

#[test]
fn a_text_that_is_seen_too_late_to_refuse_pins_its_server() {
    for long in [true, false] {
        let rig = auto(|config| {
            config.global.auto_unsupported =
                if long { Unsupported::Error } else { Unsupported::Warn };
        });
        rig.set_chunk(10_000);
        let client = rig.client();
        let server = rig.server(0);
        if long {
            let text = format!("SELECT '{}'; LOAD 'lib'", "x".repeat(70_000));
            client.send([query(&text)]);
            server.answers(&text);
            client.expect([done("OK")]);
        } else {
            client.send([parse("mine", "SELECT setseed(1)"), sync()]);
            server.expect([parse("weir_1", "SELECT setseed(1)"), sync()]);
            server.send([parsed(), ready('I')]);
            assert!(server.is_parked());
            rig.reload(|config| config.global.auto_unsupported = Unsupported::Error);
            client.send([bind("mine"), execute(), sync()]);
            server.expect([bind("weir_1"), execute(), sync()]);
            server.send([bound(), done("SELECT")]);
        }
        tells(&server, &[]);
        assert!(!server.is_parked(), "long: {long}");
        // No other client may get this server.
        client.leave();
        assert!(!server.is_open());
    }
}

/// A text that names another table for clients with another path.
const TEXT: &str = "select * from t";

fn prepares(client: &Client, server: &Server, known_as: &str) {
    client.send([parse("mine", TEXT), sync()]);
    server.expect([parse(known_as, TEXT), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
}

#[test]
fn equal_texts_of_different_paths_are_two_statements() {
    let rig = auto(|_| {});
    let [first, second, third] = [rig.client(), rig.client(), rig.client()];
    let server = rig.server(0);
    sets(&first, &server, "search_path", "a");
    prepares(&first, &server, "weir_1");
    second.send([parse("mine", TEXT), sync()]);
    server.answers("RESET \"search_path\";");
    server.expect([parse("weir_2", TEXT), sync()]);
    server.send([parsed(), ready('I')]);
    // Clients with the same path share the statement.
    sets(&third, &server, "search_path", "a");
    third.send([parse("mine", TEXT), bind("mine"), sync()]);
    server.expect([bind("weir_1"), sync()]);
}

#[test]
fn other_settings_of_a_client_make_no_difference() {
    let rig = auto(|_| {});
    let [first, second] = [rig.client(), rig.client()];
    let server = rig.server(0);
    prepares(&first, &server, "weir_1");
    sets(&second, &server, "work_mem", "5MB");
    second.send([parse("mine", TEXT), bind("mine"), sync()]);
    server.expect([bind("weir_1"), sync()]);
}

#[test]
fn a_statement_keeps_its_meaning_when_the_path_changes() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    prepares(&client, &server, "weir_1");
    sets(&client, &server, "search_path", "a");
    // PostgreSQL may refuse it, as on a direct connection.
    client.send([bind("mine"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([bound(), ready('I')]);
    client.take();
    client.send([parse("again", TEXT), sync()]);
    server.expect([parse("weir_2", TEXT), sync()]);
}

#[test]
fn statements_parsed_after_a_change_of_the_path_in_a_transaction_are_not_shared() {
    for change in ["SET search_path = a", "SET LOCAL search_path = a", "DO ''"] {
        let rig = auto(|_| {});
        let [first, second] = [rig.client(), rig.client()];
        let server = rig.server(0);
        prepares(&first, &server, "weir_1");
        second.send([query("BEGIN")]);
        server.expect([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
        second.send([parse("before", TEXT), query(change)]);
        server.expect([query(change)]);
        server.send([complete("OK"), ready('T')]);
        second.take();
        for (name, known_as) in [("one", "weir_2"), ("two", "weir_3")] {
            second.send([parse(name, TEXT), sync()]);
            server.expect([parse(known_as, TEXT), sync()]);
            server.send([parsed(), ready('T')]);
        }
        second.send([query("COMMIT")]);
        server.answers("COMMIT");
        if !change.contains("LOCAL") {
            tells(&server, &[]);
        }
        second.take();
        assert!(server.is_parked(), "{change}");
        // After the transaction, the context is known again.
        second.send([parse("behind", TEXT), bind("behind"), sync()]);
        server.expect([bind("weir_1"), sync()]);
    }
}

#[test]
fn functions_that_were_seen_to_leave_nothing_are_not_asked_about_for_a_while() {
    const CALL: &str = "SELECT mine()";
    let rig = auto(|config| config.global.server_check_delay = Duration::from_secs(3_600));
    let client = rig.client();
    let server = rig.server(0);
    let call = || {
        client.send([query(CALL)]);
        server.expect([query(CALL)]);
        server.send([complete("SELECT 1"), ready('I')]);
        client.expect([complete("SELECT 1"), ready('I')]);
    };
    for _ in 0..8 {
        call();
        tells(&server, &[]);
    }
    for _ in 0..3 {
        call();
        assert!(server.is_parked());
    }
    rig.wait(60);
    call();
    tells(&server, &[]);
    call();
    assert!(server.is_parked());
    // Another session changes the schema.
    client.send([query("CREATE OR REPLACE FUNCTION mine() …")]);
    server.expect([query("CREATE OR REPLACE FUNCTION mine() …")]);
    server.send([complete("CREATE FUNCTION"), ready('I')]);
    client.expect([complete("CREATE FUNCTION"), ready('I')]);
    tells(&server, &[]);
    call();
    tells(&server, &[]);
}
