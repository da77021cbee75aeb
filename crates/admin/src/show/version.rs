//! SHOW VERSION.

use super::{Table, text};

pub(super) static VERSION: Table<String> = Table {
    name: "VERSION",
    about: "The version of PgBouncer whose console this is; with EXTENDED, Weir's own as well.",
    columns: &[text(
        "version",
        |version| version.into(),
        "`PgBouncer X.Y.Z`; with EXTENDED, `PgBouncer X.Y.Z (Weir X.Y.Z)`.",
    )],
    rows: |view| vec![if view.has_own { config::version() } else { config::pgbouncer_version() }],
};
