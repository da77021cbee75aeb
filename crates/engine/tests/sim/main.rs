//! The seeded simulator: the real engine, several workers of it, between simulated clients and
//! simulated PostgreSQL servers, with bytes cut at any place, small kernels, dying peers.
//!
//! `SIM_SEED=n cargo test -p weir-engine --test sim` replays one seed with a trace;
//! `SIM_SEEDS=from..to` runs that many.
//!
//! Read in this order: `world.rs` (what happens), `reference.rs` (what every answer is held
//! against), `world/checks.rs` (what else must hold), `mutants.rs` (that the checks can fail).

extern crate weir_engine as engine;

mod backend;
mod client;
mod exchange;
mod mutants;
mod net;
mod reference;
mod rng;
mod sabotage;
mod script;
mod settings;
mod setup;
mod sql;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use sabotage::Sabotage;
use world::{Summary, World};

/// Seeds of an ordinary run of the tests.
const SEEDS: std::ops::Range<u64> = 0..256;

/// Runs one seed; a panic inside the engine is a violation like any other.
pub(crate) fn run(seed: u64, sabotage: Option<Sabotage>, trace: bool) -> Result<Summary, String> {
    let run = || World::new(seed, sabotage, trace).run();
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SIM_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("SIM_SEEDS=from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn nobody_gets_what_is_not_his_and_nobody_waits_for_ever() {
    if let Ok(seed) = std::env::var("SIM_SEED") {
        let seed = seed.parse().expect("SIM_SEED is a number");
        let summary = run(seed, None, true).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{summary:?}");
        return;
    }
    let mut total = Summary::default();
    let mut failures = Vec::new();
    for seed in seeds() {
        match run(seed, None, false) {
            Ok(summary) => total.add(&summary),
            Err(why) => {
                println!("SIM_SEED={seed}: {why}");
                failures.push(format!("SIM_SEED={seed}: {why}"));
            }
        }
    }
    println!("{total:?}");
    assert!(
        failures.is_empty(),
        "{} seeds failed; the first:\n{}",
        failures.len(),
        failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
    );
}
