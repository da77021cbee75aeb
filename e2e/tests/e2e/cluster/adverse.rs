//! Nodes that run, but not as they should: no connection is left, new ones are not accepted, a
//! command does not end, or nothing runs when Weir starts.

use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, Postgres, RawClient, eventually, frontend};

use super::change::synchronous;
use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{PATIENCE, cluster, farewell, furnished, node_of, setup, until_nodes_are, write};
use crate::support;

const QUICK: &str = "sample_interval=0.2 health_timeout=0.5";

fn only_a_was_primary(pooler: &Pooler) {
    assert_eq!(pooler.admin("SHOW FAILOVERS").column("to_node"), ["a"]);
}

#[test]
fn a_node_without_a_free_connection_is_no_failover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], QUICK).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        // For Weir's own role. `max_connections` has the same SQLSTATE (53300).
        a.sql("postgres", "ALTER ROLE weir CONNECTION LIMIT 0");
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'weir'";
        a.sql("postgres", end);
        let refused = "too many connections for role \"weir\"";
        eventually("Weir is refused again and again", PATIENCE, || {
            (a.log().matches(refused).count() >= 10).then_some(())
        });
        until_nodes_are(&pooler, &["writable", "readable"]);
        a.sql("postgres", "ALTER ROLE weir CONNECTION LIMIT -1");
    });
    check_no_errors(&told);
    only_a_was_primary(&pooler);
}

#[test]
fn a_node_whose_connections_are_all_taken_is_no_failover() {
    if !support::only_weir() {
        return;
    }
    let primary = Postgres::start();
    primary.sql("postgres", "ALTER SYSTEM SET max_connections = 30");
    primary.shut_down();
    primary.launch();
    let nodes = furnished(primary.with_standbys(1));
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], QUICK).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        let mut others = Vec::new();
        eventually("Weir is refused again and again", PATIENCE, || {
            while let Ok(other) = RawClient::login(a.port(), "app", "postgres", "app-secret") {
                others.push(other);
            }
            let end =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'weir'";
            a.sql("postgres", end);
            let refused = "weir@postgres FATAL:  remaining connection slots are reserved";
            (a.log().matches(refused).count() >= 10).then_some(())
        });
        until_nodes_are(&pooler, &["writable", "readable"]);
    });
    check_no_errors(&told);
    only_a_was_primary(&pooler);
}

#[test]
fn a_frozen_postmaster_is_no_failover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], QUICK).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut known = pooler.client("app");
    known.rows("BEGIN");
    write(&mut known, "before");
    a.freeze_postmaster();
    // The open connections work, and none can be opened.
    let mut waiting = pooler.client("app");
    waiting.send(frontend::query("SHOW port"));
    eventually("it waits", PATIENCE, || {
        (pooler.pool_sums("app", ["cl_waiting"]) == [1]).then_some(())
    });
    // No state shows that nothing happens. A silent node would be down after 1 s.
    thread::sleep(Duration::from_secs(2));
    until_nodes_are(&pooler, &["writable", "readable"]);
    known.rows("COMMIT");
    // The free connection goes to the client that waits.
    let answer = waiting.read_to_ready();
    assert!(answer.iter().any(|message| message.tag == b'D'), "{answer:?}");
    a.thaw();
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    only_a_was_primary(&pooler);
}

#[test]
fn a_command_that_does_not_end_ends_the_switchover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = format!("{} command_timeout=1", hooks.keys(&["stop", "start", "rejoin"]));
    let pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        thread::scope(|scope| {
            let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
            eventually("the node is to stop", PATIENCE, || {
                hooks.is_asked("stop", "a").then_some(())
            });
            hooks.serve("start", "a", 0, || {});
            let error = order.join().expect("the console answers").expect("it fails");
            let why = "switchover failed: stop_command failed: it did not end within 1 s";
            assert_eq!(error.message(), why);
        });
    });
    check_no_errors(&told);
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}

