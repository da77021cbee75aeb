//! Weir changes the primary itself: SWITCHOVER on the console, and `failover = own`.

use std::thread;
use std::time::{Duration, Instant};

use testkit::{Postgres, eventually, frontend};

use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{PATIENCE, cluster, node_of, setup, until_nodes_are, until_replayed, write};
use crate::{routing, support};

pub(super) const ALL: [&str; 3] = ["stop", "start", "rejoin"];

/// Asserts that only this node accepts writes, and that the others follow it.
#[track_caller]
pub(super) fn assert_primary(nodes: &[Postgres], primary: usize) {
    for (at, node) in nodes.iter().enumerate() {
        let is_standby = node.sql("postgres", "SELECT pg_is_in_recovery()");
        assert_eq!(is_standby[0][0].as_deref() == Some("f"), at == primary, "node {at}");
    }
}

#[test]
fn a_switchover_costs_no_client_an_error_core() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let hooks = Hooks::new();
    // With `failover = own`, the loss of the old primary must not begin a failover of its own.
    let keys = format!("failover=own {} {}", hooks.keys(&ALL), hooks.keys(&["fence"]));
    let pooler = setup(&[a, b, c], &keys).workers(2).start();
    let mut idle = pooler.client("app");
    idle.rows("SET work_mem = '7MB'");
    idle.rows("PREPARE one AS SELECT 1");
    idle.rows("LISTEN news");
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    let told = write_during(&pooler, || {
        thread::scope(|scope| {
            let order = scope.spawn(|| pooler.admin("SWITCHOVER app TO b"));
            hooks.serve("stop", "a", 0, || a.shut_down());
            hooks.serve("rejoin", "a", 0, || a.rejoin(b));
            order.join().expect("it succeeds");
        });
        until_nodes_are(&pooler, &["readable", "writable", "readable"]);
        thread::scope(|scope| {
            let order = scope.spawn(|| pooler.admin("SWITCHOVER app TO c"));
            hooks.serve("stop", "b", 0, || b.shut_down());
            hooks.serve("rejoin", "b", 0, || b.rejoin(c));
            order.join().expect("it succeeds");
        });
        until_nodes_are(&pooler, &["readable", "readable", "writable"]);
    });
    check_no_errors(&told);
    let longest = check_rows(c, &told);
    println!("the longest wait was {longest:?}");
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    assert_primary(&nodes, 2);
    assert_eq!(idle.value("SHOW work_mem"), "7MB");
    assert_eq!(idle.value("EXECUTE one"), "1");
    // A notification before that is lost, and the client is warned.
    let port = c.port().to_string();
    eventually("Weir listens at the new primary", PATIENCE, || {
        let servers = pooler.admin("SHOW SERVERS").with("state", "listening");
        servers.column("port").contains(&port.as_str()).then_some(())
    });
    c.sql("postgres", "NOTIFY news, 'of c'");
    let news = idle.read_until(|message| message.tag == b'A');
    assert!(news.last().expect("a notification").body.ends_with(b"of c\0"));
    let failovers = pooler.admin("SHOW FAILOVERS");
    assert_eq!(failovers.column("to_node"), ["a", "b", "c"]);
    assert_eq!(failovers.column("reason")[1..], ["switchover to node b", "switchover to node c"]);
    assert_eq!(failovers.column("new_timeline"), ["1", "2", "3"]);
    assert!(!pooler.log().contains("Fence") && !pooler.log().contains("is promoted"));
}

#[test]
fn no_notification_of_a_switchover_is_lost_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &(hooks.keys(&ALL) + " switchover_drain=30")).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut listening = pooler.client("app");
    listening.rows("LISTEN news");
    eventually("Weir listens", PATIENCE, || {
        let servers = pooler.admin("SHOW SERVERS").with("state", "listening");
        (servers.column("port").len() == 1).then_some(())
    });
    let mut busy = pooler.client("app");
    busy.rows("BEGIN");
    write(&mut busy, "before");
    thread::scope(|scope| {
        let order = scope.spawn(|| pooler.admin("SWITCHOVER app TO b"));
        let mut waiting = pooler.client("app");
        waiting.set_timeout(Duration::from_secs(1));
        eventually("new transactions wait", PATIENCE, || {
            waiting.send(frontend::query("SELECT 1"));
            match waiting.try_read() {
                Ok(_) => {
                    waiting.read_to_ready();
                    None
                }
                Err(_) => Some(()),
            }
        });
        busy.rows("NOTIFY news, 'of the last transaction'");
        busy.rows("COMMIT");
        hooks.serve("stop", "a", 0, || {
            // It is the first transaction at the new primary.
            busy.send(frontend::query("NOTIFY news, 'of the first transaction'"));
            a.shut_down()
        });
        hooks.serve("rejoin", "a", 0, || a.rejoin(b));
        order.join().expect("it succeeds");
        busy.read_to_ready();
    });
    let mut told = Vec::new();
    listening.read_until(|message| {
        told.push(format!("{}: {}", message.tag as char, String::from_utf8_lossy(&message.body)));
        told.last().is_some_and(|last| last.contains("of the first transaction"))
    });
    let [last, first] = &told[..] else { panic!("notifications, and no warning: {told:?}") };
    assert!(last.contains("of the last transaction"), "{told:?}");
    assert!(first.starts_with('A'), "{told:?}");
}

