//! SHOW PINS, which is Weir's own: who keeps a server between transactions, and why.

use super::connections::pointer;
use super::{Table, int8, text};
use crate::snapshot::{Connection, Pin};

pub(super) static PINS: Table<Line> = Table {
    name: "PINS",
    about: "With `pool_mode = auto`, a row for each server that its client keeps because of \
            something it has there. Weir's own.",
    columns: &[
        text("database", |line| (&line.connection.database).into(), "Name clients ask for."),
        text("user", |line| (&line.connection.user).into(), "The user the server is logged in as."),
        text("client", |line| pointer(line.connection.link).into(), "As `ptr` in SHOW CLIENTS."),
        text("server", |line| pointer(line.connection.id).into(), "As `ptr` in SHOW SERVERS."),
        text(
            "reason",
            |line| line.pin.reasons.as_str().into(),
            "What is there, separated by commas: `temporary object`, `advisory lock`, \
             `cursor with hold`, `prepared statement`, `listen`, `load`, `setseed`, `sequence`, \
             `function`; `unverified`: it could not be found out.",
        ),
        int8("age", |line| line.pin.age.into(), "Seconds since the client keeps it."),
        text(
            "fingerprint",
            |line| format!("{:016x}", line.pin.fingerprint).into(),
            "Of the text of the statement that brought it about; equal ones have the same.",
        ),
    ],
    rows: |view| {
        let servers = view.snapshot.servers.into_iter();
        let line = |server: crate::snapshot::ServerRow| {
            Some(Line { pin: server.pin?, connection: server.connection })
        };
        servers.filter_map(line).collect()
    },
};

pub(super) struct Line {
    connection: Connection,
    pin: Pin,
}
