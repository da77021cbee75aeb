//! What was wrong with poolers that tried to keep sessions before: each as a test that it is not so
//! here. Who gets in, who waits and what is parsed are other modules' topics; this is about whose
//! session it is.

use std::time::Duration;

use testkit::{Pooler, RawClient, Role, eventually, frontend};

use crate::support;

/// Clients that have prepared statements when one of them discards all that it has.
const PREPARED_CLIENTS: usize = 2_000;
/// So many of these are sampled behind each order.
const ASKED: usize = 200;

fn pooler(size: u32) -> (Pooler, String) {
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(1).set("default_pool_size", size).set("max_client_conn", 4_000);
    (setup.start(), database)
}

fn prepare(client: &mut RawClient, sql: &str) {
    client.send([frontend::parse("P0_4", sql), frontend::sync()].concat());
}

/// What the statement's first row says.
fn execute(client: &mut RawClient) -> Option<String> {
    let ask = [frontend::bind("", "P0_4", &[]), frontend::execute("", 0)].concat();
    client.send([ask, frontend::sync()].concat());
    let answer = client.read_to_ready();
    let row = answer.iter().find(|message| message.tag == b'D');
    row.unwrap_or_else(|| panic!("no row but {answer:?}")).row().remove(0)
}

#[test]
fn who_discards_all_discards_nothing_of_others() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(4);
    let mut clients: Vec<_> = (0..PREPARED_CLIENTS).map(|_| pooler.client(&database)).collect();
    // A dozen texts, all under one name.
    let text = |number: usize| format!("SELECT {}", number % 12);
    for (number, client) in clients.iter_mut().enumerate() {
        prepare(client, &text(number));
    }
    clients.iter_mut().for_each(|client| drop(client.read_to_ready()));
    let mut discarding = pooler.client(&database);
    for (turn, order) in
        ["DISCARD ALL", "DISCARD PLANS", "DEALLOCATE ALL", "DISCARD ALL", "RESET ALL"]
            .into_iter()
            .cycle()
            .take(20)
            .enumerate()
    {
        prepare(&mut discarding, &text(turn));
        discarding.read_to_ready();
        assert_eq!(execute(&mut discarding), Some((turn % 12).to_string()));
        discarding.rows(order);
        for asked in 0..ASKED {
            let number = (turn * 97 + asked * 11) % PREPARED_CLIENTS;
            assert_eq!(execute(&mut clients[number]), Some((number % 12).to_string()), "{order}");
        }
        // Its own are gone, where that is what it has asked for.
        discarding.rows("DEALLOCATE ALL");
        discarding.send([frontend::bind("", "P0_4", &[]), frontend::sync()].concat());
        let gone = discarding.read_to_ready().remove(0).error().expect("there is no statement");
        assert_eq!(gone.code(), "26000", "{order}");
    }
}

#[test]
fn who_leaves_in_a_transaction_commits_nothing_by_anybody() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    support::direct(&database).rows("CREATE TABLE kept (a int)");
    for last in ["SELECT 1", "SET work_mem = '5MB'", "CREATE TEMP TABLE mine (a int)", "SELECT 1/0"]
    {
        let mut leaving = pooler.client(&database);
        leaving.rows("BEGIN; INSERT INTO kept VALUES (1)");
        leaving.query(last);
        drop(leaving);
        let mut next = pooler.client(&database);
        assert_eq!(next.value("SELECT count(*) FROM kept"), "0", "{last}");
        next.query("COMMIT");
        assert_eq!(next.value("SELECT count(*) FROM kept"), "0", "{last}");
        assert_eq!(next.value("SHOW work_mem"), "4MB");
        assert_eq!(next.value("SELECT to_regclass('mine') IS NULL"), "t");
    }
}

#[test]
fn everybodys_startup_packet_counts_on_a_server_that_another_one_has_opened() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let enter = |value: usize| {
        let options = format!("-c work_mem={value}MB -c app.own={value}");
        let mut client = RawClient::connect(pooler.port());
        let startup = [
            ("user", Role::APP),
            ("database", &database),
            ("options", &options),
            ("TimeZone", "UTC"),
        ];
        client.authenticate(&startup, Role::APP_PASSWORD).expect("it may come in");
        client
    };
    let mut clients: Vec<_> = (5..15).map(enter).collect();
    for turn in 0..3 {
        for (client, value) in clients.iter_mut().zip(5..) {
            assert_eq!(client.value("SHOW work_mem"), format!("{value}MB"), "turn {turn}");
            assert_eq!(client.value("SHOW app.own"), value.to_string());
            assert_eq!(client.value("SHOW TimeZone"), "UTC");
        }
    }
}

#[test]
fn a_statement_that_sets_is_run_once() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2);
    support::direct(&database).rows("CREATE SEQUENCE runs");
    let counted = "set_config('app.run', nextval('runs')::text, false)";
    let mut client = pooler.client(&database);
    let mut runs = 0;
    for text in [
        format!("SELECT {counted}"),
        format!("/* SET */ select {counted} -- BEGIN"),
        format!("WITH a AS (SELECT {counted} AS b) SELECT b FROM a"),
        format!("BEGIN; SELECT {counted}; COMMIT"),
        format!("DO $$BEGIN PERFORM {counted}; END$$"),
    ] {
        client.rows(&text);
        runs += 1;
        let mut stranger = pooler.client(&database);
        stranger.rows("SET app.run = 'stranger'");
        assert_eq!(client.value("SHOW app.run"), runs.to_string(), "{text}");
        assert_eq!(client.value("SELECT last_value FROM runs"), runs.to_string(), "{text}");
    }
}

#[test]
fn a_key_cancels_the_query_of_its_own_client_only() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut resting = pooler.client(&database);
    let mut working = pooler.client(&database);
    // Both have had the same server.
    resting.rows("SET app.own = '1'");
    working.rows("SET app.own = '2'");
    assert_ne!((resting.pid, &resting.secret), (working.pid, &working.secret));
    let sleep = "SELECT pg_sleep(3600), 2";
    working.send(frontend::query(sleep));
    support::until_running(&database, sleep);
    resting.cancel(pooler.port());
    eventually("no cancel request is under way", Duration::from_secs(10), || {
        let requests = ["cl_active_cancel_req", "cl_waiting_cancel_req"];
        (pooler.pool_sums(&database, requests) == [0, 0]).then_some(())
    });
    support::until_running(&database, sleep);
    working.cancel(pooler.port());
    working.set_timeout(Duration::from_secs(20));
    let answer = working.read_to_ready();
    let error = answer.iter().find_map(testkit::Message::error).expect("it was cancelled");
    assert_eq!(error.code(), "57014");
    assert_eq!(resting.value("SHOW app.own"), "1");
    assert_eq!(working.value("SHOW app.own"), "2");
}
