//! The SHOW commands. Each is one [`Table`]: its columns with their types and meaning, and the
//! rows made from a [`View`]. To add a SHOW, write its table and list it in [`ALL`].

mod cell;
mod config;
mod connections;
mod databases;
mod dns;
mod fds;
mod lists;
mod mem;
mod peers;
mod pins;
mod pools;
mod sockets;
mod state;
mod stats;
mod totals;
mod users;
mod version;

use std::collections::BTreeSet;
use std::fmt;

pub(crate) use self::cell::{Cell, Kind};
use crate::NAME;
use crate::snapshot::{ClientRow, Snapshot};

/// Every SHOW that gives rows, in the order of the documentation.
pub(crate) static ALL: [&dyn Show; 22] = [
    &version::VERSION,
    &state::STATE,
    &config::CONFIG,
    &databases::DATABASES,
    &pools::POOLS,
    &connections::CLIENTS,
    &connections::SERVERS,
    &sockets::SOCKETS,
    &sockets::ACTIVE_SOCKETS,
    &users::USERS,
    &fds::FDS,
    &pins::PINS,
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
];

/// The source of the rows.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    /// The clients of the console.
    pub(crate) consoles: Vec<ClientRow>,
    /// Connections of the console so far that have asked anything.
    pub(crate) sessions: u64,
    /// Connections of the console so far.
    pub(crate) logins: u64,
}

/// A column apart from how its cells are filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its description, for the documentation.
    pub(crate) about: &'static str,
}

/// A [`Table`] whose row type does not matter.
pub(crate) trait Show: Sync {
    /// In upper case.
    fn name(&self) -> &'static str;
    fn about(&self) -> &'static str;

    /// Is it refused to those who may only look?
    fn needs_admin(&self) -> bool {
        self.name() == fds::FDS.name
    }

    fn heads(&self) -> Vec<Head>;
    /// Calls `emit` with the cells of each row.
    fn rows(&self, view: View, emit: &mut dyn FnMut(&[Cell<'_>]));
}

impl fmt::Debug for dyn Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The definition of one SHOW. `R` is what one row is made from.
struct Table<R: 'static> {
    name: &'static str,
    about: &'static str,
    columns: &'static [Column<R>],
    /// Takes the view apart, in the order the rows are printed.
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

/// Columns of one table and those that another has behind them.
const fn joined<R, const N: usize>(first: &[Column<R>], then: &[Column<R>]) -> [Column<R>; N] {
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { then[at - first.len()] };
        at += 1;
    }
    all
}

const fn text<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Text, about }, cell }
}

const fn int4<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Int4, about }, cell }
}

const fn int8<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Int8, about }, cell }
}

const fn numeric<R>(
    name: &'static str,
    cell: for<'a> fn(&'a R) -> Cell<'a>,
    about: &'static str,
) -> Column<R> {
    Column { head: Head { name, kind: Kind::Numeric, about }, cell }
}

impl View {
    /// The databases that SHOW DATABASES lists, by name: those configured, and those made from the
    /// entry `*` that are in use, or paused or disabled, which nobody would know of otherwise. The
    /// console's own is not among them.
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

/// Whole seconds, and the microseconds beyond them.
fn split_micros(micros: u64) -> (u64, u64) {
    (micros / 1_000_000, micros % 1_000_000)
}
