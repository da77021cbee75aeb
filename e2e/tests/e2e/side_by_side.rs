//! Debian's PgBouncer and Weir side by side. Both get the same file and the same clients, and all
//! output must be the same: every message, the console's columns and values, the log lines, the
//! exit codes. `differences.rs` lists the exceptions: the gap between Debian's version and the
//! version that Weir replaces, and the few intended differences.
//!
//! A new difference fails, and so does a listed one that does not occur any more. The steps are in
//! `cases/*.txt`, in the language of `script.rs`. `SIDE_BY_SIDE=word` plays only the cases whose
//! names contain that word, and does not check for listed differences that do not occur.

mod compare;
mod differences;
mod player;
mod process;
mod script;
mod transcript;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support;
use compare::{Seen, unstated};
use player::Player;
use process::{Flavour, Process};
use script::{Case, Group};
use testkit::{Postgres, poll_until};

/// The version of PgBouncer to which the listed differences apply: that of Debian 12.
const LISTED_VERSION: &str = "1.18";
/// The number of groups that are played at the same time.
const PLAYERS: usize = 8;
/// If there are fewer cases, some files of cases were not found.
const CASES_MIN: usize = 600;
/// The maximum time until both logs contain the same lines.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

#[test]
fn pgbouncer_and_weir_answer_alike() {
    if !support::only_weir() || !has_the_version_of_the_differences() {
        return;
    }
    let only = std::env::var("SIDE_BY_SIDE").ok();
    let groups = script::groups(only.as_deref());
    let groups: Vec<Group> = groups.into_iter().flat_map(Group::split).collect();
    let cases: usize = groups.iter().map(|group| group.cases.len()).sum();
    assert!(only.is_some() || cases >= CASES_MIN, "only {cases} cases");
    let next = AtomicUsize::new(0);
    let seen = Mutex::new(Seen::default());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = play_group(group, &seen);
                    failures.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic");
    if only.is_none() {
        failures.extend(seen.into_inner().expect("no panic").missing());
    }
    eprintln!("{cases} cases side by side");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Returns whether the installed PgBouncer is the version whose differences are listed. Another
/// version has others.
fn has_the_version_of_the_differences() -> bool {
    let shown = support::run(Command::new(process::PGBOUNCER).arg("--version"));
    let version = shown.lines().next().unwrap_or_default();
    let is_it = version.starts_with(&format!("PgBouncer {LISTED_VERSION}."));
    if !is_it {
        eprintln!("skipped: {version} is installed, and differences.rs is about {LISTED_VERSION}");
    }
    is_it
}

/// Plays a group. Returns the differences that are not listed, each with the name of its case.
fn play_group(group: &Group, seen: &Mutex<Seen>) -> Vec<String> {
    let database = Postgres::shared().database();
    let start = |case: Option<&Case>| {
        [Flavour::PgBouncer, Flavour::Weir].map(|flavour| {
            let process = Process::new(flavour, &database, group, case);
            Player::new(process)
        })
    };
    let mut running: Option<[Player; 2]> = None;
    let mut failures = Vec::new();
    for case in &group.cases {
        let mut fresh = (group.fresh || case.has_files()).then(|| start(Some(case)));
        let players = fresh.as_mut().unwrap_or_else(|| {
            running.get_or_insert_with(|| {
                let mut players = start(None);
                players.iter_mut().for_each(Player::start);
                players
            })
        });
        let name = format!("{}: {}", group.name, case.name);
        let played = AssertUnwindSafe(|| play_case(&name, case, players, seen));
        let found = catch_unwind(played).unwrap_or_else(|_| {
            // The state of the poolers is unknown after a panic, so the next case gets new ones.
            running = None;
            vec!["panicked".to_owned()]
        });
        failures.extend(found.into_iter().map(|line| format!("{name}\n      {line}")));
    }
    failures
}

fn play_case(
    name: &str,
    case: &Case,
    players: &mut [Player; 2],
    seen: &Mutex<Seen>,
) -> Vec<String> {
    let [theirs, ours] = players.each_mut().map(|player| player.play(case));
    let mut failures = unstated(name, &theirs, &ours, seen);
    // A line may be logged only after the client has got its message.
    let mut lines = Vec::new();
    poll_until(LOG_PATIENCE, || {
        let [theirs, ours] = players.each_ref().map(Player::log_lines);
        lines = unstated(name, &theirs, &ours, seen);
        lines.is_empty().then_some(())
    });
    failures.append(&mut lines);
    failures
}
