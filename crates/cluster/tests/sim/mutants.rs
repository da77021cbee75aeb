//! Shows that the checks can fail: each crate that is broken on purpose is noticed within 6,000 seeds,
//! by the check that its entry names.
//!
//! This is a test of the crate `weir-cluster-mutants`, whose library is this crate with all mutants
//! woven in. The list is in `crates/cluster-mutants/src/list.rs`.

mod commits;
mod fleet;
mod nodes;
mod promotions;
mod rng;
mod run;
mod world;

use cluster::{list, mutant};

use run::{run, run_fleet};

const SEEDS: std::ops::Range<u64> = 0..6_000;
/// At least so many seeds must notice each mutant.
const SEEDS_MIN: usize = 3;

fn caught_mutant(number: usize) {
    let broken = list::mutants().nth(number).expect("the build script counts as we do");
    let (mut noticed, mut others) = (0, Vec::new());
    for seed in SEEDS {
        mutant::set(Some(number));
        // The checks between several Weirs have names of their own.
        let end = match broken.noticed_by.starts_with("fleet ") {
            true => run_fleet(seed, false),
            false => run(seed, false),
        };
        mutant::set(None);
        let Err(report) = end else { continue };
        if report.starts_with(&format!("{}: ", broken.noticed_by)) {
            noticed += 1;
        } else {
            others.push(format!("seed {seed}: {report}"));
        }
        if noticed == SEEDS_MIN {
            return;
        }
    }
    others.truncate(10);
    panic!(
        "{}: {SEEDS_MIN} seeds must notice it by {:?}, {noticed} did. Other reports: {others:#?}",
        broken.name, broken.noticed_by
    );
}

#[expect(non_snake_case, reason = "so that the name of a mutant is the name of its test")]
mod mutants {
    include!(concat!(env!("OUT_DIR"), "/tests.rs"));
}
