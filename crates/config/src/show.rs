//! The rows of `SHOW CONFIG`.

use crate::config::Config;
use crate::key::{Keyed, Row};
use crate::table::Global;

/// One row, in the texts PgBouncer prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    pub key: &'static str,
    /// `None` is SQL's NULL.
    pub value: Option<String>,
    /// The default for this source as in the documentation, for example `0777` where the value is
    /// `511`.
    pub default: Option<&'static str>,
    /// A reload or `SET` can change the key.
    pub changeable: bool,
}

/// Returns every global key in PgBouncer's order, Weir's own last.
pub fn show(config: &Config) -> Vec<ConfigRow> {
    let row = |row: &Row<Global>| {
        let value = (row.show)(&config.global);
        let value = if row.key.secret { value.map(|_| "(secret)".to_owned()) } else { value };
        let key = &row.key;
        let default = key.default_in(config.source);
        ConfigRow { key: key.name, value, default, changeable: key.reloadable }
    };
    Global::ROWS.iter().map(row).collect()
}
