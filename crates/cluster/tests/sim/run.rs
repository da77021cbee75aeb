//! The run of one seed.

use crate::fleet::Fleet;
use crate::promotions::Promotions;
use crate::world::World;

/// Plays one seed. Returns how many primaries were found, and in how many steps, or what a check says.
pub(crate) fn run(seed: u64, trace: bool) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, trace);
    world.run()?;
    let mut promotions = Promotions::new(seed, trace);
    promotions.run()?;
    let (mut found, mut steps) = (world.failovers, world.steps + promotions.steps);
    // It takes longer than the others.
    if seed.is_multiple_of(3) {
        let mut fleet = Fleet::new(seed, trace);
        fleet.run()?;
        found += fleet.promotions;
        steps += fleet.steps;
    }
    Ok((found, steps))
}
