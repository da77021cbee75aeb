//! A worker's figures for the metrics.

use engine::figures::{ClientCounts, PoolFigures, ServerCounts};
use engine::histogram::Histogram;

use crate::messages::*;
use crate::rig::{Rig, server_welcome};

fn pool(rig: &Rig) -> PoolFigures {
    rig.figures(0).pools.remove(0).1
}

/// The number of durations between the bounds next to one of so many microseconds.
fn about(histogram: &Histogram, micros: f64) -> u64 {
    let mut shorter = 0;
    for (bound, count) in histogram.up_to() {
        if micros / 1e6 <= bound {
            return count - shorter;
        }
        shorter = count;
    }
    panic!("{micros} us are above all bounds");
}

#[test]
fn connections_are_counted_by_state() {
    let rig = Rig::of_size(1);
    let _silent = rig.connect();
    let (first, second) = (rig.client(), rig.client());
    assert_eq!(rig.figures(0).clients, ClientCounts { login: 1, ..ClientCounts::default() });
    assert_eq!(pool(&rig).clients, ClientCounts { idle: 2, ..ClientCounts::default() });
    assert_eq!(pool(&rig).servers, ServerCounts::default(), "the only one is parked");
    first.send([query("slow")]);
    second.send([query("other")]);
    let busy = ClientCounts { active: 1, waiting: 1, ..ClientCounts::default() };
    assert_eq!(pool(&rig).clients, busy);
    assert_eq!(pool(&rig).servers, ServerCounts { active: 1, ..ServerCounts::default() });
    let report = rig.report(0);
    assert_eq!(report.clients.len() as u64, busy.all() + rig.figures(0).clients.all());
    assert_eq!(report.servers.len() as u64, pool(&rig).servers.all());
}

#[test]
fn durations_are_counted_where_times_are_added() {
    let rig = Rig::of_size(1);
    let (first, server) = (rig.client(), rig.server(0));
    let second = rig.client();
    let before = pool(&rig);
    first.send([query("begin")]);
    rig.later(100);
    server.send([complete("BEGIN"), ready('T')]);
    second.send([query("select 1")]);
    rig.later(300);
    first.send([query("commit")]);
    rig.later(100);
    server.send([done("COMMIT")]);
    server.send([done("SELECT 1")]);
    let after = pool(&rig);
    let (durations, stats) = (&after.durations, after.stats);
    assert_eq!(about(&durations.transaction, 500.0), 1);
    assert_eq!(about(&durations.query, 100.0), 2);
    assert_eq!(about(&durations.wait, 400.0), 1);
    assert_eq!(durations.query.count() - before.durations.query.count(), 3);
    assert_eq!(durations.transaction.count() - before.durations.transaction.count(), 2);
    assert_eq!(durations.wait.count(), stats.assignments, "nobody is left out");
    assert_eq!(stats.wait_time - before.stats.wait_time, 400);
}

#[test]
fn the_time_to_open_a_server_is_counted() {
    let rig = Rig::transaction().manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    rig.later(3_000);
    server.send([server_welcome(0)]);
    let durations = pool(&rig).durations;
    assert_eq!((durations.connect.count(), durations.connect_time), (1, 3_000));
}
