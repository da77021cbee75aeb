//! The findings from the texts of clients: SHOW FINGERPRINTS, SHOW ADVICE and SHOW REASONS,
//! which are Weir's own.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use config::PoolMode;
use engine::ids::PoolId;
use engine::watch::{advice, fingerprints};

use super::{Table, View, int8, text};
use crate::snapshot::PoolRow;

/// A row with the names of its pool.
pub(super) struct Line<R> {
    database: String,
    user: String,
    pool_mode: PoolMode,
    row: R,
}

pub(super) static FINGERPRINTS: Table<Line<fingerprints::Row>> = Table {
    name: "FINGERPRINTS",
    about: "With `fingerprints = 1`, a row for each database, user and fingerprint, those that took \
            the most time first. Each worker keeps its 500 most frequent ones. A request counts with \
            its first text that does more than begin or end a transaction. Weir's own.",
    columns: &[
        text("database", |line| (&line.database).into(), "Name clients ask for."),
        text("user", |line| (&line.user).into(), "The user the servers are logged in as."),
        text(
            "fingerprint",
            |line| format!("{:016x}", line.row.text.fingerprint).into(),
            "`left(md5(TEXT), 16)` of the text without its literals, as the column `text` shows it. \
             SHOW PINS and SHOW SLOW have the same fingerprint for the same text.",
        ),
        int8("count", |line| line.row.count.into(), "Requests that were counted."),
        int8(
            "missed",
            |line| line.row.missed.into(),
            "Upper bound of the requests that came before the fingerprint had a place in the table.",
        ),
        int8("time", |line| line.row.time.into(), "Microseconds of all counted requests."),
        int8(
            "mean",
            |line| line.row.time.checked_div(line.row.count).unwrap_or(0).into(),
            "Microseconds of a request.",
        ),
        int8(
            "p99",
            |line| line.row.times.per_mille(990).into(),
            "99 of 100 requests took at most this many microseconds; exact to a factor of 2.",
        ),
        int8("received", |line| line.row.received.into(), "Bytes from clients."),
        int8("sent", |line| line.row.sent.into(), "Bytes from servers."),
        text(
            "text",
            |line| (&*line.row.text.sample).into(),
            "The first 200 characters of the text, with `?` for literals and parameters.",
        ),
    ],
    rows: |view| {
        let rows = view.snapshot.watched.iter().flat_map(|watched| &watched.fingerprints);
        let rows = merged(
            rows.cloned(),
            |row| (row.pool, row.text.fingerprint),
            |own, other| own.add(other),
        );
        let mut lines = with_pools(&view, rows, |row| row.pool);
        lines.sort_by_key(|line| Reverse(line.row.time));
        lines
    },
};

pub(super) static ADVICE: Table<Line<advice::PoolRow>> = Table {
    name: "ADVICE",
    about: "With `advise = 1`, a row for each pool that is not in auto mode: what auto mode would do \
            with its clients. All numbers are upper bounds, since `advise` was set. Weir's own.",
    columns: &[
        text("database", |line| (&line.database).into(), "Name clients ask for."),
        text("user", |line| (&line.user).into(), "The user the servers are logged in as."),
        text("pool_mode", |line| line.pool_mode.word().into(), "The pool's present mode."),
        int8("clients", |line| line.row.clients.into(), "Clients that have sent a request."),
        int8(
            "sharing",
            |line| (line.row.clients - line.row.pinned - line.row.possibly).into(),
            "Those of them whose texts show nothing that pins.",
        ),
        int8(
            "pinned",
            |line| line.row.pinned.into(),
            "Clients that would be pinned: see SHOW REASONS.",
        ),
        int8(
            "possibly_pinned",
            |line| line.row.possibly.into(),
            "Other clients that may be pinned: their texts alone cannot tell.",
        ),
        int8(
            "transactions",
            |line| line.row.transactions.into(),
            "The highest number of transactions at the same time.",
        ),
        int8(
            "servers",
            |line| line.row.servers.into(),
            "The highest number of clients in a transaction or pinned at the same time. A pool of \
             this size is enough, unless clients are possibly pinned.",
        ),
        int8(
            "servers_max",
            |line| line.row.servers_possible.into(),
            "The same, with those that are possibly pinned: a pool of this size is enough.",
        ),
    ],
    rows: |view| {
        let rows = view.snapshot.watched.iter().flat_map(|watched| &watched.pools);
        let rows = merged(rows.copied(), |row| row.pool, |own, other| own.add(other));
        let mut lines = with_pools(&view, rows, |row| row.pool);
        lines.sort_by(|a, b| (&a.database, &a.user).cmp(&(&b.database, &b.user)));
        lines
    },
};

