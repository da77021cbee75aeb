//! SHOW TIMINGS, which is Weir's own: the checkpoints of connections that have ended.

use engine::ids::Micros;
use engine::timings::Connection;

use super::{Cell, Table, View, int4, int8, text};

pub(super) static TIMINGS: Table<Line> = Table {
    name: "TIMINGS",
    about: "The last connections that have ended, the oldest first, if the key `connection_timings` is \
            set: those of clients that had logged in. Checkpoints are microseconds since accept, from the \
            clock of SHOW SLOW, and empty if they were not reached. `startup_us` ≤ `authenticated_us` ≤ \
            `welcomed_us` ≤ `sent_us`, and `authenticated_us` ≤ `queued_us` ≤ `linked_us` ≤ `applied_us` ≤ \
            `sent_us` ≤ `first_byte_us` ≤ `done_us`. In a direct pool, Weir does not see what happens \
            between `welcomed_us` and `done_us`. Weir's own.",
    columns: &[
        text(
            "database",
            |line| (&line.connection.identity.database).into(),
            "Name the client asked for.",
        ),
        text("user", |line| (&line.connection.identity.user).into(), "The user it logged in as."),
        int4(
            "client_id",
            |line| (line.connection.client & i32::MAX as u64).into(),
            "As `id` in SHOW CLIENTS.",
        ),
        text("time", |line| (&line.time).into(), "When the connection was accepted."),
        int8("epoch", |line| line.epoch.into(), "The same, in seconds since 1970."),
        int8(
            "startup_us",
            |line| line.since(line.connection.startup_at),
            "Until the startup packet was read. With TLS, that is after the handshake.",
        ),
        int8(
            "authenticated_us",
            |line| line.since(line.connection.authenticated_at),
            "Until the client was known and let in.",
        ),
        int8(
            "welcomed_us",
            |line| line.since(line.connection.welcomed_at),
            "Until it was told that it is logged in. In session mode, and for the first client of a \
             pool, that is after `applied_us`. In a direct pool, it goes to PostgreSQL's processes then.",
        ),
        int8(
            "queued_us",
            |line| line.since(line.connection.queued_at),
            "Until it asked for its first server: for its first request, or before it was welcomed.",
        ),
        text(
            "server",
            |line| line.connection.choice.word().into(),
            "That server. `new`: it was opened while the client waited. `evicting`: the same, and an \
             idle server of another pool was closed for its seat. `reused`: it was open. `stolen`: it \
             was open, and came from another worker. `direct`: a direct pool. Empty: there was none.",
        ),
        int8(
            "linked_us",
            |line| line.since(line.connection.linked_at),
            "Until the client got that server.",
        ),
        int8(
            "applied_us",
            |line| line.since(line.connection.applied_at),
            "Until that server had the client's settings.",
        ),
        int8(
            "sent_us",
            |line| line.since(line.connection.sent_at),
            "Until the first message of the first transaction was sent to its server.",
        ),
        int8(
            "first_byte_us",
            |line| line.since(line.connection.first_byte_at),
            "Until the server's first answer to it.",
        ),
        int8(
            "done_us",
            |line| line.since(line.connection.done_at),
            "Until the connection has ended.",
        ),
    ],
    rows: timings,
};

pub(super) struct Line {
    connection: Connection,
    time: String,
    epoch: u64,
}

impl Line {
    fn since(&self, at: Micros) -> Cell<'_> {
        match at {
            0 => Cell::Null,
            at => at.saturating_sub(self.connection.accepted_at).into(),
        }
    }
}

fn timings(view: View) -> Vec<Line> {
    let (mut recording, local_time) = (view.recording, view.snapshot.local_time);
    let connections = std::mem::take(&mut recording.connections);
    let line = |connection: Connection| {
        let epoch = recording.epoch(connection.accepted_at);
        let seconds = u64::try_from(epoch).unwrap_or(0);
        Line { connection, time: local_time(epoch), epoch: seconds }
    };
    connections.into_iter().map(line).collect()
}
