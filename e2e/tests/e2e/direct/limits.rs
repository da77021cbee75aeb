//! Time limits of clients that backends serve. The error and the fate are those of a proxied client.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::{RawClient, Setup, frontend};

use super::{Direct, pid};
use crate::support;

/// A client that passes a limit.
struct Case {
    limit: &'static str,
    /// Without an error.
    before: &'static [&'static str],
    /// Its answer does not come.
    last: Option<&'static str>,
    text: &'static str,
}

const CASES: [Case; 8] = [
    Case {
        limit: "query_timeout",
        before: &[],
        last: Some("SELECT pg_sleep(60)"),
        text: "query timeout",
    },
    Case {
        limit: "query_timeout",
        before: &["BEGIN", "SELECT 1"],
        last: Some("SELECT count(*) FROM generate_series(1, 100000000000)"),
        text: "query timeout",
    },
    Case {
        limit: "query_timeout",
        before: &["SELECT pg_advisory_lock(1)", "SELECT 1"],
        last: Some("SELECT pg_sleep(60)"),
        text: "query timeout",
    },
    Case {
        limit: "query_timeout",
        before: &["CREATE TABLE copied (a int)"],
        last: Some("COPY copied FROM STDIN"),
        text: "query timeout",
    },
    Case {
        limit: "idle_transaction_timeout",
        before: &["BEGIN", "SELECT 1"],
        last: None,
        text: "idle transaction timeout",
    },
    Case {
        limit: "idle_transaction_timeout",
        before: &["CREATE TEMP TABLE own (a int)", "BEGIN", "SELECT 1"],
        last: None,
        text: "idle transaction timeout",
    },
    Case {
        limit: "transaction_timeout",
        before: &["BEGIN"],
        last: Some("SELECT pg_sleep(60)"),
        text: "transaction timeout",
    },
    Case {
        limit: "transaction_timeout",
        before: &["BEGIN", "SELECT 1"],
        last: None,
        text: "transaction timeout",
    },
];

/// Returns the error with which the client's connection ends, and how long that took.
fn fate(client: &mut RawClient, case: &Case) -> (Vec<(String, String)>, Duration) {
    for text in case.before {
        client.rows(text);
    }
    let begun = Instant::now();
    if let Some(last) = case.last {
        client.send(frontend::query(last));
    }
    let told = client.read_to_end();
    let errors = told.iter().filter_map(|message| message.error());
    let errors = errors.map(|error| (error.code().to_owned(), error.message().to_owned()));
    (errors.collect(), begun.elapsed())
}

#[test]
fn a_limit_that_is_passed_ends_the_client_as_in_a_proxied_pool() {
    if !support::only_weir() {
        return;
    }
    let limits = ["query_timeout", "idle_transaction_timeout", "transaction_timeout"];
    support::at_once(limits, |limit| {
        let mut direct = Direct::start_with(3, |setup| setup.set(limit, 1));
        let cases = || CASES.iter().filter(|case| case.limit == limit);
        let fates = |direct: &Direct| -> Vec<_> {
            let fates = cases().map(|case| {
                let mut other = direct.client();
                other.rows("SET work_mem = '5MB'");
                let (errors, time) = fate(&mut direct.client(), case);
                assert_eq!(errors[0].1, case.text, "{limit}");
                assert!(time > Duration::from_millis(950), "{limit}: {time:?}");
                assert!(time < Duration::from_secs(10), "{limit}: {time:?}");
                assert_eq!(other.value("SHOW work_mem"), "5MB");
                other.rows("DROP TABLE IF EXISTS copied");
                errors
            });
            fates.collect()
        };
        let served = fates(&direct);
        assert_eq!(direct.column("data_path"), "direct");
        direct.pooler.reconfigure(|ini| ini.set("data_path", "proxy"));
        direct.pooler.reload();
        assert_eq!(served, fates(&direct), "{limit}");
        assert_eq!(direct.column("data_path"), "proxy");
    });
}

