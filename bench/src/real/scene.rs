//! Runs a row's scene on a stage: the load alone, or with another activity.

mod actor;
mod ahead;
mod copy;
mod held;
mod lone;
mod server;

use anyhow::Result;

use self::actor::Actor;
use super::rig::{Rig, Side};
use super::row::{Row, Scene};
use super::sample::Sample;
use super::stage::Stage;

/// Takes one measurement. Returns `None` if the side cannot do the row.
pub(super) fn play(rig: &Rig<'_>, row: &Row, side: Side) -> Result<Option<Sample>> {
    let Some(mut stage) = Stage::set(rig, row, side, row.servers)? else { return Ok(None) };
    let actor = Actor { rig, row };
    let played = match row.scene {
        Scene::Nothing => actor.alone(&stage),
        Scene::Held => actor.held(&stage, side),
        Scene::Among => actor.among(&stage),
        Scene::Apart => actor.apart(&stage),
        Scene::Ahead => actor.ahead(&stage),
        Scene::Pages => actor.pages(&stage),
        Scene::Copy(way) => actor.copy(&stage, way),
        Scene::Profile => actor.profile(&stage),
    };
    played.map(Some).map_err(|error| stage.explain(error))
}