/// The listener listens at the new primary before clients go on.
#[test]
fn a_notification_right_after_a_loss_is_told() {
    if !support::only_weir() {
        return;
    }
    for own in [true, false] {
        let nodes = synchronous(1);
        let [a, b] = &nodes[..] else { unreachable!("two nodes") };
        let hooks = Hooks::new();
        let failover = if own { "failover=own" } else { "failover=follow" };
        let pooler = setup(&[a, b], &format!("{failover} {}", hooks.keys(&["fence"]))).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        let mut listening = pooler.client("app");
        listening.rows("LISTEN news");
        eventually("Weir listens", PATIENCE, || {
            let servers = pooler.admin("SHOW SERVERS").with("state", "listening");
            (servers.column("port").len() == 1).then_some(())
        });
        let mut others: Vec<_> = (0..8).map(|_| pooler.client("app")).collect();
        // The new primary has no standby.
        b.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
        b.sql("postgres", "SELECT pg_reload_conf()");
        a.kill9();
        until_nodes_are(&pooler, &["down", "unfit"]);
        for (at, other) in others.iter_mut().enumerate() {
            other.send(frontend::query(&format!("NOTIFY news, 'number {at}'")));
        }
        match own {
            true => hooks.serve("fence", "a", 0, || {}),
            false => b.promote(),
        }
        let mut told = 0;
        listening.read_until(|message| {
            told += u32::from(message.tag == b'A');
            told == 8
        });
    }
}

#[test]
fn a_switchover_that_cannot_be_done_is_refused_with_the_reason() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = hooks.keys(&ALL) + " switchover_drain=0.5";
    let other = format!("host=127.0.0.1 port={} dbname=postgres", a.port());
    let pooler = setup(&[a, b], &keys).database_at("other", &other).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut busy = pooler.client("app");
    busy.rows("BEGIN");
    write(&mut busy, "before");
    let refused = |order: &str| {
        let error = pooler.try_admin(order).error;
        error.expect("it is refused").message().to_owned()
    };
    assert_eq!(
        refused("SWITCHOVER app TO b"),
        "switchover failed: 1 server connections were still in use after switchover_drain"
    );
    write(&mut busy, "after");
    busy.rows("COMMIT");
    assert_eq!(node_of(&mut busy), a.port());
    assert_eq!(refused("SWITCHOVER app TO a"), "node a is the primary already");
    assert_eq!(refused("SWITCHOVER app TO d"), "cluster main has no node d: it has a, b");
    assert_eq!(refused("SWITCHOVER other TO a"), "database other belongs to no cluster");
    assert_eq!(refused("SWITCHOVER none TO a"), "no such database: none");
    a.sql("postgres", "REVOKE EXECUTE ON FUNCTION pg_promote FROM weir");
    eventually("the standby knows it", Duration::from_secs(20), || {
        let right =
            "SELECT has_function_privilege('weir', 'pg_promote(boolean, integer)', 'execute')";
        (b.sql("postgres", right)[0][0].as_deref() == Some("f")).then_some(())
    });
    assert_eq!(refused("SWITCHOVER app TO b"), "user weir may not execute pg_promote on node b");
    b.stop();
    until_nodes_are(&pooler, &["writable", "down"]);
    let why = refused("SWITCHOVER app TO b");
    assert!(why.contains("refused"), "{why}");
    assert_eq!(node_of(&mut busy), a.port());
}

