//! All permitted differences: [`GAP`], since Debian has 1.18 and Weir replaces 1.25.2, and
//! [`INTENDED`].
//!
//! Each has a reason, and its lines as pairs of the cases and the line. `-` marks PgBouncer's line
//! and `+` Weir's. `*` matches anything. `- OLD => + NEW` is one line that differs: in it, `*`
//! matches the same text on both sides, and `%` anything.

mod gap;
mod intended;

pub(super) use gap::GAP;
pub(super) use intended::INTENDED;

/// One reason and the lines that it explains.
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
