//! The way back of a switchover, when `start_command` hangs, fails, or prints without end.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, ServerError, eventually, frontend};

use super::change::{ALL, assert_primary};
use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{PATIENCE, cluster, farewell, node_of, setup, until_nodes_are, write};
use crate::support;

/// Orders a switchover to node b that fails, does the work meanwhile, and returns the error.
fn failing(pooler: &Pooler, work: impl FnOnce()) -> ServerError {
    thread::scope(|scope| {
        let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
        work();
        order.join().expect("the console answers").expect("it fails")
    })
}

/// Waits until a `start_command` runs about node a. Returns its question.
fn until_started(hooks: &Hooks) -> String {
    eventually("start_command runs", PATIENCE, || hooks.asked("start", "a"))
}

/// Waits until the process of a command is gone.
fn until_gone(question: &str) {
    let pid = question.split('.').nth(3).expect("a process id");
    let folder = format!("/proc/{pid}");
    eventually("the command is gone", PATIENCE, || (!Path::new(&folder).exists()).then_some(()));
}

/// Waits until the process of a command is gone, and forgets its question.
fn until_killed(hooks: &Hooks, question: &str) {
    until_gone(question);
    hooks.answer(question, 0);
}

#[test]
fn a_start_that_hangs_is_killed_and_repeated() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &(hooks.keys(&ALL) + " command_timeout=4 failover_wait=1")).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let told = write_during(&pooler, || {
        let error = failing(&pooler, || {
            hooks.serve("stop", "a", 4, || a.shut_down());
            let first = until_started(&hooks);
            eventually("all writers wait", PATIENCE, || {
                (pooler.pool_sums("app", ["cl_waiting"]) == [8]).then_some(())
            });
            let busy = pooler.try_admin("SWITCHOVER app TO b").error.expect("it is refused");
            assert_eq!(busy.message(), "another change of the primary is under way");
            until_killed(&hooks, &first);
            hooks.serve("start", "a", 0, || a.launch());
        });
        assert_eq!(error.message(), "switchover failed: stop_command failed: exit status: 4");
        pooler.log_contains("start_command failed: it did not end within 4 s");
    });
    check_no_errors(&told);
    check_rows(a, &told);
    until_nodes_are(&pooler, &["writable", "readable"]);
    let failovers = pooler.admin("SHOW FAILOVERS");
    assert_eq!(failovers.column("to_node"), ["a", "a"], "{failovers:?}");
    assert_eq!(failovers.column("reason")[1], "switchover to node b");
    assert_eq!(failovers.column("new_timeline"), ["1", "1"]);
    assert_primary(&nodes, 0);
}

#[test]
fn a_start_that_never_ends_leaves_no_primary_until_somebody_starts_it() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    // More than the time for repetitions.
    let keys = hooks.keys(&ALL) + " command_timeout=11 failover_wait=1";
    let mut pooler = setup(&[a, b], &keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut waiting = pooler.client("app");
    write(&mut waiting, "before");
    let mut question = String::new();
    let error = failing(&pooler, || {
        hooks.serve("stop", "a", 4, || a.shut_down());
        question = until_started(&hooks);
        waiting.send(frontend::query("SELECT 1"));
    });
    assert_eq!(
        error.message(),
        "switchover failed: stop_command failed: exit status: 4; \
         then start_command failed: it did not end within 11 s"
    );
    until_killed(&hooks, &question);
    let error = farewell(&mut waiting);
    assert_eq!(error.code(), "57P03", "{error:?}");
    let shown = pooler.admin("SHOW FAILOVERS");
    assert_eq!(
        (shown.column("to_node"), shown.column("reason")[1]),
        (vec!["a", ""], "switchover to node b")
    );
    // Nothing is under way any more.
    assert!(!pooler.log().contains("take-over refused"));
    assert!(pooler.take_over().success());
    a.launch();
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    assert_primary(&nodes, 0);
}

#[test]
fn a_start_that_does_not_end_although_the_server_serves_is_no_second_failure() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &(hooks.keys(&ALL) + " command_timeout=60")).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut question = None;
    let told = write_during(&pooler, || {
        let began = Instant::now();
        let error = failing(&pooler, || {
            hooks.serve("stop", "a", 4, || a.shut_down());
            // Such as an `ssh` that waits until the server closes its output.
            question = Some(until_started(&hooks));
            a.launch();
        });
        assert!(began.elapsed() < Duration::from_secs(30), "clients wait for the server only");
        pooler.log_contains("node a serves, and start_command still runs");
        assert_eq!(error.message(), "switchover failed: stop_command failed: exit status: 4");
    });
    check_no_errors(&told);
    check_rows(a, &told);
    assert_primary(&nodes, 0);
    let question = question.expect("start_command has run");
    hooks.answer(&question, 0);
    until_gone(&question);
}

