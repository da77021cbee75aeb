//! The rows of `SHOW CONFIG`.

use crate::table::{Global, Keyed};

/// One row, in the texts PgBouncer prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    pub key: &'static str,
    /// `None` is SQL's NULL.
    pub value: Option<String>,
    /// The default as the documentation writes it, so `0777` where the value is `511`.
    pub default: Option<&'static str>,
    /// A reload or `SET` can change the key.
    pub changeable: bool,
}

/// Every global key in PgBouncer's order, Weir's own last.
pub fn show(global: &Global) -> Vec<ConfigRow> {
    let row = |row: &crate::table::Row<Global>| {
        let value = (row.show)(global);
        let value = if row.key.secret { value.map(|_| "(secret)".to_owned()) } else { value };
        let key = &row.key;
        ConfigRow { key: key.name, value, default: key.default, changeable: key.reloadable }
    };
    Global::ROWS.iter().map(row).collect()
}
