//! The SHOW commands. Each is one [`Table`]: its columns with their types and meaning, and the
//! rows made from a [`View`]. To add a SHOW, write its table and list it in [`ALL`].

mod cell;
mod clusters;
mod config;
mod connections;
pub(crate) mod databases;
mod dns;
mod fds;
mod health;
mod lists;
mod mem;
mod peers;
mod pgpool;
mod pins;
mod pools;
mod recorder;
mod routes;
mod sockets;
mod state;
mod stats;
mod summary;
mod timings;
mod totals;
mod users;
mod version;
mod waits;
mod watched;
mod workers;

use std::collections::BTreeSet;
use std::fmt;

pub(crate) use self::cell::{Cell, Kind};
use crate::NAME;
use crate::recording::Recording;
use crate::snapshot::{ClientRow, Snapshot};

/// Every SHOW that gives rows, in the order of the documentation.
pub(crate) static ALL: [&dyn Show; 46] = [
    &version::VERSION,
    &state::STATE,
    &health::HEALTH,
    &config::CONFIG,
    &databases::DATABASES,
    &pools::POOLS,
    &summary::SUMMARY,
    &connections::CLIENTS,
    &connections::SERVERS,
    &sockets::SOCKETS,
    &sockets::ACTIVE_SOCKETS,
    &users::USERS,
    &fds::FDS,
    &pins::PINS,
    &waits::WAITS,
    &watched::FINGERPRINTS,
    &watched::ADVICE,
    &watched::REASONS,
    &recorder::SLOW,
    &timings::TIMINGS,
    &recorder::RECORDER,
    &recorder::EVENTS,
    &peers::PEERS,
    &peers::PEER_POOLS,
    &lists::LISTS,
    &dns::DNS_HOSTS,
    &dns::DNS_ZONES,
    &stats::STATS,
    &stats::STATS_TOTALS,
    &stats::STATS_AVERAGES,
    &totals::TOTALS,
    &mem::MEM,
    &workers::WORKERS,
    &clusters::CLUSTERS,
    &clusters::NODES,
    &clusters::MEMBERS,
    &clusters::FAILOVERS,
    &routes::ROUTES,
    &routes::NODE_POOLS,
    &pgpool::POOL_NODES,
    &pgpool::POOL_PROCESSES,
    &pgpool::POOL_POOLS,
    &pgpool::POOL_HEALTH_CHECK_STATS,
    &pgpool::POOL_BACKEND_STATS,
    &pgpool::POOL_VERSION,
    &pgpool::POOL_STATUS,
];

/// Returns the SHOW of this name, in upper case.
pub(crate) fn find(name: &str) -> Option<&'static dyn Show> {
    ALL.into_iter().find(|show| show.name() == name)
}

/// The source of the rows.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    /// As much of it as [`Show::needs`] says.
    pub(crate) recording: Recording,
    /// The clients of the console.
    pub(crate) consoles: Vec<ClientRow>,
    /// The number of console connections so far that have sent a query.
    pub(crate) sessions: u64,
    /// The number of console connections so far.
    pub(crate) logins: u64,
    /// Are Weir's own columns and rows shown, too?
    pub(crate) has_own: bool,
}

/// The part of a [`Recording`] that a SHOW needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Recording,
    Timings,
}

/// A column without the function that fills its cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its description, for the documentation.
    pub(crate) about: &'static str,
    /// PgBouncer 1.25.2 has no such column.
    pub(crate) is_own: bool,
}

/// A [`Table`] of any row type.
pub(crate) trait Show: Sync {
    /// Returns the name in upper case.
    fn name(&self) -> &'static str;
    fn about(&self) -> &'static str;

    /// Is it refused to users that may only SHOW (`stats_users`)?
    fn needs_admin(&self) -> bool {
        self.name() == fds::FDS.name
    }

    /// Returns what it shows besides a snapshot.
    fn needs(&self) -> Needs {
        let recorded = [recorder::SLOW.name, recorder::RECORDER.name, recorder::EVENTS.name];
        match self.name() {
            name if recorded.contains(&name) => Needs::Recording,
            name if name == timings::TIMINGS.name => Needs::Timings,
            _ => Needs::Nothing,
        }
    }

