//! The rows against a real PostgreSQL: their names and what they measure.

use std::fmt;

use anyhow::Result;

use crate::named::{self, Named};
use crate::run::{Key, Setting, Tls, Workers};

/// The default number of clients. It exceeds the 20 servers of a pooler, as in most installations.
const CLIENTS: usize = 50;
/// The minimum time of a measurement, in seconds, for rows about rare or slow events.
const SECONDS_MIN: u32 = 10;

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) scene: Scene,
    /// pgbench's options, which `weir bench` understands as well.
    pub(super) options: &'static [&'static str],
    /// A script that replaces the built-in one.
    pub(super) script: Option<&'static str>,
    /// The number of clients, or `None` for that of --fleet.
    clients: Option<usize>,
    /// The size of a pooler's pool.
    pub(super) servers: u32,
    /// Transactions per second; `None` for as many as possible.
    pub(super) rate: Option<u32>,
    pub(super) tls: Tls,
    /// True if the poolers connect to PostgreSQL through its unix socket.
    pub(super) unix: bool,
    /// Of Weir's.
    pub(super) workers: Workers,
    pub(super) library: Use,
    pub(super) beside: Beside,
    /// True if the row is measured only when it is named.
    is_extra: bool,
    what: &'static str,
}

/// The scene of a measurement: an activity besides the load, or in place of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    Nothing,
    /// All servers but one are held by clients that idle in a transaction.
    Held,
    /// One more client works in the same pool.
    Among,
    /// One more client works as another user in another database.
    Apart,
    /// One more client sends requests to the only server without ever waiting for answers.
    Ahead,
    /// The size of the page tables of all backend processes is measured.
    Pages,
    /// PostgreSQL's CPU time is profiled.
    Profile,
    /// A large table is copied in place of the load.
    Copy(Way),
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

impl Scene {
    /// Returns whether any generator can do this scene. The other scenes need `weir bench`.
    pub(super) fn is_for_any_generator(self) -> bool {
        matches!(self, Self::Nothing | Self::Copy(_))
    }
}

/// The use of the library `weir` in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Nothing,
    /// Weir is measured with direct pools as well.
    DirectPools,
    /// The server runs the pooler itself, and it is measured in Weir's place.
    Pooler,
    /// The server runs the pooler itself, and it is measured with direct pools as well.
    PoolerDirect,
}

impl Use {
    /// Returns whether the server runs the pooler.
    pub(super) fn is_pooler(self) -> bool {
        matches!(self, Self::Pooler | Self::PoolerDirect)
    }

    /// Returns whether direct pools are measured as well.
    pub(super) fn is_direct(self) -> bool {
        matches!(self, Self::DirectPools | Self::PoolerDirect)
    }
}

/// The second comparison of a pooler's figures, besides that with the other pooler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Beside {
    Nothing,
    /// Compares transactions per second with a direct connection. `proposed` is the ratio of the proposal
    /// of 2019.
    Direct {
        proposed: f64,
    },
    /// Compares transactions per second of a direct pool with all other sides.
    DirectPool {
        by_pgbouncer: f64,
    },
    /// Compares transactions per second with those of `row`, which has few clients.
    Few {
        row: &'static str,
        least: f64,
    },
    /// Compares a side's own 99th percentile with its median: the tail that its queue makes.
    Tail {
        most: f64,
    },
    /// Compares the median latency. It may be longer by `more_max` milliseconds at most.
    Latency {
        more_max: f64,
    },
}

/// Reads a thousand rows of a hundred bytes each.
const THOUSAND_ROWS: &str = "\\set first random(1, 100000 * :scale - 999)\n\
     SELECT * FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 999;\n";
/// A query that needs no tables.
pub(super) const ONE: &str = "SELECT 1;\n";
/// Keeps servers busy, but no processor.
const ASLEEP: &str = "SELECT pg_sleep(0.02);\n";
/// Reads the first row of each page of the accounts by its position. A sequential scan of the whole
/// table would use only a few buffers.
const EVERY_PAGE: &str = "SELECT sum(abalance) FROM pgbench_accounts WHERE ctid = ANY (ARRAY( \
     SELECT format('(%s,1)', page)::tid FROM generate_series(0, pg_relation_size('pgbench_accounts') \
     / current_setting('block_size')::int - 1) AS page));\n";

