//! The run of one seed.

use crate::fleet::Fleet;
use crate::promotions::Promotions;
use crate::world::World;

/// Plays one seed with one Weir. Returns how many primaries were found, and in how many steps, or what
/// a check says.
pub(crate) fn run(seed: u64, trace: bool) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, trace);
    world.run()?;
    let mut promotions = Promotions::new(seed, trace);
    promotions.run()?;
    Ok((world.failovers, world.steps + promotions.steps))
}

/// Plays one seed with several Weirs, which takes longer. Returns the same, with the promotions.
pub(crate) fn run_fleet(seed: u64, trace: bool) -> Result<(u64, u64), String> {
    let mut fleet = Fleet::new(seed, trace);
    fleet.run()?;
    Ok((fleet.promotions, fleet.steps))
}
