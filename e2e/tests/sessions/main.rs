//! Random scripts of several sessions, played on direct connections and through `pool_mode = auto`.
//! Every row, tag and SQLSTATE must be the same, except for the limits that `docs/auto-mode.md`
//! states.
//!
//! * `generator.rs`, `texts.rs`: scripts from seeds. `script.rs`: what a script is.
//! * `hostile.rs`: what other clients do to servers between the steps.
//! * `stage.rs`: PostgreSQL and Weir. `play.rs`: a script on both. `compare.rs`: what must be equal.
//! * `shrink.rs`: cuts a failing script down.
//!
//! `SEED=n` plays one script again, and `SEEDS=n..m` several. With `SHRINK=no`, all failures are
//! printed at once and none is reduced.

mod compare;
mod generator;
mod hostile;
mod play;
mod script;
mod shrink;
mod stage;
mod texts;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use play::{Outcome, play};
use stage::{Stage, crashes};
use testkit::{Flavour, Postgres, flavour};

/// Scripts of `make test`.
const SEEDS: u64 = 100;
/// The maximum share of scripts that a stated limit ends: usually it is 3 %.
const LIMITS_MAX_PERCENT: u64 = 10;
/// Scripts that are played at the same time.
const STAGES: usize = 2;
/// The maximum number of failures that are reduced and printed.
const FAILURES_MAX: usize = 5;

/// The results of all scripts.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    limits: BTreeMap<&'static str, usize>,
    /// Seeds that make PostgreSQL itself crash.
    crashes: Vec<u64>,
    failures: Vec<String>,
}

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

fn shrinks() -> bool {
    std::env::var("SHRINK").map_or(true, |word| word != "no")
}

fn play_seeds(next: &AtomicU64, end: u64, tally: &Mutex<Tally>) {
    let mut stage = Stage::new(Postgres::shared());
    let mut crashes_known = 0;
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let full = |tally: &Tally| tally.failures.len() >= FAILURES_MAX && shrinks();
        if seed >= end || full(&tally.lock().expect("no panic")) {
            return;
        }
        let script = generator::script(seed);
        let count = |add: &dyn Fn(&mut Tally)| add(&mut tally.lock().expect("no panic"));
        let mut outcome = play(&mut stage, &script);
        // A crash of PostgreSQL ends the scripts of all stages. They are played once more.
        if matches!(outcome, Outcome::Failure(_)) && crashes() > crashes_known {
            crashes_known = crashes();
            outcome = play(&mut stage, &script);
            if crashes() > crashes_known {
                crashes_known = crashes();
                count(&|tally| tally.crashes.push(seed));
                continue;
            }
        }
        let failure = match outcome {
            Outcome::Equal => {
                count(&|tally| tally.equal += 1);
                continue;
            }
            Outcome::Limit(name) => {
                count(&|tally| *tally.limits.entry(name).or_default() += 1);
                continue;
            }
            Outcome::Failure(failure) => failure,
        };
        let (script, failure) = match shrinks() {
            true => shrink::shrink(&mut stage, script, failure),
            false => (script, failure),
        };
        let text = format!("SEED={seed}: {:?}: {}\n{script}", failure.kind, failure.what);
        println!("{text}");
        count(&|tally| tally.failures.push(text.clone()));
    }
}

#[test]
fn sessions_are_answered_as_on_connections_of_their_own() {
    if flavour() != Flavour::Weir {
        return;
    }
    let seeds = seeds();
    Stage::roles(Postgres::shared());
    let (next, tally) = (AtomicU64::new(seeds.start), Mutex::new(Tally::default()));
    thread::scope(|scope| {
        for _ in 0..STAGES {
            scope.spawn(|| play_seeds(&next, seeds.end, &tally));
        }
    });
    let Tally { equal, limits, crashes, failures } = tally.into_inner().expect("no panic");
    println!("{equal} scripts equal; ended by a stated limit: {limits:?}");
    println!("ended by a crash of PostgreSQL: {crashes:?}");
    assert!(failures.is_empty(), "{} scripts differ:\n{}", failures.len(), failures.join("\n"));
    // A limit that explains much more than it used to may hide a fault.
    let (ended, all) = (limits.values().sum::<usize>() as u64, seeds.end - seeds.start);
    assert!(
        all < SEEDS || ended * 100 <= all * LIMITS_MAX_PERCENT,
        "{ended} of {all} scripts are ended by a stated limit"
    );
}
