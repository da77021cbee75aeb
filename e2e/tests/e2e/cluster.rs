//! One address for a cluster: server connections follow the primary, wherever it is.

mod address;
mod adverse;
mod change;
mod checker;
mod checkpoint;
mod clocks;
mod crowd;
mod discovery;
mod disk;
mod dying;
mod ending;
mod fleet;
mod hooks;
mod lost;
mod mistakes;
mod names;
mod partition;
mod patroni;
mod pcp;
pub(crate) mod promoting;
mod restored;
mod split;
mod starting;
mod strangers;
mod watching;

use std::thread;
use std::time::{Duration, Instant};

use testkit::{
    Message, Pooler, Postgres, RawClient, ServerError, Setup, Table, eventually, free_port,
    frontend,
};

use crate::metrics::get;
use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// A pooler before these nodes, which are called a, b, c, with the database `app`.
fn setup(nodes: &[&Postgres], keys: &str) -> Setup {
    let ports: Vec<_> = nodes.iter().map(|node| node.port()).collect();
    setup_at(nodes[0], &ports, keys)
}

/// Does the same with nodes at these ports.
fn setup_at(first: &Postgres, ports: &[u16], keys: &str) -> Setup {
    let names = ["a", "b", "c"].into_iter().zip(ports);
    let list = names.map(|(name, port)| format!("{name}=127.0.0.1:{port}"));
    let list = list.collect::<Vec<_>>().join(", ");
    Pooler::before(first)
        .set("pool_mode", "auto")
        .cluster("main", &format!("nodes='{list}' password=weir-secret {keys}"))
        .database_at("app", "cluster=main dbname=postgres")
}

fn cluster(standbys: usize) -> Vec<Postgres> {
    furnished(Postgres::start_cluster(standbys))
}

/// Adds the table for writes.
fn furnished(nodes: Vec<Postgres>) -> Vec<Postgres> {
    nodes[0].sql("postgres", "CREATE TABLE acts (node int, act text); GRANT ALL ON acts TO app");
    // A standby that is promoted earlier would never have the table.
    until_replayed(&nodes[1..].iter().collect::<Vec<_>>(), "0");
    nodes
}

/// Waits until SHOW NODES has these states.
#[track_caller]
fn until_nodes_are(pooler: &Pooler, states: &[&str]) -> Table {
    eventually(&format!("the nodes are {states:?}"), PATIENCE, || {
        let nodes = pooler.admin("SHOW NODES");
        (nodes.column("state") == states).then_some(nodes)
    })
}

/// Returns the port of the node that serves the client.
fn node_of(client: &mut RawClient) -> u16 {
    client.value("SHOW port").parse().expect("a port")
}

/// Waits until these standbys have replayed so many acts.
#[track_caller]
fn until_replayed(standbys: &[&Postgres], acts: &str) {
    for standby in standbys {
        eventually(&format!("{acts} acts are replayed"), PATIENCE, || {
            let mut superuser = standby.superuser("postgres");
            // The table may not be there yet.
            let outcome = superuser.query("SELECT count(*) FROM acts");
            let is_there =
                outcome.error.is_none() && superuser.value("SELECT count(*) FROM acts") == acts;
            is_there.then_some(())
        });
    }
}

/// Returns the error with which Weir closes the client's connection.
#[track_caller]
fn farewell(client: &mut RawClient) -> ServerError {
    let told = client.read_to_end();
    let last = told.iter().rfind(|message| message.tag == b'E');
    last.and_then(Message::error).expect("an error before the end")
}

fn write(client: &mut RawClient, act: &str) {
    client.rows(&format!("INSERT INTO acts VALUES (inet_server_port(), '{act}')"));
}

