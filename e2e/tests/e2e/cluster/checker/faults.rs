//! The faults, drawn from a seed, and the operator who obeys Weir's commands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use testkit::{Pooler, Postgres, eventually};

use super::clients::Dice;
use super::links::{End, Links};
use crate::cluster::hooks::Hooks;

const NAMES: [&str; 3] = ["a", "b", "c"];
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// One fault. The numbers are those of standbys: 1 and 2, counted from the primary.
#[derive(Clone, Copy, Debug)]
enum Fault {
    SwitchOver(usize),
    KillPrimary,
    FreezePrimary,
    CutPrimary(Cut),
    KillStandby(usize),
    FreezeStandby(usize),
    CutStandby(usize, Cut),
    /// Between the primary and a standby.
    CutReplication(usize, Cut),
}

/// The direction, seen from Weir or from the primary.
#[derive(Clone, Copy, Debug)]
enum Cut {
    There,
    Back,
    Both,
}

impl Fault {
    fn draw(dice: &mut Dice, cuts_replication: bool) -> Self {
        let standby = 1 + dice.below(2);
        let cut = [Cut::There, Cut::Back, Cut::Both][dice.below(3)];
        match dice.below(if cuts_replication { 8 } else { 7 }) {
            0 => Self::SwitchOver(standby),
            1 => Self::KillPrimary,
            2 => Self::FreezePrimary,
            3 => Self::CutPrimary(cut),
            4 => Self::KillStandby(standby),
            5 => Self::FreezeStandby(standby),
            6 => Self::CutStandby(standby, cut),
            _ => Self::CutReplication(standby, cut),
        }
    }
}

/// The nodes that run. The operator and the faults change it.
pub(super) struct State(Mutex<[bool; 3]>);

impl State {
    /// Kills a node if it runs.
    fn kill(&self, nodes: &[Postgres], at: usize) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut runs[at]) {
            nodes[at].kill9();
        }
    }

    fn set(&self, at: usize, runs: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[at] = runs;
    }
}

/// The cluster, and what is done to it.
pub(super) struct Stage<'a> {
    nodes: &'a [Postgres],
    links: &'a Links,
    pooler: &'a Pooler,
    dice: Dice,
    state: std::sync::Arc<State>,
    faults: usize,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        nodes: &'a [Postgres],
        links: &'a Links,
        pooler: &'a Pooler,
        seed: u64,
    ) -> Self {
        let state = std::sync::Arc::new(State(Mutex::new([true; 3])));
        Self { nodes, links, pooler, dice: Dice::new(seed, 0), state, faults: 0 }
    }

    pub(super) fn state(&self) -> std::sync::Arc<State> {
        std::sync::Arc::clone(&self.state)
    }

    /// Returns the states of the nodes, as Weir sees them.
    fn states(&self) -> Vec<String> {
        let nodes = self.pooler.admin("SHOW NODES");
        nodes.column("state").iter().map(|&state| state.to_owned()).collect()
    }

    /// Waits until there are a primary and two standbys.
    #[track_caller]
    pub(super) fn until_well(&self) {
        eventually("all nodes are well", PATIENCE, || {
            let mut states = self.states();
            states.sort();
            (states == ["readable", "readable", "writable"]).then_some(())
        });
    }

    pub(super) fn primary(&self) -> usize {
        let primary = self.pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
        NAMES.iter().position(|name| *name == primary).expect("there is a primary")
    }

    /// Does the next fault, and waits until all is well again.
    pub(super) fn fail(&mut self) {
        let fault = Fault::draw(&mut self.dice, self.links.are_complete());
        let primary = self.primary();
        self.faults += 1;
        println!("{}: {fault:?}, the primary is {}", self.faults, NAMES[primary]);
        let standby = |more: usize| (primary + more) % 3;
        match fault {
            Fault::SwitchOver(more) => self.switch_over(standby(more)),
            Fault::KillPrimary => self.state.kill(self.nodes, primary),
            Fault::FreezePrimary => self.nodes[primary].freeze(),
            Fault::CutPrimary(cut) => self.cut(End::Weir, End::Node(primary), cut),
            Fault::KillStandby(more) => {
                let at = standby(more);
                self.state.kill(self.nodes, at);
                self.until_unread(at);
                self.nodes[at].launch();
                self.state.set(at, true);
            }
            Fault::FreezeStandby(more) => {
                self.nodes[standby(more)].freeze();
                self.until_unread(standby(more));
                self.nodes[standby(more)].thaw();
            }
            Fault::CutStandby(more, cut) => {
                self.cut(End::Weir, End::Node(standby(more)), cut);
                self.until_unread(standby(more));
                self.links.heal();
            }
            Fault::CutReplication(more, cut) => {
                self.cut(End::Node(primary), End::Node(standby(more)), cut);
                self.until_it_lags(primary, standby(more));
                self.links.heal();
            }
        }
        if matches!(fault, Fault::KillPrimary | Fault::FreezePrimary | Fault::CutPrimary(_)) {
            eventually("there is another primary", PATIENCE, || {
                let name = self.pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
                (NAMES.contains(&name.as_str()) && name != NAMES[primary]).then_some(())
            });
            self.links.heal();
        }
        self.until_well();
    }

    fn switch_over(&self, to: usize) {
        let outcome = self.pooler.try_admin(&format!("SWITCHOVER by_session TO {}", NAMES[to]));
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
    }

    fn cut(&self, near: End, far: End, cut: Cut) {
        if !matches!(cut, Cut::Back) {
            self.links.cut(near, far);
        }
        if !matches!(cut, Cut::There) {
            self.links.cut(far, near);
        }
    }

    /// Waits until the standby gets no reads.
    #[track_caller]
    fn until_unread(&self, at: usize) {
        eventually("the standby is not read", PATIENCE, || {
            (self.states()[at] != "readable").then_some(())
        });
    }

    /// Waits until the standby lacks what the primary had when this was called.
    #[track_caller]
    fn until_it_lags(&self, primary: usize, standby: usize) {
        let place = |at: usize, function: &str| {
            self.nodes[at].sql("postgres", &format!("SELECT {function}() - '0/0'"))[0][0]
                .as_ref()
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or_default()
        };
        eventually("the standby lags", PATIENCE, || {
            let written = place(primary, "pg_current_wal_flush_lsn");
            let replayed = place(standby, "pg_last_wal_replay_lsn");
            (written > replayed + 20_000).then_some(())
        });
    }
}

/// Obeys Weir's commands until the time is over.
pub(super) fn operate(hooks: &Hooks, nodes: &[Postgres], state: &State, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Some((kind, node, question)) = hooks.next() else {
            thread::sleep(PAUSE);
            continue;
        };
        let at = NAMES.iter().position(|name| *name == node).expect("a node");
        match kind.as_str() {
            "stop" => {
                nodes[at].shut_down();
                state.set(at, false);
            }
            "start" => {
                nodes[at].launch();
                state.set(at, true);
            }
            "fence" => state.kill(nodes, at),
            "rejoin" => {
                let is_primary = |other: &usize| {
                    *other != at
                        && nodes[*other].is_ready().is_some()
                        && nodes[*other].sql("postgres", "SELECT pg_is_in_recovery()")[0][0]
                            .as_deref()
                            == Some("f")
                };
                let new = (0..nodes.len()).find(is_primary).expect("a new primary");
                // Writes that only this node has must not come back.
                nodes[at].remake(&nodes[new]);
                state.set(at, true);
            }
            other => panic!("a command of another kind: {other}"),
        }
        hooks.answer(&question, 0);
    }
}
