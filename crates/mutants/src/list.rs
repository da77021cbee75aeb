//! The list of mutants: engines that are broken on purpose, each in one way. The simulator must
//! notice every one of them, and for its own reason.
//!
//! To add a mutant, add an entry to one of the files beside this one: what is wrong, where, and
//! which check must notice it (`CHECKS` in `crates/engine/tests/sim/mutants.rs`). Its name becomes
//! a test: `cargo test -p weir-mutants NAME`. `UPDATE_DOCS=1` writes the table in
//! `docs/testing.md`.
//!
//! Issue numbers are those of the projects' public trackers.

mod listening;
mod operator;
mod pools;
mod replies;
mod sessions;
mod statements;

/// An engine that is broken in one way.
#[derive(Debug)]
pub struct Mutant {
    /// In CamelCase, a verb first: the engine does this.
    pub name: &'static str,
    /// What is wrong, in a sentence for somebody who does not know the code.
    pub wrong: &'static str,
    /// Poolers in which it was wrong, or empty.
    pub seen_in: &'static str,
    /// The check that must notice it.
    pub noticed_by: &'static str,
    pub changes: &'static [Change],
}

/// One place of the engine's source that is another one in a mutant.
#[derive(Debug)]
pub struct Change {
    /// In `crates/engine/src`.
    pub file: &'static str,
    /// An expression or statements that occur exactly once in the file, whatever the white space.
    /// If a part is marked by `«` and `»`, only that part is replaced; the rest tells the place.
    pub source: &'static str,
    /// What is done in its place.
    pub broken: &'static str,
}

const fn change(file: &'static str, source: &'static str, broken: &'static str) -> Change {
    Change { file, source, broken }
}

/// All of them. A mutant's number is its place herein.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    let topics = [
        replies::MUTANTS,
        statements::MUTANTS,
        pools::MUTANTS,
        operator::MUTANTS,
        sessions::MUTANTS,
        listening::MUTANTS,
    ];
    topics.into_iter().flatten()
}
