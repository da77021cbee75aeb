//! Weir is told to end in each step of a change of the primary. It ends the change first, so one node
//! accepts writes afterwards.

use std::collections::HashSet;

use testkit::{Pooler, Postgres, RawClient, eventually, frontend};

use super::change::{ALL, assert_primary, synchronous};
use super::checkpoint::Checkpointer;
use super::hooks::Hooks;
use super::promoting::{signal_replay, until_all_is_replayed, until_ordered};
use super::{PATIENCE, cluster, setup, until_nodes_are, write};
use crate::support;

const SIGNALS: [&str; 2] = ["INT", "TERM"];

/// Orders a switchover, and returns the console's client, which may leave meanwhile.
fn order(pooler: &Pooler) -> RawClient {
    let mut console = pooler.console();
    console.send(frontend::query("SWITCHOVER app TO b"));
    console
}

/// Tells the process to end, and waits until it has heard that.
fn tell(pooler: &Pooler, signal: &str) {
    pooler.signal(signal);
    pooler.log_contains(&format!("got SIG{signal}, shutting down"));
}

/// Runs a scene with each signal, before a primary and a standby.
fn with_each_signal(keys: &str, scene: impl Fn(&str, &mut Pooler, &[Postgres], &Hooks)) {
    if !support::only_weir() {
        return;
    }
    for signal in SIGNALS {
        let nodes = cluster(1);
        let hooks = Hooks::new();
        let keys = format!("{} {keys}", hooks.keys(&ALL));
        let mut pooler = setup(&[&nodes[0], &nodes[1]], &keys).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        scene(signal, &mut pooler, &nodes, &hooks);
    }
}

/// Asserts that Weir asks the standby again and again, and neither ends nor promotes it.
fn assert_waits_for_replay(pooler: &mut Pooler, standby: &Postgres) {
    let mut superuser = standby.superuser("postgres");
    let last_question = "SELECT max(query_start) FROM pg_stat_activity WHERE usename = 'weir'";
    let mut seen = HashSet::new();
    eventually("Weir has asked fifty times", PATIENCE, || {
        assert_eq!(superuser.value("SELECT pg_is_in_recovery()"), "t", "it replays first");
        assert!(pooler.is_running(), "it waits for the replay");
        seen.insert(superuser.value(last_question));
        (seen.len() > 50).then_some(())
    });
}

#[test]
fn while_transactions_run() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let mut busy = pooler.client("app");
        busy.rows("BEGIN");
        write(&mut busy, "before");
        let console = order(pooler);
        eventually("new transactions wait", PATIENCE, || {
            let log = pooler.log();
            log.contains("switchover to node b begins").then_some(())
        });
        tell(pooler, signal);
        drop(console);
        busy.rows("COMMIT");
        drop(busy);
        hooks.serve("stop", "a", 0, || nodes[0].shut_down());
        hooks.serve("rejoin", "a", 0, || nodes[0].rejoin(&nodes[1]));
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 1);
        let count = "SELECT count(*) FROM acts";
        assert_eq!(nodes[1].sql("postgres", count)[0][0].as_deref(), Some("1"));
    });
}

#[test]
fn while_the_primary_writes_out_its_changes() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let checkpointer = Checkpointer::of(&nodes[0]);
        checkpointer.signal("STOP");
        let console = order(pooler);
        let runs = "SELECT count(*) FROM pg_stat_activity WHERE query = 'CHECKPOINT' \
                    AND state = 'active'";
        eventually("the checkpoint is ordered", PATIENCE, || {
            (nodes[0].sql("postgres", runs)[0][0].as_deref() == Some("1")).then_some(())
        });
        tell(pooler, signal);
        drop(console);
        checkpointer.signal("CONT");
        hooks.serve("stop", "a", 0, || nodes[0].shut_down());
        hooks.serve("rejoin", "a", 0, || nodes[0].rejoin(&nodes[1]));
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 1);
    });
}

#[test]
fn while_the_standby_replays() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let console = order(pooler);
        hooks.serve("stop", "a", 0, || {
            nodes[1].sql("postgres", "SELECT pg_wal_replay_pause()");
            nodes[0].shut_down();
        });
        tell(pooler, signal);
        drop(console);
        assert_waits_for_replay(pooler, &nodes[1]);
        nodes[1].sql("postgres", "SELECT pg_wal_replay_resume()");
        hooks.serve("rejoin", "a", 0, || nodes[0].rejoin(&nodes[1]));
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 1);
    });
}

#[test]
fn while_the_standby_promotes_itself() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let console = order(pooler);
        hooks.serve("stop", "a", 0, || {
            nodes[0].shut_down();
            until_all_is_replayed(&nodes[1]);
            signal_replay(&nodes[1], "STOP");
        });
        until_ordered(&nodes[1]);
        tell(pooler, signal);
        drop(console);
        signal_replay(&nodes[1], "CONT");
        hooks.serve("rejoin", "a", 0, || nodes[0].rejoin(&nodes[1]));
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 1);
    });
}

#[test]
fn while_the_primary_stops() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let console = order(pooler);
        hooks.serve("stop", "a", 0, || {
            tell(pooler, signal);
            drop(console);
            nodes[0].shut_down();
        });
        hooks.serve("rejoin", "a", 0, || nodes[0].rejoin(&nodes[1]));
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 1);
    });
}

#[test]
fn while_the_old_primary_is_started_again() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let console = order(pooler);
        hooks.serve("stop", "a", 1, || nodes[0].shut_down());
        hooks.serve("start", "a", 0, || {
            tell(pooler, signal);
            drop(console);
            nodes[0].launch();
        });
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 0);
    });
}

#[test]
fn while_the_old_primary_is_made_a_standby() {
    with_each_signal("", |signal, pooler, nodes, hooks| {
        let console = order(pooler);
        hooks.serve("stop", "a", 0, || nodes[0].shut_down());
        hooks.serve("rejoin", "a", 0, || {
            tell(pooler, signal);
            drop(console);
            nodes[0].rejoin(&nodes[1]);
        });
        assert!(pooler.wait_for_exit().success());
        assert_primary(nodes, 1);
    });
}

#[test]
fn while_a_lost_primary_is_fenced() {
    if !support::only_weir() {
        return;
    }
    for signal in SIGNALS {
        let nodes = synchronous(1);
        let hooks = Hooks::new();
        let keys = format!("failover=own {}", hooks.keys(&["fence", "rejoin"]));
        let mut pooler = setup(&[&nodes[0], &nodes[1]], &keys).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        nodes[0].kill9();
        hooks.serve("fence", "a", 0, || tell(&pooler, signal));
        hooks.serve("rejoin", "a", 0, || {});
        assert!(pooler.wait_for_exit().success());
        let is_standby = nodes[1].sql("postgres", "SELECT pg_is_in_recovery()");
        assert_eq!(is_standby[0][0].as_deref(), Some("f"));
    }
}
