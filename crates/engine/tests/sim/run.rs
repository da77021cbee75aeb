//! Runs one seed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sabotage::Sabotage;
use crate::world::{Summary, World};

/// The seeds of an ordinary test run.
const SEEDS: Range<u64> = 0..2048;

/// The seeds of this run.
pub(crate) fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SIM_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("SIM_SEEDS=from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Runs one seed. A panic inside the engine counts as a violation.
pub(crate) fn run(seed: u64, harm: Option<Sabotage>, trace: bool) -> Result<Summary, String> {
    play(World::new(seed, harm, trace))
}

pub(crate) fn play(world: World) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