pub(super) static REASONS: Table<Line<advice::ReasonRow>> = Table {
    name: "REASONS",
    about: "With `advise = 1`, the reasons for SHOW ADVICE, by text: at most 1,024 for each worker. \
            Weir's own.",
    columns: &[
        text("database", |line| (&line.database).into(), "Name clients ask for."),
        text("user", |line| (&line.user).into(), "The user the servers are logged in as."),
        text(
            "effect",
            |line| line.row.reason.effect().words().into(),
            "`pinned`: the client would keep its server. `possibly pinned`: the text alone cannot \
             tell. `carried`: the client would share servers, and Weir would restore this state. \
             `not kept`: the client would share servers, and the next one has another process id.",
        ),
        text(
            "reason",
            |line| line.row.reason.words().into(),
            "As in SHOW PINS. `unknown function`: a function that is not PostgreSQL's own, or a block \
             of code. `unknown statement`: it was prepared before `advise` was set.",
        ),
        int8(
            "clients",
            |line| line.row.clients.into(),
            "Clients for which this was the first text with this effect and reason.",
        ),
        int8("count", |line| line.row.count.into(), "How often it was run."),
        text(
            "application_name",
            |line| (&*line.row.application).into(),
            "The `application_name` of the first client that ran it.",
        ),
        text(
            "fingerprint",
            |line| line.row.text.as_ref().map(|text| format!("{:016x}", text.fingerprint)).into(),
            "As in SHOW FINGERPRINTS; NULL if the text is not known.",
        ),
        text(
            "text",
            |line| line.row.text.as_ref().map(|text| &*text.sample).into(),
            "As in SHOW FINGERPRINTS.",
        ),
    ],
    rows: |view| {
        let rows = view.snapshot.watched.iter().flat_map(|watched| &watched.reasons);
        let key = |row: &advice::ReasonRow| {
            (row.pool, row.reason, row.text.as_ref().map(|text| text.fingerprint))
        };
        let rows = merged(rows.cloned(), key, |own, other| {
            own.clients += other.clients;
            own.count += other.count;
        });
        let mut lines = with_pools(&view, rows, |row| row.pool);
        lines.sort_by(|a, b| {
            let pool = (&a.database, &a.user).cmp(&(&b.database, &b.user));
            let effect = a.row.reason.effect().cmp(&b.row.reason.effect());
            let size = |line: &Line<advice::ReasonRow>| Reverse((line.row.clients, line.row.count));
            pool.then(effect).then_with(|| size(a).cmp(&size(b)))
        });
        lines
    },
};

/// Adds up the rows of all workers.
fn merged<R, K: std::hash::Hash + Eq>(
    rows: impl Iterator<Item = R>,
    key: impl Fn(&R) -> K,
    add: impl Fn(&mut R, &R),
) -> Vec<R> {
    let mut all = HashMap::new();
    for row in rows {
        match all.entry(key(&row)) {
            Entry::Vacant(place) => drop(place.insert(row)),
            Entry::Occupied(mut own) => add(own.get_mut(), &row),
        }
    }
    all.into_values().collect()
}

fn with_pools<R>(view: &View, rows: Vec<R>, pool: impl Fn(&R) -> PoolId) -> Vec<Line<R>> {
    let pools: HashMap<PoolId, &PoolRow> =
        view.snapshot.pools.iter().map(|pool| (pool.id, pool)).collect();
    let line = |row: R| {
        let of = pools.get(&pool(&row))?;
        let (database, user) = (of.database.clone(), of.user.clone());
        Some(Line { database, user, pool_mode: of.pool_mode, row })
    };
    rows.into_iter().filter_map(line).collect()
}
