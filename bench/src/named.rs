//! Rows of a benchmark by their names.

use anyhow::{Result, ensure};

/// A row that can be chosen by its name on the command line.
pub(crate) trait Named {
    fn name(&self) -> &'static str;
}

/// Returns the rows with the given names, in the order of the names. A name that no row has selects
/// all rows that begin with it and a hyphen.
///
/// # Errors
/// When no row matches a name.
pub(crate) fn select<R: Named>(rows: &'static [R], names: &[String]) -> Result<Vec<&'static R>> {
    let mut selected = Vec::new();
    for name in names {
        let before = selected.len();
        selected.extend(rows.iter().filter(|row| row.name() == name));
        if selected.len() == before {
            let group = format!("{name}-");
            selected.extend(rows.iter().filter(|row| row.name().starts_with(&group)));
        }
        ensure!(selected.len() > before, "no row is named {name}; --list names them");
    }
    Ok(selected)
}
