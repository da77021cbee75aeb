//! SHOW PINS, which is Weir's own: who keeps a server between transactions, and why.

use super::connections::pointer;
use super::{Column, Table, int8, text};
use crate::snapshot::{Connection, Pin};

pub(super) static PINS: Table<Line> = Table {
    name: "PINS",
    about: "With `pool_mode = auto`, a row for each server that its client keeps because of \
            something it has there. Weir's own.",
    columns: &[
        text("database", |line| (&line.connection.database).into(), "Name clients ask for."),
        text("user", |line| (&line.connection.user).into(), "The user the server is logged in as."),
        text("client", |line| pointer(line.connection.link).into(), "As `ptr` in SHOW CLIENTS."),
        text("server", |line| pointer(line.connection.fd).into(), "As `ptr` in SHOW SERVERS."),
        text(
            "reason",
            |line| line.pin.reasons.as_str().into(),
            "What is there, separated by commas: `temporary object`, `advisory lock`, \
             `cursor with hold`, `prepared statement`, `listen`, `load`, `setseed`, `sequence`, `drawn number`, \
             `function`, `setting`; `session mode`: the client got the server in session mode, before \
             a reload; `unverified`: it could not be found out.",
        ),
        int8("age", |line| line.pin.age.into(), "Seconds since the client keeps it."),
        text(
            "fingerprint",
            |line| fingerprint(&line.pin).into(),
            "Of the text of the Query or Parse that brought it about, or of the last one of that \
             transaction that may have left something: what PostgreSQL's `left(md5(text), 16)` \
             says of its first 4,096 bytes, with the semicolon at its end if one was sent. Equal \
             texts have the same everywhere and always. Empty if the text is not known.",
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

/// The columns of SHOW CLIENTS about a client's pin, behind PgBouncer's columns.
pub(super) const OF_CLIENT: [Column<super::connections::Line>; 3] = [
    text(
        "pin_reason",
        |line| line.pin.as_ref().map(|pin| pin.reasons.as_str()).into(),
        "Weir's own, as the next two: why it keeps its server, as `reason` in SHOW PINS; NULL if \
         it keeps none.",
    ),
    int8("pin_age", |line| line.pin.as_ref().map(|pin| pin.age).into(), "As `age` there."),
    text(
        "pin_fingerprint",
        |line| line.pin.as_ref().map(fingerprint).into(),
        "As `fingerprint` there.",
    ),
];

fn fingerprint(pin: &Pin) -> String {
    match pin.fingerprint {
        0 => String::new(),
        known => format!("{known:016x}"),
    }
}

pub(super) struct Line {
    connection: Connection,
    pin: Pin,
}
