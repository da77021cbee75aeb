//! A table is changed under statements that clients share. PostgreSQL refuses its old plan (0A000,
//! `cached plan must not change result type`). As on a connection of its own, a client that has not
//! been told the columns gets rows, and a client that has been told other columns gets the error.
//!
//! A function or a DO makes the change. Weir would notice a direct command by its tag and prepare
//! the text anew at the next Parse (`schema.rs`).

use super::{code, pooler, prepare, run, tags, try_run};
use testkit::{Flavour, Message, RawClient, flavour, frontend};

const SQL: &str = "SELECT * FROM t";

/// Returns two clients of one server. The first has prepared the statement before the table was
/// changed.
fn changed(database_setup: &str) -> (testkit::Pooler, RawClient, RawClient) {
    let (pooler, database) = pooler(1);
    let mut first = pooler.client(&database);
    first.query("DROP TABLE IF EXISTS t");
    first.query(database_setup);
    first.query("INSERT INTO t VALUES (1)");
    let second = pooler.client(&database);
    prepare(&mut first, "theirs", SQL);
    assert_eq!(run(&mut first, "theirs", &[]), "1");
    (pooler, first, second)
}

/// Runs a statement whose command tag PostgreSQL does not report.
fn run_without_tag(client: &mut RawClient, sql: &str) {
    client.rows(&format!("DO 'BEGIN {sql}; END'"));
}

fn describe(client: &mut RawClient, name: &str) -> Vec<Message> {
    client.send([frontend::describe_statement(name), frontend::sync()].concat());
    client.read_to_ready()
}

#[test]
fn a_new_parse_of_a_shared_text_sees_the_new_table() {
    let (_pooler, mut first, mut second) = changed("CREATE TABLE t (a int)");
    run_without_tag(&mut first, "ALTER TABLE t ALTER a TYPE text USING ''new''");
    prepare(&mut second, "mine", SQL);
    assert_eq!(tags(&describe(&mut second, "mine")), "tTZ");
    assert_eq!(run(&mut second, "mine", &[]), "new");
}

#[test]
fn a_new_parse_in_one_batch_with_its_use() {
    let (_pooler, mut first, mut second) = changed("CREATE TABLE t (a int)");
    run_without_tag(&mut first, "ALTER TABLE t ADD b int DEFAULT 2");
    let batch = [
        frontend::parse("mine", SQL),
        frontend::describe_statement("mine"),
        frontend::bind("", "mine", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ];
    second.send(batch.concat());
    let answer = second.read_to_ready();
    assert_eq!(tags(&answer), "1tT2DCZ");
    let row = answer.iter().find(|m| m.tag == b'D').expect("a row");
    assert_eq!(row.row(), [Some("1".to_owned()), Some("2".to_owned())]);
}

#[test]
fn a_client_that_knows_other_columns_gets_the_error_and_can_prepare_anew() {
    let (_pooler, mut first, _second) = changed("CREATE TABLE t (a int)");
    assert_eq!(tags(&describe(&mut first, "theirs")), "tTZ");
    first.query("ALTER TABLE t ADD b int DEFAULT 2");
    let refused = try_run(&mut first, "theirs", &[]);
    assert_eq!((tags(&refused).as_str(), code(&refused).as_str()), ("EZ", "0A000"));
    first.send([frontend::close_statement("theirs"), frontend::sync()].concat());
    assert_eq!(tags(&first.read_to_ready()), "3Z");
    prepare(&mut first, "theirs", SQL);
    assert_eq!(tags(&try_run(&mut first, "theirs", &[])), "2DCZ");
}

#[test]
fn in_a_transaction_the_error_is_the_clients() {
    let (_pooler, mut first, mut second) = changed("CREATE TABLE t (a int)");
    prepare(&mut second, "mine", SQL);
    first.query("ALTER TABLE t ADD b int");
    second.query("BEGIN");
    let refused = try_run(&mut second, "mine", &[]);
    assert_eq!(code(&refused), "0A000");
    second.query("ROLLBACK");
    if flavour() == Flavour::Weir {
        // The server's old statement has been replaced.
        assert_eq!(tags(&try_run(&mut second, "mine", &[])), "2DCZ");
    }
}

/// Prepares a statement about column `a` of `t` for the first client, then changes the table. The
/// first client's next server does not have the statement yet.
fn moved(change: &str) -> (testkit::Pooler, RawClient, RawClient) {
    let (pooler, database) = pooler(2);
    let mut first = pooler.client(&database);
    first.query("DROP TABLE IF EXISTS t");
    first.query("CREATE TABLE t (a int)");
    first.query("INSERT INTO t VALUES (1)");
    prepare(&mut first, "mine", SQL);
    assert_eq!(tags(&describe(&mut first, "mine")), "tTZ");
    let mut holds_its_server = pooler.client(&database);
    holds_its_server.query("BEGIN");
    let mut changes = pooler.client(&database);
    changes.query(change);
    (pooler, first, holds_its_server)
}

#[test]
fn on_a_server_that_has_not_seen_it_either_the_same_rows_come_or_the_error() {
    let (_pooler, mut first, _holds) = moved("CREATE INDEX ON t (a)");
    assert_eq!(run(&mut first, "mine", &[]), "1");
    let (_pooler, mut first, _holds) = moved("ALTER TABLE t ALTER a TYPE bigint");
    let refused = try_run(&mut first, "mine", &[]);
    assert_eq!((tags(&refused).as_str(), code(&refused).as_str()), ("EZ", "0A000"));
    first.send([frontend::close_statement("mine"), frontend::sync()].concat());
    assert_eq!(tags(&first.read_to_ready()), "3Z");
    prepare(&mut first, "mine", SQL);
    assert_eq!(run(&mut first, "mine", &[]), "1");
    let (_pooler, mut first, _holds) = moved("DROP TABLE t");
    let gone = try_run(&mut first, "mine", &[]);
    assert_eq!((tags(&gone).as_str(), code(&gone).as_str()), ("EZ", "42P01"));
}
