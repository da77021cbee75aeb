//! `weir demo --cluster`: a primary and two standbys with Weir in front of them, and eight clients
//! that write. Shows a live table, with keys that kill the primary and so on. With `--drill N`,
//! changes the primary N times without keys, and prints a line for each change.
//!
//! * `nodes.rs`: the three servers
//! * `hooks.rs`: the commands of the cluster, which this process carries out
//! * `writers.rs`: the clients, and what they were told
//! * `watch.rs`: the live table and the keys
//! * `drill.rs`: the unattended changes

mod drill;
mod hooks;
mod nodes;
mod watch;
mod writers;

use std::{process::ExitCode, thread, time::Duration};

use anyhow::bail;
use proxy::Pooler;

pub(super) use self::{hooks::Hooks, nodes::Nodes};
use self::{nodes::NAMES, writers::Writers};
use super::{
    binaries::Binaries,
    child::{self, TICK},
    names::{DEMO, LOOPBACK},
    pooler,
    terminal::{go_on, say},
};
use crate::args::ClusterDemo;

/// The time for a change that the demo waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that runs.
struct Trio {
    // Fields are dropped in this order: clients, pooler, servers.
    writers: Writers,
    running: pooler::Running,
    nodes: Nodes,
    hooks: Hooks,
}

/// Runs the demo until it is interrupted, or the drill.
///
/// # Errors
/// When it does not start, or a node does not come back.
pub(super) fn run(binaries: Binaries, options: ClusterDemo) -> anyhow::Result<ExitCode> {
    let ClusterDemo { drill, max_loss } = options;
    let nodes = Nodes::create(binaries, max_loss.is_none())?;
    let hooks = Hooks::new(nodes.scratch())?;
    let running = pooler::start_before_nodes(&nodes, &hooks, max_loss)?;
    let writers = Writers::start(running.port, nodes.password());
    let mut trio = Trio { writers, running, nodes, hooks };
    let status = trio.until_settled().and_then(|()| match drill {
        Some(rounds) => drill::run(&mut trio, rounds, max_loss.is_some()),
        None => watch::run(&mut trio),
    });
    say("stopping, and removing everything");
    trio.end();
    status
}

impl Trio {
    fn pooler(&self) -> &Pooler {
        &self.running.pooler
    }

    /// Returns the state of each node.
    fn states(&self) -> Vec<&'static str> {
        let clusters = self.pooler().controller().clusters();
        clusters.into_iter().flat_map(|one| one.nodes).map(|node| node.verdict).collect()
    }

    /// Returns the primary, if there is one.
    fn primary(&self) -> Option<usize> {
        self.states().iter().position(|state| *state == "writable")
    }

    /// Returns the bytes at risk of the last change of the primary.
    fn at_risk(&self) -> Option<u64> {
        let clusters = self.pooler().controller().clusters();
        clusters.into_iter().next()?.failovers.pop()?.at_risk
    }

    /// Carries out a command of the cluster, if one waits.
    fn serve(&mut self) -> anyhow::Result<()> {
        self.hooks.serve(&mut self.nodes)
    }

    /// Waits until there is a primary that both other nodes follow.
    fn until_settled(&mut self) -> anyhow::Result<()> {
        self.until("the cluster is whole", |trio| {
            let mut states = trio.states();
            states.sort_unstable();
            states == ["readable", "readable", "writable"]
        })
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let begin = std::time::Instant::now();
        while !is_so(self) {
            go_on()?;
            self.serve()?;
            if begin.elapsed() > PATIENCE {
                bail!("waited too long until {what}: the nodes are {:?}", self.states());
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Ends the clients and the pooler, which ends a change of the primary first. So its commands are
    /// carried out meanwhile; one that starts a node fails if the user has interrupted the demo.
    fn end(self) {
        let Self { writers, running, mut nodes, hooks } = self;
        drop(writers);
        let ending = thread::spawn(move || drop(running));
        while !ending.is_finished() {
            // The command that fails is told.
            let _ = hooks.serve(&mut nodes);
            thread::sleep(TICK);
        }
    }

    /// Orders a switchover on the console, and waits for its end.
    fn switch_over(&mut self, to: usize) -> anyhow::Result<Result<(), String>> {
        let mut psql = self.nodes.client("psql", LOOPBACK, self.running.port);
        psql.env("PGDATABASE", "pgbouncer").args(["-X", "-q", "-c"]);
        psql.arg(format!("SWITCHOVER {DEMO} TO {}", NAMES[to]));
        let order = thread::spawn(move || child::run(psql, ""));
        while !order.is_finished() {
            self.serve()?;
            thread::sleep(TICK);
        }
        let Ok(finished) = order.join() else { bail!("psql could not be run") };
        let finished = finished?;
        Ok(if finished.status.success() { Ok(()) } else { Err(finished.output) })
    }
}
