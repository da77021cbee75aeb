//! The rows with a cluster: their names and what they measure.

use std::fmt;

use anyhow::Result;

use super::front::{SIDES, Side};
use super::nodes::Rig;
use super::{fault, own, select};
use crate::named::{self, Named};
use crate::real::fact::{Fact, Facts, Goal};

pub(in crate::real) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) sides: &'static [Side],
    pub(super) play: fn(&Rig<'_>, Side) -> Result<Facts>,
    pub(super) ratios: &'static [Ratio],
}

/// A figure of one side, divided by the same of another side.
pub(super) struct Ratio {
    pub(super) what: &'static str,
    pub(super) fact: &'static Fact,
    pub(super) of: Side,
    pub(super) by: Side,
    pub(super) goal: Goal,
}

const POOLERS: &[Side] = &[Side::Pgpool, Side::Weir];

static SELECT_RATIOS: [Ratio; 4] = [
    Ratio {
        what: "the pooler's CPU, Weir's by Pgpool-II's",
        fact: &select::CPU,
        of: Side::Weir,
        by: Side::Pgpool,
        goal: Goal::AtMost(0.25),
    },
    Ratio {
        what: "the pooler's CPU, Weir's by its own without standbys",
        fact: &select::CPU,
        of: Side::Weir,
        by: Side::Unrouted,
        goal: Goal::AtMost(1.10),
    },
    capacity("selects per CPU second of the busiest node, by those without standbys", Side::Weir),
    capacity("the same, with a standby for each statement", Side::Statement),
];

static KILLED_RATIOS: [Ratio; 1] = [Ratio {
    what: "without service, Weir's by Pgpool-II's",
    fact: &fault::GAP,
    of: Side::Weir,
    by: Side::Pgpool,
    goal: Goal::AtMost(2.0),
}];

const fn capacity(what: &'static str, of: Side) -> Ratio {
    let goal = Goal::AtLeast(1.7);
    Ratio { what, fact: &select::PER_NODE_CPU, of, by: Side::Unrouted, goal }
}

pub(in crate::real) static ROWS: [Row; 7] = [
    Row {
        name: "cluster-select",
        what: "8 clients, one select",
        sides: &SIDES,
        play: |rig, side| select::play(rig, side, &["-S"]),
        ratios: &SELECT_RATIOS,
    },
    Row {
        name: "cluster-select-prepared",
        what: "8 clients, one select, prepared",
        sides: &SIDES,
        play: |rig, side| select::play(rig, side, &["-S", "-M", "prepared"]),
        ratios: &SELECT_RATIOS,
    },
    Row {
        name: "cluster-own-delayed",
        what: "8 clients read what they have just written; the standbys replay 500 ms later",
        sides: POOLERS,
        play: own::delayed,
        ratios: &[],
    },
    Row {
        name: "cluster-own-paused",
        what: "8 clients read what they have written 100 ms before",
        sides: POOLERS,
        play: own::paused,
        ratios: &[],
    },
    Row {
        name: "cluster-standby-killed",
        what: "8 clients read, and a standby is killed",
        sides: POOLERS,
        play: fault::standby_killed,
        ratios: &[],
    },
    Row {
        name: "cluster-primary-stopped",
        what: "8 clients write, and the primary is stopped with SIGSTOP",
        sides: POOLERS,
        play: fault::primary_stopped,
        ratios: &[],
    },
    Row {
        name: "cluster-primary-killed",
        what: "8 clients write, and the primary is killed with kill -9",
        sides: POOLERS,
        play: fault::primary_killed,
        ratios: &KILLED_RATIOS,
    },
];

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<23} {}", self.name, self.what)
    }
}

impl Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Returns whether a name, or the beginning of a name, means rows with a cluster.
pub(in crate::real) fn is_row(name: &str) -> bool {
    name.split('-').next() == Some("cluster")
}

pub(super) fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    named::select(&ROWS, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_names() {
        assert!(ROWS.iter().all(|row| is_row(row.name)));
        assert!(is_row("cluster") && !is_row("clusters") && !is_row("select-simple"));
        let names = |asked: &str| select(&[asked.to_owned()]).unwrap().len();
        assert_eq!([names("cluster"), names("cluster-own"), names("cluster-select")], [7, 2, 1]);
    }
}