    /// Has it rows that PgBouncer 1.25.2 does not have?
    fn has_own_rows(&self) -> bool {
        self.name() == totals::TOTALS.name
    }

    fn heads(&self) -> Vec<Head>;
    /// Calls `emit` with the cells of each row.
    fn rows(&self, view: View, emit: &mut dyn FnMut(&[Cell<'_>]));
}

/// A SHOW with all of its columns, or with PgBouncer's only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected {
    pub(crate) show: &'static dyn Show,
    pub(crate) has_own: bool,
}

impl Selected {
    /// Returns the columns that are shown.
    pub(crate) fn heads(&self) -> Vec<Head> {
        self.show.heads().into_iter().filter(|head| self.includes(head)).collect()
    }

    /// Calls `emit` with the shown cells of each row.
    pub(crate) fn rows(&self, view: View, emit: &mut dyn FnMut(&[Cell<'_>])) {
        let shown: Vec<_> = self.show.heads().iter().map(|head| self.includes(head)).collect();
        self.show.rows(view, &mut |cells| {
            let shown = cells.iter().zip(&shown).filter(|(_, is_shown)| **is_shown);
            let cells: Vec<_> = shown.map(|(cell, _)| cell.clone()).collect();
            emit(&cells);
        });
    }

    /// Returns whether some columns or rows are left out.
    pub(crate) fn is_shortened(&self) -> bool {
        let has_all_rows = self.has_own || !self.show.has_own_rows();
        !has_all_rows || !self.show.heads().iter().all(|head| self.includes(head))
    }

    fn includes(&self, head: &Head) -> bool {
        self.has_own || !head.is_own
    }
}

impl fmt::Debug for dyn Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The definition of one SHOW. `R` is the source of one row.
struct Table<R: 'static> {
    name: &'static str,
    about: &'static str,
    columns: &'static [Column<R>],
    /// Converts the view to rows, in the printed order.
    rows: fn(View) -> Vec<R>,
}

struct Column<R> {
    head: Head,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> Show for Table<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn heads(&self) -> Vec<Head> {
        self.columns.iter().map(|column| column.head).collect()
    }

    fn rows(&self, view: View, emit: &mut dyn FnMut(&[Cell<'_>])) {
        for row in (self.rows)(view) {
            let cells: Vec<_> = self.columns.iter().map(|column| (column.cell)(&row)).collect();
            emit(&cells);
        }
    }
}

/// Joins the columns of two tables.
const fn joined<R, const N: usize>(first: &[Column<R>], then: &[Column<R>]) -> [Column<R>; N] {
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { then[at - first.len()] };
        at += 1;
    }
    all
}

/// Marks a column that PgBouncer 1.25.2 does not have.
const fn own<R>(column: Column<R>) -> Column<R> {
    Column { head: Head { is_own: true, ..column.head }, ..column }
}

const fn text<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Text, about, is_own: false }, cell }
}

const fn int4<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Int4, about, is_own: false }, cell }
}

const fn int8<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Int8, about, is_own: false }, cell }
}

const fn numeric<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Numeric, about, is_own: false }, cell }
}

impl View {
    /// Returns the names of the databases in SHOW DATABASES. These are the configured ones, and
    /// those made from the entry `*` that are in use, paused or disabled. The console's own is not
    /// included.
    fn database_names(&self) -> BTreeSet<&str> {
        let configured = self.snapshot.config.databases.keys().map(String::as_str);
        let clients = self.snapshot.clients.iter().map(|client| &client.connection);
        let servers = self.snapshot.servers.iter().map(|server| &server.connection);
        let used = clients.chain(servers).filter(|connection| connection.pool.is_some());
        configured
            .chain(used.map(|connection| connection.database.as_str()))
            .chain(self.snapshot.switches.switched().map(String::as_str))
            .filter(|name| *name != NAME)
            .collect()
    }
}

/// Returns whole seconds, and the remaining microseconds.
fn split_micros(micros: u64) -> (u64, u64) {
    (micros / 1_000_000, micros % 1_000_000)
}
