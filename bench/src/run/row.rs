//! The rows of the benchmark: their names and what they measure.

use std::fmt;

use anyhow::Result;

use super::binary::{Binary, Programs};
use super::workplace::{Key, Tls};
use crate::named::{self, Named};
use crate::pattern::Pattern;
use crate::traffic::{Protocol, Sessions};

/// A row of the benchmark.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) job: Job,
    pub(super) tls: Tls,
    pub(super) contest: Contest,
    /// True if the servers report the state of their sessions, as with the library.
    pub(super) reports: bool,
    /// True if the row is measured only when it is named.
    extra: bool,
}

/// The two sides of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contest {
    /// PgBouncer, and Weir.
    Poolers,
    /// Weir's transaction mode, and its auto mode, with clients that have such sessions.
    Modes(Sessions),
    /// Weir with one worker, and with two that get their clients by `schedule`. If `apart`, each
    /// worker has a core of its own, which it may have to share with the peers. Otherwise both
    /// share the pooler's core.
    Workers { apart: bool, schedule: &'static str },
    /// The relay, and Weir.
    Floor,
    /// PgBouncer, and the relay with io_uring.
    Ring,
}

/// The work of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// `clients` send one small select after another.
    Query { clients: usize, protocol: Protocol, unix: bool },
    /// Clients connect, log in and leave.
    Login { scram: bool },
    /// One client reads large results.
    Bulk { row_bytes: usize },
    /// `clients` do nothing.
    Idle { clients: usize },
    /// 200 clients work, and `coming` more connect at once.
    Storm { coming: usize },
    /// One client sends many more messages than usual, while another one sends queries.
    Flood(Pattern),
}

const fn query(name: &'static str, clients: usize, protocol: Protocol) -> Row {
    row(name, Job::Query { clients, protocol, unix: false })
}

const fn unix(name: &'static str, clients: usize) -> Row {
    Row {
        extra: clients != 200,
        ..row(name, Job::Query { clients, protocol: Protocol::Simple, unix: true })
    }
}

const fn row(name: &'static str, job: Job) -> Row {
    let (contest, reports) = (Contest::Poolers, false);
    Row { name, job, tls: Tls::None, contest, reports, extra: false }
}

const fn auto(name: &'static str, clients: usize, protocol: Protocol, modes: Sessions) -> Row {
    Row { contest: Contest::Modes(modes), ..query(name, clients, protocol) }
}

/// A row with 200 clients, in groups with equal settings.
const fn values(name: &'static str, groups: usize, at_work: usize) -> Row {
    auto(name, 200, Protocol::Simple, Sessions { groups, at_work })
}

/// A row like [`values`], whose servers have the library `weir`.
const fn reported(name: &'static str, groups: usize, at_work: usize) -> Row {
    Row { reports: true, ..values(name, groups, at_work) }
}

/// A row with 200 clients, for one worker and for two.
const fn workers(name: &'static str, protocol: Protocol, apart: bool) -> Row {
    let contest = Contest::Workers { apart, schedule: "load-balancing" };
    Row { contest, ..query(name, 200, protocol) }
}

/// A row that compares one worker with two that get their clients by `schedule`.
const fn schedule(name: &'static str, schedule: &'static str) -> Row {
    let contest = Contest::Workers { apart: false, schedule };
    Row { contest, extra: true, ..query(name, 200, Protocol::Simple) }
}

/// A row that compares the relay with Weir.
const fn floor(name: &'static str, clients: usize, unix: bool) -> Row {
    let job = Job::Query { clients, protocol: Protocol::Simple, unix };
    Row { contest: Contest::Floor, extra: true, ..row(name, job) }
}

/// A row that compares a mere bridge for TLS with Weir's proxied path for TLS.
const fn bridge(name: &'static str, clients: usize) -> Row {
    secured(floor(name, clients, true), Tls::Fresh(Key::P256))
}

/// A row that compares PgBouncer with the relay with io_uring.
const fn ring(name: &'static str, clients: usize, unix: bool) -> Row {
    Row { contest: Contest::Ring, ..floor(name, clients, unix) }
}

const fn flood(pattern: Pattern) -> Row {
    Row { extra: true, ..row(pattern.name(), Job::Flood(pattern)) }
}

const NOTHING_SET: Sessions = Sessions { groups: 0, at_work: 0 };

const fn secured(row: Row, tls: Tls) -> Row {
    Row { tls, ..row }
}

/// Clients at work during a connection storm.
pub(super) const AT_WORK: usize = 200;

