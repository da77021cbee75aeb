//! Random scripts of several sessions, played on direct connections and through `pool_mode = auto`.
//! Every row, tag and SQLSTATE must be the same, except for the limits that `docs/auto-mode.md`,
//! `docs/direct.md` and `docs/routing.md` state.
//!
//! * `path.rs`: the data paths through Weir. Each has a test.
//! * `generator.rs`, `texts.rs`: scripts from seeds. `script.rs`: what a script is.
//! * `hostile.rs`: what other clients do to servers between the steps.
//! * `stage.rs`: PostgreSQL and Weir. `play.rs`: a script on both. `player.rs`: a connection that
//!   plays. `compare.rs`: what must be equal. `limits.rs`: the stated limits.
//! * `shrink.rs`: cuts a failing script down.
//!
//! `SEED=n` plays one script again, and `SEEDS=n..m` several. `DATA_PATH=direct` plays one data path
//! only. With `SHRINK=no`, all failures are printed at once and none is reduced.

mod compare;
mod generator;
mod hostile;
mod limits;
mod path;
mod play;
mod player;
mod script;
mod shrink;
mod stage;
mod texts;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use path::DataPath;
use play::{Failure, Outcome, play};
use stage::Stage;
use testkit::{Flavour, flavour};

/// The number of scripts from which on shares are judged.
const MANY: u64 = 40;
/// Scripts that are played at the same time.
const STAGES: usize = 2;
/// The maximum number of failures that are reduced and printed.
const FAILURES_MAX: usize = 5;

/// The results of all scripts.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    /// Scripts that took the data path, and the requests or pools that did.
    on_path: (u64, u64),
    limits: BTreeMap<&'static str, usize>,
    /// Seeds that make PostgreSQL itself crash.
    crashes: Vec<u64>,
    failures: Vec<String>,
}

fn seeds(path: DataPath) -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let named = |name: &str| std::env::var(name).ok();
    match (named("SEED"), named("SEEDS")) {
        (Some(seed), _) => number(&seed)..number(&seed) + 1,
        (None, Some(seeds)) => {
            let (first, end) = seeds.split_once("..").expect("first..end");
            number(first)..number(end)
        }
        (None, None) => 0..path.seeds(),
    }
}

fn shrinks() -> bool {
    std::env::var("SHRINK").map_or(true, |word| word != "no")
}

fn play_seeds(path: DataPath, next: &AtomicU64, end: u64, tally: &Mutex<Tally>) {
    let mut stage = Stage::new(path);
    let mut crashes_known = 0;
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let full = |tally: &Tally| tally.failures.len() >= FAILURES_MAX && shrinks();
        if seed >= end || full(&tally.lock().expect("no panic")) {
            return;
        }
        let mut script = generator::script(seed);
        if path == DataPath::Direct {
            // Weir may not notice such a change there (decision 029).
            script.leave_roles_alone();
        }
        let count = |add: &dyn Fn(&mut Tally)| add(&mut tally.lock().expect("no panic"));
        let mut outcome = play(&mut stage, &script);
        // A crash of PostgreSQL ends the scripts of all stages. They are played once more.
        if matches!(outcome, Outcome::Failure(_)) && stage.crashes() > crashes_known {
            crashes_known = stage.crashes();
            outcome = play(&mut stage, &script);
            if stage.crashes() > crashes_known {
                crashes_known = stage.crashes();
                count(&|tally| tally.crashes.push(seed));
                continue;
            }
        }
        count(&|tally| {
            if matches!(outcome, Outcome::Equal) {
                tally.on_path.0 += u64::from(stage.on_path > 0);
                tally.on_path.1 += stage.on_path;
            }
        });
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
        let (path, Failure { kind, what }) = (path.name(), failure);
        let text = format!("SEED={seed} DATA_PATH={path}: {kind:?}: {what}\n{script}");
        println!("{text}");
        count(&|tally| tally.failures.push(text.clone()));
    }
}

#[test]
fn proxied_sessions_are_answered_as_on_connections_of_their_own() {
    sessions_are_answered(DataPath::Proxied);
}

#[test]
fn reported_sessions_are_answered_as_on_connections_of_their_own() {
    sessions_are_answered(DataPath::Library);
}

#[test]
fn direct_sessions_are_answered_as_on_connections_of_their_own() {
    sessions_are_answered(DataPath::Direct);
}

#[test]
fn sessions_that_read_on_standbys_are_answered_as_on_the_primary() {
    sessions_are_answered(DataPath::Standbys);
}

fn sessions_are_answered(path: DataPath) {
    // Each path has two stages, as many as the tests' machines have processors.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if flavour() != Flavour::Weir || DataPath::chosen().is_some_and(|chosen| chosen != path) {
        return;
    }
    let seeds = seeds(path);
    Stage::roles(path);
    let (next, tally) = (AtomicU64::new(seeds.start), Mutex::new(Tally::default()));
    thread::scope(|scope| {
        for _ in 0..STAGES {
            scope.spawn(|| play_seeds(path, &next, seeds.end, &tally));
        }
    });
    let Tally { equal, on_path, limits, crashes, failures } = tally.into_inner().expect("no panic");
    println!("{}: {equal} scripts equal; ended by a stated limit: {limits:?}", path.name());
    println!(
        "on the data path (scripts, requests): {on_path:?}; crashes of PostgreSQL: {crashes:?}"
    );
    assert!(failures.is_empty(), "{} scripts differ:\n{}", failures.len(), failures.join("\n"));
    // A limit that explains much more than it used to may hide a fault.
    let (ended, all) = (limits.values().sum::<usize>() as u64, seeds.end - seeds.start);
    if all < MANY {
        return;
    }
    assert!(
        ended * 100 <= all * path.limits_max_percent(),
        "{ended} of {all} scripts are ended by a stated limit"
    );
    let missed = equal as u64 - on_path.0;
    assert!(missed * 2 <= equal as u64, "{missed} of {equal} scripts did not take the data path");
}
