//! Mistakes with prepared statements give PostgreSQL's errors, and never end the connection.

use super::{code, pooler, prepare, run, tags, try_run};
use crate::support;
use testkit::{RawClient, frontend};

#[test]
fn an_unknown_name_is_error_26000_and_the_connection_stays() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    let messages = try_run(&mut client, "nothing", &[]);
    assert_eq!(tags(&messages), "EZ");
    assert_eq!(code(&messages), "26000");
    let text = messages[0].error().expect("an error").message().to_owned();
    assert_eq!(text, "prepared statement \"nothing\" does not exist");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn describing_an_unknown_name_is_error_26000() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.send([frontend::describe_statement("nothing"), frontend::sync()].concat());
    assert_eq!(code(&client.read_to_ready()), "26000");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn a_duplicate_name_is_error_42p05_and_the_first_statement_stays() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    prepare(&mut client, "s", "SELECT 'first'");
    for sql in ["SELECT 'first'", "SELECT 'second'"] {
        client.send([frontend::parse("s", sql), frontend::sync()].concat());
        let messages = client.read_to_ready();
        assert_eq!(tags(&messages), "EZ");
        assert_eq!(code(&messages), "42P05");
    }
    assert_eq!(run(&mut client, "s", &[]), "first");
}

#[test]
fn a_mistake_inside_a_transaction_aborts_it() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    let messages = try_run(&mut client, "nothing", &[]);
    assert_eq!(code(&messages), "26000");
    let status = messages.last().expect("ReadyForQuery").body[0];
    assert_eq!(char::from(status), 'E');
    assert_eq!(client.query("SELECT 1").error.expect("aborted").code(), "25P02");
    assert_eq!(client.query("ROLLBACK").status, b'I');
}

#[test]
fn a_mistake_skips_the_rest_of_its_pipeline_only() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    let pipeline = [
        frontend::bind("", "nothing", &[]),
        frontend::execute("", 0),
        frontend::parse("after", "SELECT 1"),
        frontend::sync(),
        frontend::query("SELECT 'next'"),
    ];
    client.send(pipeline.concat());
    assert_eq!(tags(&client.read_to_ready()), "EZ");
    assert_eq!(tags(&client.read_to_ready()), "TDCZ");
    assert_eq!(code(&try_run(&mut client, "after", &[])), "26000");
}

#[test]
fn a_parse_that_fails_leaves_no_name_behind() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.send([frontend::parse("s", "SELEC 1"), frontend::sync()].concat());
    assert_eq!(code(&client.read_to_ready()), "42601");
    assert_eq!(code(&try_run(&mut client, "s", &[])), "26000");
    prepare(&mut client, "s", "SELECT 'right'");
    assert_eq!(run(&mut client, "s", &[]), "right");
}

#[test]
fn an_error_in_a_pipeline_takes_later_parses_back() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    let pipeline = [
        frontend::parse("before", "SELECT 'before'"),
        frontend::parse("", "SELECT 1/0"),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::parse("later", "SELECT 'later'"),
        frontend::sync(),
    ];
    client.send(pipeline.concat());
    assert_eq!(code(&client.read_to_ready()), "22012");
    assert_eq!(run(&mut client, "before", &[]), "before");
    assert_eq!(code(&try_run(&mut client, "later", &[])), "26000");
    prepare(&mut client, "later", "SELECT 'later'");
    assert_eq!(run(&mut client, "later", &[]), "later");
}

#[test]
fn an_error_discards_statements_that_other_clients_share() {
    let (pooler, database) = pooler(1);
    let mut failing = pooler.client(&database);
    let mut sharing = pooler.client(&database);
    let pipeline = [
        frontend::bind("", "nothing", &[]),
        frontend::parse("s", "SELECT 'to be shared'"),
        frontend::sync(),
    ];
    failing.send(pipeline.concat());
    assert_eq!(code(&failing.read_to_ready()), "26000");
    prepare(&mut sharing, "s", "SELECT 'to be shared'");
    assert_eq!(run(&mut sharing, "s", &[]), "to be shared");
}

#[test]
fn deallocating_statements_keeps_those_of_other_clients_strict() {
    for wipe in ["DISCARD ALL", "DEALLOCATE ALL"] {
        let (pooler, database) = pooler(1);
        let mut wiping = pooler.client(&database);
        let mut other = pooler.client(&database);
        let both: [&mut RawClient; 2] = [&mut wiping, &mut other];
        for client in both {
            prepare(client, "s", "SELECT 'mine'");
        }
        wiping.rows(wipe);
        assert_eq!(code(&try_run(&mut wiping, "s", &[])), "26000", "{wipe}");
        assert_eq!(run(&mut other, "s", &[]), "mine", "{wipe}");
        prepare(&mut wiping, "s", "SELECT 'anew'");
        assert_eq!(run(&mut wiping, "s", &[]), "anew", "{wipe}");
    }
}

/// No command tag tells Weir that the block has taken the statements of all clients from the server.
#[test]
fn a_block_that_deallocates_all_statements_fails_no_other_client() {
    for mode in ["transaction", "auto"] {
        let (setup, database) = support::setup(mode);
        let pooler = setup.set("default_pool_size", 1).set("max_prepared_statements", 50).start();
        let mut wiping = pooler.client(&database);
        let mut other = pooler.client(&database);
        for name in ["s", "t"] {
            prepare(&mut other, name, &format!("SELECT '{name}'"));
        }
        for _ in 0..3 {
            wiping.rows("DO $$BEGIN EXECUTE 'DEALLOCATE ALL'; END$$");
            for name in ["s", "t", "s"] {
                assert_eq!(run(&mut other, name, &[]), name, "{mode}");
            }
        }
    }
}

#[test]
fn statements_parsed_after_a_wipe_in_the_same_pipeline_stay() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    let pipeline = [
        frontend::parse("", "DEALLOCATE ALL"),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::parse("after", "SELECT 'after'"),
        frontend::sync(),
    ];
    client.send(pipeline.concat());
    assert_eq!(tags(&client.read_to_ready()), "12C1Z");
    assert_eq!(run(&mut client, "after", &[]), "after");
}
