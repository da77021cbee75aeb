//! The engine with every mutant woven in: a copy of `crates/engine/src` in which each place that
//! [`list`] names asks whether it is broken now.
//!
//! `build.rs` makes the copy, by the rules in `weave.rs`. The simulator is built against it in
//! `crates/engine/tests/sim/mutants.rs`.

// The copy is not written by hand, and its lints are those of the engine.
#![allow(warnings, clippy::all)]

pub mod list;

/// Which mutant this thread's engines are.
pub mod mutant {
    use std::cell::Cell;

    thread_local! {
        static PRESENT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// From now on, in this thread; by its place in the list.
    pub fn set(mutant: Option<usize>) {
        PRESENT.set(mutant);
    }

    pub(crate) fn is(mutant: usize) -> bool {
        PRESENT.get() == Some(mutant)
    }
}

include!(concat!(env!("OUT_DIR"), "/engine/lib.rs"));
