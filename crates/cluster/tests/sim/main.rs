//! The simulator of the crate: its rules, between simulated servers and facts that are delayed,
//! lost and contradictory.
//!
//! `SIM_SEED=n cargo test -p weir-cluster --test sim` replays one seed with a trace.
//! `CLUSTER_SEEDS=from..to` runs these seeds.

extern crate weir_cluster as cluster;

mod commits;
mod fleet;
mod nodes;
mod promotions;
mod rng;
mod run;
mod world;

use std::ops::Range;

use run::{run, run_fleet};

/// One seed in so many plays several Weirs, too.
const FLEETS: u64 = 3;

/// The seeds of an ordinary test run.
const SEEDS: Range<u64> = 0..2_000;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("CLUSTER_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("CLUSTER_SEEDS is from..to");
    let number = |text: &str| text.parse().expect("CLUSTER_SEEDS has numbers");
    number(from)..number(to)
}

#[test]
fn the_primary_is_found_and_never_two_are_used() {
    if let Ok(seed) = std::env::var("SIM_SEED") {
        let seed = seed.parse().expect("SIM_SEED is a number");
        let end = run(seed, true).and_then(|_| run_fleet(seed, true));
        end.unwrap_or_else(|report| panic!("seed {seed}: {report}"));
        return;
    }
    let (mut failovers, mut steps) = (0, 0);
    let runs = |seed: u64| {
        let (found, steps) = run(seed, false)?;
        if !seed.is_multiple_of(FLEETS) {
            return Ok((found, steps));
        }
        run_fleet(seed, false).map(|(more, played)| (found + more, steps + played))
    };
    for seed in seeds() {
        match runs(seed) {
            Ok((more, played)) => {
                failovers += more;
                steps += played;
            }
            Err(report) => panic!("seed {seed}: {report}; SIM_SEED={seed} replays it"),
        }
    }
    println!("{failovers} primaries were found in {steps} steps");
    // Otherwise the checks would have nothing to check.
    assert!(failovers > seeds().count() as u64);
}
