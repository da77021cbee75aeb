//! SHOW SLOW, SHOW RECORDER and SHOW EVENTS, which are Weir's own: the content of the flight recorder.

use std::sync::Arc;

use engine::journal::Entry;
use engine::recorder::Second;
use engine::settings::PoolKey;
use engine::transactions::Transaction;

use super::{Table, View, int4, int8, text};

/// The transactions that SHOW SLOW shows.
const SLOW_MAX: usize = 100;

pub(super) static SLOW: Table<Slow> = Table {
    name: "SLOW",
    about: "The 100 slowest of the transactions that Weir remembers, the slowest first: of those that \
            took at least a millisecond, the last 256 of each worker, and the 8 slowest of each minute \
            of the last hour. A transaction that has not ended is not here; see SHOW WAITS. Stages are microseconds since the client asked for a \
            server: `linked_us` ≤ `applied_us` ≤ `sent_us` ≤ `first_byte_us` ≤ `duration_us`. Weir's own.",
    columns: &[
        text("database", |line| (&line.key.database).into(), "Name clients ask for."),
        text("user", |line| (&line.key.user).into(), "The user the server is logged in as."),
        int4(
            "client_id",
            |line| (line.transaction.client & i32::MAX as u64).into(),
            "As `id` in SHOW CLIENTS.",
        ),
        text(
            "application_name",
            |line| name(&line.transaction).into(),
            "The client's `application_name`, cut to 24 bytes.",
        ),
        text("time", |line| (&line.time).into(), "When the client asked for a server."),
        int8("epoch", |line| seconds(line.epoch), "The same, in seconds since 1970."),
        int8("duration_us", |line| line.transaction.done.into(), "Until the transaction was over."),
        int8(
            "linked_us",
            |line| line.transaction.linked.into(),
            "Until the client got a server: its wait. 0 if it had kept the server.",
        ),
        int8(
            "applied_us",
            |line| line.transaction.applied.into(),
            "Until the server had the client's settings.",
        ),
        int8(
            "sent_us",
            |line| line.transaction.sent.into(),
            "Until the first message was sent to the server.",
        ),
        int8(
            "first_byte_us",
            |line| line.transaction.first_byte.into(),
            "Until the server's first answer; 0 if there was none.",
        ),
        int8(
            "busy_us",
            |line| line.transaction.busy.into(),
            "The time in which a query was running. The rest of the time after `sent_us`, the server \
             was idle in transaction.",
        ),
        text(
            "end",
            |line| if line.transaction.is_complete { "complete" } else { "cut" }.into(),
            "`cut`: the client or its server has left within the transaction.",
        ),
        text(
            "fingerprint",
            |line| fingerprint(&line.transaction).into(),
            "The fingerprint of SHOW FINGERPRINTS, for the query that took longest, together with \
             the client's pause after it. Empty if the query is not known.",
        ),
    ],
    rows: slow,
};

pub(super) static RECORDER: Table<Line> = Table {
    name: "RECORDER",
    about: "The flight recorder: a row for each pool and second of the last hour in which the pool had \
            a server, a waiting client or an error. 32 pools have rows of their own; all others are \
            summed as `other`. An online restart begins anew. Weir's own.",
    columns: &[
        int8("epoch", |line| seconds(line.epoch), "Seconds since 1970."),
        text("database", |line| (&*line.database).into(), "Name clients ask for."),
        text("user", |line| (&*line.user).into(), "The user the servers are logged in as."),
        int8("waiting", |line| line.second.waiting.into(), "Clients that wait for a server."),
        int8(
            "maxwait_ms",
            |line| line.second.maxwait.into(),
            "How long the first of them has waited.",
        ),
        int4("active", |line| line.second.active.into(), "Servers with a request under way."),
        int4(
            "in_transaction",
            |line| line.second.in_transaction.into(),
            "Servers whose clients are idle in transaction.",
        ),
        int4(
            "kept",
            |line| line.second.kept.into(),
            "Servers that their clients keep without a transaction: pinned, or in session mode.",
        ),
        int4("idle", |line| line.second.idle.into(), "Servers without a client."),
        int4("opening", |line| line.second.opening.into(), "Servers that are not logged in yet."),
        int4("errors", |line| line.second.errors.into(), "Errors, as in SHOW EVENTS."),
        int8(
            "transactions",
            |line| line.second.transactions.into(),
            "Transactions begun in this second.",
        ),
        int8("queries", |line| line.second.queries.into(), "Queries begun in this second."),
    ],
    rows: seconds_of_pools,
};

