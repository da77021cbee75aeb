//! SHOW HEALTH, which is Weir's own.

use super::{Table, text};
use crate::snapshot::HealthRow;

pub(super) static HEALTH: Table<HealthRow> = Table {
    name: "HEALTH",
    about: "The health checks, as HTTP answers them at `health_port`. `weir ctl health` makes an exit \
            status of them. Weir's own.",
    columns: &[
        text(
            "check",
            |row| (&row.name).into(),
            "`live`, `ready`, `primary`, and `primary/NAME` for each cluster.",
        ),
        text(
            "ok",
            |row| if row.obstacle.is_none() { "yes" } else { "no" }.into(),
            "`yes` or `no`.",
        ),
        text(
            "reason",
            |row| row.obstacle.as_deref().unwrap_or_default().into(),
            "Why the check fails; empty if it passes.",
        ),
    ],
    rows: |view| view.snapshot.health,
};
