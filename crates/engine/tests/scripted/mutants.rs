//! Mutants that the simulator does not meet: each takes a particular order of events. The scripted
//! test that the mutant's entry names must fail with it.
//!
//! This is a test of the crate `weir-mutants`, as `sim/mutants.rs` is.

#![allow(dead_code, unused_imports, reason = "the other tests need the rest")]

mod after_error;
mod ahead;
mod balance;
mod begun;
mod cancel;
mod carried;
mod clusters;
mod copying;
mod deaf;
mod defaults;
mod direct;
mod farewell;
mod handover;
mod issued;
mod judged;
mod limits;
mod listen;
mod lobby_seats;
mod lost;
mod marks;
mod meanings;
mod messages;
mod modes;
mod monotonic;
mod news;
mod orphaned;
mod outdated;
mod prepared;
mod principals;
mod reads;
mod refused;
mod relief;
mod renewal;
mod rig;
mod routing;
mod setting_names;
mod signals;
mod silent;
mod spares;
mod standbys;
mod state_reports;
mod timeouts;
mod turns;

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use engine::{list, mutant};

thread_local! {
    /// The source file of this thread's last panic.
    static FAILED_IN: RefCell<String> = const { RefCell::new(String::new()) };
}

fn note_where_panics_are() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |location| location.file());
            FAILED_IN.with_borrow_mut(|failed| file.clone_into(failed));
            usual(info);
        }));
    });
}

/// Requires that the script passes with the sound engine, and that one of its own expectations fails
/// with the broken one. A panic of the engine or of the rig does not count.
fn caught_mutant(number: usize, script: fn()) {
    note_where_panics_are();
    let broken = list::mutants().nth(number).expect("the build script counts as we do");
    script();
    mutant::set(Some(number));
    let end = panic::catch_unwind(AssertUnwindSafe(script));
    mutant::set(None);
    let (name, script) = (broken.name, broken.noticed_by);
    assert!(end.is_err(), "{script} did not fail with {name}");
    let module = script.split("::").next().expect("split returns at least one part");
    let failed = FAILED_IN.take();
    let is_expectation = failed.split_once("/scripted/").is_some_and(|(_, file)| {
        file.strip_prefix(module).is_some_and(|rest| rest.starts_with(['.', '/']))
    });
    assert!(is_expectation, "{name} must fail in {script}, and failed in {failed}");
}

/// One test per mutant, with the mutant's name.
#[allow(non_snake_case, reason = "so that the name of a mutant is the name of its test")]
mod mutants {
    include!(concat!(env!("OUT_DIR"), "/scripted_tests.rs"));
}
