//! The operator's view of a running Weir: the console, which is the virtual database `pgbouncer`,
//! with PgBouncer's commands, columns and texts.
//!
//! Each SHOW is one table definition under `show`: names, types and meaning of its columns, and the
//! conversion of a [`Snapshot`] to rows. The console's replies and `docs/admin.md` come from there.
//!
//! The measures of a page for Prometheus are tables, too, under `measures`. The page and
//! `docs/metrics.md` both come from there.
//!
//! `pcp` answers Pgpool-II's tools, and `pgpool` describes the nodes and clients in its terms.
//!
//! This crate knows nothing of workers and sockets of the data plane. It gets a logged-in stream,
//! copies of the state ([`Snapshot`]), and an interface to the process ([`Control`]).

#![forbid(unsafe_code)]

mod command;
mod console;
mod control;
mod docs;
mod incident;
mod measures;
mod message;
mod pcp;
mod pgpool;
mod recording;
mod reply;
mod show;
mod snapshot;
mod svg;

pub use crate::console::{Console, Login};
pub use crate::control::{Boxed, Control, NotReloaded, Order, Shutdown};
pub use crate::docs::{help, markdown, words};
pub use crate::incident::{Answer, Incident};
pub use crate::measures::{
    Exposition, Measures, PasswordRow, PoolMeasures, docs::metrics_markdown,
};
pub use crate::pcp::{Pcp, PcpNext};
pub use crate::recording::Recording;
pub use crate::snapshot::{
    Address, AtNode, Buffers, Cancel, ChecksRow, ClientRow, ClientState, ClusterRow, Connection,
    DnsHost, DnsZone, Doing, FailoverRow, HealthRow, Judgement, Listener, MemberRow, Memory,
    NodeRow, Pin, PoolRow, RouteRow, ServerRow, ServerState, Snapshot, WorkerRow,
};
pub use crate::svg::{Axis, Panel, Points, chart, cumulative};

/// Names of the virtual database of the console.
pub const DATABASES: [&str; 2] = [NAME, "weir"];

/// The name of the console's database, user and pool in its own tables.
const NAME: &str = "pgbouncer";
