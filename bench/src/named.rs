//! Rows of a benchmark by their names.

use anyhow::{Result, bail};

/// What is known by a name on the command line.
pub(crate) trait Named {
    fn name(&self) -> &'static str;
}

/// Those of the given names, in that order.
///
/// # Errors
/// When there is no row of such a name.
pub(crate) fn select<R: Named>(rows: &'static [R], names: &[String]) -> Result<Vec<&'static R>> {
    let find = |name: &String| match rows.iter().find(|row| row.name() == name) {
        Some(row) => Ok(row),
        None => bail!("no row is named {name}; --list names them"),
    };
    names.iter().map(find).collect()
}
