//! A client that leaves with unfinished work costs its server. No other client gets a dirty one.

use std::time::Duration;

use super::pid;
use crate::support;
use testkit::{Pooler, Postgres, RawClient, eventually, frontend};

/// Returns a pooler with one server, a client, and the backend that serves it.
fn linked_client() -> (Pooler, String, RawClient, String) {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut client = pooler.client(&database);
    client.rows("CREATE TABLE IF NOT EXISTS t (n int)");
    let server = pid(&mut client);
    (pooler, database, client, server)
}

/// Checks that the next client gets another backend and sees nothing of the previous client.
#[track_caller]
fn assert_server_not_handed_on(pooler: &Pooler, database: &str, server: &str) {
    let mut next = pooler.client(database);
    assert_ne!(pid(&mut next), server);
    assert_eq!(next.value("SELECT count(*) FROM t"), "0");
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {server}");
    eventually("the backend has ended", Duration::from_secs(10), || {
        (Postgres::shared().sql("postgres", &gone)[0][0].as_deref() == Some("0")).then_some(())
    });
    drop(next);
    pooler.wait_until_quiet(database, 1);
}

#[test]
fn leaving_inside_a_transaction_rolls_it_back_and_closes_the_server_core_strict() {
    let (pooler, database, mut client, server) = linked_client();
    client.rows("BEGIN; INSERT INTO t VALUES (1)");
    drop(client);
    assert_server_not_handed_on(&pooler, &database, &server);
}

#[test]
fn a_polite_goodbye_inside_a_transaction_is_no_better_strict() {
    let (pooler, database, mut client, server) = linked_client();
    client.rows("BEGIN; INSERT INTO t VALUES (1)");
    client.send(frontend::terminate());
    drop(client);
    assert_server_not_handed_on(&pooler, &database, &server);
}

/// PgBouncer closes the server, and PostgreSQL continues to sleep. Weir cancels the query.
#[test]
fn the_query_of_a_lost_client_is_cancelled_and_its_server_kept() {
    let (pooler, database, mut client, server) = linked_client();
    client.send(frontend::query("SELECT pg_sleep(60)"));
    support::until_running(&database, "SELECT pg_sleep(60)");
    drop(client);
    let mut next = pooler.client(&database);
    if support::only_weir() {
        assert_eq!(pid(&mut next), server);
        assert_eq!(next.value("SELECT count(*) FROM t"), "0");
    } else {
        assert_ne!(pid(&mut next), server);
    }
}

#[test]
fn with_cancel_lost_queries_off_the_server_is_closed() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).set("cancel_lost_queries", 0).start();
    let mut client = pooler.client(&database);
    client.rows("CREATE TABLE t (n int)");
    let server = pid(&mut client);
    client.send(frontend::query("INSERT INTO t SELECT 1 FROM pg_sleep(1)"));
    support::until_running(&database, "INSERT INTO t SELECT 1 FROM pg_sleep(1)");
    drop(client);
    let mut next = pooler.client(&database);
    assert_ne!(pid(&mut next), server);
    eventually("PostgreSQL has finished it all the same", Duration::from_secs(10), || {
        (next.value("SELECT count(*) FROM t") == "1").then_some(())
    });
}

/// The rest of the result is discarded and does not reach the next client.
#[test]
fn leaving_in_the_middle_of_a_result_leaves_nothing_of_it_to_the_next_core_strict() {
    let (pooler, database, mut client, server) = linked_client();
    client.send(frontend::query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"));
    client.read_until(|message| message.tag == b'D');
    drop(client);
    let mut next = pooler.client(&database);
    assert_eq!(pid(&mut next) == server, support::only_weir());
    assert_eq!(next.value("SELECT 'mine'"), "mine");
}

#[test]
fn leaving_in_the_middle_of_copy_in_closes_the_server_strict() {
    let (pooler, database, mut client, server) = linked_client();
    client.send(frontend::query("COPY t FROM STDIN"));
    client.read_until(|message| message.tag == b'G');
    client.send(frontend::copy_data(b"1\n"));
    drop(client);
    assert_server_not_handed_on(&pooler, &database, &server);
}

#[test]
fn leaving_in_the_middle_of_a_pipeline_closes_the_server_strict() {
    let (pooler, database, mut client, server) = linked_client();
    let unsynced = [
        frontend::parse("", "INSERT INTO t VALUES (1)"),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::flush(),
    ];
    client.send(unsynced.concat());
    client.read_until(|message| message.tag == b'C');
    drop(client);
    assert_server_not_handed_on(&pooler, &database, &server);
}

#[test]
fn leaving_in_the_middle_of_a_message_closes_the_server_strict() {
    let (pooler, database, mut client, server) = linked_client();
    client.rows("BEGIN; INSERT INTO t VALUES (1)");
    let message = frontend::query("INSERT INTO t VALUES (2)");
    client.send(&message[..message.len() - 3]);
    drop(client);
    assert_server_not_handed_on(&pooler, &database, &server);
}

#[test]
fn leaving_between_transactions_leaves_the_server_to_the_next() {
    let (pooler, database, client, server) = linked_client();
    drop(client);
    pooler.wait_until_quiet(&database, 1);
    assert_eq!(pid(&mut pooler.client(&database)), server);
}

#[test]
fn a_client_that_leaves_the_queue_holds_nobody_up() {
    let (pooler, database, mut holder, _) = linked_client();
    holder.rows("BEGIN");
    let mut leaving = pooler.client(&database);
    leaving.send(frontend::query("SELECT 'for nobody'"));
    support::until_waiting(&pooler, &database, 1);
    let mut next = pooler.client(&database);
    next.send(frontend::query("SELECT 'next'"));
    drop(leaving);
    holder.rows("COMMIT");
    assert_eq!(next.read_to_ready()[1].row(), [Some("next".to_owned())]);
    drop((holder, next));
    pooler.wait_until_quiet(&database, 1);
}
