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
mod bus;
mod client;
mod exchange;
mod mutants;
mod net;
mod reference;
mod rng;
mod sabotage;
mod schema;
mod script;
mod settings;
mod setup;
mod sql;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::mutant::{self, Mutant};
use sabotage::Sabotage;
use world::{Side, Summary, World};

/// Seeds of an ordinary run of the tests.
pub(crate) const SEEDS: std::ops::Range<u64> = 0..2048;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Engine(Mutant),
    Shell(Sabotage),
}

/// Runs one seed; a panic inside the engine is a violation like any other.
pub(crate) fn run(seed: u64, fault: Option<Fault>, trace: bool) -> Result<Summary, String> {
    let (broken, sabotage) = match fault {
        Some(Fault::Engine(broken)) => (Some(broken), None),
        Some(Fault::Shell(sabotage)) => (None, Some(sabotage)),
        None => (None, None),
    };
    mutant::set(broken);
    let end = play(World::new(seed, sabotage, trace));
    mutant::set(None);
    end
}

fn play(world: World) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
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

#[test]
fn a_death_at_any_byte_hurts_nobody_else() {
    let small = |seed: &u64| {
        let summary = run(*seed, None, false).expect("the other test has run it");
        summary.spoken.iter().all(|bytes| (400..1500).contains(bytes))
    };
    for seed in SEEDS.filter(small).take(1) {
        let spoken = run(seed, None, false).expect("as before").spoken;
        for side in [Side::Client, Side::Server] {
            for at in 0..spoken[side as usize] {
                let world = World::new(seed, None, false).kill_after(side, at);
                play(world).unwrap_or_else(|why| panic!("seed {seed}, {side:?} byte {at}: {why}"));
            }
        }
    }
}
