//! Weir is killed in each step of a switchover, and started again. It knows nothing of the change
//! then, and promotes no standby: it follows what has happened.

use testkit::{Pooler, Postgres, RawClient, eventually, frontend};

use super::change::{ALL, assert_primary};
use super::hooks::Hooks;
use super::promoting::{signal_replay, until_all_is_replayed, until_ordered};
use super::{PATIENCE, cluster, node_of, setup, until_nodes_are, until_replayed, write};
use crate::support;

/// Runs `step`, which orders a switchover, kills Weir and returns the node that is the primary
/// afterwards. Clients must be served there, with the row that was acknowledged.
fn with_a_cluster(step: impl FnOnce(&mut Pooler, &[Postgres], &Hooks) -> usize) {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let hooks = Hooks::new();
    // It must not fail over either: it has not seen the primary since it was started again.
    let keys = format!("failover=own {} {}", hooks.keys(&ALL), hooks.keys(&["fence"]));
    let mut pooler = setup(&[&nodes[0], &nodes[1]], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    write(&mut pooler.client("app"), "before");
    until_replayed(&[&nodes[1]], "1");
    let primary = step(&mut pooler, &nodes, &hooks);
    let mut client = pooler.client("app");
    assert_eq!(node_of(&mut client), nodes[primary].port());
    assert_eq!(client.value("SELECT string_agg(act, ' ') FROM acts"), "before");
    assert!(!hooks.is_asked("fence", "a"), "nobody is fenced");
}

/// Orders a switchover from a to b. The console's client must live until Weir has got the order.
fn order(pooler: &Pooler) -> RawClient {
    let mut console = pooler.console();
    console.send(frontend::query("SWITCHOVER app TO b"));
    console
}

/// Kills Weir, and starts another one.
fn replace(pooler: &mut Pooler) {
    pooler.kill9();
    pooler.restart();
}

/// The primary has stopped, and nobody may take its place: the operator starts it again.
fn starts_again(pooler: &Pooler, nodes: &[Postgres]) -> usize {
    until_nodes_are(pooler, &["down", "unfit"]);
    let reason = pooler.admin("SHOW CLUSTERS").only("reason").to_owned();
    assert_eq!(reason, "no node of timeline 1 accepts writes");
    nodes[0].launch();
    until_nodes_are(pooler, &["writable", "readable"]);
    assert_primary(nodes, 0);
    0
}

#[test]
fn while_transactions_run() {
    with_a_cluster(|pooler, nodes, _| {
        let mut busy = pooler.client("app");
        busy.rows("BEGIN");
        busy.rows("SELECT 1");
        let _console = order(pooler);
        pooler.log_contains("switchover to node b begins");
        replace(pooler);
        until_nodes_are(pooler, &["writable", "readable"]);
        assert_primary(nodes, 0);
        0
    });
}

#[test]
fn while_the_primary_stops() {
    with_a_cluster(|pooler, nodes, hooks| {
        let _console = order(pooler);
        hooks.serve("stop", "a", 0, || {
            // The next Weir never sees the primary, so it does not fail over.
            pooler.kill9();
            nodes[0].shut_down();
            pooler.restart();
        });
        starts_again(pooler, nodes)
    });
}

#[test]
fn while_the_standby_replays() {
    with_a_cluster(|pooler, nodes, hooks| {
        let _console = order(pooler);
        hooks.serve("stop", "a", 0, || {
            nodes[1].sql("postgres", "SELECT pg_wal_replay_pause()");
            nodes[0].shut_down();
        });
        until_nodes_are(pooler, &["down", "unfit"]);
        replace(pooler);
        nodes[1].sql("postgres", "SELECT pg_wal_replay_resume()");
        starts_again(pooler, nodes)
    });
}

#[test]
fn while_the_standby_promotes_itself() {
    with_a_cluster(|pooler, nodes, hooks| {
        let _console = order(pooler);
        hooks.serve("stop", "a", 0, || {
            nodes[0].shut_down();
            until_all_is_replayed(&nodes[1]);
            signal_replay(&nodes[1], "STOP");
        });
        until_ordered(&nodes[1]);
        replace(pooler);
        signal_replay(&nodes[1], "CONT");
        until_nodes_are(pooler, &["down", "writable"]);
        nodes[0].rejoin(&nodes[1]);
        until_nodes_are(pooler, &["readable", "writable"]);
        assert_primary(nodes, 1);
        1
    });
}

#[test]
fn while_the_old_primary_is_made_a_standby() {
    with_a_cluster(|pooler, nodes, hooks| {
        let _console = order(pooler);
        hooks.serve("stop", "a", 0, || nodes[0].shut_down());
        hooks.serve("rejoin", "a", 0, || {
            replace(pooler);
            nodes[0].rejoin(&nodes[1]);
        });
        until_nodes_are(pooler, &["readable", "writable"]);
        assert_primary(nodes, 1);
        1
    });
}

#[test]
fn while_the_old_primary_is_started_again() {
    with_a_cluster(|pooler, nodes, hooks| {
        let _console = order(pooler);
        hooks.serve("stop", "a", 1, || nodes[0].shut_down());
        hooks.serve("start", "a", 0, || replace(pooler));
        eventually("the primary is down", PATIENCE, || {
            (pooler.admin("SHOW NODES").column("state")[0] == "down").then_some(())
        });
        starts_again(pooler, nodes)
    });
}
