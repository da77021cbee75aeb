//! Decides which node of a PostgreSQL cluster is its primary, from facts about the nodes.
//!
//! A *cluster* is a set of nodes with one history: a primary and its standbys, which share one
//! system identifier. The caller asks the nodes and passes the answers ([`Fact`]) with the time.
//! This crate returns a [`Verdict`] for each node, the changes ([`Change`]), and when to ask next.
//!
//! It does no I/O, reads no clock and draws no random number. A cluster manager or a person
//! promotes a standby (`failover = follow`), or Weir does so by the orders of a [`Promotion`]. In
//! both cases, this crate finds out from the facts whether it has happened.
//!
//! * `fact.rs`: the answers of a node
//! * `verdict.rs`: the results, with their reasons
//! * `node.rs`: what is known of one node
//! * `claim.rs`: tells the primary at another address from a copy of it
//! * `cluster.rs`: the rules, for all nodes together
//! * `commits.rs`: whether acknowledged commits can be lost with the primary
//! * `promotion.rs`: the steps of a change of the primary that Weir carries out
//! * `failure.rs`: why one is not begun, or has failed
//! * `past.rs`: the steps that were done about a loss, for the next attempt
//! * `fleet.rs`: several Weirs in front of the cluster, and the agreement on one primary
//! * `history.rs`: the changes of the primary, for SHOW FAILOVERS
//!
//! Invariant: the primaries that it chooses have ever higher timelines. On one timeline it chooses
//! one server only, since PostgreSQL starts a new timeline with each promotion. The server may get
//! another address.

#![forbid(unsafe_code)]

mod claim;
pub mod cluster;
pub mod commits;
pub mod fact;
pub mod failure;
pub mod fleet;
pub mod history;
mod node;
pub mod past;
pub mod promotion;
pub mod verdict;

pub use self::cluster::{Change, Cluster, NodeId, Settings};
pub use self::commits::{Doubt, Guarantee, Replication, StandbyNames};
pub use self::fact::{Fact, Lsn, Obstacle, Receiver, Role, Sample};
pub use self::failure::{Failure, Refusal, Risk};
pub use self::history::{Failover, History};
pub use self::past::Past;
pub use self::promotion::{By, Limits, Order, Outcome, Overtime, Promotion};
pub use self::verdict::{Reason, Verdict};

/// Microseconds of one monotonic clock of the caller.
pub type Micros = u64;
