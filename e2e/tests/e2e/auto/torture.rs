//! The session torture suite of `pool_mode = auto`: whatever a session can hold, set in every way,
//! ended in every way, with another server between any two transactions and hostile clients on the
//! one just left. Two victims at a time do the same with values of their own. The very same script
//! on a direct connection says what is right, message by message, but for `differences.rs`.
//!
//! * `scenes.rs`, `settings.rs`: what a session can hold.
//! * `ways.rs`: how it is said, and how the transaction ends.
//! * `scripts.rs`: what is no product of these, written out.
//! * `random.rs`: pieces of all that in any order, from a seed.
//! * `stage.rs`: PostgreSQL, Weir, the hostile clients, the switch. `play.rs`: a script on it.
//!
//! By default a sample of the product is played, with `WEIR_TESTS=full` all of it.
//! `TORTURE=word` plays what has the word in its name, and all of that; `TORTURE_PART=k/n` the k-th
//! of n parts. `SEED=n` plays one random run again; `SEEDS=n..m` several.

mod differences;
mod play;
mod random;
mod scenes;
mod scripts;
mod settings;
mod stage;
mod ways;

use std::ops::Range;

use crate::support;
use play::{Cast, Script};
use scenes::Scene;
use stage::{Stage, VICTIMS};
use ways::{Ending, Way};

/// Runs of the random generator by default.
const SEEDS: u64 = 6;
/// In a sample, one of so many combinations of a scene with a way and an ending.
const SPARSE: usize = 43;
/// The same where there are few scenes.
const LESS_SPARSE: usize = 29;

/// What `TORTURE` asks for.
fn is_wanted(name: &str) -> bool {
    std::env::var("TORTURE").map_or(true, |word| name.contains(&word))
}

/// Whether this one of the combinations is played; `index` is that of its scene.
fn is_chosen(place: usize, index: usize, sparse: usize) -> bool {
    if let Ok(part) = std::env::var("TORTURE_PART") {
        let (part, parts) = part.split_once('/').expect("k/n");
        let number = |text: &str| text.parse::<usize>().expect("a number");
        return place % number(parts) + 1 == number(part);
    }
    let full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    full || std::env::var("TORTURE").is_ok() || (place + index * 7).is_multiple_of(sparse)
}

/// `SEED=7`, `SEEDS=40..80`.
fn seeds() -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let named = |name: &str| std::env::var(name).ok();
    match (named("SEED"), named("SEEDS")) {
        (Some(seed), _) => number(&seed)..number(&seed) + 1,
        (None, Some(seeds)) => {
            let (first, end) = seeds.split_once("..").expect("first..end");
            number(first)..number(end)
        }
        (None, None) => 0..SEEDS,
    }
}

/// Every scene in each way and with each ending; or a sample in which each scene meets each way and
/// each ending sooner or later.
fn product(scenes: impl Fn(usize, usize) -> Vec<Scene>, sparse: usize, mut stage: Stage) {
    let mut place = 0;
    for (index, scene) in scenes(0, 0).iter().enumerate() {
        for (way, ending) in Way::ALL.into_iter().flat_map(|way| Ending::ALL.map(|end| (way, end)))
        {
            place += 1;
            let name = format!("{}, {way:?}, {ending:?}", scene.name);
            if !is_wanted(&name) || !is_chosen(place, index, sparse) {
                continue;
            }
            let number = stage.number();
            let script = |victim| {
                let scene = &scenes(victim, number)[index];
                Script::of_scene(scene, way, ending, number * VICTIMS + victim)
            };
            if let Some(scripts) = (0..VICTIMS).map(script).collect() {
                stage.play(&name, Cast { scripts, keeps: scene.keeps });
            }
        }
    }
    stage.judge();
}

#[test]
fn settings_are_as_on_a_connection_of_ones_own_strict() {
    if support::only_weir() {
        product(settings::scenes, SPARSE, Stage::ordinary());
    }
}

#[test]
fn objects_are_as_on_a_connection_of_ones_own_strict() {
    if support::only_weir() {
        product(scenes::scenes, SPARSE, Stage::ordinary());
    }
}

#[test]
fn a_superusers_session_is_as_on_a_connection_of_its_own_strict() {
    if support::only_weir() {
        product(scenes::of_superuser, LESS_SPARSE, Stage::of_superuser());
    }
}

#[test]
fn scripts_are_answered_as_on_a_connection_of_ones_own_strict() {
    if !support::only_weir() {
        return;
    }
    let mut stage = Stage::ordinary();
    for (name, keeps, _) in scripts::ALL.iter().filter(|(name, ..)| is_wanted(name)) {
        // A direct pool keeps a backend only for a moment for who may ask for a number.
        if testkit::pools_are_direct() && *name == "numbers of one's own" {
            continue;
        }
        let number = stage.number();
        let scripts = (0..VICTIMS).map(|victim| scripts::read(name, victim, number)).collect();
        stage.play(name, Cast { scripts, keeps: *keeps });
    }
    stage.judge();
}

#[test]
fn whatever_comes_in_whatever_order_is_answered_as_on_a_connection_of_ones_own_strict() {
    if !support::only_weir() {
        return;
    }
    let mut stage = Stage::ordinary();
    for seed in seeds() {
        let number = stage.number();
        let name = format!("SEED={seed}");
        stage.play(&name, random::cast(seed, number));
    }
    stage.judge();
}