pub(super) static EVENTS: Table<Event> = Table {
    name: "EVENTS",
    about: "The events of the last hour, the oldest first: at most 512 errors, 512 pins, and 512 others. \
            Equal errors within 10 seconds are one row, and equal pins within a minute. Weir's own.",
    columns: &[
        text("time", |line| (&line.time).into(), "When it happened, or for the first time."),
        int8("epoch", |line| seconds(line.epoch), "The same, in seconds since 1970."),
        int8("last_epoch", |line| seconds(line.last_epoch), "When it happened for the last time."),
        int8("count", |line| line.entry.count.into(), "How often."),
        text(
            "event",
            |line| line.entry.kind.words().into(),
            "The kind of the event. `restart`: the process has taken over from another one. `order`: a \
             command of the console, or a signal. The others are `start`, `shutdown`, `reload`, \
             `reload failed`, `server down`, `server up`, `primary lost` and `primary found`. `pin`: a client keeps its server from now \
             on, as SHOW PINS tells. Errors are `client error` (Weir has ended a client), `login \
             failed`, `server failed` and `server login failed`.",
        ),
        text(
            "database",
            |line| (&*line.entry.database).into(),
            "Empty if the event concerns none.",
        ),
        text("user", |line| (&*line.entry.user).into(), "Empty if the event concerns none."),
        text(
            "text",
            |line| (&*line.entry.text).into(),
            "The text of the log line, cut to 200 bytes. Of a pin: the reasons, and the fingerprint of the \
             text.",
        ),
    ],
    rows: events,
};

pub(super) struct Slow {
    key: PoolKey,
    transaction: Transaction,
    time: String,
    epoch: i64,
}

pub(super) struct Line {
    database: Arc<str>,
    user: Arc<str>,
    epoch: i64,
    second: Second,
}

pub(super) struct Event {
    entry: Entry,
    time: String,
    epoch: i64,
    last_epoch: i64,
}

fn slow(view: View) -> Vec<Slow> {
    let (mut recording, local_time) = (view.recording, view.snapshot.local_time);
    let mut transactions = std::mem::take(&mut recording.transactions);
    transactions.sort_by_key(|(_, transaction)| std::cmp::Reverse(transaction.done));
    transactions.truncate(SLOW_MAX);
    let line = |(key, transaction): (PoolKey, Transaction)| {
        let epoch = recording.epoch(transaction.queued_at);
        Slow { key, transaction, time: local_time(epoch), epoch }
    };
    transactions.into_iter().map(line).collect()
}

fn seconds_of_pools(view: View) -> Vec<Line> {
    let mut lines = Vec::new();
    for track in &view.recording.tracks {
        let ages = (0..track.seconds.len() as u64).rev();
        for (second, age) in track.seconds.iter().zip(ages) {
            if *second != Second::default() {
                let (database, user) = (track.database.clone(), track.user.clone());
                let epoch = view.recording.wall.saturating_sub_unsigned(age);
                lines.push(Line { database, user, epoch, second: *second });
            }
        }
    }
    lines.sort_by_key(|line| line.epoch);
    lines
}

fn events(view: View) -> Vec<Event> {
    let (mut recording, local_time) = (view.recording, view.snapshot.local_time);
    let entries = std::mem::take(&mut recording.events);
    let line = |entry: Entry| {
        let epoch = recording.epoch(entry.first_at);
        let last_epoch = recording.epoch(entry.last_at);
        Event { entry, time: local_time(epoch), epoch, last_epoch }
    };
    entries.into_iter().map(line).collect()
}

fn name(transaction: &Transaction) -> String {
    String::from_utf8_lossy(transaction.name.as_bytes()).into_owned()
}

fn fingerprint(transaction: &Transaction) -> String {
    match transaction.fingerprint {
        0 => String::new(),
        known => format!("{known:016x}"),
    }
}

fn seconds(epoch: i64) -> super::Cell<'static> {
    u64::try_from(epoch).unwrap_or(0).into()
}
