//! The waiting times of an idle client during a take-over while another client does something long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{Message, Pooler, RawClient, eventually, frontend, poll_until};

use super::{PATIENCE, pooler};
use crate::support;

/// The longest acceptable wait for an answer, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Answers that the client gets after the take-over, while the other client is still busy.
const ANSWERS: u64 = 200;
const MODES: [&str; 3] = ["session", "transaction", "auto"];

/// Returns the client's longest wait for an answer until it is told to stop.
fn longest_wait(mut client: RawClient, answers: &AtomicU64, stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        assert_eq!(client.value("SELECT 1"), "1");
        longest = longest.max(asked.elapsed());
        answers.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

/// One client begins something that the old process must finish, and another one keeps sending
/// queries. `end` ends it after the take-over.
#[track_caller]
fn nobody_waits_for(what: &str, begin: fn(&mut RawClient, &Pooler, &str), end: fn(&mut RawClient)) {
    for mode in MODES {
        let (mut pooler, database) = pooler(mode);
        let (mut busy, quick) = (pooler.client(&database), pooler.client(&database));
        let mut open = pooler.client(&database);
        open.rows("BEGIN");
        busy.set_timeout(PATIENCE);
        begin(&mut busy, &pooler, &database);
        let (answers, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let longest = std::thread::scope(|scope| {
            let quick = scope.spawn(|| longest_wait(quick, &answers, &stop));
            let mut old = pooler.begin_take_over();
            pooler.log_contains("has taken over");
            let enough = answers.load(Ordering::Relaxed) + ANSWERS;
            eventually("the client at rest is served", PATIENCE, || {
                (quick.is_finished() || answers.load(Ordering::Relaxed) >= enough).then_some(())
            });
            assert!(matches!(old.try_wait(), Ok(None)), "{mode}: nothing was under way");
            end(&mut busy);
            // The old process ends when the busy client has moved as well.
            let ended = poll_until(PATIENCE, || old.try_wait().expect("ours"));
            stop.store(true, Ordering::Relaxed);
            assert!(ended.is_some(), "{what}, {mode}: {}", pooler.log());
            quick.join().expect("it was answered")
        });
        println!("{what}, {mode}: the longest wait was {longest:?}");
        assert!(longest < WAIT_MAX, "{mode}: {longest:?}");
        assert_eq!(busy.value("SELECT 'served'"), "served");
        assert_eq!(open.query("COMMIT").tags, ["COMMIT"]);
    }
}

#[test]
fn a_client_at_rest_does_not_wait_for_the_long_query_of_another() {
    const LONG: &str = "SELECT pg_sleep(4)";
    if !support::only_weir() {
        return;
    }
    nobody_waits_for(
        "a long query",
        |busy, _, database| {
            busy.send(frontend::query(LONG));
            support::until_running(database, LONG);
        },
        |busy| assert!(busy.read_to_ready().iter().any(|message| message.tag == b'D')),
    );
}

#[test]
fn a_client_at_rest_does_not_wait_for_the_large_result_of_another() {
    const ROWS: usize = 60_000;
    if !support::only_weir() {
        return;
    }
    nobody_waits_for(
        "a large result",
        |busy, _, _| {
            let sql = format!("SELECT repeat('x', 1000) FROM generate_series(1, {ROWS})");
            busy.send(frontend::query(&sql));
            busy.read_until(|message| message.tag == b'D');
        },
        |busy| {
            let rest = busy.read_to_ready();
            assert!(rest.iter().all(|message| Message::error(message).is_none()));
            assert_eq!(rest.iter().filter(|message| message.tag == b'D').count(), ROWS - 1);
        },
    );
}

#[test]
fn a_client_at_rest_does_not_wait_for_the_copy_of_another() {
    if !support::only_weir() {
        return;
    }
    nobody_waits_for(
        "COPY",
        |busy, _, _| {
            busy.rows("CREATE TABLE copied (n int)");
            busy.send(frontend::query("COPY copied FROM STDIN"));
            busy.read_until(|message| message.tag == b'G');
            busy.send(frontend::copy_data(b"1\n2\n"));
        },
        |busy| {
            busy.send([frontend::copy_data(b"3\n"), frontend::copy_done()].concat());
            assert!(busy.read_to_ready().iter().any(|message| message.tag == b'C'));
        },
    );
}
