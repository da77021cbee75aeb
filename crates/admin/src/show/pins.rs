//! SHOW PINS, which is Weir's own: which clients keep a server between transactions, and why.

use super::connections::pointer;
use super::{Column, Table, int8, own, text};
use crate::snapshot::{Connection, Pin};

pub(super) static PINS: Table<Line> = Table {
    name: "PINS",
    about: "With `pool_mode = auto`, a row for each pinned server: its client keeps it because of \
            session state. Weir's own.",
    columns: &[
        text("database", |line| (&line.connection.database).into(), "Name clients ask for."),
        text("user", |line| (&line.connection.user).into(), "The user the server is logged in as."),
        text("client", |line| pointer(line.connection.link).into(), "As `ptr` in SHOW CLIENTS."),
        text("server", |line| pointer(line.connection.fd).into(), "As `ptr` in SHOW SERVERS."),
        text(
            "reason",
            |line| line.pin.reasons.as_str().into(),
            "The session state that pins the server, separated by commas. The words are \
             `temporary object`, `advisory lock`, `cursor with hold`, `prepared statement`, \
             `listen`, `load`, `setseed`, `sequence`, `drawn number`, `function` and `setting`. \
             `session mode`: the client got the server in session mode, before a reload. \
             `direct pool`: only the backend of the direct pool knows the state. `state too large`: \
             the client of a direct pool has more settings and statements than the pool can keep \
             for it (docs/direct.md). `unverified`: Weir could not find out the session state.",
        ),
        int8(
            "age",
            |line| line.pin.age.into(),
            "Seconds for which the client has kept it. In a direct pool: seconds since its last \
             transaction; there is no row while a transaction runs.",
        ),
        text(
            "fingerprint",
            |line| fingerprint(&line.pin).into(),
            "Fingerprint of the text that caused the pin, as in SHOW FINGERPRINTS; empty if the \
             text is not known. It is the last text of the transaction that may have left session \
             state.",
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

/// The columns of SHOW CLIENTS about a client's pin, which follow PgBouncer's columns.
pub(super) const OF_CLIENT: [Column<super::connections::Line>; 3] = [
    own(text(
        "pin_reason",
        |line| line.pin.as_ref().map(|pin| pin.reasons.as_str()).into(),
        "Why the client keeps its server, as `reason` in SHOW PINS; NULL if it keeps none.",
    )),
    own(int8("pin_age", |line| line.pin.as_ref().map(|pin| pin.age).into(), "As `age` there.")),
    own(text(
        "pin_fingerprint",
        |line| line.pin.as_ref().map(fingerprint).into(),
        "As `fingerprint` there.",
    )),
];

pub(super) fn fingerprint(pin: &Pin) -> String {
    match pin.fingerprint {
        0 => String::new(),
        known => format!("{known:016x}"),
    }
}

pub(super) struct Line {
    connection: Connection,
    pin: Pin,
}
