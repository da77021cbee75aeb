//! Nodes that are the addresses of a host name. The names are those of `dns.rs`, so these tests need
//! root.

use std::net::Ipv4Addr;

use testkit::{Pooler, Postgres, Relay, eventually};

use super::{PATIENCE, cluster, node_of, until_nodes_are};
use crate::dns::{self, NameServer};

/// Has each of these servers at an address of its own, with the same port.
fn spread(nodes: &[&Postgres]) -> (u16, Vec<Ipv4Addr>) {
    let port = testkit::free_port();
    let addresses: Vec<_> =
        (2..).take(nodes.len()).map(|last| Ipv4Addr::new(127, 0, 2, last)).collect();
    for (address, node) in addresses.iter().zip(nodes) {
        let _ = Relay::at((*address, port), node.port());
    }
    (port, addresses)
}

#[test]
fn the_nodes_are_the_addresses_of_a_name() {
    if !dns::possible() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let (port, addresses) = spread(&[a, b]);
    let names_of = |pooler: &Pooler| -> Vec<String> {
        pooler.admin("SHOW NODES").column("node").into_iter().map(str::to_owned).collect()
    };
    let mut names = NameServer::new();
    names.answer(1, &addresses[..1]);
    let keys = "password=weir-secret sample_interval=0.2 discovery_interval=0.2";
    let pooler = Pooler::before(a)
        .set("pool_mode", "auto")
        .set("resolv_conf", names.resolv_conf.display())
        .cluster("main", &format!("dns='{}:{port}' {keys}", dns::NAME))
        .database_at("app", "cluster=main dbname=postgres")
        .start();
    until_nodes_are(&pooler, &["writable"]);
    assert_eq!(names_of(&pooler), ["127.0.2.2"]);
    assert_eq!(pooler.admin("SHOW CLUSTERS").only("source"), "dns");
    let mut client = pooler.client("app");
    client.rows("CREATE TEMP TABLE mine (number int)");

    // Another address is another node, and the name server may be away.
    names.answer(2, &addresses);
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(names_of(&pooler), ["127.0.2.2", "127.0.2.3"]);
    names.stop();
    pooler.log_contains("its nodes stay as they were known");
    client.rows("INSERT INTO mine VALUES (1)");
    until_nodes_are(&pooler, &["writable", "readable"]);

    // The primary is lost and promoted elsewhere; then its address goes.
    a.stop();
    b.promote();
    until_nodes_are(&pooler, &["down", "writable"]);
    names.answer(3, &addresses[1..]);
    eventually("the old address has gone", PATIENCE, || {
        (names_of(&pooler) == ["127.0.2.3"]).then_some(())
    });
    assert_eq!(node_of(&mut pooler.client("app")), b.port());
}
