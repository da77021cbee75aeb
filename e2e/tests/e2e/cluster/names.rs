//! Nodes that are the addresses of a host name. The names are those of `dns.rs`, so these tests need
//! root.

use std::net::Ipv4Addr;
use std::process::Command;

use testkit::{Pooler, Postgres, Relay, Setup, Way, eventually};

use super::{PATIENCE, cluster, node_of, until_nodes_are, write};
use crate::dns::{self, NameServer};
use crate::routing;

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
fn an_old_copy_of_the_primary_at_another_address_gets_no_client_strict() {
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
    // Commits are asynchronous, and what was not flushed is lost with the primary.
    let position = "SELECT CASE WHEN pg_current_wal_flush_lsn() = pg_current_wal_insert_lsn()
                    THEN pg_current_wal_flush_lsn() END";
    eventually("Weir knows these writes", PATIENCE, || {
        let wal = a.sql("postgres", position)[0][0].clone()?;
        (wal == pooler.admin("SHOW NODES").column("lsn")[0]).then_some(())
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

/// A pooler whose node b is the name, and whose reads may go there.
fn reading(nodes: &[Postgres], names: &NameServer, port: u16) -> Setup {
    let list = format!("a=127.0.0.1:{}, b={}:{port}", nodes[0].port(), dns::NAME);
    let keys = "password=weir-secret sample_interval=0.2 health_timeout=0.5";
    Pooler::before(&nodes[0])
        .set("pool_mode", "auto")
        .set("resolv_conf", names.resolv_conf.display())
        .set("dns_max_ttl", 1)
        .cluster("main", &format!("nodes='{list}' {keys}"))
        .database_at("app", "cluster=main dbname=postgres reads=standby")
}

/// Weir must not ask one machine how much it has replayed, and read from another one.
#[test]
fn a_node_with_several_machines_is_read_where_it_is_sampled() {
    if !dns::possible() {
        return;
    }
    let nodes = routing::cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let (port, machines) = machines(&[b, c]);
    let addresses = [machines[0].address, machines[1].address];
    let mut names = NameServer::new();
    names.answer(1, &addresses);
    let pooler = reading(&nodes, &names, port).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    drop(routing::until_routed(&pooler, a));
    let is_used = |node: &Postgres| {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weir'";
        node.sql("postgres", count)[0][0].as_deref() != Some("0")
    };
    let shown = pooler.admin("SHOW NODES");
    let [used, other] = if shown.column("address")[1] == "127.0.2.2" { [b, c] } else { [c, b] };
    assert!(is_used(used));
    // The other one has nothing from now on.
    other.sql("postgres", "SELECT pg_wal_replay_pause()");
    let mut routed = 0;
    for number in 1..=30 {
        let mut client = pooler.client("app");
        let mut other = pooler.client("app");
        client.rows(&format!("INSERT INTO acts VALUES ({number}, 'own')"));
        let count = "SELECT count(*) FROM acts WHERE act = 'own'";
        let own = eventually("the node has it", PATIENCE, || {
            let own = client.value(count);
            assert_eq!(own, number.to_string(), "its own write");
            routing::runs_on_a_standby(&mut client, a).then_some(own)
        });
        assert_eq!(other.value(count), own);
        routed += 1;
    }
    assert_eq!(routed, 30);
    let at = if used.port() == b.port() { "127.0.2.2" } else { "127.0.2.3" };
    let servers = pooler.admin("SHOW SERVERS").with("port", &port.to_string());
    assert!(servers.column("addr").iter().all(|addr| *addr == at), "{servers:?}");
    // It is reported.
    let shown = eventually("the name is reported", PATIENCE, || {
        let shown = pooler.admin("SHOW NODES");
        (!shown.column("other_servers")[1].is_empty()).then_some(shown)
    });
    let [first, second] = addresses.map(|address| address.to_string());
    let others = if at == first { second } else { first };
    assert_eq!(shown.column("other_servers"), ["", others.as_str()]);
    pooler.log_contains("is another server");
    let said = check(&pooler);
    let expected = format!(
        "node b: the addresses {} and {} of {} are different servers",
        addresses[0],
        addresses[1],
        dns::NAME
    );
    let reversed = format!("node b: the addresses {} and {}", addresses[1], addresses[0]);
    assert!(said.contains(&expected) || said.contains(&reversed), "{said}");
}

/// Returns what `weir check-config --connect` says.
fn check(pooler: &Pooler) -> String {
    let mut command = Command::new(testkit::pooler_binary());
    command.args(["check-config", "--connect"]).arg(pooler.configuration());
    let output = command.output().expect("weir runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_name_with_two_addresses_of_one_server_is_no_mistake() {
    if !dns::possible() {
        return;
    }
    let nodes = routing::cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let (port, machines) = machines(&[b, b]);
    let mut names = NameServer::new();
    names.answer(1, &[machines[0].address, machines[1].address]);
    let pooler = reading(&nodes, &names, port).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    drop(routing::until_routed(&pooler, a));
    // When the address in use fails, the other one is used.
    let used = pooler.admin("SHOW NODES").column("address")[1].to_owned();
    let (used, other) = if used == "127.0.2.2" { (0, 1) } else { (1, 0) };
    machines[used].relay.lead_to(testkit::free_port());
    b.sql(
        "postgres",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    );
    eventually("the other address is used", PATIENCE, || {
        let shown = pooler.admin("SHOW NODES");
        let is_there = shown.column("address")[1] == machines[other].address.to_string();
        (is_there && shown.column("state") == ["writable", "readable"]).then_some(())
    });
    drop(routing::until_routed(&pooler, a));
    assert_eq!(pooler.admin("SHOW NODES").column("other_servers"), ["", ""]);
    let said = check(&pooler);
    assert!(!said.contains("different servers"), "{said}");
}

#[test]
fn a_node_moves_when_its_name_has_another_address() {
    if !dns::possible() {
        return;
    }
    let nodes = routing::cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let (port, machines) = machines(&[b, c]);
    let mut names = NameServer::new();
    names.answer(1, &[machines[0].address]);
    let mut pooler = reading(&nodes, &names, port).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = routing::until_routed(&pooler, a);
    assert_eq!(pooler.admin("SHOW NODES").column("address"), ["127.0.0.1", "127.0.2.2"]);
    // The old machine runs on, and has nothing from now on.
    b.sql("postgres", "SELECT pg_wal_replay_pause()");
    names.answer(2, &[machines[1].address]);
    eventually("the new address is used", PATIENCE, || {
        (pooler.admin("SHOW NODES").column("address")[1] == "127.0.2.3").then_some(())
    });
    // A name server that is away changes nothing.
    names.stop();
    client.rows("INSERT INTO acts VALUES (1, 'own')");
    eventually("reads run there", PATIENCE, || {
        assert_eq!(client.value("SELECT count(*) FROM acts WHERE act = 'own'"), "1");
        let servers = pooler.admin("SHOW SERVERS").with("port", &port.to_string());
        let mut used = servers.column("addr");
        used.dedup();
        (used == ["127.0.2.3"]).then_some(())
    });
    pooler.log_contains("moves from 127.0.2.2 to 127.0.2.3");
    // The next process uses the same address, without a name server.
    pooler.take_over();
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(pooler.admin("SHOW NODES").column("address")[1], "127.0.2.3");
}