#[test]
fn a_fence_that_does_not_end_promotes_nobody_and_is_tried_again() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = format!("{QUICK} failover=own command_timeout=1 {}", hooks.keys(&["fence"]));
    let pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    a.kill9();
    let hung = "fence_command failed: it did not end within 1 s";
    pooler.log_contains(hung);
    assert_eq!(b.sql("postgres", "SELECT pg_is_in_recovery()")[0][0].as_deref(), Some("t"));
    eventually("the standby is promoted", PATIENCE, || {
        while let Some((_, _, question)) = hooks.next() {
            hooks.answer(&question, 0);
        }
        (pooler.admin("SHOW CLUSTERS").only("primary") == "b").then_some(())
    });
    assert_eq!(node_of(&mut pooler.client("app")), b.port());
}

/// The fence says that the old primary is stopped. It is started again while Weir stands still.
#[test]
fn a_primary_that_runs_again_after_its_fence_stays_the_primary_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = format!("{QUICK} failover=own {}", hooks.keys(&["fence"]));
    let pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    a.kill9();
    hooks.serve("fence", "a", 0, || {
        pooler.signal("STOP");
        a.launch();
        // Weir notices a pause of two seconds.
        let age = "SELECT now() - pg_postmaster_start_time() > '2.5 s'";
        eventually("the pause is long", PATIENCE, || {
            (a.sql("postgres", age)[0][0].as_deref() == Some("t")).then_some(())
        });
    });
    pooler.signal("CONT");
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(b.sql("postgres", "SELECT pg_is_in_recovery()")[0][0].as_deref(), Some("t"));
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    pooler.log_contains("nobody is promoted: ");
}

#[test]
fn a_rejoin_that_does_not_end_is_told_and_harms_nobody() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = format!("{} command_timeout=8", hooks.keys(&["stop", "start", "rejoin"]));
    let pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        thread::scope(|scope| {
            let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
            hooks.serve("stop", "a", 0, || a.shut_down());
            let error = order.join().expect("the console answers").expect("it is not complete");
            let why = "rejoin_command failed for node a: it did not end within 8 s";
            let message = error.message();
            let begins = message.starts_with("node b is the primary now, but ");
            assert!(begins && message.contains(why), "{message}");
        });
    });
    check_no_errors(&told);
    check_rows(b, &told);
    until_nodes_are(&pooler, &["down", "writable"]);
}

#[test]
fn a_standby_alone_is_no_primary() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let other = format!("host=127.0.0.1 port={} dbname=postgres", a.port());
    let pooler = setup(&[b], "failover_wait=1").database_at("other", &other).start();
    let shown = until_nodes_are(&pooler, &["unfit"]);
    assert_eq!(shown.only("role"), "standby");
    let mut early = RawClient::connect(pooler.port());
    early.send(frontend::startup(&[("user", "app"), ("database", "app")]));
    let error = farewell(&mut early);
    assert_eq!(
        (error.code(), error.message()),
        ("57P03", "cluster main has no primary: no node of timeline 1 accepts writes")
    );
    assert_eq!(pooler.client("other").value("SELECT 1"), "1");
    let refused = pooler.try_admin("SWITCHOVER app TO b").error.expect("it is refused");
    assert_eq!(refused.message(), "cluster main has no node b: it has a");
    b.promote();
    assert_eq!(node_of(&mut pooler.client("app")), b.port());
}

#[test]
fn nodes_that_start_after_weir_are_used() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    nodes.iter().for_each(|node| node.stop());
    let pooler = setup(&[a, b], "failover_wait=1").start();
    let mut early = RawClient::connect(pooler.port());
    early.send(frontend::startup(&[("user", "app"), ("database", "app")]));
    let error = farewell(&mut early);
    assert_eq!(
        (error.code(), error.message()),
        ("57P03", "cluster main has no primary: no node answers")
    );
    a.launch();
    let began = Instant::now();
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    b.launch();
    until_nodes_are(&pooler, &["writable", "readable"]);
}