#[test]
fn a_switchover_that_fails_half_way_goes_back() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &(hooks.keys(&ALL) + " command_timeout=10")).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        let fails = |work: &dyn Fn()| {
            thread::scope(|scope| {
                let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
                work();
                let error = order.join().expect("the console answers").expect("it fails");
                error.message().to_owned()
            })
        };
        // The command fails, and has done nothing.
        let why = fails(&|| {
            hooks.serve("stop", "a", 3, || {});
            hooks.serve("start", "a", 1, || {});
        });
        assert_eq!(why, "switchover failed: stop_command failed: exit status: 3");
        until_nodes_are(&pooler, &["writable", "readable"]);
        // It fails, and has stopped the primary nevertheless.
        let why = fails(&|| {
            hooks.serve("stop", "a", 4, || a.shut_down());
            hooks.serve("start", "a", 0, || a.launch());
        });
        assert_eq!(why, "switchover failed: stop_command failed: exit status: 4");
        until_nodes_are(&pooler, &["writable", "readable"]);
        // The standby dies meanwhile.
        let why = fails(&|| {
            hooks.serve("stop", "a", 0, || {
                b.stop();
                a.shut_down();
            });
            hooks.serve("start", "a", 0, || a.launch());
        });
        assert_eq!(why, "switchover failed: node b has not replayed the end of the WAL in time");
        b.launch();
        until_nodes_are(&pooler, &["writable", "readable"]);
    });
    check_no_errors(&told);
    check_rows(a, &told);
    assert_primary(&nodes, 0);
}

#[test]
fn running_transactions_may_be_closed_for_a_switchover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = hooks.keys(&ALL) + " switchover_drain=0.2 switchover_overtime=close";
    let pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut busy = pooler.client("app");
    busy.rows("BEGIN");
    write(&mut busy, "lost");
    thread::scope(|scope| {
        let order = scope.spawn(|| pooler.admin("SWITCHOVER app TO b"));
        hooks.serve("stop", "a", 0, || a.shut_down());
        hooks.serve("rejoin", "a", 0, || a.rejoin(b));
        order.join().expect("it succeeds");
    });
    let error = busy.query("COMMIT").error.expect("it was lost");
    assert_eq!(error.code(), "40001");
    assert!(error.field('D').contains("the cluster has another primary"), "{error:?}");
    until_nodes_are(&pooler, &["readable", "writable"]);
    assert_eq!(b.sql("postgres", "SELECT count(*) FROM acts")[0][0].as_deref(), Some("0"));
}

/// A cluster whose commits wait for one of the standbys.
pub(super) fn synchronous(standbys: usize) -> Vec<Postgres> {
    let nodes = cluster(standbys);
    let names = ["a", "b", "c"][..=standbys].join(", ");
    let names = format!("synchronous_standby_names = 'ANY 1 ({names})'");
    for node in &nodes {
        for setting in ["synchronous_commit = on", &names] {
            node.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
        }
        node.sql("postgres", "SELECT pg_reload_conf()");
    }
    nodes
}

#[test]
fn a_killed_primary_is_replaced_and_no_acknowledged_row_is_lost_core_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let hooks = Hooks::new();
    let keys = format!("failover=own sample_interval=0.5 {}", hooks.keys(&["fence"]));
    let pooler = setup(&[a, b, c], &keys).workers(2).start();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    let mut known_at = None;
    let told = write_during(&pooler, || {
        a.kill9();
        hooks.serve("fence", "a", 0, || known_at = Some(Instant::now()));
        eventually("another primary serves", Duration::from_secs(30), || {
            let primary = pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
            (primary == "b" || primary == "c").then_some(())
        });
    });
    // PostgreSQL's processes end one after the other: a client that comes back before the loss is known
    // may get another connection to the dying node. Afterwards nobody gets an error.
    for writer in &told {
        assert!(writer.failed_at <= known_at, "{:?}", writer.errors);
    }
    let primary = pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
    let new = if primary == "b" { b } else { c };
    let longest = check_rows(new, &told);
    println!("the longest wait was {longest:?}");
    let failovers = pooler.admin("SHOW FAILOVERS");
    assert_eq!(failovers.column("reason")[1], "primary a is lost: connections are refused");
}

