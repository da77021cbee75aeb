//! SHOW CONFIG.

use config::ConfigRow;

use super::{Table, text};

pub(super) static CONFIG: Table<ConfigRow> = Table {
    name: "CONFIG",
    about: "The global keys of the configuration. Passwords are not shown.",
    columns: &[
        text("key", |row| row.key.into(), "Name of the key."),
        text("value", |row| row.value.as_ref().into(), "Its present value; times in seconds."),
        text("default", |row| row.default.into(), "Its default, as the documentation writes it."),
        text(
            "changeable",
            |row| if row.changeable { "yes" } else { "no" }.into(),
            "`yes` if a reload changes it, `no` if only a restart does.",
        ),
    ],
    rows: |view| config::show(&view.snapshot.config),
};
