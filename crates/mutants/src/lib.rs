//! The engine with every mutant woven in: a copy of `crates/engine/src`. Each place that [`list`]
//! names asks at run time whether it is broken.
//!
//! `build.rs` makes the copy, by the rules in `weave.rs`. The simulator is built against it in
//! `crates/engine/tests/sim/mutants.rs`.

// The copy is generated, and the engine's own build applies its lints.
#![allow(warnings, clippy::all)]

pub mod list;

/// The mutant of this thread's engines.
pub mod mutant {
    use std::cell::Cell;

    thread_local! {
        static PRESENT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Sets the mutant for this thread, by its position in the list.
    pub fn set(mutant: Option<usize>) {
        PRESENT.set(mutant);
    }

    pub(crate) fn is(mutant: usize) -> bool {
        PRESENT.get() == Some(mutant)
    }
}

include!(concat!(env!("OUT_DIR"), "/engine/lib.rs"));
