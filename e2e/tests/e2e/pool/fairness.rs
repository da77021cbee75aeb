//! Waiting clients are served in the order in which they came, whichever worker they are on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support;
use testkit::{Postgres, RawClient, frontend};

const CLIENTS: usize = 50;

#[test]
fn fifty_waiting_clients_are_served_in_order_of_arrival() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).workers(2).start();
    let mut holder = pooler.client(&database);
    holder.rows("CREATE TABLE arrival (id serial, client int)");
    let mut clients: Vec<RawClient> = (0..CLIENTS).map(|_| pooler.client(&database)).collect();
    holder.rows("BEGIN");
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(frontend::query(&format!("INSERT INTO arrival (client) VALUES ({number})")));
        // Nobody else may come before this one is seen to wait.
        support::until_waiting(&pooler, &database, number as u64 + 1);
    }
    holder.rows("COMMIT");
    for client in &mut clients {
        client.read_to_ready();
    }
    let rows = holder.rows("SELECT client FROM arrival ORDER BY id");
    let served: Vec<usize> = rows
        .iter()
        .map(|row| row[0].as_ref().and_then(|n| n.parse().ok()).expect("a number"))
        .collect();
    assert_eq!(served, (0..CLIENTS).collect::<Vec<_>>());
}

#[test]
fn with_one_server_none_of_fifty_clients_starves() {
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
        // Measured by the clock, since it is about shares of time.
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