const fn row(name: &'static str, options: &'static [&'static str], what: &'static str) -> Row {
    Row {
        name,
        scene: Scene::Nothing,
        options,
        script: None,
        clients: Some(CLIENTS),
        servers: Setting::SERVERS,
        rate: None,
        tls: Tls::None,
        unix: false,
        workers: Workers::One,
        library: Use::Nothing,
        beside: Beside::Nothing,
        is_extra: false,
        what,
    }
}

/// A row with so many clients that a pooler can serve only few of them at once.
const fn many(
    name: &'static str,
    options: &'static [&'static str],
    clients: usize,
    few: &'static str,
) -> Row {
    Row {
        clients: Some(clients),
        servers: 56,
        beside: Beside::Few { row: few, least: 0.95 },
        is_extra: true,
        ..row(name, options, "56 servers, all they can")
    }
}

/// A row in which nearly all clients wait for a server at any time.
const fn tail(name: &'static str, clients: usize) -> Row {
    Row {
        clients: Some(clients),
        beside: Beside::Tail { most: 1.1 },
        is_extra: true,
        ..row(name, &["-S"], "one select, a full pool")
    }
}

/// A row of the table of the proposal of 2019. It has as many servers as two proxies with pools of four.
const fn proposal(name: &'static str, clients: usize, proposed: f64) -> Row {
    Row {
        clients: Some(clients),
        servers: 8,
        beside: Beside::Direct { proposed },
        is_extra: true,
        ..row(name, &["-S"], "8 servers, one select")
    }
}

/// A row of the proposal of 2019 with the pooler in the server: two workers with pools of four.
const fn builtin(name: &'static str, proposal: Row) -> Row {
    Row { name, library: Use::Pooler, what: "the pooler in the server, one select", ..proposal }
}

/// A row of the proposal of 2019 with the pooler in the server and a direct pool.
const fn builtin_direct(name: &'static str, proposal: Row) -> Row {
    let what = "the pooler in the server with a direct pool, one select";
    Row { name, library: Use::PoolerDirect, what, ..proposal }
}

/// A row of direct pools. `by_pgbouncer` is the least ratio of transactions per second.
const fn direct(row: Row, clients: usize, by_pgbouncer: f64) -> Row {
    Row {
        clients: Some(clients),
        library: Use::DirectPools,
        beside: Beside::DirectPool { by_pgbouncer },
        is_extra: true,
        ..row
    }
}

const fn direct_simple(name: &'static str, clients: usize, by_pgbouncer: f64) -> Row {
    direct(row(name, &["-S"], "one select"), clients, by_pgbouncer)
}

const fn direct_prepared(name: &'static str, clients: usize) -> Row {
    direct(row(name, &["-S", "-M", "prepared"], "one select, prepared"), clients, 1.5)
}

/// A row with ten clients, so that the pooler is seldom busy and wakes up for nearly every message.
const fn ten(
    name: &'static str,
    options: &'static [&'static str],
    script: Option<&'static str>,
    what: &'static str,
) -> Row {
    Row {
        clients: Some(10),
        script,
        workers: Workers::Two("load-balancing"),
        is_extra: true,
        ..row(name, options, what)
    }
}

/// A row of the table of the proposal of 2019, over TLS.
const fn proposal_tls(name: &'static str, clients: usize, proposed: f64) -> Row {
    Row {
        tls: SECURED,
        what: "8 servers, one select over TLS",
        ..proposal(name, clients, proposed)
    }
}

const fn copy(name: &'static str, way: Way, what: &'static str) -> Row {
    Row { scene: Scene::Copy(way), clients: Some(1), ..row(name, &[], what) }
}

const fn fleet(name: &'static str, scene: Scene, what: &'static str) -> Row {
    Row { scene, clients: None, is_extra: true, ..row(name, &["-S"], what) }
}

const SECURED: Tls = Tls::Fresh(Key::P256);

