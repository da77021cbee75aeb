//! Decides whether a text may run on a standby.
//!
//! [`read_verdict`] allows a text that only reads, and that returns the same on each node. For any
//! other text it returns a [`Refusal`]; the text then runs on the primary. Three things decide:
//!
//! * the form of the text: its first word, and words that write or lock (`statement`)
//! * the [`Signs`] of the text: a read leaves nothing in its session
//! * names: those that tell of a node (`node`), and those that the [`CatalogView`] calls dangerous
//!
//! A refusal too many costs the primary a read. A refusal too few does no harm if the standby
//! refuses the text itself, as it does with each write. So the refusals that matter most are of
//! texts that succeed on a standby and return or do something else there.
//!
//! Weir calls this only for pools with readers, so other pools do not pay for it.

pub(crate) mod body;
mod hint;
pub(crate) mod node;
#[cfg(test)]
mod recorded;
mod statement;
#[cfg(test)]
mod tests;
mod transaction;
mod verdict;

use core::ops::Range;

use crate::catalog::view::CatalogView;
use crate::reads::statement::Statement;
use crate::signs::{Seen, Signs};
use crate::walk::{Part, walk};

pub use hint::{Hint, hint};
pub use verdict::{Refusal, Verdict};

/// A verdict and the token that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub verdict: Verdict,
    /// Empty if no single token decided.
    pub cause: Range<usize>,
}

/// Judges a text. `seen` is what [`scan_either`](crate::scan_either) returns for it. Without a
/// `view`, only the text is judged, and it may still call any function.
pub fn read_verdict(text: &[u8], seen: Seen, view: Option<&CatalogView>) -> Reading {
    if let Some(refusal) = refusal_of_signs(seen) {
        let by_text = one_reading(text, true, view);
        // The token is the better explanation.
        return match by_text {
            Err((refusal, cause)) => Reading { verdict: Verdict::Refused(refusal), cause },
            Ok(_) => Reading { verdict: Verdict::Refused(refusal), cause: 0..0 },
        };
    }
    let reading = one_reading(text, true, view).and_then(|(verdict, has_backslash)| {
        // A function may have changed `standard_conforming_strings`.
        match has_backslash {
            true => one_reading(text, false, view).and_then(|(other, _)| match other == verdict {
                true => Ok(verdict),
                false => Err((Refusal::Unclear, 0..0)),
            }),
            false => Ok(verdict),
        }
    });
    match reading {
        Ok(verdict) => Reading { verdict, cause: 0..0 },
        Err((refusal, cause)) => Reading { verdict: Verdict::Refused(refusal), cause },
    }
}

/// Returns the verdict, and whether a string has a backslash.
fn one_reading(
    text: &[u8],
    standard_strings: bool,
    view: Option<&CatalogView>,
) -> Result<(Verdict, bool), (Refusal, Range<usize>)> {
    let mut statement = Statement::new();
    let walked = walk(text, standard_strings, |part, place| {
        let raw = text.get(place.start..place.end.min(text.len())).unwrap_or_default();
        let names = statement.is_query();
        statement.take(part, raw).map_err(|refusal| (refusal, place.clone()))?;
        if names && view.is_some_and(|view| is_dangerous(view, part)) {
            return Err((Refusal::Name, place));
        }
        Ok(())
    })?;
    if !walked.is_certain {
        return Err((Refusal::Unclear, text.len()..text.len()));
    }
    let verdict = statement.finish().map_err(|refusal| (refusal, 0..0))?;
    Ok((verdict, walked.has_backslash))
}

fn is_dangerous(view: &CatalogView, part: Part<'_>) -> bool {
    match part {
        Part::Word(name) => {
            view.has_name(name)
                || implied_operators(name.as_bytes()).iter().any(|one| view.has_operator(one))
        }
        Part::Quoted(name) => view.has_name(name),
        Part::Operator(operator) => view.has_operator(operator),
        Part::String | Part::Number | Part::Symbol(_) | Part::Unclear => false,
    }
}

/// Returns the operators that a keyword stands for.
fn implied_operators(word: &[u8]) -> &'static [&'static [u8]] {
    match word {
        b"between" => &[b"<=", b">=", b"<", b">"],
        b"case" | b"distinct" | b"except" | b"group" | b"in" | b"intersect" | b"natural"
        | b"nullif" | b"partition" | b"union" | b"using" => &[b"="],
        b"ilike" => &[b"~~*", b"!~~*"],
        b"like" => &[b"~~", b"!~~"],
        b"order" | b"greatest" | b"least" => &[b"<", b">"],
        b"similar" => &[b"~", b"!~"],
        _ => &[],
    }
}

/// Returns why a text with these signs is no read. Calls of unknown functions alone are left to the
/// [`CatalogView`].
fn refusal_of_signs(seen: Seen) -> Option<Refusal> {
    const SESSION: Signs = Signs::SETTINGS
        .with(Signs::LOCAL)
        .with(Signs::CURSOR)
        .with(Signs::LISTEN)
        .with(Signs::PREPARED)
        .with(Signs::LOAD)
        .with(Signs::DISCARD)
        .with(Signs::SEED)
        .with(Signs::SIGNALS);
    let signs = seen.signs;
    if signs.contains(Signs::OPAQUE) && seen.functions == 0 {
        return Some(Refusal::Opaque);
    }
    for (some, refusal) in [
        (Signs::LOCK, Refusal::Locks),
        (Signs::SEQUENCE.with(Signs::DRAWS), Refusal::Sequence),
        (Signs::TEMPORARY, Refusal::Writes),
        (SESSION, Refusal::Session),
    ] {
        if signs.intersects(some) {
            return Some(refusal);
        }
    }
    None
}
