//! Weir's own connections to the nodes: proxies, wrong passwords, and the check of a configuration.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::{Pooler, eventually};

use super::{PATIENCE, cluster, node_of, setup, until_nodes_are};
use crate::support;

/// Starts a proxy that accepts each connection, and closes it if the server does not run.
fn proxy_before(server: u16) -> u16 {
    proxy_at((Ipv4Addr::LOCALHOST, 0), server)
}

/// Does the same at this address.
pub(super) fn proxy_at(address: (Ipv4Addr, u16), server: u16) -> u16 {
    let listener = TcpListener::bind(address).expect("a free port");
    let port = listener.local_addr().expect("a bound socket").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let clone = |one: &TcpStream| one.try_clone().expect("a second handle");
                let (mut from, mut to) = (clone(from), clone(to));
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    port
}

#[test]
fn a_dead_primary_behind_a_proxy_is_down() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let list = format!("a=127.0.0.1:{}, b=127.0.0.1:{}", proxy_before(a.port()), b.port());
    let pooler = Pooler::before(a)
        .set("pool_mode", "auto")
        .set("server_tls_sslmode", "prefer")
        .cluster("main", &format!("nodes='{list}' password=weir-secret"))
        .database_at("app", "cluster=main dbname=postgres")
        .start();
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