pub(super) static ROWS: [Row; 70] = [
    row("select-simple", &["-S"], "one select, simple protocol"),
    row("select-extended", &["-S", "-M", "extended"], "one select, extended protocol"),
    row("select-prepared", &["-S", "-M", "prepared"], "one select, prepared"),
    row("tpcb", &[], "TPC-B"),
    row("simple-update", &["-N"], "TPC-B without tellers and branches"),
    row("simple-update-prepared", &["-N", "-M", "prepared"], "the same, prepared"),
    row("connect", &["-S", "-C"], "a login for each select"),
    Row { tls: SECURED, ..row("tls-select", &["-S"], "one select over TLS") },
    Row { tls: SECURED, ..row("tls-connect", &["-S", "-C"], "a login over TLS for each select") },
    Row { script: Some(THOUSAND_ROWS), ..row("rows-1000", &[], "a thousand rows") },
    copy("copy-out", Way::Out, "100 MB from a table to psql"),
    copy("copy-in", Way::In, "100 MB from psql into a table"),
    Row { rate: Some(2_000), ..row("latency-2000", &["-S"], "selects at a fixed rate") },
    Row { rate: Some(200), ..row("latency-tpcb-200", &["-N"], "updates at a fixed rate") },
    Row { clients: Some(1_000), ..row("saturation-1000", &["-S"], "selects, all they can") },
    many("select-64", &["-S"], 64, "select-64"),
    many("select-512", &["-S"], 512, "select-64"),
    many("select-2048", &["-S"], 2_048, "select-64"),
    many("select-8192", &["-S"], 8_192, "select-64"),
    many("select-19900", &["-S"], 19_900, "select-64"),
    many("tpcb-64", &[], 64, "tpcb-64"),
    many("tpcb-512", &[], 512, "tpcb-64"),
    many("tpcb-2048", &[], 2_048, "tpcb-64"),
    many("tpcb-8192", &[], 8_192, "tpcb-64"),
    many("tpcb-19900", &[], 19_900, "tpcb-64"),
    tail("tail-1000", 1_000),
    tail("tail-10000", 10_000),
    proposal("proposal-1", 1, 0.79),
    proposal("proposal-10", 10, 0.78),
    proposal("proposal-1000", 1_000, 1.00),
    proposal_tls("proposal-tls-1", 1, 0.79),
    proposal_tls("proposal-tls-10", 10, 0.69),
    proposal_tls("proposal-tls-1000", 1_000, 0.85),
    builtin("builtin-1", proposal("", 1, 0.79)),
    builtin("builtin-10", proposal("", 10, 0.78)),
    builtin("builtin-1000", proposal("", 1_000, 1.00)),
    builtin("builtin-tls-1", proposal_tls("", 1, 0.79)),
    builtin("builtin-tls-10", proposal_tls("", 10, 0.69)),
    builtin("builtin-tls-1000", proposal_tls("", 1_000, 0.85)),
    builtin_direct("builtin-direct-1", proposal("", 1, 0.79)),
    builtin_direct("builtin-direct-10", proposal("", 10, 0.78)),
    builtin_direct("builtin-direct-1000", proposal("", 1_000, 1.00)),
    direct_simple("direct-1", 1, 1.0),
    direct_simple("direct-10", 10, 1.0),
    direct_simple("direct-19", 19, 1.0),
    direct_simple("direct-20", 20, 1.0),
    direct_simple("direct-21", 21, 1.0),
    direct_simple("direct-100", 100, 1.4),
    direct_simple("direct-500", 500, 1.5),
    direct_simple("direct-5000", 5_000, 1.5),
    direct_simple("direct-15000", 15_000, 1.5),
    direct_simple("direct-19000", 19_000, 1.5),
    direct_prepared("direct-prepared-10", 10),
    direct_prepared("direct-prepared-100", 100),
    direct_prepared("direct-prepared-500", 500),
    direct(row("direct-tpcb", &[], "TPC-B"), CLIENTS, 1.0),
    direct(
        Row { script: Some(THOUSAND_ROWS), ..row("direct-rows-1000", &[], "a thousand rows") },
        CLIENTS,
        1.0,
    ),
    direct(copy("direct-copy-out", Way::Out, "100 MB from a table to psql"), 1, 1.0),
    direct(copy("direct-copy-in", Way::In, "100 MB from psql into a table"), 1, 1.0),
    direct(
        Row { rate: Some(2_000), ..row("direct-latency-2000", &["-S"], "selects at a fixed rate") },
        CLIENTS,
        1.0,
    ),
    ten("ten-rows-1000", &[], Some(THOUSAND_ROWS), "two workers, a thousand rows"),
    ten("ten-connect", &["-S", "-C"], None, "two workers, a login for each select"),
    fleet("fleet-held", Scene::Held, "19 of 20 servers held in a transaction, one select"),
    fleet("fleet-among", Scene::Among, "one select, and one more client in their pool"),
    Row {
        script: Some(ASLEEP),
        options: &[],
        ..fleet("fleet-apart", Scene::Apart, "20 ms of sleep, and one more client in another pool")
    },
    Row {
        clients: Some(1),
        servers: 1,
        script: Some(ONE),
        options: &[],
        library: Use::DirectPools,
        ..fleet("turns", Scene::Ahead, "SELECT 1 beside a client that sends without waiting")
    },
    fleet("fleet-apart-busy", Scene::Apart, "one select, and one more client in another pool"),
    Row {
        clients: Some(200),
        script: Some(EVERY_PAGE),
        options: &[],
        ..fleet("fleet-pages", Scene::Pages, "every page of the accounts, tables for the memory")
    },
    Row {
        clients: Some(1),
        script: Some(ONE),
        options: &[],
        unix: true,
        beside: Beside::Latency { more_max: 0.04 },
        ..fleet("fleet-one", Scene::Nothing, "SELECT 1, the server over its unix socket")
    },
    Row {
        clients: Some(1_000),
        ..fleet("fleet-profile", Scene::Profile, "one select, where PostgreSQL's time goes by perf")
    },
];

