//! SHOW STATE.

use super::{Table, text};

pub(super) static STATE: Table<(&str, bool)> = Table {
    name: "STATE",
    about: "Whether the pooler works; a row for each of `active`, `paused` and `suspended`.",
    columns: &[
        text("key", |row| row.0.into(), "Name of the state."),
        text("value", |row| if row.1 { "yes" } else { "no" }.into(), "`yes` or `no`."),
    ],
    rows: |view| {
        let switches = &view.snapshot.switches;
        let (paused, suspended) = (switches.paused || switches.closed, switches.suspended);
        vec![("active", !paused && !suspended), ("paused", paused), ("suspended", suspended)]
    },
};
