//! Waiting clients are served in order of arrival, whichever worker they are on.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use testkit::{Postgres, RawClient, eventually, frontend};

const CLIENTS: usize = 50;

/// Between workers, a client is served first if it came earlier by at least this time: two
/// milliseconds, and one for the clock, which a worker reads only once per round.
const TOLERANCE: Duration = Duration::from_millis(3);

/// A client's arrival in the queue, after `sent` and before `seen`.
struct Arrival {
    sent: Instant,
    seen: Instant,
}

/// Lets clients queue up one after the other for the only server. Returns their arrivals, and the
/// order in which they were served.
fn queue_up(workers: u32) -> (Vec<Arrival>, Vec<usize>) {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).workers(workers).start();
    let mut holder = pooler.client(&database);
    holder.rows("CREATE TABLE arrival (id serial, client int)");
    let mut clients: Vec<RawClient> = (0..CLIENTS).map(|_| pooler.client(&database)).collect();
    holder.rows("BEGIN");
    let mut arrivals = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let sent = Instant::now();
        client.send(frontend::query(&format!("INSERT INTO arrival (client) VALUES ({number})")));
        // Waits until this client is in the queue before the next one comes.
        support::until_waiting(&pooler, &database, number as u64 + 1);
        arrivals.push(Arrival { sent, seen: Instant::now() });
    }
    holder.rows("COMMIT");
    for client in &mut clients {
        client.read_to_ready();
    }
    let rows = holder.rows("SELECT client FROM arrival ORDER BY id");
    let number = |text: &Option<String>| text.as_ref().and_then(|n| n.parse().ok());
    (arrivals, rows.iter().map(|row| number(&row[0]).expect("a number")).collect())
}

#[test]
fn on_one_worker_waiting_clients_are_served_in_order_of_arrival() {
    let (_, served) = queue_up(1);
    assert_eq!(served, (0..CLIENTS).collect::<Vec<_>>());
}

#[test]
fn over_two_workers_nobody_is_served_before_one_who_came_clearly_earlier() {
    let (arrivals, served) = queue_up(2);
    assert_eq!(served.len(), CLIENTS, "everyone is served");
    for (place, &later) in served.iter().enumerate() {
        for &earlier in &served[place + 1..] {
            let ahead = arrivals[later].sent.saturating_duration_since(arrivals[earlier].seen);
            assert!(ahead <= TOLERANCE, "{earlier} came {ahead:?} before {later}: {served:?}");
        }
    }
}

#[test]
fn with_one_server_none_of_fifty_clients_starves_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).workers(2).start();
    let over = AtomicBool::new(false);
    let mut counts: Vec<u32> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = pooler.client(&database);
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) {
                        client.rows("SELECT pg_sleep(0.0005)");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        // Measures by the clock, since the test is about shares of time.
        std::thread::park_timeout(Duration::from_secs(3));
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    counts.sort_unstable();
    let median = counts[CLIENTS / 2];
    assert!(median >= 5, "too slow to tell: {counts:?}");
    assert!(counts[0] * 2 >= median, "some starve: {counts:?}");
    assert!(Postgres::shared().backends(&database).len() <= 1);
    pooler.wait_until_quiet(&database, 1);
}

#[test]
fn a_client_holding_its_server_does_not_block_the_others() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 2).workers(2).start();
    let mut holder = pooler.client(&database);
    holder.rows("BEGIN");
    let held = holder.value("SELECT pg_backend_pid()");
    let mut clients: Vec<RawClient> = (0..8).map(|_| pooler.client(&database)).collect();
    for _ in 0..20 {
        for client in &mut clients {
            assert_ne!(client.value("SELECT pg_backend_pid()"), held);
        }
    }
    holder.rows("ROLLBACK");
}

