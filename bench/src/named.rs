//! Rows of a benchmark by their names.

use anyhow::{Result, ensure};

/// What is known by a name on the command line.
pub(crate) trait Named {
    fn name(&self) -> &'static str;
}

/// Those of the given names, in that order. Where no row has a name, it stands for all rows that have
/// it before a hyphen.
///
/// # Errors
/// When there is no row of such a name.
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
