//! Pieces of scenes in any order, from a seed.

use super::play::{Cast, Script};
use super::scenes::{self, Keeps, Scene};
use super::settings;
use super::stage::VICTIMS;
use super::ways::{Ending, Step, Way};

/// Pieces of one script.
const PIECES: usize = 12;

/// Splitmix64: the same numbers for the same seed, anywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("64 bits");
        usize::try_from(self.next() % limit).expect("below a usize")
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// What is played for a seed. `number`: for names.
pub(super) fn cast(seed: u64, number: usize) -> Cast {
    let scripts = (0..VICTIMS).map(|victim| script(seed, number, victim)).collect();
    Cast { scripts, keeps: Keeps::ForGood }
}

fn script(seed: u64, number: usize, victim: usize) -> Script {
    let mut dice = Dice(seed.wrapping_mul(VICTIMS as u64).wrapping_add(victim as u64));
    let all = settings::scenes(victim, number).into_iter().chain(scenes::scenes(victim, number));
    // Numbers by chance are others each time, and who keeps its server for good is no victim.
    let scenes: Vec<Scene> = all.filter(|scene| scene.keeps != Keeps::ForGood).collect();
    let mut script = Script { startup: dice.of(&scenes).startup.clone(), steps: Vec::new() };
    for piece in 0..PIECES {
        let (scene, ending) = (dice.of(&scenes), *dice.of(&Ending::ALL));
        let unique = ((number * VICTIMS) + victim) * PIECES + piece;
        let way = *dice.of(&Way::ALL);
        if Script::add_scene(&mut script.steps, scene, way, ending, unique).is_none() {
            Script::add_scene(&mut script.steps, scene, Way::Simple, ending, unique);
        }
        // Things pile up, and go in any order.
        if dice.below(3) > 0 {
            script.steps.push(Step::query(&dice.of(&scenes).undo));
        }
        script.steps.extend(dice.of(&scenes).looks.iter().map(|sql| Step::query(sql)));
    }
    script
}
