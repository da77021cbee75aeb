//! Many clients wait during a switchover. `CLIENTS` says how many.

use std::thread;
use std::time::{Duration, Instant};

use testkit::{RawClient, eventually, frontend};

use super::change::ALL;
use super::hooks::Hooks;
use super::{cluster, setup, until_nodes_are};
use crate::support;

const PATIENCE: Duration = Duration::from_secs(120);
const THREADS: usize = 8;
/// The bytes that Weir may keep for a client that waits.
const BYTES_MAX: u64 = 200;

/// Does the work for each client, in some threads.
fn each(clients: &mut [RawClient], work: impl Fn(&mut RawClient) + Sync) {
    let share = clients.len().div_ceil(THREADS);
    thread::scope(|scope| {
        for clients in clients.chunks_mut(share) {
            scope.spawn(|| clients.iter_mut().for_each(&work));
        }
    });
}

#[test]
fn clients_that_wait_are_served_at_once_and_cost_little() {
    if !support::only_weir() {
        return;
    }
    let count = std::env::var("CLIENTS").map_or(1_000, |text| text.parse().expect("a number"));
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &hooks.keys(&ALL))
        .set("auth_type", "trust")
        .set("max_client_conn", count + 100)
        .workers(2)
        .start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let port = pooler.port();
    let login = || RawClient::login(port, "app", "app", "").expect("it is let in");
    let mut clients: Vec<_> = (0..count).map(|_| login()).collect();
    let idle = pooler.resident_kib();
    let mut waiting = 0;
    let mut asked = Instant::now();
    let mut console = pooler.console();
    console.send(frontend::query("SWITCHOVER app TO b"));
    hooks.serve("stop", "a", 0, || {
        let insert = frontend::query("INSERT INTO acts VALUES (inet_server_port(), 'one')");
        each(&mut clients, |client| client.send(&insert));
        eventually("all wait", PATIENCE, || {
            (pooler.pool_sums("app", ["cl_waiting"]) == [count]).then_some(())
        });
        waiting = pooler.resident_kib();
        a.shut_down();
        asked = Instant::now();
    });
    each(&mut clients, |client| {
        let answer = client.read_to_ready();
        assert!(answer.iter().all(|message| message.tag != b'E'), "{answer:?}");
    });
    let served = asked.elapsed();
    hooks.serve("rejoin", "a", 0, || a.rejoin(b));
    console.read_to_ready();
    let grown = waiting.saturating_sub(idle) << 10;
    println!(
        "{count} clients: {served:?} from the stop to the last answer; \
         {idle} KiB while they are idle, {waiting} KiB while they wait"
    );
    let rows = "SELECT count(*), count(DISTINCT node), min(node) FROM acts";
    let expected = [count.to_string(), "1".to_owned(), b.port().to_string()];
    assert_eq!(b.sql("postgres", rows)[0], expected.map(Some));
    assert!(grown < count * BYTES_MAX + (1 << 20), "{grown} bytes");
    assert!(served < Duration::from_secs(10) + Duration::from_millis(count), "{served:?}");
}
