//! `server_idle_timeout`: backends without work leave the lobby and end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::RawClient;

use super::{Direct, PATIENCE, eventually, pid};
use crate::support;

/// A pool whose servers may be idle for a second, and three clients that have used three of them.
fn start(min_size: u32) -> (Direct, Vec<RawClient>) {
    let direct = Direct::start_with(3, |setup| {
        setup.set("server_idle_timeout", 1).set("min_pool_size", min_size)
    });
    let mut clients = direct.clients(3);
    for client in &mut clients {
        client.rows("SET work_mem = '7MB'");
        client.rows("BEGIN");
    }
    assert_eq!(direct.backends().len(), 3);
    clients.iter_mut().for_each(|client| drop(client.rows("COMMIT")));
    (direct, clients)
}

fn until_backends(direct: &Direct, count: usize) {
    eventually(&format!("{count} backends"), PATIENCE, || {
        (direct.backends().len() == count).then_some(())
    });
}

/// The clients stay, and the next request opens a server at once.
#[test]
fn backends_that_are_idle_for_too_long_end() {
    if !support::only_weir() {
        return;
    }
    let (direct, mut clients) = start(0);
    until_backends(&direct, 0);
    for client in &mut clients {
        let began = Instant::now();
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        let took = began.elapsed();
        assert!(took < Duration::from_millis(900), "it took {took:?}");
    }
    assert_eq!(direct.column("data_path"), "direct");
    // Again, and without a client.
    until_backends(&direct, 0);
    assert_eq!(clients[0].value("SHOW work_mem"), "7MB");
    drop(clients);
    until_backends(&direct, 0);
    assert_eq!(direct.client().value("SHOW work_mem"), "4MB");
}

#[test]
fn as_many_idle_backends_stay_as_the_smallest_pool_has() {
    if !support::only_weir() {
        return;
    }
    let (direct, mut clients) = start(2);
    until_backends(&direct, 2);
    let both = direct.backends();
    direct.postgres.superuser("postgres").rows("SELECT pg_sleep(3)");
    assert_eq!(direct.backends(), both);
    assert_eq!(clients[0].value("SHOW work_mem"), "7MB");
}

/// A backend that a client uses or keeps is not idle.
#[test]
fn backends_in_use_stay() {
    if !support::only_weir() {
        return;
    }
    let (direct, mut clients) = start(0);
    clients[0].rows("CREATE TEMP TABLE own (a int)");
    let kept = pid(&mut clients[0]);
    clients[1].rows("BEGIN");
    let used = pid(&mut clients[1]);
    direct.postgres.superuser("postgres").rows("SELECT pg_sleep(2.5)");
    let mut left = direct.backends();
    left.sort_unstable();
    let mut expected = [kept, used];
    expected.sort_unstable();
    assert_eq!(left, expected);
    assert_eq!(pid(&mut clients[0]), kept);
    assert_eq!(pid(&mut clients[1]), used);
}

/// Returns how many times the thread of the lobbies has waited.
fn waits(direct: &Direct) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", direct.pooler.pid())).expect("it runs");
    let read = |task: &Path, name| fs::read_to_string(task.join(name)).expect("the thread runs");
    let mut tasks = tasks.map(|task| task.expect("an entry").path());
    let lobby = tasks.find(|task| read(task, "comm").trim() == "weir-lobby").expect("a thread");
    let status = read(&lobby, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("a number")
}

/// Clients at rest cost no more without a backend than with one that sleeps.
#[test]
fn a_pool_without_backends_is_looked_at_five_times_a_second() {
    if !support::only_weir() {
        return;
    }
    let (direct, _clients) = start(0);
    until_backends(&direct, 0);
    let (before, began) = (waits(&direct), Instant::now());
    direct.postgres.superuser("postgres").rows("SELECT pg_sleep(2)");
    let (count, seconds) = (waits(&direct) - before, began.elapsed().as_secs_f64());
    assert!(count as f64 <= 10.0 * seconds, "{count} waits in {seconds} s");
}
