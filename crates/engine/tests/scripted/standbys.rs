//! A seeded model of a cluster with reads on standbys. Weir's engines run between clients and nodes
//! that are only numbers: a node has the first so many commits of the log. Standbys replay late, are
//! lost or silent, and are promoted.
//!
//! Each read returns the number of commits that its node has. The model knows how many it must see:
//!
//! | setting | a read must see |
//! |---|---|
//! | `session` | the writes of its session that were acknowledged |
//! | `user` | those of all sessions |
//! | `strict` | all, also those that did not go through Weir |
//! | all but `off` | what the earlier reads of its session have shown |
//! | always | all that were older than `max_staleness` |
//!
//! `SIM_SEED=n` prints the steps of one seed.

mod fleet;
mod node;

use std::ops::Range;

use config::ReadAfterWrite;

use fleet::Fleet;

const SEEDS: Range<u64> = 0..300;
const STEPS: usize = 400;

/// SplitMix64.
pub(crate) struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// The sums of all runs.
#[derive(Debug, Default)]
struct Sums {
    reads: usize,
    on_standbys: usize,
    waited: usize,
    moved: usize,
    promotions: usize,
}

fn run(seed: u64, which: ReadAfterWrite, sums: &mut Sums) {
    let mut dice = Dice(seed);
    let mut fleet = Fleet::new(which, &mut dice);
    fleet.is_told = std::env::var_os("SIM_SEED").is_some();
    for _ in 0..STEPS {
        fleet.step(&mut dice);
    }
    fleet.settle();
    if which != ReadAfterWrite::Strict {
        fleet.check_balance();
    }
    sums.reads += fleet.reads;
    sums.on_standbys += fleet.on_standbys;
    sums.waited += fleet.waited;
    sums.moved += fleet.moved;
    sums.promotions += fleet.promotions;
}

fn run_all(which: ReadAfterWrite) {
    let one = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = one.map_or(SEEDS, |seed| seed..seed + 1);
    let mut sums = Sums::default();
    for seed in seeds {
        // The name of the seed, if a check fails.
        let guard = Named(seed);
        run(seed, which, &mut sums);
        std::mem::forget(guard);
    }
    println!("{which:?}: {sums:?}");
    assert!(one.is_some() || sums.on_standbys > 1_000, "{sums:?}");
}

struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        println!("SIM_SEED={}", self.0);
    }
}

#[test]
pub(crate) fn a_session_sees_its_own_writes() {
    run_all(ReadAfterWrite::Session);
}

#[test]
pub(crate) fn a_session_sees_the_writes_of_its_user() {
    run_all(ReadAfterWrite::User);
}

#[test]
pub(crate) fn a_strict_read_sees_all_commits() {
    run_all(ReadAfterWrite::Strict);
}

#[test]
pub(crate) fn a_read_is_never_older_than_allowed() {
    run_all(ReadAfterWrite::Off);
}