#[test]
fn without_synchronous_standbys_nobody_is_promoted_unless_a_loss_is_allowed() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let hooks = Hooks::new();
    let keys = |more: &str| format!("failover=own {more} {}", hooks.keys(&["fence"]));
    let mut pooler = setup(&[a, b, c], &keys("")).start();
    let mut client = pooler.client("app");
    write(&mut client, "before");
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    until_replayed(&[b, c], "1");
    a.kill9();
    pooler.log_contains("nobody is promoted: committed transactions may be lost");
    assert!(!hooks.is_asked("fence", "a"), "nobody is fenced in vain");
    for node in [b, c] {
        assert_eq!(node.sql("postgres", "SELECT pg_is_in_recovery()")[0][0].as_deref(), Some("t"));
    }
    let list = ["a", "b", "c"].into_iter().zip([a, b, c]);
    let list: Vec<_> =
        list.map(|(name, node)| format!("{name}=127.0.0.1:{}", node.port())).collect();
    let line =
        format!("nodes='{}' password=weir-secret {}", list.join(", "), keys("max_loss=1000000"));
    pooler.reconfigure(|ini| ini.cluster("main", &line));
    pooler.reload();
    thread::scope(|scope| {
        let mut client = pooler.client("app");
        let asking = scope.spawn(move || client.value("SELECT count(*) FROM acts"));
        hooks.serve("fence", "a", 1, || {});
        pooler.log_contains("nobody is promoted: fence_command failed: exit status: 1");
        hooks.serve("fence", "a", 0, || {});
        assert_eq!(asking.join().expect("it is served"), "1");
    });
}

#[test]
fn a_promotion_loses_no_more_than_allowed_and_tells_how_much_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let list = format!("nodes='a=127.0.0.1:{}, b=127.0.0.1:{}'", a.port(), b.port());
    let keys = |max_loss: u32| {
        let fence = hooks.keys(&["fence"]);
        format!("failover=own sample_interval=0.2 max_loss={max_loss} {fence}")
    };
    let mut pooler = setup(&[a, b], &keys(100)).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    write(&mut client, "kept");
    until_replayed(&[b], "1");
    b.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
    b.sql("postgres", "SELECT pg_reload_conf()");
    until_nodes_are(&pooler, &["writable", "unfit"]);
    for _ in 0..10 {
        write(&mut client, "lost");
    }
    let end = a.sql("postgres", "SELECT pg_current_wal_insert_lsn()")[0][0].clone();
    let end = end.expect("a position");
    eventually("Weir has seen the end of the WAL", PATIENCE, || {
        let shown = pooler.admin("SHOW NODES").with("node", "a");
        let is_seen = format!("SELECT '{}'::pg_lsn >= '{end}'", shown.only("lsn"));
        (a.sql("postgres", &is_seen)[0][0].as_deref() == Some("t")).then_some(())
    });
    a.kill9();
    pooler.log_contains("nobody is promoted: committed transactions may be lost");
    assert!(!hooks.is_asked("fence", "a"), "nobody is fenced in vain");
    let line = format!("{list} password=weir-secret {}", keys(1_000_000));
    pooler.reconfigure(|ini| ini.cluster("main", &line));
    pooler.reload();
    hooks.serve("fence", "a", 0, || {});
    until_nodes_are(&pooler, &["down", "writable"]);
    assert_eq!(client.value("SELECT string_agg(act, ' ') FROM acts"), "kept");
    let failovers = pooler.admin("SHOW FAILOVERS");
    let at_risk: u64 = failovers.column("bytes_at_risk")[1].parse().expect("bytes");
    assert!((100..1_000_000).contains(&at_risk), "{failovers:?}");
}

#[test]
fn reads_on_standbys_do_not_hinder_a_switchover() {
    if !support::only_weir() {
        return;
    }
    let nodes = routing::cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = hooks.keys(&ALL) + " switchover_drain=1";
    let pooler = routing::setup(&nodes, &keys, "").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    // It leaves a server at the standby.
    let mut reader = routing::until_routed(&pooler, a);
    thread::scope(|scope| {
        let order = scope.spawn(|| pooler.admin("SWITCHOVER app TO b"));
        hooks.serve("stop", "a", 0, || a.shut_down());
        hooks.serve("rejoin", "a", 0, || a.rejoin(b));
        order.join().expect("it succeeds");
    });
    until_nodes_are(&pooler, &["readable", "writable"]);
    assert_eq!(reader.value("SELECT 1"), "1");
}

#[test]
fn a_change_is_ended_before_the_process_is() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let mut pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut console = pooler.console();
    console.try_send(frontend::query("SWITCHOVER app TO b")).expect("it is there");
    let mut old = None;
    hooks.serve("stop", "a", 0, || {
        let process = old.insert(pooler.begin_take_over());
        assert!(!pooler.wait_for_exit().success());
        pooler.log_contains("take-over refused: the primary of a cluster is being changed");
        testkit::send_signal(process.id(), "INT");
        pooler.log_contains("got SIGINT, shutting down");
        a.shut_down();
    });
    hooks.serve("rejoin", "a", 0, || a.rejoin(b));
    let mut old = old.expect("it was served");
    let status =
        eventually("it ends", Duration::from_secs(20), || old.try_wait().expect("our own child"));
    assert!(status.success(), "{status}");
    assert_primary(&nodes, 1);
}
