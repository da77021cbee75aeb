//! Weir's own connections to the nodes: proxies, wrong passwords, and the check of a configuration.

use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::{Pooler, Relay, eventually};

use super::{PATIENCE, cluster, node_of, setup, setup_at, until_nodes_are};
use crate::support;

#[test]
fn a_dead_primary_behind_a_proxy_is_down() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    // It accepts each connection, and closes it if the server does not run.
    let relay = Relay::before(a.port());
    let setup = setup_at(a, &[relay.port(), b.port()], "");
    let pooler = setup.set("server_tls_sslmode", "prefer").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    a.stop();
    until_nodes_are(&pooler, &["down", "unfit"]);
    b.promote();
    assert_eq!(node_of(&mut pooler.client("app")), b.port());
}

#[test]
fn a_wrong_password_is_not_tried_again_and_again() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(0);
    let [a] = &nodes[..] else { unreachable!("one node") };
    let list = format!("nodes='a=127.0.0.1:{}' password=wrong", a.port());
    let pooler = Pooler::before(a)
        .cluster("main", &list)
        .database_at("app", "cluster=main dbname=postgres")
        .start();
    let failures = || {
        let log = a.log();
        log.matches("password authentication failed for user \"weir\"").count()
    };
    eventually("SHOW NODES has the reason", PATIENCE, || {
        let nodes = pooler.admin("SHOW NODES");
        nodes.column("reason")[0].contains("password authentication failed").then_some(())
    });
    // No state shows that nothing happens.
    thread::sleep(Duration::from_secs(1));
    assert!(failures() <= 2, "{}", failures());
}

#[test]
fn the_check_of_a_configuration_logs_in_to_each_node() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let check = |pooler: &Pooler| {
        let mut command = Command::new(testkit::pooler_binary());
        command.args(["check-config", "--connect"]).arg(pooler.configuration());
        let output = command.output().expect("weir runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let pooler = setup(&[a, b], "").start();
    let said = check(&pooler);
    for node in ["a", "b"] {
        assert!(said.contains(&format!("cluster main: node {node}: logged in as weir")), "{said}");
    }
    a.sql("postgres", "REVOKE pg_monitor FROM weir");
    let said = check(&pooler);
    let words = "cluster main: node a: user weir lacks the role pg_monitor";
    assert!(said.contains(words), "{said}");
    a.sql("postgres", "ALTER ROLE weir PASSWORD 'another'");
    let said = check(&pooler);
    assert!(said.contains("cluster main: node a: "), "{said}");
    assert!(said.contains("password authentication failed for user \"weir\""), "{said}");
}
