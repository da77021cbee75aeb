//! The CHECKPOINT before a switchover: it is done while clients are served, and nothing depends on it.

use std::process::Command;
use std::thread;

use testkit::{Pooler, Postgres};

use super::change::{ALL, assert_primary};
use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{cluster, setup, until_nodes_are};
use crate::support;

/// Begins a line of Weir's log.
const SKIPPED: &str = "no checkpoint before the switchover: ";

/// The process of a server that writes checkpoints.
pub(super) struct Checkpointer(String);

impl Checkpointer {
    pub(super) fn of(server: &Postgres) -> Self {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        Self(server.sql("postgres", sql)[0][0].clone().expect("a process id"))
    }

    /// Sends it a signal. A shutdown needs the process.
    pub(super) fn signal(&self, name: &str) {
        support::run(Command::new("kill").args(["-s", name, &self.0]));
    }
}

/// A switchover from a to b, while clients write. No client gets an error.
fn switch_over(nodes: [&Postgres; 2], hooks: &Hooks, pooler: &Pooler, before_stop: impl FnOnce()) {
    let [a, b] = nodes;
    until_nodes_are(pooler, &["writable", "readable"]);
    let told = write_during(pooler, || {
        thread::scope(|scope| {
            let order = scope.spawn(|| pooler.try_admin("SWITCHOVER app TO b").error);
            hooks.serve("stop", "a", 0, || {
                before_stop();
                a.shut_down();
            });
            hooks.serve("rejoin", "a", 0, || a.rejoin(b));
            let error = order.join().expect("the console answers");
            assert!(error.is_none(), "{error:?}");
        });
    });
    check_no_errors(&told);
    check_rows(b, &told);
}

#[test]
fn the_primary_writes_out_its_changes_before_it_is_stopped() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    let written = a.sql("postgres", "SELECT pg_current_wal_insert_lsn()")[0][0].clone();
    let written = written.expect("a position");
    switch_over([a, b], &hooks, &pooler, || {
        let is_done = format!("SELECT redo_lsn >= '{written}' FROM pg_control_checkpoint()");
        assert_eq!(a.sql("postgres", &is_done)[0][0].as_deref(), Some("t"));
    });
    assert!(!pooler.log().contains(SKIPPED));
    assert_primary(&nodes, 1);
}

#[test]
fn without_the_right_to_a_checkpoint_the_switchover_goes_on() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    a.sql("postgres", "REVOKE pg_checkpoint FROM weir");
    let hooks = Hooks::new();
    let pooler = setup(&[a, b], &hooks.keys(&ALL)).start();
    switch_over([a, b], &hooks, &pooler, || {});
    let why = format!("{SKIPPED}ERROR: must be superuser or have privileges of pg_checkpoint");
    pooler.log_contains(&why);
    assert_primary(&nodes, 1);
}

#[test]
fn a_checkpoint_that_hangs_delays_the_switchover_for_a_limited_time() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    // The commands have this time as well.
    let keys = format!("{} command_timeout=8", hooks.keys(&ALL));
    let pooler = setup(&[a, b], &keys).start();
    let checkpointer = Checkpointer::of(a);
    checkpointer.signal("STOP");
    switch_over([a, b], &hooks, &pooler, || checkpointer.signal("CONT"));
    let why = format!("{SKIPPED}no answer within 8 s");
    pooler.log_contains(&why);
    assert_primary(&nodes, 1);
}
