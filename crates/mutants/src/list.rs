//! The list of mutants: engines that are broken on purpose, each in one way. The simulator must
//! notice each of them, by the check that its entry names. If the simulator cannot, a scripted test
//! must.
//!
//! To add a mutant, add an entry to one of the files beside this one: the fault, its place, and the
//! check that must notice it (`CHECKS` in `crates/engine/tests/sim/mutants.rs`). Its name becomes a
//! test: `cargo test -p weir-mutants NAME`. `UPDATE_DOCS=1` writes the table in `docs/testing.md`.
//!
//! Issue numbers are those of the projects' public trackers.

mod listening;
mod losses;
mod operator;
mod passwords;
mod pools;
mod principals;
mod replies;
mod reports;
mod routing;
mod sessions;
mod statements;
mod strangers;

/// An engine that is broken in one way.
#[derive(Debug)]
pub struct Mutant {
    /// In CamelCase, starting with a verb whose subject is the engine.
    pub name: &'static str,
    /// The fault, in a sentence for readers who do not know the code.
    pub wrong: &'static str,
    /// Poolers that had this fault, or empty.
    pub seen_in: &'static str,
    /// The check of the simulator that must notice it, or a scripted test with its module.
    pub noticed_by: &'static str,
    pub changes: &'static [Change],
}

/// One place of the engine's source that a mutant changes.
#[derive(Debug)]
pub struct Change {
    /// Path below `crates/engine/src`.
    pub file: &'static str,
    /// An expression or statements that occur exactly once in the file, apart from white space. If
    /// `«` and `»` mark a part, only that part is replaced, and the rest only identifies the place.
    pub source: &'static str,
    /// The code in its place.
    pub broken: &'static str,
}

/// The folder of the source, for messages.
pub const SOURCE: &str = "crates/engine/src";

const fn change(file: &'static str, source: &'static str, broken: &'static str) -> Change {
    Change { file, source, broken }
}

/// All mutants. A mutant's number is its position in this list.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    let topics = [
        replies::MUTANTS,
        statements::MUTANTS,
        pools::MUTANTS,
        operator::MUTANTS,
        sessions::MUTANTS,
        reports::MUTANTS,
        listening::MUTANTS,
        routing::MUTANTS,
        losses::MUTANTS,
        strangers::MUTANTS,
        principals::MUTANTS,
        passwords::MUTANTS,
    ];
    topics.into_iter().flatten()
}

impl Mutant {
    /// Returns the scripted test that must notice it; None if the simulator must.
    pub fn script(&self) -> Option<&'static str> {
        self.noticed_by.contains("::").then_some(self.noticed_by)
    }
}