#[test]
fn clients_follow_a_promotion_without_an_error_core() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let pooler = setup(&[a, b, c], "").start();
    let mut idle = pooler.client("app");
    idle.rows("SET work_mem = '7MB'");
    write(&mut idle, "before");
    assert_eq!(node_of(&mut idle), a.port());
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    until_replayed(&[b, c], "1");

    a.stop();
    // A client that asks meanwhile waits for the next primary.
    let mut waiting = pooler.client("app");
    let asking = thread::spawn(move || {
        write(&mut waiting, "meanwhile");
        node_of(&mut waiting)
    });
    let nodes = until_nodes_are(&pooler, &["down", "unfit", "unfit"]);
    assert_eq!(nodes.column("reason")[0], "connections are refused");
    let promoted = Instant::now();
    b.promote();
    assert_eq!(asking.join().expect("it is served"), b.port());
    // Twice `sample_interval`, and the time for a new server.
    assert!(promoted.elapsed() < Duration::from_secs(3), "{:?}", promoted.elapsed());
    assert_eq!(node_of(&mut idle), b.port());
    assert_eq!(idle.value("SHOW work_mem"), "7MB", "the session goes on");
    write(&mut idle, "after");

    // The old primary comes back on its old timeline, and accepts writes.
    a.launch();
    c.follow(b);
    let nodes = until_nodes_are(&pooler, &["false primary", "writable", "readable"]);
    assert_eq!(nodes.column("timeline"), ["1", "2", "2"]);
    assert_eq!(nodes.column("reason")[0], "timeline 1, and timeline 2 exists");
    let mut others: Vec<_> = (0..4).map(|_| pooler.client("app")).collect();
    others.iter_mut().for_each(|client| write(client, "behind"));
    let port = b.port();
    let count = "SELECT count(*), count(DISTINCT node) FROM acts WHERE node IS NOT NULL";
    assert_eq!(b.sql("postgres", count)[0][0].as_deref(), Some("7"));
    assert_eq!(a.sql("postgres", count)[0][0].as_deref(), Some("1"), "nothing went to the old one");
    assert_eq!(
        idle.value(&format!("SELECT bool_and(node = {port}) FROM acts WHERE act = 'behind'")),
        "t"
    );

    let failovers = pooler.admin("SHOW FAILOVERS");
    assert_eq!(failovers.column("from_node"), ["", "a"]);
    assert_eq!(failovers.column("to_node"), ["a", "b"]);
    assert_eq!(failovers.column("new_timeline"), ["1", "2"]);
    let clusters = pooler.admin("SHOW CLUSTERS");
    assert_eq!((clusters.only("primary"), clusters.only("timeline")), ("b", "2"));
    let events = pooler.admin("SHOW EVENTS");
    let lost = events.column("event").iter().filter(|event| **event == "primary lost").count();
    assert!(lost >= 1, "{events:?}");
}

#[test]
fn without_a_primary_clients_are_told_why_and_other_databases_are_served() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let other = format!("host=127.0.0.1 port={} dbname=postgres", b.port());
    let health_port = free_port();
    let setup = setup(&[a, b], "failover_wait=1").database_at("other", &other);
    let pooler = setup.set("health_port", health_port).set("health_addr", "127.0.0.1").start();
    let mut client = pooler.client("app");
    write(&mut client, "before");
    let mut elsewhere = pooler.client("other");
    let health = |path: &str| {
        let answer = get(health_port, path).expect("an answer");
        (answer.status, answer.body)
    };
    assert_eq!(health("/health/primary"), (200, "ok\n".to_owned()));
    a.stop();
    until_nodes_are(&pooler, &["down", "unfit"]);
    let lost = "cluster main has no primary: primary a is lost: connections are refused\n";
    assert_eq!(health("/health/primary"), (503, lost.to_owned()));
    assert_eq!(health("/health/primary/main"), (503, lost.to_owned()));
    assert_eq!(health("/health/primary/other").0, 404);
    assert_eq!(health("/health/ready").0, 200, "reads and other databases are served");
    let began = Instant::now();
    client.send(frontend::query("SELECT 1"));
    let error = farewell(&mut client);
    assert_eq!((error.severity(), error.code()), ("FATAL", "57P03"));
    assert_eq!(
        error.message(),
        "cluster main has no primary: primary a is lost: connections are refused"
    );
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(elsewhere.value("SELECT 1"), "1");
    assert_eq!(pooler.client("other").value("SELECT 2"), "2");
    // The node starts again with its timeline.
    a.launch();
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(health("/health/primary").0, 200);
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}

