//! The crate `cluster` with every mutant of [`list`] woven in: a copy of `crates/cluster/src`. Each
//! place that the list names asks at run time whether it is broken. See `crates/mutants`, which does
//! the same for the engine.

// The copy is generated, and the crate's own build applies its lints.
#![allow(warnings, clippy::all)]

pub mod list;

/// The mutant of this thread's clusters.
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

include!(concat!(env!("OUT_DIR"), "/source/lib.rs"));
