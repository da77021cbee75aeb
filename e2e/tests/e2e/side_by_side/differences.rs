//! All that may differ: [`GAP`], since Debian has 1.18 and Weir replaces 1.25.2, and [`INTENDED`].
//!
//! Each has its reason, and its lines as pairs: which cases, and which line there, where `-` is
//! PgBouncer's and `+` Weir's. `*` stands for anything. `- OLD => + NEW` is one line that became
//! another: there, `*` stands for the same in both, and `%` for anything.

mod gap;
mod intended;

pub(super) use gap::GAP;
pub(super) use intended::INTENDED;

/// One reason and the lines it explains.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) why: &'static str,
    pub(super) lines: &'static [(&'static str, &'static str)],
}

pub(super) const ALL: [&[Difference]; 2] = [GAP, INTENDED];

#[test]
fn differences_that_are_meant_are_few_and_have_reasons() {
    assert!(INTENDED.len() <= 20);
    assert!(ALL.iter().copied().flatten().all(|difference| !difference.why.is_empty()));
}
