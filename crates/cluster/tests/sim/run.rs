//! The seeds of a test run, and the run of one.

use std::ops::Range;

use crate::promotions::Promotions;
use crate::world::World;

/// The seeds of an ordinary test run.
const SEEDS: Range<u64> = 0..6_000;

pub(crate) fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("CLUSTER_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("CLUSTER_SEEDS is from..to");
    let number = |text: &str| text.parse().expect("CLUSTER_SEEDS has numbers");
    number(from)..number(to)
}

/// Plays one seed. Returns how many primaries were found, and in how many steps, or what a check says.
pub(crate) fn run(seed: u64, trace: bool) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, trace);
    world.run()?;
    let mut promotions = Promotions::new(seed, trace);
    promotions.run()?;
    Ok((world.failovers, world.steps + promotions.steps))
}
