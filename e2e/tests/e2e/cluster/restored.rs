//! A node that is restored from a backup: it has less than it had before.

use testkit::{Postgres, RawClient, eventually};

use super::{PATIENCE, until_nodes_are};
use crate::{routing, support};

fn count(node: &Postgres) -> String {
    node.sql("postgres", "SELECT count(*) FROM acts")[0][0].clone().expect("a number")
}

/// Waits until the standby has as many rows as the primary.
fn until_same(primary: &Postgres, standby: &Postgres) {
    eventually("all is replayed", PATIENCE, || (count(primary) == count(standby)).then_some(()));
}

fn write(client: &mut RawClient) {
    client.rows("INSERT INTO acts VALUES (1)");
}

/// A primary and a standby, which was backed up when there was one row.
fn backed_up() -> Vec<Postgres> {
    let nodes = routing::cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    a.sql("postgres", "INSERT INTO acts VALUES (0)");
    until_same(a, b);
    b.shut_down();
    b.back_up();
    b.launch();
    nodes
}

#[test]
fn a_standby_restored_from_a_backup_is_not_read_before_it_follows() {
    if !support::only_weir() {
        return;
    }
    let nodes = backed_up();
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let keys = "sample_interval=0.2";
    let pooler = routing::setup(&nodes, keys, "").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut reader = routing::until_routed(&pooler, a);
    write(&mut reader);
    until_same(a, b);
    b.stop();
    until_nodes_are(&pooler, &["writable", "down"]);
    b.restore();
    // It cannot reach the primary.
    b.start_away();
    until_nodes_are(&pooler, &["writable", "unfit"]);
    assert_eq!(count(b), "1", "it has the data of the backup");
    for _ in 0..20 {
        assert_eq!(reader.value("SELECT count(*) FROM acts"), "2");
        assert_eq!(pooler.client("app").value("SELECT count(*) FROM acts"), "2");
    }
    b.follow(a);
    until_nodes_are(&pooler, &["writable", "readable"]);
    routing::until_routed(&pooler, a);
    assert_eq!(reader.value("SELECT count(*) FROM acts"), "2");
}

#[test]
fn a_node_restored_from_a_backup_as_a_primary_gets_no_client_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = backed_up();
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = routing::setup(&nodes, "sample_interval=0.2", "").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    b.stop();
    b.restore();
    b.start_alone();
    until_nodes_are(&pooler, &["writable", "false primary"]);
    for _ in 0..20 {
        write(&mut pooler.client("app"));
    }
    assert_eq!((count(a), count(b)), ("21".to_owned(), "1".to_owned()));
    assert_eq!(pooler.admin("SHOW CLUSTERS").only("primary"), "a");
}
