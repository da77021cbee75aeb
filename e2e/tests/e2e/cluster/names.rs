//! Nodes that are the addresses of a host name. The names are those of `dns.rs`, so these tests need
//! root.

use std::net::Ipv4Addr;

use testkit::{Pooler, Postgres, Relay, Setup, Way, eventually};

use super::{PATIENCE, cluster, node_of, until_nodes_are, write};
use crate::dns::{self, NameServer};

/// A machine at an address of its own; all have the same port.
struct Machine {
    address: Ipv4Addr,
    relay: Relay,
}

/// Has each of these servers on a machine of its own.
fn machines(nodes: &[&Postgres]) -> (u16, Vec<Machine>) {
    let port = testkit::free_port();
    let addresses = (2..).map(|last| Ipv4Addr::new(127, 0, 2, last));
    let machine = |(address, node): (Ipv4Addr, &&Postgres)| Machine {
        address,
        relay: Relay::at((address, port), node.port()),
    };
    (port, addresses.zip(nodes).map(machine).collect())
}

/// Has each of these servers at an address of its own, with the same port.
fn spread(nodes: &[&Postgres]) -> (u16, Vec<Ipv4Addr>) {
    let (port, machines) = machines(nodes);
    (port, machines.iter().map(|machine| machine.address).collect())
}

/// A pooler whose nodes are the addresses of the name.
fn discovering(node: &Postgres, names: &NameServer, port: u16) -> Setup {
    let keys = "password=weir-secret sample_interval=0.2 discovery_interval=0.2 health_timeout=0.5";
    Pooler::before(node)
        .set("pool_mode", "auto")
        .set("resolv_conf", names.resolv_conf.display())
        .cluster("main", &format!("dns='{}:{port}' {keys}", dns::NAME))
        .database_at("app", "cluster=main dbname=postgres")
}

/// Waits until SHOW CLUSTERS has this primary.
#[track_caller]
fn until_primary_is(pooler: &Pooler, name: &str) {
    eventually(&format!("the primary is {name}"), PATIENCE, || {
        (pooler.admin("SHOW CLUSTERS").only("primary") == name).then_some(())
    });
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

/// As a pod does: its data stay, and the old address does not answer any more.
#[test]
fn a_primary_that_restarts_at_another_address_is_the_primary() {
    if !dns::possible() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let (port, machines) = machines(&[a, b, a]);
    let [old, other, new] = &machines[..] else { unreachable!("three machines") };
    let mut names = NameServer::new();
    names.answer(1, &[old.address, other.address]);
    let pooler = discovering(a, &names, port).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    client.rows("SET work_mem = '7MB'; SET synchronous_commit = on");
    write(&mut client, "before");
    a.kill9();
    old.relay.cut(&[Way::There, Way::Back]);
    a.wait_until_gone();
    a.launch();
    names.answer(2, &[new.address, other.address]);
    until_primary_is(&pooler, "127.0.2.4");
    write(&mut client, "after");
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert_eq!(a.sql("postgres", "SELECT count(*) FROM acts")[0][0].as_deref(), Some("2"));
    eventually("the old address has gone", PATIENCE, || {
        (pooler.admin("SHOW NODES").column("node") == ["127.0.2.3", "127.0.2.4"]).then_some(())
    });
    let last = pooler.admin("SHOW FAILOVERS");
    assert_eq!(last.column("to_node").last(), Some(&"127.0.2.4"));
    pooler.log_contains("the primary is node 127.0.2.4");
}

#[test]
fn nodes_that_swap_their_addresses_keep_their_roles() {
    if !dns::possible() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let (port, machines) = machines(&[a, b]);
    let [first, second] = &machines[..] else { unreachable!("two machines") };
    let mut names = NameServer::new();
    names.answer(1, &[first.address, second.address]);
    let pooler = discovering(a, &names, port).start();
    until_primary_is(&pooler, "127.0.2.2");
    let mut client = pooler.client("app");
    write(&mut client, "before");
    b.shut_down();
    a.shut_down();
    first.relay.lead_to(b.port());
    second.relay.lead_to(a.port());
    a.launch();
    b.launch();
    until_primary_is(&pooler, "127.0.2.3");
    until_nodes_are(&pooler, &["readable", "writable"]);
    write(&mut client, "after");
    assert_eq!(node_of(&mut client), a.port());
}

#[test]
fn two_addresses_of_the_primary_are_one_primary() {
    if !dns::possible() {
        return;
    }
    let nodes = cluster(0);
    let [a] = &nodes[..] else { unreachable!("one node") };
    let (port, machines) = machines(&[a, a]);
    let mut names = NameServer::new();
    names.answer(1, &[machines[0].address, machines[1].address]);
    let pooler = discovering(a, &names, port).start();
    let shown = until_nodes_are(&pooler, &["writable", "unfit"]);
    assert_eq!(shown.column("reason")[1], "the same server as node 127.0.2.2");
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    // The other address is as good.
    machines[0].relay.lead_to(testkit::free_port());
    let closed = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'weir'";
    a.sql("postgres", closed);
    until_primary_is(&pooler, "127.0.2.3");
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}

#[test]
fn an_old_copy_of_the_primary_at_another_address_gets_no_client() {
    if !dns::possible() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    // The copy of the standby is as good as one of the primary.
    b.shut_down();
    b.back_up();
    b.launch();
    let (port, machines) = machines(&[a, b]);
    let [first, second] = &machines[..] else { unreachable!("two machines") };
    let mut names = NameServer::new();
    names.answer(1, &[first.address]);
    let pooler = discovering(a, &names, port).start();
    until_nodes_are(&pooler, &["writable"]);
    for _ in 0..20 {
        write(&mut pooler.client("app"), "after the backup");
    }
    let position = "SELECT pg_current_wal_flush_lsn()";
    eventually("Weir knows these writes", PATIENCE, || {
        let wal = a.sql("postgres", position)[0][0].clone();
        (wal.as_deref() == Some(pooler.admin("SHOW NODES").column("lsn")[0])).then_some(())
    });
    a.stop();
    b.stop();
    b.restore();
    b.start_alone();
    // It writes more than the primary had, and remains a copy.
    names.answer(2, &[second.address]);
    let shown = until_nodes_are(&pooler, &["down", "false primary"]);
    let reason = shown.column("reason")[1];
    assert!(reason.contains("an older copy of the primary"), "{reason}");
    b.sql("postgres", "CREATE TABLE much AS SELECT generate_series(1, 300000)");
    let said = "an older copy of the primary";
    eventually("the copy was asked again", PATIENCE, || {
        let shown = pooler.admin("SHOW NODES");
        let wal = b.sql("postgres", position)[0][0].clone();
        let is_known = wal.as_deref() == Some(shown.column("lsn")[1]);
        assert!(shown.column("reason")[1].contains(said), "{shown:?}");
        is_known.then_some(())
    });
    assert_eq!(pooler.admin("SHOW CLUSTERS").only("primary"), "");
    // The primary comes back with all it had.
    a.launch();
    until_nodes_are(&pooler, &["writable", "false primary"]);
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}