#[test]
fn a_client_that_sends_part_of_a_message_is_idle_in_a_transaction() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(1, |setup| setup.set("idle_transaction_timeout", 1));
    let (mut client, mut other) = (direct.client(), direct.client());
    // A short message waits outside the pool until it is whole.
    let bytes = frontend::query(&format!("SELECT 1 -- {}", "x".repeat(100_000)));
    client.send(&bytes[..bytes.len() - 1]);
    assert_eq!(other.value("SELECT 2"), "2");
    let told = client.read_to_end();
    let error = told.iter().find_map(|message| message.error()).expect("an error");
    assert_eq!(error.message(), "idle transaction timeout");
}

#[test]
fn each_direct_query_has_its_own_time() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(2, |setup| setup.set("query_timeout", 1));
    let mut client = direct.client();
    for within in [false, true] {
        // Together they take longer than the limit.
        let begin = if within { "BEGIN" } else { "SELECT 1" };
        client.send(
            [frontend::query(begin), frontend::query("SELECT pg_sleep(0.2)").repeat(10)].concat(),
        );
        for _ in 0..11 {
            let answer = client.read_to_ready();
            assert!(answer.iter().all(|message| message.error().is_none()), "{answer:?}");
        }
    }
    client.rows("COMMIT");
    // One query, whose client goes on sending.
    let batch = [
        frontend::parse("", "SELECT pg_sleep(0.4)"),
        [frontend::bind("", "", &[]), frontend::execute("", 0)].concat().repeat(50),
        frontend::sync(),
    ];
    for requests in [frontend::query("SELECT pg_sleep(20)"), batch.concat()] {
        let mut client = direct.client();
        let mut writer = client.writer();
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        client.send(requests);
        let told = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed)
                    && writer.write_all(&frontend::query("SELECT 1")).is_ok()
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let told = client.read_to_end();
            over.store(true, Ordering::Relaxed);
            told
        });
        let error = told.iter().find_map(|message| message.error()).expect("an error");
        assert_eq!(error.message(), "query timeout");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[test]
fn clients_within_the_limits_go_on() {
    if !support::only_weir() {
        return;
    }
    let limits = |setup: Setup| {
        setup
            .set("query_timeout", 2)
            .set("idle_transaction_timeout", 2)
            .set("transaction_timeout", 60)
    };
    let direct = Direct::start_with(3, limits);
    let mut pinned = direct.client();
    pinned.rows("SELECT pg_advisory_lock(1); LISTEN news");
    let mut client = direct.client();
    client.rows("CREATE TABLE copied (a int)");
    // A notification begins no transaction.
    client.rows("NOTIFY news");
    pinned.read_until(|message| message.tag == b'A');
    client.rows("BEGIN");
    let backend = pid(&mut client);
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        // Each of these stays within its limit; the transaction lasts longer than both.
        client.rows("SELECT pg_sleep(0.9)");
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(pid(&mut client), backend);
    client.rows("COMMIT");
    // A client that sends COPY data is not late.
    client.send(frontend::query("COPY copied FROM STDIN"));
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        client.send(frontend::copy_data(b"1\n"));
        std::thread::sleep(Duration::from_millis(300));
    }
    client.send(frontend::copy_done());
    assert!(client.read_to_ready().iter().all(|message| message.error().is_none()));
    // One that keeps its backend may rest for long.
    assert_eq!(pinned.value("SELECT pg_advisory_unlock(1)"), "t");
}

#[test]
fn a_client_that_waits_for_a_server_has_a_query_limit() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(1, |setup| setup.set("query_timeout", 1));
    let mut clients = direct.clients(2);
    clients[0].rows("BEGIN");
    clients[1].send(frontend::query("SELECT 1"));
    let told = clients[1].read_to_end();
    let texts: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert!(texts.iter().any(|error| error.message() == "query_timeout"), "{texts:?}");
    clients[0].rows("COMMIT");
}

#[test]
fn a_changed_limit_holds_for_clients_that_are_there() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(1);
    let mut client = direct.client();
    client.rows("BEGIN");
    direct.pooler.reconfigure(|ini| ini.set("idle_transaction_timeout", 1));
    direct.pooler.reload();
    let told = client.read_to_end();
    let texts: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert_eq!(texts[0].message(), "idle transaction timeout");
}