impl Row {
    pub(super) fn is_prepared(&self) -> bool {
        self.options.contains(&"prepared")
    }

    /// Returns the number of clients, which is `fleet` if the row does not define it.
    pub(super) fn clients(&self, fleet: usize) -> usize {
        self.clients.unwrap_or(fleet)
    }

    /// Returns the row's name and description. Without `clients`, it says that --fleet defines
    /// their number.
    pub(super) fn title(&self, clients: Option<usize>) -> String {
        let clients = match clients {
            Some(1) => "1 client".to_owned(),
            Some(clients) => format!("{clients} clients"),
            None => "--fleet clients".to_owned(),
        };
        let rate = self.rate.map_or_else(String::new, |rate| format!(" of {rate} a second"));
        format!("{:<23} {clients}, {}{rate}", self.name, self.what)
    }

    /// Returns the seconds of a measurement, if `asked` seconds are wanted.
    pub(super) fn seconds(&self, asked: u32) -> u32 {
        if self.rate.is_some() || !self.scene.is_for_any_generator() {
            return asked.max(SECONDS_MIN);
        }
        asked
    }

    /// Returns whether the row is about pools, so that a direct connection cannot be measured.
    pub(super) fn needs_pool(&self) -> bool {
        matches!(self.scene, Scene::Held | Scene::Among | Scene::Apart | Scene::Ahead)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title(self.clients))
    }
}

impl Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Returns the rows with the given names, or all that are not extra.
pub(super) fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(ROWS.iter().filter(|row| !row.is_extra).collect());
    }
    named::select(&ROWS, names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(asked: &str) -> Vec<&'static str> {
        select(&[asked.to_owned()]).unwrap().iter().map(|row| row.name).collect()
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_is_found_by_it() {
        let all: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(all.len(), ROWS.len());
        assert_eq!(names("tpcb"), ["tpcb"]);
        assert_eq!(select(&["tpcb-64".to_owned()]).unwrap()[0].servers, 56);
        assert_eq!(select(&[]).unwrap().len(), 15, "the extra ones only by name");
        assert!(select(&["tpcc".to_owned()]).is_err());
    }

    #[test]
    fn a_prefix_selects_a_group_of_rows() {
        assert_eq!(names("latency"), ["latency-2000", "latency-tpcb-200"]);
        assert_eq!(names("proposal").len(), 6);
        assert_eq!(names("builtin").len(), 9);
        assert_eq!(
            names("proposal-tls"),
            ["proposal-tls-1", "proposal-tls-10", "proposal-tls-1000"]
        );
    }
}
