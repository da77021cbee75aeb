//! SHOW VERSION.

use super::{Table, text};

/// PgBouncer's version comes first: exporters read it from there.
pub(super) static VERSION: Table<String> = Table {
    name: "VERSION",
    about: "The version of PgBouncer whose console this is, and Weir's own.",
    columns: &[text("version", |version| version.into(), "`PgBouncer X.Y.Z (Weir X.Y.Z)`.")],
    rows: |_| vec![config::version()],
};
