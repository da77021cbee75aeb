//! SQL that names a statement which its client has prepared through the protocol.

use testkit::{Message, RawClient, frontend};

use super::{pooler, settle, switch};
use crate::support;

fn prepare(client: &mut RawClient, sql: &str) -> Vec<Message> {
    client.send([frontend::parse("mine", sql), frontend::sync()].concat());
    client.read_to_ready()
}

/// SQLSTATE, or the first value.
fn outcome(answer: &[Message]) -> String {
    let told = |message: &Message| match message.tag {
        b'E' => Some(message.error()?.code().to_owned()),
        b'D' => message.row().remove(0),
        _ => None,
    };
    answer.iter().find_map(told).unwrap_or_default()
}

fn bind(client: &mut RawClient, name: &str, values: &[Option<&str>]) -> String {
    let ask = [frontend::bind("", name, values), frontend::execute("", 0)].concat();
    client.send([ask, frontend::sync()].concat());
    outcome(&client.read_to_ready())
}

fn say(client: &mut RawClient, sql: &str) -> String {
    client.send(frontend::query(sql));
    outcome(&client.read_to_ready())
}

#[test]
fn a_statement_of_the_protocol_is_found_by_sql() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for (client, number) in clients.iter_mut().zip(["1", "2"]) {
        prepare(client, &format!("SELECT $1::int + {number}"));
    }
    for _ in 0..3 {
        for (client, expected) in clients.iter_mut().zip(["11", "12"]) {
            let _held = switch(&pooler, &database);
            assert_eq!(say(client, "EXECUTE mine(10)"), expected);
            assert_eq!(say(client, "BEGIN; SELECT 0; EXECUTE Mine(10); COMMIT"), "0");
            assert_eq!(
                say(client, "/**/ EXPLAIN EXECUTE mine(3)"),
                "Result  (cost=0.00..0.01 rows=1 width=4)"
            );
            let unnamed = [
                frontend::parse("", "EXECUTE mine(10)"),
                frontend::bind("", "", &[]),
                frontend::describe_portal(""),
                frontend::execute("", 0),
                frontend::sync(),
            ];
            client.send(unnamed.concat());
            assert_eq!(outcome(&client.read_to_ready()), expected);
            client.send([frontend::parse("x", "EXECUTE mine(10)"), frontend::sync()].concat());
            client.read_to_ready();
            let _held = switch(&pooler, &database);
            assert_eq!(bind(client, "x", &[]), expected);
            client.send([frontend::close_statement("x"), frontend::sync()].concat());
            client.read_to_ready();
            assert_eq!(bind(client, "mine", &[Some("10")]), expected);
            assert_eq!(say(client, "PREPARE mine AS SELECT 1"), "42P05");
        }
    }
    // Nobody else finds it, whoever's server it gets.
    settle(&pooler);
    for _ in 0..8 {
        assert_eq!(say(&mut pooler.client(&database), "EXECUTE mine(1)"), "26000");
    }
}

#[test]
fn a_statement_deallocated_by_sql_is_gone_for_the_protocol() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let (mut client, mut other) = (pooler.client(&database), pooler.client(&database));
    prepare(&mut other, "SELECT 'other'");
    other.rows("CREATE TABLE passing (a int)");
    for (sql, table) in [("SELECT 1", ""), ("SELECT * FROM passing", "passing")] {
        for (before, order, behind) in [
            ("", "DEALLOCATE mine", ""),
            ("BEGIN", "DEALLOCATE PREPARE \"mine\"", "COMMIT"),
            ("BEGIN", "DEALLOCATE mine", "ROLLBACK"),
        ] {
            assert_eq!(outcome(&prepare(&mut client, sql)), "");
            if !table.is_empty() {
                other.rows("ALTER TABLE passing RENAME TO gone");
            }
            let _held = switch(&pooler, &database);
            for text in [before, order, "SELECT 'goes on'", behind] {
                let expected = if text.contains("goes on") { "goes on" } else { "" };
                assert_eq!(say(&mut client, text), expected, "{sql}: {text}");
            }
            if !table.is_empty() {
                other.rows("ALTER TABLE gone RENAME TO passing");
            }
            let _held = switch(&pooler, &database);
            assert_eq!(bind(&mut client, "mine", &[]), "26000");
            assert_eq!(say(&mut client, "EXECUTE mine"), "26000");
            assert_eq!(bind(&mut other, "mine", &[]), "other");
        }
    }
    // What failed has deallocated nothing.
    prepare(&mut client, "SELECT 1");
    assert_eq!(say(&mut client, "SELECT 1/0; DEALLOCATE mine"), "22012");
    assert_eq!(bind(&mut client, "mine", &[]), "1");
    // What was prepared behind a DEALLOCATE ALL stays.
    for sql in ["BEGIN", "EXECUTE mine", "DEALLOCATE ALL"] {
        say(&mut client, sql);
    }
    assert_eq!(outcome(&prepare(&mut client, "SELECT 2")), "");
    say(&mut client, "COMMIT");
    assert_eq!(bind(&mut client, "mine", &[]), "2");
}

#[test]
fn a_statement_that_executes_another_has_its_columns_wherever_it_was_parsed() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut client = pooler.client(&database);
    prepare(&mut client, "SELECT 7 AS a");
    // To a server that has not got the other one; there it is used, too.
    let _held = switch(&pooler, &database);
    client.send([frontend::parse("thine", "EXECUTE mine"), frontend::sync()].concat());
    client.read_to_ready();
    settle(&pooler);
    assert_eq!(bind(&mut client, "thine", &[]), "7");
}

#[test]
fn a_statement_named_in_a_failed_transaction_is_not_lost() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2);
    let mut client = pooler.client(&database);
    prepare(&mut client, "SELECT $1::int + 1");
    let wrong = [frontend::parse("", "SELECT 1/0"), frontend::bind("", "", &[])].concat();
    for naming in ["EXECUTE mine(10)", "DEALLOCATE mine"] {
        // Where PostgreSQL has told that it failed, and where that is still to come.
        for ends in ["ROLLBACK", "ROLLBACK TO here; COMMIT"] {
            say(&mut client, "BEGIN; SAVEPOINT here");
            assert_eq!(say(&mut client, "SELECT 1/0"), "22012");
            assert_eq!(say(&mut client, naming), "25P02");
            say(&mut client, ends);
            settle(&pooler);
            assert_eq!(bind(&mut client, "mine", &[Some("10")]), "11", "{naming}, {ends}");
        }
        let named = [frontend::parse("", naming), frontend::bind("", "", &[])].concat();
        let batch = [&wrong[..], &frontend::execute("", 0), &named, &frontend::execute("", 0)];
        client.send([&batch.concat()[..], &frontend::sync()].concat());
        assert_eq!(outcome(&client.read_to_ready()), "22012");
        settle(&pooler);
        assert_eq!(bind(&mut client, "mine", &[Some("10")]), "11", "{naming}, in a batch");
    }
    // Once it has been taken back the statement can be lent after all.
    say(&mut client, "BEGIN; SAVEPOINT here");
    say(&mut client, "SELECT 1/0");
    assert_eq!(say(&mut client, "EXECUTE mine(10)"), "25P02");
    say(&mut client, "ROLLBACK TO here");
    assert_eq!(say(&mut client, "EXECUTE mine(10)"), "11");
    say(&mut client, "COMMIT");
    assert_eq!(bind(&mut client, "mine", &[Some("10")]), "11");
}
