//! The pooler in front of the nodes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::Pooler;

use super::nodes::Nodes;
use super::pgpool::Pgpool;
use super::session::Session;
use crate::process;
use crate::run::Setting;

/// The time until reads of new clients run on standbys.
const BALANCED_MAX: Duration = Duration::from_secs(60);

/// A side of the comparison, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Pgpool,
    /// Weir with reads on standbys. A session stays with a standby.
    Weir,
    /// Weir with reads on standbys. A standby is chosen for each statement.
    Statement,
    /// Weir with all reads on the primary.
    Unrouted,
}

pub(super) const SIDES: [Side; 4] = [Side::Pgpool, Side::Weir, Side::Statement, Side::Unrouted];

pub(super) enum Front {
    Pgpool(Pgpool),
    Weir(Box<Pooler>),
}

/// The reaction of a front to the loss of a node.
pub(super) struct OnLoss {
    /// More keys of Weir's cluster.
    pub(super) weir: String,
    /// More lines of Pgpool-II's configuration.
    pub(super) pgpool: String,
}

impl OnLoss {
    pub(super) const NOTHING: Self = Self { weir: String::new(), pgpool: String::new() };
}

impl Front {
    /// Starts the side's pooler. Returns when it serves, and has sent a read to a standby if it
    /// sends any there.
    pub(super) fn start(side: Side, nodes: &Nodes, loss: &OnLoss) -> Result<Self> {
        let front = match side {
            Side::Pgpool => Self::Pgpool(Pgpool::start(nodes, &loss.pgpool)?),
            Side::Weir => Self::Weir(weir(nodes, "reads=standby", &loss.weir)),
            Side::Statement => {
                Self::Weir(weir(nodes, "reads=standby balance=statement", &loss.weir))
            }
            Side::Unrouted => Self::Weir(weir(nodes, "", &loss.weir)),
        };
        let primary = u32::from(nodes.primary().port());
        let deadline = Instant::now() + BALANCED_MAX;
        loop {
            let node = Session::open(front.port()).and_then(|mut one| one.number("SELECT here()"));
            match node {
                Ok(node) if side == Side::Unrouted || node != primary => return Ok(front),
                _ => ensure!(Instant::now() < deadline, "no read on a standby: {node:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Pgpool(pgpool) => pgpool.port(),
            Self::Weir(pooler) => pooler.port(),
        }
    }

    /// Returns the CPU time that all its processes have used, in seconds.
    pub(super) fn cpu_s(&self) -> Result<f64> {
        process::family_cpu_s(match self {
            Self::Pgpool(pgpool) => pgpool.pid(),
            Self::Weir(pooler) => pooler.pid(),
        })
    }
}

/// Weir with one worker, as in the other rows.
fn weir(nodes: &Nodes, of_database: &str, of_cluster: &str) -> Box<Pooler> {
    let list = ["a", "b", "c"].into_iter().zip(&nodes.0);
    let list = list.map(|(name, node)| format!("{name}=127.0.0.1:{}", node.port()));
    let list = list.collect::<Vec<_>>().join(", ");
    let database = Setting::DATABASE;
    let setup = Pooler::before(nodes.primary())
        .workers(1)
        .set("pool_mode", "auto")
        .set("log_connections", 0)
        .set("log_disconnections", 0)
        .secret(Setting::USER, "not asked for")
        .cluster("main", &format!("nodes='{list}' password=weir-secret {of_cluster}"))
        .database_at(database, &format!("cluster=main dbname={database} {of_database}"));
    Box::new(setup.start())
}
