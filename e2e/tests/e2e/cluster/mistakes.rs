//! Orders and configurations that an operator gives at a bad moment.

use std::thread;

use testkit::{Ini, Pooler, Postgres, eventually, frontend};

use super::change::{ALL, assert_primary, synchronous};
use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{PATIENCE, cluster, node_of, setup, until_nodes_are, until_replayed, write};
use crate::support;

/// Returns the nodes of a cluster, for its configuration.
fn list(nodes: &[(&str, &Postgres)]) -> String {
    let nodes: Vec<_> =
        nodes.iter().map(|(name, node)| format!("{name}=127.0.0.1:{}", node.port())).collect();
    format!("nodes='{}' password=weir-secret", nodes.join(", "))
}

fn refused(pooler: &Pooler, order: &str) -> String {
    pooler.try_admin(order).error.expect("it is refused").message().to_owned()
}

/// A switchover from a to b while clients write. `meanwhile` runs while the primary is about to stop.
/// No client gets an error.
fn switch_over(
    nodes: &[Postgres],
    hooks: &Hooks,
    pooler: &mut Pooler,
    meanwhile: impl FnOnce(&mut Pooler),
) {
    let [a, b] = nodes else { unreachable!("two nodes") };
    until_nodes_are(pooler, &["writable", "readable"]);
    let mut console = pooler.console();
    // It takes longer than a test of the console waits.
    console.send(frontend::query("SWITCHOVER app TO b"));
    hooks.serve("stop", "a", 0, || {
        meanwhile(pooler);
        a.shut_down();
    });
    hooks.serve("rejoin", "a", 0, || a.rejoin(b));
    let answer = console.read_to_ready();
    assert!(answer.iter().all(|message| message.tag != b'E'), "{answer:?}");
    assert_primary(nodes, 1);
}

#[test]
fn one_change_of_a_cluster_at_a_time() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    a.sql("postgres", "GRANT ALL ON acts TO weir");
    let hooks = Hooks::new();
    // Another database of the cluster, with another user.
    let other = "cluster=main dbname=postgres user=weir password=weir-secret";
    let mut pooler = setup(&[a, b], &hooks.keys(&ALL)).database_at("other", other).start();
    let mut clients = [pooler.client("app"), pooler.client("other")];
    for client in &mut clients {
        write(client, "before");
    }
    switch_over(&nodes, &hooks, &mut pooler, |pooler| {
        for order in ["SWITCHOVER app TO b", "SWITCHOVER other TO b", "SWITCHOVER other TO a"] {
            assert_eq!(refused(pooler, order), "another change of the primary is under way");
        }
        assert_eq!(
            refused(pooler, "SWITCHOVER app TO z"),
            "cluster main has no node z: it has a, b"
        );
        for client in &mut clients {
            client.send(frontend::query("SELECT current_user, inet_server_port()"));
        }
        eventually("clients of both databases wait", PATIENCE, || {
            let waiting = ["app", "other"].map(|name| pooler.pool_sums(name, ["cl_waiting"]));
            (waiting == [[1], [1]]).then_some(())
        });
    });
    for (client, user) in clients.iter_mut().zip(["app", "weir"]) {
        let answer = client.read_to_ready();
        let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
        assert_eq!(row, [Some(user.to_owned()), Some(b.port().to_string())]);
    }
}

/// Reloads in the middle of a switchover, and returns the pooler afterwards.
fn reloaded_meanwhile(
    change: impl FnOnce(&mut Ini, &[Postgres], &Hooks),
) -> (Vec<Postgres>, Hooks, Pooler) {
    let nodes = cluster(1);
    let hooks = Hooks::new();
    let mut pooler = setup(&[&nodes[0], &nodes[1]], &hooks.keys(&ALL)).start();
    let mut client = pooler.client("app");
    write(&mut client, "before");
    switch_over(&nodes, &hooks, &mut pooler, |pooler| {
        pooler.reconfigure(|ini| change(ini, &nodes, &hooks));
        pooler.reload();
    });
    (nodes, hooks, pooler)
}

#[test]
fn a_cluster_that_is_removed_during_its_switchover_is_so_afterwards() {
    if !support::only_weir() {
        return;
    }
    let (nodes, _hooks, pooler) = reloaded_meanwhile(|ini, nodes, _| {
        ini.remove_cluster("main");
        ini.database("app", &format!("host=127.0.0.1 port={} dbname=postgres", nodes[1].port()));
    });
    eventually("the cluster is gone", PATIENCE, || {
        pooler.admin("SHOW CLUSTERS").column("primary").is_empty().then_some(())
    });
    assert_eq!(refused(&pooler, "SWITCHOVER app TO a"), "database app belongs to no cluster");
    assert_eq!(node_of(&mut pooler.client("app")), nodes[1].port());
}

#[test]
fn nodes_that_are_renamed_during_a_switchover_are_so_afterwards() {
    if !support::only_weir() {
        return;
    }
    let (nodes, _hooks, pooler) = reloaded_meanwhile(|ini, nodes, hooks| {
        let list = list(&[("b", &nodes[0]), ("y", &nodes[1])]);
        ini.cluster("main", &format!("{list} {}", hooks.keys(&ALL)));
    });
    let shown = until_nodes_are(&pooler, &["readable", "writable"]);
    assert_eq!(shown.column("node"), ["b", "y"]);
    assert_eq!(node_of(&mut pooler.client("app")), nodes[1].port());
    assert_eq!(refused(&pooler, "SWITCHOVER app TO y"), "node y is the primary already");
}