#[test]
fn with_every_server_held_waiting_shows_and_has_its_limit() {
    let (setup, database) = support::setup("transaction");
    let setup = setup.set("default_pool_size", 2).set("query_wait_timeout", 4);
    let pooler = setup.workers(2).start();
    let mut holders: Vec<RawClient> = (0..2).map(|_| pooler.client(&database)).collect();
    holders.iter_mut().for_each(|holder| drop(holder.rows("BEGIN")));
    let mut waiting: Vec<RawClient> = (0..3).map(|_| pooler.client(&database)).collect();
    waiting.iter_mut().for_each(|client| client.send(frontend::query("SELECT 1")));
    eventually("it shows for how long", Duration::from_secs(10), || {
        let shown = pooler.pool_sums(&database, ["sv_active", "cl_waiting", "maxwait"]);
        (shown[..2] == [2, 3] && shown[2] >= 1).then_some(())
    });
    for client in &mut waiting {
        let last = client.read_to_end().pop().and_then(|last| last.error()).expect("an error");
        assert_eq!(last.message(), "query_wait_timeout");
    }
    // The clients that hold the servers are not affected.
    holders.iter_mut().for_each(|holder| drop(holder.rows("COMMIT")));
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

#[test]
fn every_server_serves_every_client_of_either_worker() {
    const SERVERS: usize = 4;
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", SERVERS).workers(2).start();
    // There are more clients than servers, so that some always wait for the next free server.
    let seen: Vec<HashSet<String>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4 * SERVERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = pooler.client(&database);
                    (0..1_000).map(|_| client.value("SELECT pg_backend_pid()")).collect()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    let all: HashSet<String> = seen.iter().flatten().cloned().collect();
    assert_eq!(all.len(), SERVERS);
    for (client, own) in seen.iter().enumerate() {
        assert_eq!(own.len(), SERVERS, "client {client} never met some of {all:?}");
    }
}

/// Requests that one client sends again and again, without ever waiting for an answer.
pub(crate) const ENDLESS: [&[&str]; 2] =
    [&["SELECT pg_sleep(0.01)"], &["BEGIN", "SELECT pg_sleep(0.01)", "COMMIT"]];

/// Returns the longest time for which another client waits for an answer while one sends these
/// requests without an end. Both share one server.
pub(crate) fn longest_wait(
    mut flooder: RawClient,
    other: &mut RawClient,
    requests: &[u8],
) -> Duration {
    const ASKED: usize = 10;
    let over = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let mut writer = flooder.writer();
    std::thread::scope(|scope| {
        // Its end is that of the connection.
        scope.spawn(|| while writer.write_all(requests).is_ok() {});
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && flooder.try_read().is_ok_and(|it| it.is_some()) {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            flooder.stop_writing();
        });
        eventually("the flood runs", Duration::from_secs(20), || {
            (answered.load(Ordering::Relaxed) > 20).then_some(())
        });
        let waits = (0..ASKED).map(|_| {
            let asked = Instant::now();
            other.rows("SELECT 1");
            asked.elapsed()
        });
        let longest = waits.max().unwrap_or_default();
        let before = answered.load(Ordering::Relaxed);
        eventually("the flood goes on", Duration::from_secs(20), || {
            (answered.load(Ordering::Relaxed) > before + 5).then_some(())
        });
        over.store(true, Ordering::Relaxed);
        longest
    })
}

#[test]
fn an_endless_pipeline_takes_turns_with_other_clients_core() {
    if !support::only_weir() {
        return;
    }
    for mode in ["transaction", "auto"] {
        let (setup, database) = support::setup(mode);
        let pooler = setup.set("default_pool_size", 1).workers(2).start();
        for texts in ENDLESS {
            let simple: Vec<u8> = texts.iter().flat_map(|text| frontend::query(text)).collect();
            let batches: Vec<u8> = texts.iter().flat_map(|text| batch(text)).collect();
            for requests in [simple, batches] {
                let mut other = pooler.client(&database);
                let wait = longest_wait(pooler.client(&database), &mut other, &requests);
                assert!(wait < Duration::from_secs(1), "{mode}, {texts:?}: {wait:?}");
            }
        }
    }
}

/// The text as a request of the extended protocol.
pub(crate) fn batch(text: &str) -> Vec<u8> {
    let messages = [
        frontend::parse("", text),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ];
    messages.concat()
}
