//! Mutants that the simulator does not meet: each takes a particular order of events. The scripted test that the
//! mutant's entry names must fail with it.
//!
//! This is a test of the crate `weir-mutants`, as `sim/mutants.rs` is.

#![allow(dead_code, unused_imports, reason = "the other tests need the rest")]

mod ahead;
mod balance;
mod cancel;
mod carried;
mod clusters;
mod defaults;
mod judged;
mod listen;
mod lost;
mod messages;
mod modes;
mod news;
mod outdated;
mod prepared;
mod reads;
mod renewal;
mod rig;
mod routing;
mod signals;
mod silent;
mod standbys;
mod state_reports;

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{list, mutant};

fn caught_mutant(number: usize, script: fn()) {
    let broken = list::mutants().nth(number).expect("the build script counts as we do");
    script();
    mutant::set(Some(number));
    let end = catch_unwind(AssertUnwindSafe(script));
    mutant::set(None);
    assert!(end.is_err(), "{} did not fail with {}", broken.noticed_by, broken.name);
}

/// One test per mutant, with the mutant's name.
#[allow(non_snake_case, reason = "so that the name of a mutant is the name of its test")]
mod mutants {
    include!(concat!(env!("OUT_DIR"), "/scripted_tests.rs"));
}
