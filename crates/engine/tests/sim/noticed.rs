//! The seeds that noticed each mutant when they were last searched, in `noticed.txt`. They are tried
//! before all others, because a search takes minutes. A seed that notices nothing any more costs
//! one run.
//!
//! `UPDATE_SEEDS=1` searches all seeds again, and writes the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Mutex;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/sim/noticed.txt");
const HEAD: &str = "# The seeds that noticed each mutant: UPDATE_SEEDS=1 searches them again.\n";

/// Seeds by the mutant's name.
type Noticed = BTreeMap<String, Vec<u64>>;

/// The tests of all mutants run at the same time, in one process.
static WRITES: Mutex<()> = Mutex::new(());

fn is_update() -> bool {
    std::env::var_os("UPDATE_SEEDS").is_some()
}

fn read() -> Noticed {
    let text = std::fs::read_to_string(PATH).expect("the file is there");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &str| {
        let (name, seeds) = line.split_once(": ").expect("NAME: SEED SEED…");
        let seeds = seeds.split(' ').map(|seed| seed.parse().expect("a seed is a number"));
        (name.to_owned(), seeds.collect())
    };
    lines.map(entry).collect()
}

/// Returns all these seeds, and first those of them that noticed the mutant last time.
pub(crate) fn in_order(name: &str, all: Range<u64>) -> impl Iterator<Item = u64> {
    let mut first = if is_update() { Vec::new() } else { read().remove(name).unwrap_or_default() };
    first.retain(|seed| all.contains(seed));
    let others = all.filter({
        let first = first.clone();
        move |seed| !first.contains(seed)
    });
    first.into_iter().chain(others)
}

/// Notes the seeds that have noticed the mutant.
pub(crate) fn note(name: &str, seeds: &[u64]) {
    if !is_update() {
        return;
    }
    let _one = WRITES.lock().expect("no writer panics");
    let mut noticed = read();
    noticed.insert(name.to_owned(), seeds.to_vec());
    let mut text = HEAD.to_owned();
    for (name, seeds) in noticed {
        let seeds: Vec<_> = seeds.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "{name}: {}", seeds.join(" "));
    }
    std::fs::write(PATH, text).expect("the file can be written");
}
