//! The run of one seed.

use crate::promotions::Promotions;
use crate::world::World;

/// Plays one seed. Returns how many primaries were found, and in how many steps, or what a check says.
pub(crate) fn run(seed: u64, trace: bool) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, trace);
    world.run()?;
    let mut promotions = Promotions::new(seed, trace);
    promotions.run()?;
    Ok((world.failovers, world.steps + promotions.steps))
}
