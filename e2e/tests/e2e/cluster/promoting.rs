//! Standbys that do not promote themselves at once.

use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::{Postgres, eventually, frontend};

use super::change::{ALL, assert_primary, synchronous};
use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{PATIENCE, cluster, node_of, setup, until_nodes_are, write};
use crate::support;

/// Sends a signal to the process of a standby that replays the log.
pub(crate) fn signal_replay(standby: &Postgres, signal: &str) {
    let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'";
    let pid = standby.sql("postgres", sql)[0][0].clone().expect("it replays");
    support::run(Command::new("kill").args(["-s", signal, &pid]));
}

#[test]
fn a_promotion_that_hangs_is_waited_for() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &(hooks.keys(&ALL) + " failover_wait=60")).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    write(&mut client, "before");
    let error = thread::scope(|scope| {
        let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
        hooks.serve("stop", "a", 0, || {
            a.shut_down();
            until_all_is_replayed(b);
            signal_replay(b, "STOP");
        });
        client.send(frontend::query("INSERT INTO acts VALUES (inet_server_port(), 'meanwhile')"));
        order.join().expect("the console answers").expect("it fails")
    });
    assert_eq!(error.message(), "switchover failed: node b was not promoted in time");
    assert!(!hooks.is_asked("start", "a"), "the promotion may still happen");
    signal_replay(b, "CONT");
    let told = client.read_to_ready();
    assert!(told.iter().all(|message| message.tag != b'E'), "{told:?}");
    assert_eq!(node_of(&mut client), b.port());
    until_nodes_are(&pooler, &["down", "writable"]);
}

/// Waits until this standby, whose primary has stopped, has replayed everything.
pub(super) fn until_all_is_replayed(standby: &Postgres) {
    let is_done = "SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()
                   AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver)";
    eventually("all is replayed", PATIENCE, || {
        (standby.sql("postgres", is_done)[0][0].as_deref() == Some("t")).then_some(())
    });
}

/// Waits until this standby, whose process that replays is stopped, was ordered to promote itself.
pub(super) fn until_ordered(standby: &Postgres) {
    eventually("the promotion is ordered", PATIENCE, || {
        let file = "SELECT (pg_stat_file('promote', true)).size IS NOT NULL";
        (standby.sql("postgres", file)[0][0].as_deref() == Some("t")).then_some(())
    });
}

#[test]
fn a_standby_that_dies_while_it_promotes_itself_is_ordered_again() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = format!("failover=own failover_wait=60 {}", hooks.keys(&["fence"]));
    let pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    write(&mut client, "before");
    a.kill9();
    hooks.serve("fence", "a", 0, || signal_replay(b, "STOP"));
    until_ordered(b);
    // The server ends with this process.
    signal_replay(b, "KILL");
    b.wait_until_gone();
    b.stop();
    client.send(frontend::query("SELECT count(*) FROM acts"));
    b.launch();
    until_nodes_are(&pooler, &["down", "writable"]);
    let told = client.read_to_ready();
    assert!(told.iter().all(|message| message.tag != b'E'), "{told:?}");
    assert_eq!(client.value("SELECT count(*) FROM acts"), "1");
    assert_eq!(node_of(&mut client), b.port());
}

#[test]
fn a_standby_that_has_paused_its_replay_is_promoted_with_all_that_it_has_received() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let hooks = Hooks::new();
    let keys = format!("failover=own {}", hooks.keys(&["fence"]));
    let pooler = setup(&[a, b, c], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    for standby in [b, c] {
        standby.sql("postgres", "SELECT pg_wal_replay_pause()");
    }
    let primary = || pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
    let told = write_during(&pooler, || {
        a.kill9();
        hooks.serve("fence", "a", 0, || {});
        eventually("a standby serves", Duration::from_secs(30), || {
            ["b", "c"].contains(&&*primary()).then_some(())
        });
        // While it is paused, it cannot follow the new primary, and commits wait.
        let other = if primary() == "b" { c } else { b };
        other.sql("postgres", "SELECT pg_wal_replay_resume()");
    });
    let new = if primary() == "b" { b } else { c };
    check_rows(new, &told);
}

#[test]
fn a_switchover_to_a_standby_that_has_paused_its_replay_goes_back() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        thread::scope(|scope| {
            let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
            hooks.serve("stop", "a", 0, || {
                b.sql("postgres", "SELECT pg_wal_replay_pause()");
                a.shut_down();
            });
            hooks.serve("start", "a", 0, || a.launch());
            let error = order.join().expect("the console answers").expect("it fails");
            let why = "switchover failed: node b has not replayed the end of the WAL in time";
            assert_eq!(error.message(), why);
        });
    });
    check_no_errors(&told);
    check_rows(a, &told);
    assert_primary(&nodes, 0);
}
