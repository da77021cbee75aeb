//! SHOW STATE.

use super::{Table, text};

/// Weir cannot be paused or suspended yet, so there is one answer.
pub(super) static STATE: Table<(&str, &str)> = Table {
    name: "STATE",
    about: "Whether the pooler works; a row for each of `active`, `paused` and `suspended`.",
    columns: &[
        text("key", |row| row.0.into(), "Name of the state."),
        text("value", |row| row.1.into(), "`yes` or `no`."),
    ],
    rows: |_| vec![("active", "yes"), ("paused", "no"), ("suspended", "no")],
};