#[test]
fn a_frozen_primary_gets_nothing_when_another_is_promoted() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], "sample_interval=0.2").start();
    let mut busy = pooler.client("app");
    busy.rows("BEGIN");
    write(&mut busy, "in a transaction");
    let mut idle = pooler.client("app");
    write(&mut idle, "before");
    until_nodes_are(&pooler, &["writable", "readable"]);
    until_replayed(&[b], "1");
    a.freeze();
    let frozen = Instant::now();
    // The frozen node has got it, so nobody else may.
    idle.send(frontend::query("INSERT INTO acts VALUES (inet_server_port(), 'in flight')"));
    until_nodes_are(&pooler, &["down", "unfit"]);
    b.promote();
    let mut fresh = pooler.client("app");
    write(&mut fresh, "after");
    assert_eq!(node_of(&mut fresh), b.port());
    assert!(frozen.elapsed() < Duration::from_secs(8), "{:?}", frozen.elapsed());
    let told = idle.read_to_ready();
    let codes: Vec<_> = told.iter().filter_map(Message::error).collect();
    assert_eq!(codes[0].code(), "08007", "{codes:?}");
    assert_eq!(busy.query("COMMIT").error.expect("it was lost").code(), "40001");
    a.thaw();
    until_nodes_are(&pooler, &["false primary", "writable"]);
    for _ in 0..10 {
        assert_eq!(node_of(&mut pooler.client("app")), b.port());
    }
}

#[test]
fn ended_sessions_are_no_failover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], "").start();
    let mut client = pooler.client("app");
    write(&mut client, "before");
    until_nodes_are(&pooler, &["writable", "readable"]);
    for _ in 0..10 {
        for node in [a, b] {
            node.sql(
                "postgres",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
            );
        }
        eventually("a client is served", PATIENCE, || {
            let mut client = pooler.login("app", "app", "app-secret").ok()?;
            client.query("SELECT 1").error.is_none().then_some(())
        });
    }
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(pooler.admin("SHOW FAILOVERS").column("to_node"), ["a"]);
}

#[test]
fn a_node_of_another_cluster_is_not_used_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let stranger = Postgres::start_unrelated().with_standbys(0).remove(0);
    let pooler = setup(&[&stranger, a, b], "").start();
    let nodes = until_nodes_are(&pooler, &["unfit", "writable", "readable"]);
    assert!(nodes.column("reason")[0].starts_with("system identifier "), "{nodes:?}");
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}

#[test]
fn an_online_restart_and_a_reload_keep_the_primary() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let mut pooler = setup(&[a, b], "sample_interval=0.2").start();
    let mut pinned = pooler.client("app");
    pinned.rows("CREATE TEMP TABLE mine (number int)");
    let backend = pinned.value("SELECT pg_backend_pid()");
    until_nodes_are(&pooler, &["writable", "readable"]);
    pooler.take_over();
    assert_eq!(pinned.value("SELECT pg_backend_pid()"), backend);
    until_nodes_are(&pooler, &["writable", "readable"]);
    pooler.admin("RELOAD");
    assert_eq!(pinned.value("SELECT pg_backend_pid()"), backend);
    // The servers that were taken over are closed when another node is the primary.
    a.freeze();
    until_nodes_are(&pooler, &["down", "unfit"]);
    b.promote();
    let error = pinned.query("SELECT 1").error.expect("the table is lost");
    assert!(error.field('D').contains("the cluster has another primary"), "{error:?}");
    assert_eq!(node_of(&mut pooler.client("app")), b.port());
    a.thaw();
}