#[test]
fn a_start_that_only_says_that_it_has_succeeded_is_told() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let error = failing(&pooler, || {
        hooks.serve("stop", "a", 4, || a.shut_down());
        hooks.serve("start", "a", 0, || {});
    });
    assert_eq!(
        error.message(),
        "switchover failed: stop_command failed: exit status: 4; \
         then start_command succeeded, but node a is not the primary again"
    );
    until_nodes_are(&pooler, &["down", "unfit"]);
    a.launch();
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}

#[test]
fn a_process_that_is_told_to_end_waits_for_a_start_that_hangs_and_kills_it() {
    if !support::only_weir() {
        return;
    }
    for signal in ["INT", "TERM"] {
        let nodes = cluster(1);
        let [a, b] = &nodes[..] else { unreachable!("two nodes") };
        let hooks = Hooks::new();
        let mut pooler = setup(&[a, b], &(hooks.keys(&ALL) + " command_timeout=3")).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        let mut console = pooler.console();
        console.send(frontend::query("SWITCHOVER app TO b"));
        hooks.serve("stop", "a", 4, || a.shut_down());
        let first = until_started(&hooks);
        let mut old = pooler.begin_take_over();
        assert!(!pooler.wait_for_exit().success(), "the take-over is refused");
        pooler.log_contains("take-over refused: the primary of a cluster is being changed");
        support::run(Command::new("kill").args(["-s", signal, &old.id().to_string()]));
        pooler.log_contains(&format!("got SIG{signal}, shutting down"));
        drop(console);
        until_killed(&hooks, &first);
        hooks.serve("start", "a", 0, || a.launch());
        let status = eventually("it ends", PATIENCE, || old.try_wait().expect("our own child"));
        assert!(status.success(), "{status}");
        assert_primary(&nodes, 0);
        assert_eq!(hooks.next(), None, "no command is left");
    }
}

#[test]
fn a_start_that_prints_without_end_costs_no_memory() {
    if !support::only_weir() {
        return;
    }
    support::at_once(["yes", "cat /dev/zero"], |command| {
        let nodes = cluster(1);
        let [a, b] = &nodes[..] else { unreachable!("two nodes") };
        let hooks = Hooks::new();
        let keys = format!(
            "{} start_command='{command}' command_timeout=11 failover_wait=60",
            hooks.keys(&["stop"])
        );
        let pooler = setup(&[a, b], &keys).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        let before = pooler.resident_kib();
        let error = failing(&pooler, || hooks.serve("stop", "a", 4, || a.shut_down()));
        let why = "then start_command failed: it did not end within 11 s";
        assert!(error.message().ends_with(why), "{error:?}");
        let grown = pooler.resident_kib().saturating_sub(before);
        assert!(grown < 8 << 10, "{command}: {grown} KiB");
        a.launch();
        assert_eq!(node_of(&mut pooler.client("app")), a.port());
    });
}

#[test]
fn the_words_of_a_start_that_fails_reach_the_console_whole() {
    if !support::only_weir() {
        return;
    }
    let cases = [
        ("echo out of disk; exit 3", "exit status: 3: out of disk"),
        ("head -c 5000 /dev/zero; echo gone; exit 1", "exit status: 1: gone"),
        ("printf \"\\033[2Jred\\r\\n\"; exit 1", "exit status: 1: [2Jred"),
        ("printf \"\\377\\376 bytes\\n\"; exit 1", "exit status: 1: \u{fffd}\u{fffd} bytes"),
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
        ("/nowhere/start", "exit status: 127: /bin/sh: 1: /nowhere/start: not found"),
    ];
    support::at_once(cases, |(command, words)| {
        let nodes = cluster(1);
        let [a, b] = &nodes[..] else { unreachable!("two nodes") };
        let hooks = Hooks::new();
        let keys = format!("{} start_command='{command}'", hooks.keys(&["stop"]));
        let pooler = setup(&[a, b], &keys).start();
        until_nodes_are(&pooler, &["writable", "readable"]);
        let error = failing(&pooler, || {
            hooks.serve("stop", "a", 4, || a.shut_down());
            pooler.log_contains("start_command failed");
        });
        let message = error.message();
        let (_, told) = message.split_once("then start_command failed: ").expect(message);
        assert!(told.starts_with(words), "{command}: {told:?}");
        assert!(!told.contains(char::is_control), "{command}: {told:?}");
        // The console goes on: its answer was well formed.
        assert_eq!(pooler.admin("SHOW NODES").column("node"), ["a", "b"]);
        a.launch();
        until_nodes_are(&pooler, &["writable", "readable"]);
    });
}
