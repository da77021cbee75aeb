//! The parameters of Pgpool-II, and the fate of each.
//!
//! This is the only list. The report of `weir convert` and the table in `docs/pgpool.md` come from it.

mod failover;
mod legacy;
mod pooling;
mod routing;
mod watchdog;

/// The kinds of fate of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A key of Weir means the same.
    Kept,
    /// A key of Weir has its place, or Weir always does it, but in another way.
    Changed,
    /// Weir has nothing in its place.
    Without,
}

/// One parameter, or one for each number behind its name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in lower case. `N` at the end stands for a number, which may be missing.
    pub name: &'static str,
    /// Its value in the sample configuration of Pgpool-II.
    pub default: &'static str,
    pub part: Part,
    /// The keys of Weir in its place, separated by commas.
    pub keys: &'static str,
    /// The difference, or the reason for which Weir has no such key.
    pub why: &'static str,
}

const fn kept(name: &'static str, default: &'static str, keys: &'static str) -> Row {
    Row { name, default, part: Part::Kept, keys, why: "" }
}

const fn changed(
    name: &'static str,
    default: &'static str,
    keys: &'static str,
    why: &'static str,
) -> Row {
    Row { name, default, part: Part::Changed, keys, why }
}

const fn without(name: &'static str, default: &'static str, why: &'static str) -> Row {
    Row { name, default, part: Part::Without, keys: "", why }
}

/// Returns all rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let groups: [&'static [Row]; 5] =
        [pooling::ROWS, routing::ROWS, failover::ROWS, watchdog::ROWS, legacy::ROWS];
    groups.into_iter().flatten()
}

impl Row {
    /// Returns its name without a number.
    #[must_use]
    pub fn base(&self) -> &'static str {
        self.name.strip_suffix('N').unwrap_or(self.name)
    }

    fn is_numbered(&self) -> bool {
        self.name.ends_with('N')
    }
}

/// Returns the row of a name in lower case, and the number behind it.
pub(crate) fn find(name: &str) -> Option<(&'static Row, Option<usize>)> {
    if let Some(row) = rows().find(|row| row.base() == name) {
        return Some((row, None));
    }
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(base.len()..)?.parse().ok()?;
    let row = rows().find(|row| row.is_numbered() && row.base() == base)?;
    Some((row, Some(number)))
}