#[test]
fn a_primary_that_is_removed_during_its_switchover_is_left_alone() {
    if !support::only_weir() {
        return;
    }
    let (nodes, _hooks, pooler) = reloaded_meanwhile(|ini, nodes, hooks| {
        ini.cluster("main", &format!("{} {}", list(&[("b", &nodes[1])]), hooks.keys(&ALL)));
    });
    until_nodes_are(&pooler, &["writable"]);
    assert_eq!(node_of(&mut pooler.client("app")), nodes[1].port());
}

#[test]
fn a_reload_during_a_failover_waits_for_its_end() {
    if !support::only_weir() {
        return;
    }
    for is_removed in [true, false] {
        let nodes = synchronous(1);
        let [a, b] = &nodes[..] else { unreachable!("two nodes") };
        let hooks = Hooks::new();
        let keys = format!("failover=own {}", hooks.keys(&["fence", "rejoin"]));
        let mut pooler = setup(&[a, b], &keys).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        a.kill9();
        hooks.serve("fence", "a", 0, || {
            pooler.reconfigure(|ini| match is_removed {
                true => {
                    ini.remove_cluster("main");
                    let port = b.port();
                    ini.database("app", &format!("host=127.0.0.1 port={port} dbname=postgres"));
                }
                false => ini.cluster("main", &list(&[("y", b)])),
            });
            pooler.reload();
        });
        eventually("the standby is promoted", PATIENCE, || {
            let is_standby = b.sql("postgres", "SELECT pg_is_in_recovery()");
            (is_standby[0][0].as_deref() == Some("f")).then_some(())
        });
        pooler.log_contains("cluster main: node b is promoted");
        hooks.serve("rejoin", "a", 0, || {});
        assert_eq!(node_of(&mut pooler.client("app")), b.port());
    }
}

#[test]
fn nodes_of_another_cluster_take_over_at_once() {
    if !support::only_weir() {
        return;
    }
    let (old, new) = (cluster(1), cluster(1));
    let mut pooler = setup(&[&old[0], &old[1]], "failover_wait=60").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    write(&mut pooler.client("app"), "of the old one");
    // The new primary cannot be reached for a while.
    new[0].freeze();
    let names = [("a", &new[0]), ("b", &new[1])];
    pooler.reconfigure(|ini| ini.cluster("main", &format!("{} failover_wait=60", list(&names))));
    pooler.reload();
    thread::scope(|scope| {
        let writing = scope.spawn(|| write(&mut pooler.client("app"), "of the new one"));
        pooler.log_contains("cluster main has no primary");
        new[0].thaw();
        writing.join().expect("it is served");
    });
    let acts = |node: &Postgres| node.sql("postgres", "SELECT string_agg(act, ', ') FROM acts");
    assert_eq!(acts(&old[0])[0][0].as_deref(), Some("of the old one"));
    assert_eq!(acts(&new[0])[0][0].as_deref(), Some("of the new one"));
}

#[test]
fn a_paused_database_stays_so_in_a_switchover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let mut pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    let mut client = pooler.client("app");
    write(&mut client, "before");
    pooler.admin("PAUSE app");
    client.send(frontend::query("SHOW port"));
    switch_over(&nodes, &hooks, &mut pooler, |pooler| {
        pooler.admin("RECONNECT");
    });
    until_nodes_are(&pooler, &["readable", "writable"]);
    assert_eq!(pooler.pool_sums("app", ["cl_waiting", "sv_active"]), [1, 0], "it is paused");
    pooler.admin("RESUME app");
    let answer = client.read_to_ready();
    let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
    assert_eq!(row, [Some(b.port().to_string())]);
    // A PAUSE in the middle.
    thread::scope(|scope| {
        let order = scope.spawn(|| pooler.admin("SWITCHOVER app TO a"));
        hooks.serve("stop", "b", 0, || {
            pooler.admin("PAUSE app");
            client.send(frontend::query("SHOW port"));
            pooler.admin("RESUME app");
            b.shut_down();
        });
        hooks.serve("rejoin", "b", 0, || b.rejoin(a));
        order.join().expect("it succeeds");
    });
    let answer = client.read_to_ready();
    let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
    assert_eq!(row, [Some(a.port().to_string())]);
}

#[test]
fn a_node_whose_replay_is_paused_is_no_target() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let mut pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    b.sql("postgres", "SELECT pg_wal_replay_pause()");
    let told = write_during(&pooler, || {
        assert_eq!(
            refused(&pooler, "SWITCHOVER app TO b"),
            "node b cannot become the primary: its replay is paused"
        );
    });
    assert!(hooks.next().is_none(), "nothing is stopped");
    check_no_errors(&told);
    check_rows(a, &told);
    b.sql("postgres", "SELECT pg_wal_replay_resume()");
    until_replayed(
        &[b],
        &a.sql("postgres", "SELECT count(*) FROM acts")[0][0].clone().expect("a count"),
    );
    switch_over(&nodes, &hooks, &mut pooler, |_| {});
}
