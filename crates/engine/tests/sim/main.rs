//! The seeded simulator: several workers with the real engine, between simulated clients and
//! simulated PostgreSQL servers. Bytes are split anywhere, kernel buffers are small, peers die.
//!
//! `SIM_SEED=n cargo test -p weir-engine --test sim` replays one seed with a trace.
//! `SIM_SEEDS=from..to` runs these seeds.
//!
//! Read in this order: `world.rs` (the events), `reference.rs` (the expected answers),
//! `world/checks.rs` (the other checks), `mutants.rs` (the proof that checks can fail).

extern crate weir_engine as engine;

mod backend;
mod bus;
mod client;
mod exchange;
mod net;
mod reference;
mod rng;
mod router;
mod run;
mod sabotage;
mod schema;
mod script;
mod settings;
mod setup;
mod sql;
mod timings;
mod world;

use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use run::{play, run, seeds};
use world::{Side, Summary, World};

#[test]
fn each_client_gets_its_own_replies_and_none_waits_forever() {
    if let Ok(seed) = std::env::var("SIM_SEED") {
        let seed = seed.parse().expect("SIM_SEED is a number");
        let summary = run(seed, None, true).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{summary:?}");
        return;
    }
    let (total, failures) = run_all(seeds());
    println!("{total:?}");
    assert!(
        failures.is_empty(),
        "{} seeds failed; the first:\n{}",
        failures.len(),
        failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Plays the seeds on all cores. Returns the sums, and the reports of the seeds that failed.
fn run_all(seeds: Range<u64>) -> (Summary, Vec<String>) {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let end = seeds.end;
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new((Summary::default(), Vec::new()));
    let play = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= end {
                return;
            }
            let result = run(seed, None, false);
            let (total, failures) = &mut *results.lock().expect("nobody panics with it");
            match result {
                Ok(summary) => total.add(&summary),
                Err(why) => {
                    println!("SIM_SEED={seed}: {why}");
                    failures.push(format!("SIM_SEED={seed}: {why}"));
                }
            }
        }
    };
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(play))));
    results.into_inner().expect("as before")
}

#[test]
fn a_death_at_any_byte_harms_no_other_client() {
    let small = |seed: &u64| {
        let summary = run(*seed, None, false).expect("the other test has run it");
        summary.spoken.iter().all(|bytes| (400..1500).contains(bytes))
    };
    for seed in seeds().filter(small).take(1) {
        let spoken = run(seed, None, false).expect("as before").spoken;
        for side in [Side::Client, Side::Server] {
            for at in 0..spoken[side as usize] {
                let world = World::new(seed, None, false).kill_after(side, at);
                play(world).unwrap_or_else(|why| panic!("seed {seed}, {side:?} byte {at}: {why}"));
            }
        }
    }
}
