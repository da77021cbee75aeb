//! Programs that are no nodes receive WAL, and PostgreSQL counts them for synchronous commits.

use std::process::Command;
use std::time::Duration;

use testkit::{Pooler, Postgres, eventually, frontend};

use super::change::assert_primary;
use super::hooks::Hooks;
use super::{PATIENCE, cluster, setup, until_nodes_are, write};
use crate::support;

/// Two standbys, and a primary with this `synchronous_standby_names`.
fn synchronous(names: &str) -> Vec<Postgres> {
    let nodes = cluster(2);
    for node in &nodes {
        node.sql("postgres", "ALTER SYSTEM SET synchronous_commit = on");
        set_names(node, names);
    }
    nodes
}

fn set_names(node: &Postgres, names: &str) {
    node.sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
    node.sql("postgres", "SELECT pg_reload_conf()");
}

fn start(nodes: &[Postgres], hooks: &Hooks) -> Pooler {
    let keys = format!("failover=own sample_interval=0.2 {}", hooks.keys(&["fence"]));
    let pooler = setup(&nodes.iter().collect::<Vec<_>>(), &keys).start();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    pooler
}

fn risk(pooler: &Pooler) -> String {
    pooler.admin("SHOW CLUSTERS").only("failover_risk").to_owned()
}

/// Waits until SHOW CLUSTERS has a risk with these words; none, if they are empty.
#[track_caller]
fn until_risk(pooler: &Pooler, words: &str) {
    eventually(&format!("the risk is {words:?}"), PATIENCE, || {
        let risk = risk(pooler);
        (risk.contains(words) && risk.is_empty() == words.is_empty()).then_some(())
    });
}

/// The primary is lost, and both standbys answer.
#[track_caller]
fn assert_not_promoted(nodes: &[Postgres], pooler: &Pooler, hooks: &Hooks, why: &str) {
    nodes[0].kill9_all();
    until_nodes_are(pooler, &["down", "unfit", "unfit"]);
    pooler.log_contains(&format!("nobody is promoted: committed transactions may be lost: {why}"));
    assert!(!hooks.is_asked("fence", "a"), "nobody is fenced in vain");
    for node in &nodes[1..] {
        assert_eq!(node.sql("postgres", "SELECT pg_is_in_recovery()")[0][0].as_deref(), Some("t"));
    }
}

#[test]
fn a_commit_that_only_a_stranger_has_confirmed_is_not_given_up_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous("ANY 1 (*)");
    let _receiver = nodes[0].receive_wal("pg_receivewal");
    let hooks = Hooks::new();
    let pooler = start(&nodes, &hooks);
    let mut client = pooler.client("app");
    write(&mut client, "before");
    nodes[0].signal_senders(&["b", "c"], "STOP");
    for at in 0..30 {
        write(&mut client, &format!("acknowledged {at}"));
    }
    let why = "synchronous_standby_names has *";
    assert_not_promoted(&nodes, &pooler, &hooks, why);
    pooler.log_contains(&format!("cluster main: a failover may lose commits: {why}"));
    let advice = "to avoid it, set synchronous_standby_names = 'ANY 1 (a, b, c)'";
    let risk = risk(&pooler);
    assert!(risk.starts_with(why) && risk.ends_with(advice), "{risk}");
}

#[test]
fn commits_that_wait_for_nodes_by_name_survive_although_a_stranger_receives_wal_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous("ANY 1 (a, b, c)");
    let _receiver = nodes[0].receive_wal("pg_receivewal");
    let hooks = Hooks::new();
    let pooler = start(&nodes, &hooks);
    until_risk(&pooler, "");
    pooler.log_contains("cluster main: a failover loses no acknowledged commit");
    let mut client = pooler.client("app");
    nodes[0].signal_senders(&["b"], "STOP");
    write(&mut client, "acknowledged");
    nodes[0].signal_senders(&["c"], "STOP");
    client.send(frontend::query("INSERT INTO acts VALUES (1, 'not acknowledged')"));
    client.set_timeout(Duration::from_millis(500));
    assert!(client.try_read().is_err(), "no node has confirmed it");
    nodes[0].kill9_all();
    hooks.serve("fence", "a", 0, || {});
    // The other standby soon follows the new primary.
    eventually("c is the primary", PATIENCE, || {
        (pooler.admin("SHOW CLUSTERS").only("primary") == "c").then_some(())
    });
    let acts = nodes[2].sql("postgres", "SELECT act FROM acts WHERE act = 'acknowledged'");
    assert_eq!(acts.len(), 1);
}

#[test]
fn a_stranger_with_the_name_of_a_node_is_a_doubt_until_it_has_left_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous("ANY 1 (a, b, c)");
    let hooks = Hooks::new();
    let pooler = start(&nodes, &hooks);
    until_risk(&pooler, "");
    let receiver = nodes[0].receive_wal("B");
    until_risk(&pooler, "2 WAL senders have the application_name b");
    drop(receiver);
    until_risk(&pooler, "");
    let receiver = nodes[0].receive_wal("a");
    until_risk(&pooler, "a WAL sender has the application_name of node a, which does not stream");
    drop(receiver);
    until_risk(&pooler, "");
    for (names, why) in [
        (
            "ANY 1 (b, d)",
            "synchronous_standby_names has d, which is the application_name of no node",
        ),
        ("", "synchronous_standby_names is empty"),
        ("FIRST 2 (b, c)", ""),
    ] {
        set_names(&nodes[0], names);
        until_risk(&pooler, why);
    }
    nodes[0].sql("postgres", "ALTER SYSTEM SET synchronous_commit = remote_write");
    nodes[0].sql("postgres", "SELECT pg_reload_conf()");
    let why = "synchronous_commit is remote_write";
    until_risk(&pooler, why);
    let mut command = Command::new(testkit::pooler_binary());
    command.args(["check-config", "--connect"]).arg(pooler.configuration());
    let output = command.output().expect("weir runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = format!(
        "cluster main: a failover may lose commits: {why}; to avoid it, set synchronous_commit = on"
    );
    assert!(said.contains(&line), "{said}");
    assert_not_promoted(&nodes, &pooler, &hooks, why);
}

#[test]
fn a_standby_that_lacks_commits_from_before_the_guarantee_is_not_promoted_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous("");
    let hooks = Hooks::new();
    let pooler = start(&nodes, &hooks);
    until_risk(&pooler, "synchronous_standby_names is empty");
    nodes[0].signal_senders(&["b", "c"], "STOP");
    write(&mut pooler.client("app"), "acknowledged");
    set_names(&nodes[0], "ANY 1 (b, c)");
    until_risk(&pooler, "");
    assert_not_promoted(&nodes, &pooler, &hooks, "no standby has received ");
    nodes[0].launch();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    assert_primary(&nodes, 0);
}
