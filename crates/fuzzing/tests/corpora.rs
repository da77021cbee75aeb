//! Replays the corpora and every input that ever failed, and tries mutations of them, the same in
//! each run. `FUZZ_MUTATIONS=1000000` tries more of them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use weir_fuzzing::{TARGETS, mutate};

/// The number of mutations of each target, unless it is slow.
const MUTATIONS: u64 = 20_000;
const MUTATIONS_OF_SLOW: u64 = 2_000;
/// The slow targets: each mistake in a configuration causes a search for the most similar word.
const SLOW: [&str; 3] = ["ini", "toml", "url"];
const LEN_MAX: usize = 1_024;

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
}

/// Returns the name and the content of each file, sorted by name.
fn inputs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a folder can be listed").path();
            (path.display().to_string(), fs::read(&path).expect("a file can be read"))
        })
        .collect();
    inputs.sort();
    inputs
}

fn run(target: &str, input: &[u8], what: &str) {
    let (_, body) = TARGETS.iter().find(|(name, _)| *name == target).expect("a known target");
    if catch_unwind(AssertUnwindSafe(|| body(input))).is_err() {
        panic!("{target} fails on {what}: \"{}\"", input.escape_ascii());
    }
}

fn replay(target: &str) {
    let corpus = inputs(&folder("corpus", target));
    assert!(!corpus.is_empty(), "no corpus for {target}");
    for (name, input) in corpus.iter().chain(&inputs(&folder("regressions", target))) {
        run(target, input, name);
    }
}

fn vary(target: &str) {
    let corpus = inputs(&folder("corpus", target));
    let wanted = std::env::var("FUZZ_MUTATIONS").ok();
    let usual = if SLOW.contains(&target) { MUTATIONS_OF_SLOW } else { MUTATIONS };
    let mutations = wanted.map_or(usual, |text| text.parse().expect("a number"));
    for seed in 0..mutations {
        let pick = |at: u64| &corpus[(at % corpus.len() as u64) as usize];
        let (name, input) = pick(seed);
        let mutated = mutate(input, &pick(seed / 7).1, LEN_MAX, seed);
        run(target, &mutated, &format!("mutation {seed} of {name}"));
    }
}

macro_rules! targets {
    ($($target:ident),+ $(,)?) => {
        $(mod $target {
            #[test]
            fn passes_on_its_corpus_and_all_that_ever_failed() {
                super::replay(stringify!($target));
            }

            #[test]
            fn passes_on_mutations_of_its_corpus() {
                super::vary(stringify!($target));
            }
        })+

        const TESTED: &[&str] = &[$(stringify!($target)),+];
    };
}

targets!(
    client_stream,
    server_stream,
    startup,
    state_report,
    scram,
    ledger,
    ini,
    userlist,
    hba,
    toml,
    url,
    console,
    pcp,
    pgpool,
    sql,
);

#[test]
fn every_target_is_tested() {
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, TESTED);
}