pub(super) static ROWS: [Row; 65] = [
    query("cpu-10", 10, Protocol::Simple),
    query("cpu-200", 200, Protocol::Simple),
    query("cpu-1000", 1_000, Protocol::Simple),
    unix("cpu-10-unix", 10),
    unix("cpu-200-unix", 200),
    unix("cpu-1000-unix", 1_000),
    Row { extra: true, ..query("extended-200", 200, Protocol::Extended) },
    query("prepared-200", 200, Protocol::Prepared),
    auto("auto-10", 10, Protocol::Simple, NOTHING_SET),
    auto("auto-200", 200, Protocol::Simple, NOTHING_SET),
    auto("auto-prepared-200", 200, Protocol::Prepared, NOTHING_SET),
    values("auto-values-one", 1, 10),
    values("auto-values-four", 4, 10),
    values("auto-values-eight", 8, 10),
    values("auto-values-own", 200, 10),
    values("auto-values-queue", 7, 0),
    reported("reported-values-one", 1, 10),
    reported("reported-values-own", 200, 10),
    reported("reported-values-queue", 7, 0),
    workers("workers-2", Protocol::Simple, false),
    workers("workers-2-prepared", Protocol::Prepared, false),
    Row { extra: true, ..workers("workers-2-apart", Protocol::Simple, true) },
    schedule("schedule-round-robin", "round-robin"),
    schedule("schedule-random", "random"),
    schedule("schedule-load-balancing", "load-balancing"),
    floor("floor-10", 10, false),
    floor("floor-200", 200, false),
    floor("floor-1000", 1_000, false),
    floor("floor-10-unix", 10, true),
    floor("floor-200-unix", 200, true),
    floor("floor-1000-unix", 1_000, true),
    bridge("bridge-10", 10),
    bridge("bridge-200", 200),
    bridge("bridge-1000", 1_000),
    ring("floor-ring-10", 10, false),
    ring("floor-ring-200", 200, false),
    ring("floor-ring-1000", 1_000, false),
    ring("floor-ring-10-unix", 10, true),
    ring("floor-ring-200-unix", 200, true),
    ring("floor-ring-1000-unix", 1_000, true),
    row("login-trust", Job::Login { scram: false }),
    row("login-scram", Job::Login { scram: true }),
    row("bulk-8k", Job::Bulk { row_bytes: 8_192 }),
    row("bulk-100", Job::Bulk { row_bytes: 100 }),
    row("idle-5000", Job::Idle { clients: 5_000 }),
    Row { extra: true, ..row("idle-19900", Job::Idle { clients: 19_900 }) },
    row("storm-5000", Job::Storm { coming: 5_000 }),
    Row { extra: true, ..row("storm-19900", Job::Storm { coming: 19_700 }) },
    flood(Pattern::Sync),
    flood(Pattern::ParseClose),
    flood(Pattern::ParseThenClose),
    flood(Pattern::CopyFail),
    flood(Pattern::Execute),
    flood(Pattern::MissingBind),
    flood(Pattern::MissingDescribe),
    flood(Pattern::EmptyQuery),
    flood(Pattern::FailingQuery),
    flood(Pattern::FunctionCall),
    secured(query("tls-cpu-200", 200, Protocol::Simple), Tls::Fresh(Key::P256)),
    secured(row("tls-login", Job::Login { scram: false }), Tls::Fresh(Key::P256)),
    secured(row("tls-login-rsa", Job::Login { scram: false }), Tls::Fresh(Key::Rsa)),
    secured(row("tls-login-resumed", Job::Login { scram: false }), Tls::Resumed),
    secured(row("tls-bulk-8k", Job::Bulk { row_bytes: 8_192 }), Tls::Fresh(Key::P256)),
    secured(row("tls-idle-5000", Job::Idle { clients: 5_000 }), Tls::Fresh(Key::P256)),
    Row {
        extra: true,
        ..secured(row("tls-idle-19900", Job::Idle { clients: 19_900 }), Tls::Fresh(Key::P256))
    },
];

impl Row {
    /// Returns whether the pooler supports what the row needs.
    pub(super) fn can_run(&self, pooler: &Binary) -> bool {
        !self.is_prepared() || pooler.prepares_statements()
    }

    pub(super) fn is_prepared(&self) -> bool {
        matches!(self.job, Job::Query { protocol: Protocol::Prepared, .. })
    }

    /// Returns the pooler of a side.
    pub(super) fn pooler<'a>(&self, side: usize, programs: &'a Programs) -> &'a Binary {
        match self.contest {
            Contest::Poolers | Contest::Ring if side == 0 => &programs.pgbouncer,
            Contest::Ring => &programs.ring,
            Contest::Floor if side == 0 => &programs.relay,
            _ => &programs.weir,
        }
    }

    /// Returns whether the pooler shares a core with its peers or between its workers, and so has
    /// to wait for it.
    pub(super) fn waits_by_design(&self) -> bool {
        matches!(self.contest, Contest::Workers { .. })
    }

    /// Returns the JSON keys of the two sides.
    pub(super) fn sides(&self) -> [&'static str; 2] {
        match self.contest {
            Contest::Poolers => ["pgbouncer", "weir"],
            Contest::Modes(_) => ["transaction", "auto"],
            Contest::Workers { .. } => ["one_worker", "two_workers"],
            Contest::Floor => ["relay", "weir"],
            Contest::Ring => ["pgbouncer", "ring"],
        }
    }

    /// Returns the suffixes of the row's name, one for each figure of a sample.
    pub(super) fn parts(&self) -> &'static [&'static str] {
        match (self.job, self.contest) {
            (Job::Idle { .. }, _) => &["", " asked", " left"],
            (Job::Flood(_), _) => &["", " long", " growth", " wait"],
            (Job::Storm { .. }, _) => &["", " p99 before", " p99", " p99 growth", " resident"],
            (_, Contest::Workers { .. }) => &["", " capacity", " sleeps"],
            _ => &[""],
        }
    }

    /// Returns the unit of the row's figures.
    pub(super) fn unit(&self) -> &'static str {
        match self.job {
            Job::Query { .. } => match self.contest {
                Contest::Poolers => "CPU µs per transaction",
                Contest::Floor if self.tls == Tls::None => {
                    "CPU µs per transaction, A a mere relay, B Weir"
                }
                Contest::Floor => "CPU µs per transaction, A a mere bridge for TLS, B Weir",
                Contest::Ring => "CPU µs per transaction, A PgBouncer, B a mere relay on io_uring",
                Contest::Modes(_) => {
                    "CPU µs per transaction, A in transaction mode, B in auto mode"
                }
                Contest::Workers { .. } => {
                    "CPU µs per transaction, A with one worker, B with two\n  \
                     capacity: transactions in a second of the busiest worker's CPU time\n  \
                     sleeps: voluntary context switches per transaction"
                }
            },
            Job::Login { .. } => "CPU µs per login",
            Job::Bulk { .. } => "CPU s per GB",
            Job::Idle { .. } => {
                "resident bytes per idle client\n  \
                 asked: after each has asked once; left: what is kept once they have left"
            }
            Job::Flood(_) => {
                "CPU µs per message in floods of 1,000\n  \
                 long: in a flood of 1,000,000; growth: the one by the other\n  \
                 wait: ms, the longest of another client's for an answer"
            }
            Job::Storm { .. } => {
                "ms until all who come are logged in\n  \
                 p99: of those at work, µs, before and meanwhile, from when each was due; growth: \
                 the one by the other, the goal is 2 at most\n  \
                 resident: MB of the pooler with all of them"
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit().split([',', '\n']).next().unwrap_or_default();
        write!(f, "{:<23} {unit}", self.name)?;
        match self.job {
            Job::Query { clients, protocol, unix } => {
                let server = if unix { "a unix socket" } else { "TCP" };
                write!(f, ", {clients} clients, {protocol:?} protocol, server over {server}")?;
            }
            Job::Login { scram } => {
                write!(f, ", 10 clients, {}", if scram { "scram-sha-256" } else { "trust" })?;
            }
            Job::Bulk { row_bytes } => write!(f, ", one client, rows of {row_bytes} bytes")?,
            Job::Idle { clients } => write!(f, ", {clients} clients")?,
            Job::Flood(pattern) => write!(f, ", {pattern:?}")?,
            Job::Storm { coming } => {
                write!(f, ", {coming} come at once while {AT_WORK} work")?;
            }
        }
        match self.contest {
            Contest::Poolers => {}
            Contest::Floor if self.tls == Tls::None => write!(f, ", Weir beside a mere relay")?,
            Contest::Floor => write!(f, ", Weir beside a mere bridge for TLS")?,
            Contest::Ring => write!(f, ", a mere relay on io_uring beside PgBouncer")?,
            Contest::Modes(Sessions { groups: 0, .. }) => {
                write!(f, ", auto beside transaction mode")?;
            }
            Contest::Workers { apart, schedule } => {
                let place = if apart { "each on a core of its own" } else { "both on one core" };
                write!(f, ", two workers by {schedule} beside one, {place}")?;
            }
            Contest::Modes(Sessions { groups, at_work }) => {
                let at_work = if at_work == 0 { "all".to_owned() } else { at_work.to_string() };
                write!(f, ", three settings each, {groups} different, {at_work} at work")?;
            }
        }
        if self.reports {
            write!(f, ", servers with the library")?;
        }
        match self.tls {
            Tls::None => {}
            Tls::Fresh(key) => write!(f, ", TLS with a {key:?} certificate")?,
            Tls::Resumed => write!(f, ", TLS sessions resumed")?,
        }
        if self.extra { write!(f, " (extra)") } else { Ok(()) }
    }
}

impl Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Returns the rows with the given names, or all but the extra ones.
pub(super) fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(ROWS.iter().filter(|row| !row.extra).collect());
    }
    named::select(&ROWS, names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn rows_are_chosen_by_name() {
        let names: Vec<_> = select(&[]).unwrap().iter().map(|row| row.name).collect();
        assert!(names.contains(&"cpu-200-unix") && !names.contains(&"cpu-10-unix"));
        assert_eq!(select(&["bulk-8k".to_owned()]).unwrap()[0].name, "bulk-8k");
        assert!(select(&["cpu-7".to_owned()]).is_err());
    }
}
